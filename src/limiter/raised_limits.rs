//! The limits of a configuration with the raised numbers of single keys, as one worker needs them.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use hashbrown::HashMap;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::limits::Limits;
use super::raises::{ActiveRaise, Raises};
use crate::limit::{Charge, Factor, Key, Policy, PolicyId};

/// Applies the raises to the charges of requests.
#[derive(Debug)]
pub(super) struct RaisedLimits {
    raises: Arc<Raises>,
    prepared: RefCell<Option<Prepared>>,
}

/// The charges of a request with raised numbers of its keys, and the limits with these numbers. Boxed, since raises are rare
/// and it would enlarge every request's future.
#[derive(Debug)]
pub(super) struct RaisedCharges {
    pub limits: Rc<Limits>,
    pub charges: SmallVec<[Charge; 4]>,
}

/// The limits for one version of the raises and one configuration.
#[derive(Debug)]
struct Prepared {
    version: u64,
    configured: Arc<[Policy]>,
    /// The policies of the configuration, and behind them those with raised numbers that were needed so far.
    limits: Rc<Limits>,
    raises: HashMap<Key, SmallVec<[ActiveRaise; 1]>>,
    raised: HashMap<(PolicyId, Factor), PolicyId>,
}

impl RaisedLimits {
    pub fn new(raises: Arc<Raises>) -> Self {
        Self { raises, prepared: RefCell::default() }
    }

    /// The limits and the charges of a request with the raised numbers of its keys; none while there are no raises. The limits
    /// are the same for all requests, so that one call to the store can hold several.
    #[inline]
    pub fn apply(&self, limits: &Limits, charges: &[Charge], now: Instant) -> Option<Box<RaisedCharges>> {
        if self.raises.is_empty() { None } else { Some(self.apply_raises(limits, charges, now)) }
    }

    #[cold]
    fn apply_raises(&self, limits: &Limits, charges: &[Charge], now: Instant) -> Box<RaisedCharges> {
        let version = self.raises.version();
        let is_current = |prepared: &Prepared| {
            prepared.version == version && Arc::ptr_eq(&prepared.configured, &limits.policies)
        };
        let mut prepared = self.prepared.borrow_mut();
        let prepared = match &mut *prepared {
            Some(prepared) if is_current(prepared) => prepared,
            outdated => outdated.insert(Prepared::new(&self.raises, limits)),
        };
        let raised = |charge: &Charge| Charge { policy: prepared.policy(charge, now), ..*charge };
        let charges = charges.iter().map(raised).collect();
        Box::new(RaisedCharges { limits: Rc::clone(&prepared.limits), charges })
    }
}

impl Prepared {
    fn new(raises: &Raises, limits: &Limits) -> Self {
        let (version, active) = raises.versioned();
        let mut by_key: HashMap<Key, SmallVec<[ActiveRaise; 1]>> = HashMap::new();
        for raise in active {
            by_key.entry(raise.key).or_default().push(raise);
        }
        let configured = Arc::clone(&limits.policies);
        let limits = Rc::new(limits.clone());
        Self { version, configured, limits, raises: by_key, raised: HashMap::new() }
    }

    /// The policy that decides a charge. The charge keeps its own if the raised numbers can't be counted.
    fn policy(&mut self, charge: &Charge, now: Instant) -> PolicyId {
        let own = &self.limits.policies[charge.policy];
        if own.derived_from.is_some() {
            // A client of the rate-limit service has sent the numbers.
            return charge.policy;
        }
        let is_of = |raise: &&ActiveRaise| raise.limit == own.name && now < raise.ends;
        let Some(raise) = self.raises.get(&charge.key).and_then(|raises| raises.iter().find(is_of)) else {
            return charge.policy;
        };
        let id = (charge.policy, raise.factor);
        if let Some(raised) = self.raised.get(&id) {
            return *raised;
        }
        let raised = match own.raised(charge.policy, raise.factor) {
            Ok(policy) => {
                let (limits, added) = self.limits.with_policy(policy);
                self.limits = Rc::new(limits);
                added
            }
            Err(_) => charge.policy,
        };
        self.raised.insert(id, raised);
        raised
    }
}
