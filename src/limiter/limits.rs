//! All limits of a configuration, and their policies for store failures; also with numbers that clients of the rate-limit
//! service have sent for single descriptors.

use std::cell::RefCell;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashMap;

use super::status::{LimitStatus, LimitStatuses};
use crate::id_vec::{Id as _, IdVec};
use crate::limit::{Charge, Charges, Policy, PolicyId, Quota, QuotaError, Rate};
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
    /// Whether a limit is a soft one: with `warn_at` or in mark mode.
    pub have_soft: bool,
    /// Whether all units of the request can be refunded until it is forwarded, since it may be refused before that.
    pub(super) are_refundable: bool,
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
            have_soft: limits.iter().any(|(policy, _)| policy.is_soft()),
            are_refundable: false,
            policies: limits.into_iter().map(|(policy, _)| policy).collect(),
        }
    }

    /// These limits for a request whose units can be refunded until it is forwarded.
    #[must_use]
    pub fn refundable(&self) -> Self {
        Self { are_refundable: true, ..self.clone() }
    }

    /// Whether the units that a policy takes for a request are a reservation. Slots are released in any case, and a place of a leaky
    /// bucket is not given back, since those behind it have been delayed.
    pub(super) fn reserve(&self, policy: &Policy) -> bool {
        let is_refundable = !policy.has_slots() && !matches!(policy.quota, Quota::LeakyBucket(_));
        policy.reserves() || self.are_refundable && is_refundable
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
            have_soft: self.have_soft,
            are_refundable: self.are_refundable,
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
        let most = |charge: &Charge| self.share(charge).quota.usable();
        charges.iter().map(|charge| Charge { cost: charge.cost.min(most(charge)), ..*charge }).collect()
    }

    /// The denials of a request that costs more than a limit can ever allow; no store is needed for these.
    pub(super) fn impossible(&self, charges: &[Charge]) -> Option<LimitStatuses> {
        let is_denied = |charge: &&Charge| {
            let policy = self.policy(charge);
            charge.cost > policy.quota.usable() && !policy.shadow
        };
        if !charges.iter().any(|charge| is_denied(&charge)) {
            return None;
        }
        let denial = |charge: &Charge| {
            let policy = self.policy(charge);
            let step = policy.quota.step(None, Timestamp::default(), charge.cost, charge.holder);
            LimitStatus::new(policy, charge, step.decision)
        };
        Some(charges.iter().filter(is_denied).map(denial).collect())
    }
}

/// The most policies with sent numbers that a worker keeps. Beyond it they are made anew, and keep their counts, which belong
/// to their names.
const MAX_POLICIES: usize = 1_024;

/// The policies with sent numbers that one worker has made for one configuration.
#[derive(Debug, Default)]
pub struct SentLimits(RefCell<Option<Prepared>>);

/// The limits of one configuration.
#[derive(Debug)]
struct Prepared {
    configured: Arc<[Policy]>,
    /// The policies of the configuration, and behind them those with sent numbers.
    limits: Rc<Limits>,
    sent: HashMap<(PolicyId, Rate), PolicyId>,
}

impl SentLimits {
    /// The limits with these rates in place of the numbers of policies, and the ids of the policies that have them.
    ///
    /// # Errors
    /// Numbers that can't be counted.
    pub fn apply(
        &self,
        limits: &Limits,
        sent: &[(PolicyId, Rate)],
    ) -> Result<(Rc<Limits>, Vec<PolicyId>), QuotaError> {
        let mut prepared = self.0.borrow_mut();
        let is_current = |prepared: &Prepared| {
            Arc::ptr_eq(&prepared.configured, &limits.policies)
                && prepared.sent.len() + sent.len() <= MAX_POLICIES.max(sent.len())
        };
        let prepared = match &mut *prepared {
            Some(prepared) if is_current(prepared) => prepared,
            outdated => outdated.insert(Prepared::new(limits)),
        };
        let ids: Result<Vec<PolicyId>, QuotaError> =
            sent.iter().map(|(policy, rate)| prepared.policy(*policy, *rate)).collect();
        Ok((Rc::clone(&prepared.limits), ids?))
    }
}

impl Prepared {
    fn new(limits: &Limits) -> Self {
        let configured = Arc::clone(&limits.policies);
        Self { configured, limits: Rc::new(limits.clone()), sent: HashMap::new() }
    }

    fn policy(&mut self, own: PolicyId, rate: Rate) -> Result<PolicyId, QuotaError> {
        if let Some(known) = self.sent.get(&(own, rate)) {
            return Ok(*known);
        }
        let policy = self.limits.policies[own].with_rate(own, rate)?;
        let (limits, id) = self.limits.with_policy(policy);
        debug_assert!(id.index() >= self.configured.len());
        self.limits = Rc::new(limits);
        self.sent.insert((own, rate), id);
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::super::OnStoreFailure;
    use super::*;
    use crate::time::Micros;

    fn limits() -> Limits {
        let rate = Rate::new(5, Micros::SECOND).unwrap();
        let policy = Policy::new("a", Quota::token_bucket(rate, 5).unwrap());
        Limits::new(vec![(policy, OnStoreFailure::Deny)], NonZeroU64::MIN)
    }

    #[test]
    fn equal_numbers_have_one_policy_and_others_have_their_own() {
        let (sent, limits) = (SentLimits::default(), limits());
        let rate = |units| (PolicyId(0), Rate::new(units, Micros::SECOND).unwrap());
        let (made, ids) = sent.apply(&limits, &[rate(1), rate(2), rate(1)]).unwrap();
        assert_eq!(ids, [PolicyId(1), PolicyId(2), PolicyId(1)]);
        let policy = &made.policies[PolicyId(2)];
        assert_eq!((&*policy.name, policy.quota.limit()), ("a", 2));
        assert_eq!(policy.configured(PolicyId(2)), PolicyId(0));
        assert_ne!(policy.stored, made.policies[PolicyId(1)].stored);
        assert_eq!(made.on_failure[PolicyId(2)], OnStoreFailure::Deny);
    }

    #[test]
    fn the_number_of_policies_is_bounded() {
        let (sent, limits) = (SentLimits::default(), limits());
        for units in 1..3_000 {
            let rate = Rate::new(units, Micros::SECOND).unwrap();
            let (made, ids) = sent.apply(&limits, &[(PolicyId(0), rate)]).unwrap();
            assert!(made.policies.len() <= MAX_POLICIES + 1);
            assert_eq!(made.policies[ids[0]].quota.limit(), units);
        }
    }
}
