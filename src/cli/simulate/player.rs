//! Plays arrivals against limits, as a proxy would ask for them, on a clock that it moves.

use std::collections::{BTreeMap, BTreeSet};

use super::arrivals::Arrival;
use super::backend::Backend;
use super::keys::{self, Asked};
use crate::gate::Gate;
use crate::limit::{Charge, ChargeKind, Decision, Holder, Policy, PolicyId, Quota, binding};
use crate::store::{Decisions, StoreError};
use crate::time::{Micros, Timestamp};

/// A lease is renewed when this share of it has gone by, as the proxy does it.
const RENEWALS: u64 = 3;

/// Plays requests that have these limits.
#[derive(Debug)]
pub(super) struct Player<'a> {
    gate: &'a Gate,
    venue: &'a Backend,
    limits: Vec<PolicyId>,
    now: Timestamp,
    /// By how much the clock has been set back so far. What is in flight goes on meanwhile, so it is kept by
    /// a time that never runs backwards: the clock's plus this.
    set_back: u64,
    flights: Flights,
}

/// Requests that hold slots.
#[derive(Debug, Default)]
struct Flights {
    /// By the time of their end and the holder.
    ends: BTreeMap<(u64, u64), Vec<Charge>>,
    /// When leases are to be renewed, and whose: see `ends`.
    renewals: BTreeSet<(u64, (u64, u64))>,
    holders: u64,
}

/// What becomes of one arrival.
#[derive(Debug)]
pub(super) struct Played {
    /// What it was charged, by each limit, if it was admitted.
    pub charges: Vec<Charge>,
    /// What each limit says.
    pub decisions: Decisions,
    /// The place of the limit whose word is shown.
    pub shown: usize,
    /// Whether it is admitted.
    pub allowed: bool,
    /// How long it is held before it is forwarded.
    pub delay: Micros,
}

impl Played {
    fn new(policies: &[Policy], charges: Vec<Charge>, decisions: Decisions) -> Self {
        let enforces = |place: &usize| !policies[charges[*place].policy].shadow;
        let mut heard: Vec<usize> = (0..decisions.len()).filter(enforces).collect();
        if heard.is_empty() {
            // Who names nothing but limits that only watch wants to know what they would do.
            heard = (0..decisions.len()).collect();
        }
        let said = || heard.iter().map(|place| &decisions[*place]);
        let shown = binding(said()).and_then(|place| heard.get(place)).copied().unwrap_or(0);
        let allowed = said().all(|decision| decision.allowed);
        let delay = said().map(|decision| decision.delay).max().filter(|_| allowed).unwrap_or_default();
        Self { charges, decisions, shown, allowed, delay }
    }

    /// What the limit that binds has charged and said.
    pub fn binding(&self) -> (&Charge, &Decision) {
        (&self.charges[self.shown], &self.decisions[self.shown])
    }
}

impl<'a> Player<'a> {
    /// A player of requests that have these limits, of which there is at least one.
    pub fn new(gate: &'a Gate, venue: &'a Backend, limits: Vec<PolicyId>) -> Self {
        let now = Timestamp::default();
        Self { gate, venue, limits, now, set_back: 0, flights: Flights::default() }
    }

    /// The limits, in their order.
    pub fn limits(&self) -> impl ExactSizeIterator<Item = &'a Policy> {
        self.limits.iter().map(|id| &self.gate.limits.policies[*id])
    }

    /// Plays an arrival.
    pub async fn arrive(&mut self, arrival: &Arrival) -> Result<Played, StoreError> {
        self.advance(arrival.at).await?;
        let mut asked = self.asked(arrival);
        self.flights.holders += 1;
        for one in &mut asked {
            one.charge.holder = Holder(self.flights.holders);
        }
        let policies = &self.gate.limits.policies;
        let turns_away = |one: &Asked| {
            one.ruled.is_some_and(|ruled| !ruled.allowed) && !policies[one.charge.policy].shadow
        };
        let decisions = if asked.iter().any(turns_away) {
            self.standing(&asked).await?
        } else {
            let taken = counted(&asked);
            merge(&asked, &self.venue.store.take(policies, &taken).await?)
        };
        let charges = asked.iter().map(|one| one.charge).collect();
        let played = Played::new(policies, charges, decisions);
        self.take_off(&played, &asked, arrival);
        Ok(played)
    }

    /// How the key of `arrival` stands with each limit at a time; spends nothing.
    pub async fn look(&mut self, at: Timestamp, arrival: &Arrival) -> Result<Decisions, StoreError> {
        self.advance(at).await?;
        self.standing(&self.asked(arrival)).await
    }

    async fn standing(&self, asked: &[Asked]) -> Result<Decisions, StoreError> {
        let looks: Vec<Charge> = counted(asked).iter().map(|charge| charge.peek()).collect();
        Ok(merge(asked, &self.venue.store.charge_late(&self.gate.limits.policies, &looks).await?))
    }

    fn asked(&self, arrival: &Arrival) -> Vec<Asked> {
        self.limits.iter().map(|id| keys::asked(self.gate, *id, arrival)).collect()
    }

    /// When the last of those in flight ends, if there are any.
    pub fn busy_until(&self) -> Option<Timestamp> {
        let (end, _) = self.flights.ends.last_key_value()?.0;
        Some(Timestamp(end.saturating_sub(self.set_back)))
    }

    /// Moves the clock, and does on the way what is due: slots are given back, each at its time, and leases
    /// renewed. A lease that nobody looked at is renewed once, however long ago it was due.
    async fn advance(&mut self, to: Timestamp) -> Result<(), StoreError> {
        self.set_back += self.now.0.saturating_sub(to.0);
        self.now = to;
        let (policies, now) = (&self.gate.limits.policies, to.0.saturating_add(self.set_back));
        while let Some((end, charges)) = self.flights.next_end(now) {
            self.venue.set(Timestamp(end.saturating_sub(self.set_back)));
            self.venue.store.charge_late(policies, &charges).await?;
        }
        self.venue.set(to);
        while let Some((flight, charges)) = self.flights.next_renewal(now) {
            self.flights.renewals.insert((now.saturating_add(renewal(policies, &charges)), flight));
            let charges: Vec<Charge> = charges.iter().map(|charge| charge.with(ChargeKind::Renew)).collect();
            self.venue.store.charge_late(policies, &charges).await?;
        }
        Ok(())
    }

    /// Notes a request that holds slots: from its admission until it is answered.
    fn take_off(&mut self, played: &Played, asked: &[Asked], arrival: &Arrival) {
        let policies = &self.gate.limits.policies;
        let policy = |charge: &Charge| &policies[charge.policy];
        let is_refused =
            |(one, decision): (&Asked, &Decision)| !decision.allowed && !policy(&one.charge).shadow;
        let both = || asked.iter().zip(&played.decisions);
        if both().any(is_refused) {
            return;
        }
        let holds = |(one, decision): &(&Asked, &Decision)| {
            decision.allowed
                && one.ruled.is_none()
                && one.charge.cost > 0
                && lease(policy(&one.charge)).is_some()
        };
        let held: Vec<Charge> = both().filter(holds).map(|(one, _)| one.charge).collect();
        if held.is_empty() {
            return;
        }
        let now = arrival.at.0.saturating_add(self.set_back);
        let end = now.saturating_add(played.delay.0).saturating_add(arrival.in_flight.0);
        let flight = (end, self.flights.holders);
        self.flights.renewals.insert((now.saturating_add(renewal(policies, &held)), flight));
        self.flights.ends.insert(flight, held);
    }
}

impl Flights {
    /// The next flight that has ended: when, and what it gives back.
    fn next_end(&mut self, now: u64) -> Option<(u64, Vec<Charge>)> {
        let entry = self.ends.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((end, _), charges) = entry.remove_entry();
        Some((end, charges.iter().map(|charge| charge.with(ChargeKind::GiveBack)).collect()))
    }

    /// The next flight whose leases are to be renewed.
    fn next_renewal(&mut self, now: u64) -> Option<((u64, u64), Vec<Charge>)> {
        while self.renewals.first().is_some_and(|(due, _)| *due <= now) {
            let (_, flight) = self.renewals.pop_first()?;
            if let Some(charges) = self.ends.get(&flight) {
                return Some((flight, charges.clone()));
            }
        }
        None
    }
}

/// What has to be asked of the store.
fn counted(asked: &[Asked]) -> Vec<Charge> {
    asked.iter().filter(|one| one.ruled.is_none()).map(|one| one.charge).collect()
}

/// All decisions, those of the store in their places.
fn merge(asked: &[Asked], counted: &[Decision]) -> Decisions {
    let mut counted = counted.iter().copied();
    asked.iter().filter_map(|one| one.ruled.or_else(|| counted.next())).collect()
}

fn lease(policy: &Policy) -> Option<Micros> {
    if let Quota::Concurrency(slots) = &policy.quota { Some(slots.lease()) } else { None }
}

/// After what time leases are to be renewed.
fn renewal(policies: &[Policy], charges: &[Charge]) -> u64 {
    let leases = charges.iter().filter_map(|charge| lease(&policies[charge.policy]));
    leases.map(|lease| lease.0 / RENEWALS).min().unwrap_or(0).max(1)
}
