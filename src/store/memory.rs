//! Counts in this process: a sharded map with a hard bound on the number of keys.
//!
//! A request locks the shards of all its keys in their order, decides, and charges all or nothing, like the script in
//! Redis. Entries whose state equals no state are swept. If a shard is full of live entries, an entry of the limit that
//! has the most of them is evicted: a flood of made-up keys evicts only such keys.

mod debts;
mod present;
mod shard;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;

use self::debts::{LocatedCharge, LocatedCharges, LockedShards};
use self::present::Present;
use self::shard::{Address, EntryHasher, Meta, Shard};
use super::types::{Decisions, Granted, StateChange};
use crate::limit::{
    Charge, ChargeKind, DecidedCharge, DecidedCharges, Decision, EntryId, Grant, GrantRequest, Key, Policy,
    PolicyId, Record, RecordStep,
};
use crate::time::{Clock, Micros, Timestamp, periodic};

/// How many keys a shard is made for: the table uses at most 7/8 of 2^k buckets before it doubles, and keys are not
/// distributed evenly, so a little less.
const SHARD_KEYS: usize = (1 << 14) / 8 * 7 * 96 / 100;
/// Enough that two workers seldom contend for a lock.
const MIN_SHARDS: usize = 64;
/// Each shard holds enough keys that limits have the same proportions in it as in all shards together.
const MIN_SHARD_KEYS: usize = 256;

/// The in-process store.
#[derive(Debug)]
pub struct Memory {
    shards: Box<[Mutex<Shard>]>,
    hasher: EntryHasher,
    clock: Clock,
}

/// A request of several charges that is being decided.
struct Transaction<'a> {
    now: Present<'a>,
    charges: LocatedCharges<'a>,
    shards: LockedShards<'a>,
}

impl Memory {
    /// A store of at most `max_keys` keys, with the time of `clock`.
    #[must_use]
    pub fn new(max_keys: usize, clock: Clock) -> Self {
        let max_keys = max_keys.max(1);
        let fewest = MIN_SHARDS.min(max_keys / MIN_SHARD_KEYS).max(1);
        let shards = max_keys.div_ceil(SHARD_KEYS).max(fewest);
        let (each, over) = (max_keys / shards, max_keys % shards);
        let hasher = EntryHasher::new();
        let shard = |number: usize| Shard::new(each + usize::from(number < over), hasher.clone());
        Self { shards: (0..shards).map(|number| Mutex::new(shard(number))).collect(), hasher, clock }
    }

    /// The clock of all decisions.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// How many keys are stored.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// How many keys were evicted before they had expired, since the store was full.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().evictions()).sum()
    }

    /// Whether no key is stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes expired entries in part `part` of `parts` of the shards, and frees their memory. Never more than one lock is
    /// held, and each only while one shard is swept.
    pub fn sweep(&self, part: usize, parts: usize) {
        for shard in self.shards.iter().skip(part).step_by(parts.max(1)) {
            shard.lock().sweep(self.present());
        }
    }

    /// Takes all charges or none; see `Store::take`.
    #[must_use]
    pub fn take(&self, policies: &[Policy], charges: &[Charge]) -> Decisions {
        self.decide(policies, charges).iter().map(|one| one.decision).collect()
    }

    /// Takes all charges or none, and returns them with their decisions.
    #[must_use]
    pub fn decide(&self, policies: &[Policy], charges: &[Charge]) -> DecidedCharges {
        let [charge] = charges else { return self.decide_several(policies, charges) };
        let mut decided = DecidedCharges::new();
        decided.push(DecidedCharge { charge: *charge, decision: self.take_one(policies, charge) });
        decided
    }

    fn decide_several(&self, policies: &[Policy], charges: &[Charge]) -> DecidedCharges {
        let (located, mut shards) = debts::lock(&self.shards, &self.hasher, policies, charges);
        let now = self.present();
        if let Some(decided) = debts::take(&located, &mut shards, now) {
            return decided;
        }
        let (_, decisions) = Transaction { now, charges: located, shards }.take();
        DecidedCharge::join(charges, &decisions)
    }

    /// Decides a single charge, which most requests have; it depends on no other.
    fn take_one(&self, policies: &[Policy], charge: &Charge) -> Decision {
        let policy = &policies[charge.policy];
        let at = self.hasher.address(EntryId::new(policy, charge.key));
        let mut shard = self.shard(at).lock();
        let now = self.present();
        if let Some(decision) = debts::take_one(&mut shard, &LocatedCharge::alone(policy, charge, at), now) {
            return decision;
        }
        let RecordStep { decision, next } = now.decide(policy, shard.get(at).as_deref(), charge);
        if let Some(record) = next {
            shard.store(policy, at, record, now);
        }
        decision
    }

    fn present(&self) -> Present<'_> {
        Present::of(&self.clock)
    }

    fn shard(&self, at: Address) -> &Mutex<Shard> {
        &self.shards[at.shard(self.shards.len())]
    }

    /// Replaces the record of a key by what `make` returns for the present record and time.
    pub fn update(&self, policy: &Policy, key: Key, make: impl FnOnce(Option<&Record>, Timestamp) -> Record) {
        let at = self.hasher.address(EntryId::new(policy, key));
        let mut shard = self.shard(at).lock();
        let now = self.present();
        let record = now.make(policy, shard.get(at).as_deref(), make);
        shard.store(policy, at, record, now);
    }

    /// Applies each charge independently; see `Store::apply`.
    #[must_use]
    pub fn apply(&self, policies: &[Policy], charges: &[Charge]) -> Decisions {
        charges.iter().map(|charge| self.take_one(policies, charge)).collect()
    }

    /// Takes all charges or none, and grants units; see `Store::take_with_grants`.
    #[must_use]
    pub fn take_with_grants(
        &self,
        policies: &[Policy],
        charges: &[Charge],
        requests: &[GrantRequest],
    ) -> Granted {
        Transaction::new(self, policies, charges).take_with_grants(requests)
    }

    /// Applies each charge independently, and grants units; see `Store::apply_with_grants`.
    #[must_use]
    pub fn apply_with_grants(
        &self,
        policies: &[Policy],
        charges: &[Charge],
        requests: &[GrantRequest],
    ) -> Granted {
        let (mut all, mut requests) = (Granted::default(), requests.chunks(1));
        for charge in charges {
            let request = if charge.kind == ChargeKind::Grant { requests.next() } else { None };
            let one =
                self.take_with_grants(policies, std::slice::from_ref(charge), request.unwrap_or_default());
            all.decisions.extend(one.decisions);
            all.grants.extend(one.grants);
        }
        all
    }

    /// Changes these keys by hand; see `Store::change`.
    #[must_use]
    pub fn change(&self, policies: &[Policy], keys: &[(PolicyId, Key)], change: StateChange) -> usize {
        let all = keys.iter().map(|(policy, key)| (&policies[*policy], *key));
        all.filter(|(policy, key)| self.change_one(policy, *key, change)).count()
    }

    /// Changes a key's entries under every algorithm, since the limit's may change; returns whether there was an entry.
    fn change_one(&self, policy: &Policy, key: Key, change: StateChange) -> bool {
        let mut known = false;
        for salt in policy.salts() {
            let at = self.hasher.address(EntryId::salted(salt, key));
            let mut shard = self.shard(at).lock();
            let present = self.present();
            let now = present.time;
            let record = shard.get(at).map(Cow::into_owned);
            known |= record.is_some();
            let changed = match change {
                StateChange::Block(length) => Some(record.unwrap_or_default().blocked(now, length)),
                StateChange::Unblock => record.map(Record::unblocked),
                StateChange::Reset => record.map(|record| record.reset(now)),
            };
            if changed == Some(Record::default()) {
                shard.remove(at);
            } else if let Some(changed) = changed {
                // A state of another algorithm is not decoded, and stays until its entry expires.
                let (expires, by_wall) = present.expiry(policy, &changed).unwrap_or((now, false));
                let meta = Meta::new(salt, &changed, expires, by_wall);
                shard.put(at, changed, meta, present);
            }
        }
        known
    }

    /// The keys of `policy`, at most `max`.
    #[must_use]
    pub fn keys(&self, policy: &Policy, max: usize) -> Vec<Key> {
        let mut found = Vec::new();
        for shard in &self.shards {
            found.extend(shard.lock().keys(policy, self.present(), max - found.len()));
        }
        found
    }
}

impl<'a> Transaction<'a> {
    fn new(memory: &'a Memory, policies: &'a [Policy], charges: &'a [Charge]) -> Self {
        let (charges, shards) = self::debts::lock(&memory.shards, &memory.hasher, policies, charges);
        Self { now: memory.present(), charges, shards }
    }

    /// Decides all charges; returns whether the request passes, and the decisions.
    fn take(&mut self) -> (bool, Decisions) {
        let (passes, steps) = self.enforce();
        let mut decisions: Decisions = steps.into_iter().map(|step| step.decision).collect();
        for (index, decision) in decisions.iter_mut().enumerate() {
            let charge = self.charges[index];
            if charge.policy.shadow {
                // After the enforced limits have decided: a shadow limit counts only the requests that they admit.
                *decision = self.take_in_shadow(&charge, passes);
            } else if decision.allowed && !passes {
                // Another limit denies the request, and nothing was taken here: the decision shows what is available.
                *decision = self.decide(&charge, &charge.charge.peek()).decision;
            }
        }
        (passes, decisions)
    }

    /// Applies the reports first, which stay even if the request is denied. Then decides the charges, and grants units for each
    /// charge that is made, or denied by its own limit.
    fn take_with_grants(mut self, requests: &[GrantRequest]) -> Granted {
        let granting =
            (0..self.charges.len()).filter(|index| self.charges[*index].charge.kind == ChargeKind::Grant);
        let requests = requests.iter().copied().chain(std::iter::repeat(GrantRequest::default()));
        let granting: SmallVec<[(usize, GrantRequest); 2]> = granting.zip(requests).collect();
        for (index, request) in &granting {
            let charge = self.charges[*index];
            let record = self.shards.shard(&charge).get(charge.at);
            let report = request.report.as_ref();
            let next = report.and_then(|report| self.now.report(charge.policy, record.as_deref(), report));
            // The record borrows the shard that is changed next.
            drop(record);
            self.store(&charge, next);
        }
        let (passes, mut decisions) = self.take();
        let mut grants = SmallVec::new();
        for (index, request) in granting {
            let charge = self.charges[index];
            let decided = &mut decisions[index];
            let record = self.shards.shard(&charge).get(charge.at);
            let granted = (passes || !decided.allowed)
                .then(|| self.now.grant(charge.policy, record.as_deref(), request.wanted, decided))
                .flatten();
            drop(record);
            let Some((RecordStep { decision, next }, grant)) = granted else {
                grants.push(Grant::default());
                continue;
            };
            *decided = decision;
            grants.push(grant);
            self.store(&charge, next);
        }
        Granted { decisions, grants }
    }

    /// Decides the charges that are not in shadow mode, one after the other, and makes them if every one is allowed. The
    /// others get a decision that allows, as a placeholder.
    fn enforce(&mut self) -> (bool, SmallVec<[RecordStep; 4]>) {
        let mut steps: SmallVec<[RecordStep; 4]> = SmallVec::new();
        for (index, charge) in self.charges.iter().enumerate() {
            // The second of two charges on one key counts the first.
            let earlier = self.charges[..index]
                .iter()
                .zip(&steps)
                .rev()
                .filter(|(other, step)| other.at.id == charge.at.id && step.decision.allowed)
                .find_map(|(_, step)| step.next.as_ref());
            steps.push(match earlier {
                _ if charge.policy.shadow => {
                    RecordStep { decision: Decision::allowed(1, 1, Micros::ZERO), next: None }
                }
                Some(record) => self.now.decide(charge.policy, Some(record), charge.charge),
                None => self.decide(charge, charge.charge),
            });
        }
        let passes = steps.iter().all(|step| step.decision.allowed);
        for (index, step) in steps.iter_mut().enumerate() {
            let charge = self.charges[index];
            if passes {
                self.store(&charge, step.next.take());
            } else if !step.decision.allowed && step.next.is_some() {
                // The record after the denial must not contain an earlier charge of the request, which is not made.
                let own = self.decide(&charge, charge.charge);
                self.store(&charge, own.next.filter(|_| !own.decision.allowed));
            }
        }
        (passes, steps)
    }

    /// Decides a charge of a limit in shadow mode, and makes it if the request passes and the limit would have allowed it.
    fn take_in_shadow(&mut self, charge: &LocatedCharge<'a>, passes: bool) -> Decision {
        let RecordStep { decision, next } = self.decide(charge, charge.charge);
        if passes || !decision.allowed {
            self.store(charge, next);
        }
        decision
    }

    fn decide(&self, located: &LocatedCharge<'_>, charge: &Charge) -> RecordStep {
        let record = self.shards.shard(located).get(located.at);
        self.now.decide(located.policy, record.as_deref(), charge)
    }

    fn store(&mut self, charge: &LocatedCharge<'_>, record: Option<Record>) {
        if let Some(record) = record {
            self.shards.shard_mut(charge).store(charge.policy, charge.at, record, self.now);
        }
    }
}

/// The number of parts of the store, of which one is swept each time.
const SWEPT_PARTS: usize = 30;
/// The time between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_secs(2);

/// Removes expired records from the in-process store; never returns.
pub async fn sweep_memory(memory: Arc<Memory>) {
    let mut tick = periodic(SWEEP_INTERVAL);
    for part in (0..SWEPT_PARTS).cycle() {
        tick.tick().await;
        memory.sweep(part, SWEPT_PARTS);
    }
}

#[cfg(test)]
mod clock_tests;
#[cfg(test)]
mod tests;
