//! The limits of a configuration with numbers that clients of the rate-limit service have sent for single descriptors.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashMap;

use super::limits::Limits;
use crate::id_vec::Id as _;
use crate::limit::{Policy, PolicyId, QuotaError, Rate};

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

    use super::*;
    use crate::limit::Quota;
    use crate::limiter::OnStoreFailure;
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
