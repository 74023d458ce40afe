//! The part of a limit that only some requests may use.

use std::iter::Sum;

/// A part of a limit that is reserved for a class of requests, in 65,536ths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReservedShare(u32);

/// The exponent of the denominator.
const BITS: u32 = 16;

impl ReservedShare {
    /// A share from 0 to 1, rounded up, so that 0.2 of 10 is not less than 2.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 65,536")]
    pub fn new(share: f64) -> Self {
        Self((share.clamp(0.0, 1.0) * f64::from(1_u32 << BITS)).ceil() as u32)
    }

    /// The whole units of a limit that this share is, rounded down.
    #[must_use]
    #[inline]
    pub fn of(self, limit: u64) -> u64 {
        u64::from(self.0).saturating_mul(limit) >> BITS
    }
}

impl Sum for ReservedShare {
    fn sum<I: Iterator<Item = Self>>(shares: I) -> Self {
        Self(shares.map(|share| share.0).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_has_whole_units() {
        let units = |share, limit| ReservedShare::new(share).of(limit);
        for (share, limit, expected) in [
            (0.2, 10, 2),
            (0.2, 100, 20),
            (0.1, 10_000, 1_000),
            (0.3, 9, 2),
            (0.2, 4, 0),
            (0.9, 1, 0),
            (0.0, 9, 0),
        ] {
            assert_eq!(units(share, limit), expected, "{share} of {limit}");
        }
        let all: ReservedShare = [0.2, 0.7].into_iter().map(ReservedShare::new).sum();
        assert_eq!(all.of(10), 9);
    }
}
