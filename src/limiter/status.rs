//! The decisions of all limits on one request.

use smallvec::SmallVec;

use crate::limit::{Charge, DecidedCharge, Decision, Factor, Key, Policy, PolicyId};
use crate::telemetry::LimitNote;

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

    /// Whether a request carries a warning of the limit.
    fn warns(&self, policies: &[Policy]) -> bool {
        policies[self.policy].warns(&self.decision)
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
    decided
        .iter()
        .filter(|one| !policies[one.charge.policy].shadow)
        .map(|one| status(policies, one))
        .collect()
}

/// The decisions of limits in shadow mode.
#[inline]
pub(super) fn in_shadow(policies: &[Policy], decided: &[DecidedCharge]) -> Vec<LimitStatus> {
    decided.iter().filter(|one| policies[one.charge.policy].shadow).map(|one| status(policies, one)).collect()
}

fn status(policies: &[Policy], decided: &DecidedCharge) -> LimitStatus {
    LimitStatus::new(&policies[decided.charge.policy], &decided.charge, decided.decision)
}

/// What limits note about a request: those in shadow mode that would have denied it, and warnings if it passes. `policies` are
/// those of the configuration.
pub fn limit_notes<'s>(
    policies: &'s [Policy],
    statuses: &'s [LimitStatus],
    shadow: &'s [LimitStatus],
    passes: bool,
) -> impl Iterator<Item = (LimitNote, PolicyId)> + use<'s> {
    let denies = shadow.iter().filter(|status| !status.decision.allowed);
    let denies = denies.map(|status| {
        let note =
            if policies[status.policy].soft.marks { LimitNote::Marked } else { LimitNote::ShadowDenied };
        (note, status.policy)
    });
    let warns = statuses.iter().chain(shadow).filter(move |status| passes && status.warns(policies));
    denies.chain(warns.map(|status| (LimitNote::Warned, status.policy)))
}
