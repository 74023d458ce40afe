//! The decisions of all limits on one request.

use smallvec::SmallVec;

use crate::limit::{Charge, Decision, Policy, PolicyId};

/// The decision of one limit on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitStatus {
    /// The limit.
    pub policy: PolicyId,
    /// Its decision.
    pub decision: Decision,
}

/// Where the decisions of the limits on a request come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusSource {
    /// The store.
    Store,
    /// The shares of this process, since the store is unavailable.
    Local,
}

/// The decisions of all limits on a request.
pub type LimitStatuses = SmallVec<[LimitStatus; 2]>;

/// The decisions on charges, without those of limits in shadow mode, which a client must not see.
#[inline]
pub(super) fn enforced(policies: &[Policy], charges: &[Charge], decisions: &[Decision]) -> LimitStatuses {
    charges
        .iter()
        .zip(decisions)
        .filter(|(charge, _)| !policies[charge.policy].shadow)
        .map(|(charge, decision)| LimitStatus { policy: charge.policy, decision: *decision })
        .collect()
}
