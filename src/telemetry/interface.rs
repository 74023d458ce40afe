//! What is counted of requests by the interface through which they came.

/// The interface through which a request came that was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// The reverse proxy: what is allowed is forwarded, or gets the response of its route.
    Proxy,
    /// Forward authentication: another proxy asks whether to forward a request.
    ForwardAuth,
    /// Envoy's rate limit service.
    EnvoyRateLimit,
    /// The library, in another program.
    Library,
}

/// How a request was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was allowed, whatever response it got then.
    Allowed,
    /// A limit, the route or a missing credential has denied it.
    Denied,
    /// There was no decision: the request was malformed, or the limits could not be checked.
    Error,
}

/// The number of counters: of each verdict by each interface.
pub(super) const INTERFACE_CELLS: usize = Interface::ALL.len() * Verdict::ALL.len();

impl Interface {
    /// Every variant with its label, in the order of the type.
    pub(super) const ALL: [(Self, &'static str); 4] = [
        (Self::Proxy, "proxy"),
        (Self::ForwardAuth, "forward_auth"),
        (Self::EnvoyRateLimit, "envoy_ratelimit"),
        (Self::Library, "library"),
    ];

    /// The interface in metrics and logs, such as `proxy`.
    #[must_use]
    pub fn label(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The index of the counter of this verdict.
    pub(super) fn cell(self, verdict: Verdict) -> usize {
        self as usize * Verdict::ALL.len() + verdict as usize
    }
}

impl Verdict {
    /// Every variant with its label, in the order of the type.
    pub(super) const ALL: [(Self, &'static str); 3] =
        [(Self::Allowed, "allowed"), (Self::Denied, "denied"), (Self::Error, "error")];

    /// The verdict in metrics and logs, such as `allowed`.
    #[must_use]
    pub fn label(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_in_the_order_of_the_types() {
        assert!(Interface::ALL.iter().enumerate().all(|(index, (it, _))| *it as usize == index));
        assert!(Verdict::ALL.iter().enumerate().all(|(index, (it, _))| *it as usize == index));
    }
}
