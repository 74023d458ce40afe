//! Soft limits: headers tell servers and clients that a limit is nearly used up, or would have denied a request.

use std::fmt::{self, Display, Formatter};

use super::decision::Decision;

/// The settings of a soft limit, which adds headers to requests and responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Soft {
    /// The used share of the limit from which on requests and responses have `X-RateLimit-Warning`.
    pub warn_at: Option<Share>,
    /// Mark mode: as shadow mode, and requests that would have been denied are forwarded with `X-RateLimit-Denied`.
    pub marks: bool,
}

/// A share of a limit, in millionths: integers compare exactly where decimal numbers do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u32);

impl Share {
    const ONE: u32 = 1_000_000;

    /// The share that is closest to a decimal number. None if there is none between 0 and 1.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the range is checked before"
    )]
    pub fn new(share: f64) -> Option<Self> {
        let millionths = (share * f64::from(Self::ONE)).round();
        (1.0..f64::from(Self::ONE)).contains(&millionths).then_some(Self(millionths as u32))
    }

    /// Whether at least this share of the limit is used.
    #[must_use]
    pub fn is_used(self, decision: &Decision) -> bool {
        let used = decision.limit.saturating_sub(decision.remaining);
        u128::from(used) * u128::from(Self::ONE) >= u128::from(decision.limit) * u128::from(self.0)
    }
}

impl Display for Share {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", f64::from(self.0) / 10_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Micros;

    #[test]
    fn a_share_is_between_0_and_1() {
        for share in [0.0, 1.0, -0.5, 1.5, 1e-9, f64::NAN, f64::INFINITY] {
            assert_eq!(Share::new(share), None, "{share}");
        }
        assert!(Share::new(0.000_001).is_some() && Share::new(0.999_999).is_some());
    }

    #[test]
    fn a_share_is_used_from_its_units_on() {
        let is_used = |share, limit, remaining| {
            Share::new(share).unwrap().is_used(&Decision::allowed(limit, remaining, Micros::SECOND))
        };
        // With decimal numbers 0.55 * 100 would be more than 55.
        assert!(is_used(0.55, 100, 45) && !is_used(0.55, 100, 46));
        assert!(is_used(0.8, 10, 2) && !is_used(0.8, 10, 3));
        assert!(is_used(0.8, 3, 0) && !is_used(0.8, 3, 1));
        assert!(is_used(0.5, 1, 0) && !is_used(0.5, 1, 1));
        assert_eq!(Share::new(0.55).unwrap().to_string(), "55 %");
        assert_eq!(Share::new(0.999).unwrap().to_string(), "99.9 %");
        let most = 1 << 53;
        assert!(is_used(0.5, most, most / 2) && !is_used(0.5, most, most / 2 + 1));
    }
}
