//! What is counted of decisions and of the store.

use crate::limit::{Decision, DenyReason, Policy};

/// The outcome of one limit for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Allowed. If another limit denied the request, nothing was charged.
    Allowed,
    /// Allowed, and less than a fifth of the limit remains.
    NearLimit,
    /// Denied: the quota is used up, or the store is unavailable.
    Denied,
    /// Allowed in shadow mode: it would have been denied, for whatever reason.
    ShadowDenied,
    /// Denied: the key is banned.
    Banned,
    /// Denied: the key is blocked, by the configuration or by an operator.
    Blocked,
    /// Denied: a part of the key is missing.
    MissingKey,
    /// Allowed without a charge: the key is in the limit's `allow`.
    Exempt,
}

/// What has made a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionSource {
    /// Redis.
    Store,
    /// The store in this process.
    Memory,
    /// An earlier denial by Redis, which is still valid.
    Cache,
    /// This process, since Redis was unavailable: `on_store_failure`.
    Fallback,
    /// This process, by units that Redis has granted or a slot that it has kept: `ahead`.
    Ahead,
    /// The configuration, whatever the counts are: `allow`, `block`, `on_missing`, or a cost above the limit.
    Config,
}

/// How a request to the store ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreRequest {
    /// With a reply.
    Replied,
    /// There was no connection.
    NotConnected,
    /// The connection closed before the reply.
    Lost,
    /// It timed out.
    Deadline,
    /// With an error reply.
    ErrorReply,
    /// With a malformed reply.
    Malformed,
    /// It was not sent: too many requests were queued.
    Unsent,
}

/// The number of counters of a limit: of each outcome by each source.
pub(super) const DECISION_CELLS: usize = Outcome::ALL.len() * DecisionSource::ALL.len();

impl Outcome {
    /// Every variant with its label, in the order of the type.
    pub(super) const ALL: [(Self, &'static str); 8] = [
        (Self::Allowed, "allowed"),
        (Self::NearLimit, "near_limit"),
        (Self::Denied, "denied"),
        (Self::ShadowDenied, "shadow_denied"),
        (Self::Banned, "banned"),
        (Self::Blocked, "blocked"),
        (Self::MissingKey, "missing"),
        (Self::Exempt, "exempt"),
    ];

    /// The outcome of a decision.
    #[must_use]
    pub fn of(policy: &Policy, decision: &Decision) -> Self {
        match (decision.allowed, policy.shadow, decision.reason) {
            (true, ..) if decision.remaining.saturating_mul(5) < decision.limit => Self::NearLimit,
            (true, ..) => Self::Allowed,
            (false, true, _) => Self::ShadowDenied,
            (false, false, DenyReason::Quota) => Self::Denied,
            (false, false, DenyReason::Ban) => Self::Banned,
            (false, false, DenyReason::Block) => Self::Blocked,
        }
    }

    /// The index of the counter of this outcome by this source.
    pub(super) fn cell(self, source: DecisionSource) -> usize {
        source as usize * Self::ALL.len() + self as usize
    }
}

impl DecisionSource {
    /// The source in metrics, such as `store`.
    #[must_use]
    pub fn label(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Every variant with its label, in the order of the type.
    pub(super) const ALL: [(Self, &'static str); 6] = [
        (Self::Store, "store"),
        (Self::Memory, "memory"),
        (Self::Cache, "cache"),
        (Self::Fallback, "fallback"),
        (Self::Ahead, "ahead"),
        (Self::Config, "config"),
    ];
}

impl StoreRequest {
    /// Every variant with its label, in the order of the type.
    pub(super) const ALL: [(Self, &'static str); 7] = [
        (Self::Replied, "ok"),
        (Self::NotConnected, "not_connected"),
        (Self::Lost, "connection_lost"),
        (Self::Deadline, "timeout"),
        (Self::ErrorReply, "error"),
        (Self::Malformed, "malformed"),
        (Self::Unsent, "not_sent"),
    ];
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Quota, Rate};
    use crate::time::Micros;

    #[test]
    fn labels_are_in_the_order_of_the_types() {
        assert!(Outcome::ALL.iter().enumerate().all(|(index, (outcome, _))| *outcome as usize == index));
        assert!(DecisionSource::ALL.iter().enumerate().all(|(index, (it, _))| *it as usize == index));
        assert!(StoreRequest::ALL.iter().enumerate().all(|(index, (it, _))| *it as usize == index));
    }

    #[test]
    fn the_last_fifth_of_a_limit_is_near_it() {
        let rate = Rate::new(10, Micros::SECOND).unwrap();
        let policy = Policy::new("l", Quota::token_bucket(rate, 10).unwrap());
        let of =
            |remaining, limit| Outcome::of(&policy, &Decision::allowed(limit, remaining, Micros::SECOND));
        assert_eq!(
            [9, 2, 1, 0].map(|remaining| of(remaining, 10)),
            [Outcome::Allowed, Outcome::Allowed, Outcome::NearLimit, Outcome::NearLimit]
        );
        assert_eq!(
            (of(1, 3), of(0, 3), of(0, 1)),
            (Outcome::Allowed, Outcome::NearLimit, Outcome::NearLimit)
        );
    }
}
