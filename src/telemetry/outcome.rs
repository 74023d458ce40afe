//! What is counted: decisions, by limit and by interface, calls to the store, units that are charged after an outage, and
//! granted units.

use crate::limit::{Decision, DenyReason, Policy};

/// The outcome of one limit for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOutcome {
    /// Allowed. If another limit denied the request, nothing was charged.
    Allowed,
    /// Allowed, and the share `warn_at` of the limit is used; for a limit without it, less than a fifth remains.
    NearLimit,
    /// Denied: the quota is used up, or the store is unavailable.
    Denied,
    /// Allowed in shadow mode: it would have been denied, for whatever reason.
    ShadowDenied,
    /// Allowed in mark mode: it would have been denied, for whatever reason, and the server was told so.
    Marked,
    /// Denied: the key is banned.
    Banned,
    /// Denied: the key is blocked, by the configuration or by an operator.
    Blocked,
    /// Denied: a part of the key is missing.
    MissingKey,
    /// Allowed without a charge: the key is in the limit's `allow`.
    Exempt,
}

/// The origin of a decision.
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
pub(super) const DECISION_CELLS: usize = LimitOutcome::ALL.len() * DecisionSource::ALL.len();

impl LimitOutcome {
    /// Every variant with its label, in the order of the type.
    pub(super) const ALL: [(Self, &'static str); 9] = [
        (Self::Allowed, "allowed"),
        (Self::NearLimit, "near_limit"),
        (Self::Denied, "denied"),
        (Self::ShadowDenied, "shadow_denied"),
        (Self::Marked, "marked"),
        (Self::Banned, "banned"),
        (Self::Blocked, "blocked"),
        (Self::MissingKey, "missing"),
        (Self::Exempt, "exempt"),
    ];

    /// The outcome of a decision.
    #[must_use]
    pub fn of(policy: &Policy, decision: &Decision) -> Self {
        match (decision.allowed, policy.shadow, decision.reason) {
            (true, ..) if is_near(policy, decision) => Self::NearLimit,
            (true, ..) => Self::Allowed,
            (false, true, _) if policy.soft.marks => Self::Marked,
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

fn is_near(policy: &Policy, decision: &Decision) -> bool {
    match policy.soft.warn_at {
        Some(share) => share.is_used(decision),
        None => decision.remaining.saturating_mul(5) < decision.limit,
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

/// The outcome of units that were admitted while the store was unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChargeBack {
    /// They will be charged when the store is available again.
    Owed,
    /// They were charged.
    Paid,
    /// The reply to the charge was lost: they may have been charged.
    Lost,
    /// They will not be charged: the ledger had no room for their key.
    Dropped,
}

impl ChargeBack {
    /// The number of variants.
    pub const COUNT: usize = Self::ALL.len();

    /// Every variant with its label, in the order of the type.
    pub(super) const ALL: [(Self, &'static str); 4] =
        [(Self::Owed, "owed"), (Self::Paid, "paid"), (Self::Lost, "lost"), (Self::Dropped, "dropped")];
}

/// What has become of units that requests have reserved, and whose responses have told their cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettledOutcome {
    /// They were taken on arrival, or while the response was sent.
    Reserved,
    /// They were charged in the end.
    Settled,
    /// They were refunded, since the request has cost less than was reserved.
    Refunded,
    /// They were charged in addition, since the request has cost more than was reserved.
    Extra,
    /// They were not charged, since a request can't cost more than `cost_max`.
    Cut,
}

impl SettledOutcome {
    /// The number of variants.
    pub(super) const COUNT: usize = Self::ALL.len();

    /// Every variant with its label, in the order of the type.
    pub(super) const ALL: [(Self, &'static str); 5] = [
        (Self::Reserved, "reserved"),
        (Self::Settled, "settled"),
        (Self::Refunded, "refunded"),
        (Self::Extra, "extra"),
        (Self::Cut, "cut"),
    ];
}

/// An event in the life of granted units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantEvent {
    /// The store has granted them to this process.
    Granted,
    /// Requests have spent them.
    Spent,
    /// This process has returned them unspent.
    Returned,
    /// Their grant has ended before they were spent or returned, so they count as spent.
    Lapsed,
}

/// The units of one limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantValues {
    /// Since the start, by [`GrantEvent`].
    pub events: [u64; GrantEvent::COUNT],
    /// Units that this process holds.
    pub held: u64,
}

impl GrantValues {
    /// Adds the values of another server.
    pub fn add(&mut self, other: &Self) {
        self.events.iter_mut().zip(other.events).for_each(|(sum, units)| *sum += units);
        self.held += other.held;
    }
}

impl GrantEvent {
    /// The number of variants.
    pub const COUNT: usize = 4;
    /// Every variant with its label, in the order of the type.
    pub(super) const ALL: [(Self, &'static str); Self::COUNT] = [
        (Self::Granted, "granted"),
        (Self::Spent, "spent"),
        (Self::Returned, "returned"),
        (Self::Lapsed, "lapsed"),
    ];
}

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
    use crate::limit::{Quota, Rate};
    use crate::time::Micros;

    #[test]
    fn labels_are_in_the_order_of_the_types() {
        assert!(LimitOutcome::ALL.iter().enumerate().all(|(index, (outcome, _))| *outcome as usize == index));
        assert!(DecisionSource::ALL.iter().enumerate().all(|(index, (it, _))| *it as usize == index));
        assert!(StoreRequest::ALL.iter().enumerate().all(|(index, (it, _))| *it as usize == index));
        assert!(ChargeBack::ALL.iter().enumerate().all(|(index, (it, _))| *it as usize == index));
        assert!(GrantEvent::ALL.iter().enumerate().all(|(index, (it, _))| *it as usize == index));
        assert!(Interface::ALL.iter().enumerate().all(|(index, (it, _))| *it as usize == index));
        assert!(Verdict::ALL.iter().enumerate().all(|(index, (it, _))| *it as usize == index));
    }

    #[test]
    fn the_last_fifth_of_a_limit_is_near_it() {
        let rate = Rate::new(10, Micros::SECOND).unwrap();
        let policy = Policy::new("l", Quota::token_bucket(rate, 10).unwrap());
        let of = |remaining, limit| {
            LimitOutcome::of(&policy, &Decision::allowed(limit, remaining, Micros::SECOND))
        };
        assert_eq!(
            [9, 2, 1, 0].map(|remaining| of(remaining, 10)),
            [LimitOutcome::Allowed, LimitOutcome::Allowed, LimitOutcome::NearLimit, LimitOutcome::NearLimit]
        );
        assert_eq!(
            (of(1, 3), of(0, 3), of(0, 1)),
            (LimitOutcome::Allowed, LimitOutcome::NearLimit, LimitOutcome::NearLimit)
        );
    }
}
