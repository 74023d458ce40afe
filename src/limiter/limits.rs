//! All limits of a configuration, and their policies for store failures.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::status::{LimitStatus, LimitStatuses};
use crate::id_vec::{Id as _, IdVec};
use crate::limit::{Charge, Charges, Policy, PolicyId};
use crate::time::Timestamp;

/// The policy of a limit while the store is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// This process decides, with its share of the quota.
    Local,
    /// The limit allows the request.
    Allow,
    /// The request is denied with 503.
    Deny,
}

/// All limits of a configuration, by [`crate::limit::PolicyId`].
#[derive(Clone, Debug)]
pub struct Limits {
    /// The limits.
    pub policies: Arc<[Policy]>,
    /// The share of one proxy in each limit, for decisions without the store.
    pub shares: Arc<[Policy]>,
    /// How many proxies have such a share.
    pub instances: NonZeroU64,
    /// The policy of each limit while the store is unavailable.
    pub on_failure: Arc<IdVec<PolicyId, OnStoreFailure>>,
    /// Whether a limit has `ahead`.
    pub have_ahead: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self::new(Vec::new(), NonZeroU64::MIN)
    }
}

impl Limits {
    /// Limits that `instances` proxies share.
    #[must_use]
    pub fn new(limits: Vec<(Policy, OnStoreFailure)>, instances: NonZeroU64) -> Self {
        let share = |policy: &Policy| policy.shared_by(instances);
        Self {
            instances,
            shares: limits.iter().map(|(policy, _)| share(policy)).collect(),
            on_failure: Arc::new(limits.iter().map(|(_, on_failure)| *on_failure).collect()),
            have_ahead: limits.iter().any(|(policy, _)| policy.ahead.is_some()),
            policies: limits.into_iter().map(|(policy, _)| policy).collect(),
        }
    }

    /// Whether one of the charges is of a limit that grants units ahead of requests.
    pub(super) fn grant_units(&self, charges: &[Charge]) -> bool {
        self.have_ahead && charges.iter().any(|charge| self.policy(charge).ahead.is_some())
    }

    /// These limits and a policy with other numbers of one of them, and its id.
    pub(super) fn with_policy(&self, raised: Policy) -> (Self, PolicyId) {
        let id = PolicyId::from_index(self.policies.len());
        let share = raised.shared_by(self.instances);
        let on_failure = self.on_failure[raised.configured(id)];
        let limits = Self {
            instances: self.instances,
            policies: self.policies.iter().cloned().chain([raised]).collect(),
            shares: self.shares.iter().cloned().chain([share]).collect(),
            on_failure: Arc::new(self.on_failure.iter().copied().chain([on_failure]).collect()),
            have_ahead: self.have_ahead,
        };
        (limits, id)
    }

    /// The policy of the configuration that a charge is made under, perhaps with raised numbers.
    pub(super) fn configured(&self, charge: &Charge) -> PolicyId {
        self.policy(charge).configured(charge.policy)
    }

    pub(super) fn policy(&self, charge: &Charge) -> &Policy {
        &self.policies[charge.policy]
    }

    pub(super) fn share(&self, charge: &Charge) -> &Policy {
        &self.shares[charge.policy]
    }

    pub(super) fn on_failure(&self, charge: &Charge) -> OnStoreFailure {
        self.on_failure[charge.policy]
    }

    /// The charges of limits that this process decides while the store is unavailable.
    pub(super) fn local(&self, charges: &[Charge]) -> Charges {
        let local = charges.iter().filter(|charge| self.on_failure(charge) == OnStoreFailure::Local);
        local.copied().collect()
    }

    /// These charges with their costs capped at the shares: a request that costs more than a share takes all of it, and
    /// is not denied for as long as the store is unavailable.
    pub(super) fn capped(&self, charges: &[Charge]) -> Charges {
        let most = |charge: &Charge| self.share(charge).quota.limit();
        charges.iter().map(|charge| Charge { cost: charge.cost.min(most(charge)), ..*charge }).collect()
    }

    /// The denials of a request that costs more than a limit can ever allow; no store is needed for these.
    pub(super) fn impossible(&self, charges: &[Charge]) -> Option<LimitStatuses> {
        let denial = |charge: &Charge| {
            let policy = self.policy(charge);
            let is_denied = charge.cost > policy.quota.limit() && !policy.shadow;
            is_denied.then(|| {
                let step = policy.quota.step(None, Timestamp::default(), charge.cost, charge.holder);
                LimitStatus::new(policy, charge, step.decision)
            })
        };
        let denials: LimitStatuses = charges.iter().filter_map(denial).collect();
        (!denials.is_empty()).then_some(denials)
    }
}
