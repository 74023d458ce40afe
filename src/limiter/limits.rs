//! All limits of a configuration, and what each does when the store can't be asked.

use std::num::NonZeroU64;
use std::ops::Index;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{LimitStatus, LimitStatuses};
use crate::id_vec::Id as _;
use crate::limit::{Charge, Policy, PolicyId};
use crate::time::Timestamp;

/// What a limit does when the store can't be asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnStoreFailure {
    /// This process decides by itself, with its share of the quota.
    #[default]
    Local,
    /// The request passes this limit.
    Allow,
    /// The request is refused with 503.
    Deny,
}

/// All limits of a configuration, by [`crate::limit::PolicyId`].
#[derive(Clone, Debug)]
pub struct Limits {
    /// What each limit is.
    pub policies: Arc<[Policy]>,
    /// The share of one proxy, for when it has to decide alone.
    pub shares: Arc<[Policy]>,
    /// How many proxies have such a share.
    pub instances: NonZeroU64,
    /// What each limit does when the store can't be asked.
    pub on_failure: Arc<[OnStoreFailure]>,
}

impl Index<PolicyId> for [OnStoreFailure] {
    type Output = OnStoreFailure;

    fn index(&self, id: PolicyId) -> &OnStoreFailure {
        &self[id.index()]
    }
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
            on_failure: limits.iter().map(|(_, on_failure)| *on_failure).collect(),
            policies: limits.into_iter().map(|(policy, _)| policy).collect(),
        }
    }
}

impl Limits {
    pub(super) fn policy(&self, charge: &Charge) -> &Policy {
        &self.policies[charge.policy]
    }

    pub(super) fn on_failure(&self, charge: &Charge) -> OnStoreFailure {
        self.on_failure[charge.policy]
    }

    /// The charges that this process decides by itself while the store is away.
    pub(super) fn local(&self, charges: &[Charge]) -> SmallVec<[Charge; 4]> {
        let own = charges.iter().filter(|charge| self.on_failure(charge) == OnStoreFailure::Local);
        own.copied().collect()
    }

    /// The same charges where one that costs more than a share can ever give takes all of it: it must not be refused
    /// for good because the store is away.
    pub(super) fn fitting(&self, charges: &[Charge]) -> SmallVec<[Charge; 4]> {
        let most = |charge: &Charge| self.shares[charge.policy].quota.limit();
        charges.iter().map(|charge| Charge { cost: charge.cost.min(most(charge)), ..*charge }).collect()
    }

    /// Where a request stands that no store needs to be asked about, because it costs more than one of its
    /// limits could ever give.
    pub(super) fn never(&self, charges: &[Charge]) -> Option<LimitStatuses> {
        let stands = |charge: &Charge| {
            let policy = self.policy(charge);
            let refused = charge.cost > policy.quota.limit() && !policy.shadow;
            refused.then(|| LimitStatus {
                policy: charge.policy,
                decision: policy.quota.step(None, Timestamp::default(), charge.cost, charge.holder).decision,
            })
        };
        let refused: LimitStatuses = charges.iter().filter_map(stands).collect();
        (!refused.is_empty()).then_some(refused)
    }
}
