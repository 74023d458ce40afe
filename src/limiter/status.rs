//! The decisions of all limits on one request.

use smallvec::SmallVec;

use crate::limit::{Charge, DecidedCharge, Decision, Factor, Key, Policy, PolicyId};

/// The decision of one limit on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitStatus {
    /// The limit.
    pub policy: PolicyId,
    /// The key that it has decided on.
    pub key: Key,
    /// How many times its numbers are raised for this key.
    pub raised: Option<Factor>,
    /// Its decision.
    pub decision: Decision,
}

impl LimitStatus {
    /// The decision of a policy on this charge. It may be one with raised numbers.
    pub(super) fn new(policy: &Policy, charge: &Charge, decision: Decision) -> Self {
        let raised = policy.derived_from.and_then(|from| from.factor);
        Self { policy: policy.configured(charge.policy), key: charge.key, raised, decision }
    }

    /// The quota that clients are sent: units, and the seconds in which they come back. `policies` are those of the
    /// configuration.
    #[must_use]
    pub fn advertised(&self, policies: &[Policy]) -> (u64, u64) {
        policies[self.policy].advertised(self.raised)
    }
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
pub(super) fn enforced(policies: &[Policy], decided: &[DecidedCharge]) -> LimitStatuses {
    let enforced = decided.iter().filter(|one| !policies[one.charge.policy].shadow);
    enforced.map(|one| LimitStatus::new(&policies[one.charge.policy], &one.charge, one.decision)).collect()
}
