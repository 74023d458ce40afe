//! The raises that this process knows: with Redis a copy, which the maintenance of the workers updates; otherwise all of them.
//!
//! A raise of a key (`tidegate keys raise`) is a policy with larger numbers that counts in the same states, so neither stores
//! nor scripts know raises. `limiter::Raises` has all of them: with Redis a copy of one text (`lua/raises.lua`), of which a
//! process reads the version once a second, on the main thread. While there are some, `RaisedLimits` appends the
//! policies that it needs to a copy of the limits, and gives charges of raised keys their ids. Outside `limiter` a `PolicyId`
//! is always one of the configuration: `LimitStatus` has it, and the factor.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::denial_cache::DenialCache;
use super::limits::Limits;
use crate::limit::{Charge, Charges, Factor, Key, Policy, PolicyId};
use crate::store::{MAX_RAISES, Raise, RaiseChange, RaiseError, RaiseList};
use crate::time::monotonic;

/// The least time between two reads of the store: workers read it when they connect, and the main thread regularly.
const READ_INTERVAL: Duration = Duration::from_millis(400);

/// The raises of single keys, shared by all workers.
#[derive(Debug)]
pub struct Raises {
    /// Changes with each change of the table; 0 while there are no raises.
    version: AtomicU64,
    table: Mutex<Table>,
    /// Cleared with each change: a cached denial is one by other numbers.
    denials: Arc<DenialCache>,
}

#[derive(Debug, Default)]
struct Table {
    active: Vec<ActiveRaise>,
    /// The last version of this table.
    version: u64,
    /// The version of the list in the store.
    stored: u64,
    /// When the store was read last, or is being read.
    read: Option<Instant>,
    /// When the list was replaced last.
    replaced: Option<Instant>,
}

/// A raise that has not ended, unless it ends now.
#[derive(Clone, Debug)]
pub struct ActiveRaise {
    /// The limit's name.
    pub limit: Box<str>,
    /// The key.
    pub key: Key,
    /// How many times its numbers are raised.
    pub factor: Factor,
    /// When it ends.
    pub ends: Instant,
    /// Who has started it.
    pub by: Box<str>,
}

impl ActiveRaise {
    fn new(raise: Raise, now: Instant) -> Self {
        let Raise { limit, key, factor, rest, by } = raise;
        Self { limit, key, factor, ends: now + rest.into(), by }
    }

    fn is_of(&self, limit: &str, key: Key) -> bool {
        self.key == key && *self.limit == *limit
    }
}

impl Raises {
    /// No raises.
    #[must_use]
    pub fn new(denials: Arc<DenialCache>) -> Self {
        Self { version: AtomicU64::new(0), table: Mutex::default(), denials }
    }

    /// Whether there are no raises.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.version.load(Ordering::Relaxed) == 0
    }

    /// The version of the raises.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// All raises and their version.
    pub(super) fn versioned(&self) -> (u64, Vec<ActiveRaise>) {
        let table = self.table.lock();
        (self.version(), table.active.clone())
    }

    /// The raises that have not ended.
    #[must_use]
    pub fn active(&self, now: Instant) -> Vec<ActiveRaise> {
        self.table.lock().active.iter().filter(|raise| raise.ends > now).cloned().collect()
    }

    /// The raise of a key.
    #[must_use]
    pub fn find(&self, limit: &str, key: Key, now: Instant) -> Option<ActiveRaise> {
        let table = self.table.lock();
        table.active.iter().find(|raise| raise.is_of(limit, key) && raise.ends > now).cloned()
    }

    /// Changes the raises of a store in this process.
    ///
    /// # Errors
    /// Why they can't be changed so.
    pub fn change(&self, change: RaiseChange, now: Instant) -> Result<(), RaiseError> {
        let mut table = self.table.lock();
        table.active.retain(|raise| raise.ends > now);
        let before = table.active.len();
        match change {
            RaiseChange::Start(raise) => {
                table.active.retain(|other| !other.is_of(&raise.limit, raise.key));
                if table.active.len() >= MAX_RAISES {
                    return Err(RaiseError::Full);
                }
                table.active.push(ActiveRaise::new(raise, now));
            }
            RaiseChange::End { limit, key } => {
                table.active.retain(|other| !other.is_of(&limit, key));
                if table.active.len() == before {
                    return Err(RaiseError::NotRaised);
                }
            }
        }
        self.publish(&mut table);
        Ok(())
    }

    /// Replaces the raises by those that were read from the store at `read`.
    pub fn replace(&self, list: RaiseList, read: Instant) {
        let mut table = self.table.lock();
        // A read that began before the last change was known may have the list before it; the next one has the present list.
        if list.version < table.stored && table.replaced.is_some_and(|last| read < last) {
            return;
        }
        table.replaced = Some(monotonic());
        table.stored = list.version;
        table.active = list.raises.into_iter().map(|raise| ActiveRaise::new(raise, read)).collect();
        self.publish(&mut table);
    }

    /// Removes raises that have ended.
    pub(super) fn remove_ended(&self, now: Instant) {
        if self.is_empty() {
            return;
        }
        let mut table = self.table.lock();
        if table.active.iter().any(|raise| raise.ends <= now) {
            table.active.retain(|raise| raise.ends > now);
            self.publish(&mut table);
        }
    }

    /// The version in the store that this process knows, if it is time to read it again.
    pub(super) fn due(&self, now: Instant) -> Option<u64> {
        let mut table = self.table.lock();
        if table.read.is_some_and(|last| now.saturating_duration_since(last) < READ_INTERVAL) {
            return None;
        }
        table.read = Some(now);
        Some(table.stored)
    }

    fn publish(&self, table: &mut Table) {
        table.version += 1;
        let version = if table.active.is_empty() { 0 } else { table.version };
        self.version.store(version, Ordering::Release);
        self.denials.clear();
    }
}

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
    pub charges: Charges,
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
        let limits = if limits.are_refundable {
            Rc::new(prepared.limits.refundable())
        } else {
            Rc::clone(&prepared.limits)
        };
        Box::new(RaisedCharges { limits, charges })
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
        let limits = Rc::new(Limits { are_refundable: false, ..limits.clone() });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Micros;

    fn raise(key: u8, factor: &str) -> Raise {
        let (factor, rest) = (Factor::parse(factor).unwrap(), Micros(10_000_000));
        Raise { limit: "a".into(), key: Key([key; 16]), factor, rest, by: "user 0".into() }
    }

    #[test]
    fn an_outdated_read_does_not_undo_a_change() {
        let raises = Raises::new(Arc::default());
        let began = monotonic();
        let list = |version, raises| RaiseList { version, raises };
        raises.replace(list(5, vec![raise(1, "2x")]), began);
        raises.replace(list(0, Vec::new()), began);
        assert_eq!(raises.active(monotonic()).len(), 1);
        // The raises may really be gone, as after a flush.
        raises.replace(list(0, Vec::new()), monotonic() + Duration::from_millis(1));
        assert!(raises.is_empty());
    }

    #[test]
    fn raises_end_and_are_replaced_in_the_process() {
        let (raises, now) = (Raises::new(Arc::default()), monotonic());
        raises.change(RaiseChange::Start(raise(1, "2x")), now).unwrap();
        raises.change(RaiseChange::Start(raise(2, "2x")), now).unwrap();
        raises.change(RaiseChange::Start(raise(1, "3x")), now).unwrap();
        let factor = |key, now| raises.find("a", Key([key; 16]), now).map(|raise| raise.factor.to_string());
        assert_eq!(
            (factor(1, now), factor(2, now), factor(3, now)),
            (Some("3x".into()), Some("2x".into()), None)
        );
        let end = || RaiseChange::End { limit: "a".into(), key: Key([1; 16]) };
        raises.change(end(), now).unwrap();
        assert_eq!(raises.change(end(), now), Err(RaiseError::NotRaised));
        let ended = now + Duration::from_secs(10);
        assert_eq!((factor(1, now), factor(2, ended)), (None, None));
        raises.remove_ended(ended);
        assert!(raises.is_empty());
    }
}
