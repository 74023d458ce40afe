//! Plays arrivals against limits as the proxy would, on a manual clock.

use super::arrivals::Arrival;
use super::backend::Backend;
use super::charges::{self, ArrivalCharge};
use crate::gate::Gate;
use crate::limit::{Charge, Decision, Holder, Policy, PolicyId, binding};
use crate::replay::{Flight, InFlight, lease};
use crate::store::{Decisions, StoreError};
use crate::time::{Micros, Timestamp};

/// Plays requests against the same limits.
#[derive(Debug)]
pub(super) struct Player<'a> {
    gate: &'a Gate,
    backend: &'a Backend,
    limits: Vec<PolicyId>,
    now: Timestamp,
    /// By how much the clock has been set back so far. Requests in flight are scheduled by a time that never runs
    /// backwards: that of the clock plus this.
    set_back: u64,
    in_flight: InFlight,
    /// The number of arrivals so far, which are the holders of slots.
    arrivals: u64,
}

/// The decisions on one arrival.
#[derive(Debug)]
pub(super) struct Played {
    /// The charge of each limit, if it is admitted.
    pub charges: Vec<Charge>,
    /// The decision of each limit.
    pub decisions: Decisions,
    /// The index of the limit whose decision is shown.
    shown: usize,
    /// Whether it is admitted.
    pub allowed: bool,
    /// How long it is held before it is forwarded.
    pub delay: Micros,
}

impl Played {
    fn new(policies: &[Policy], charges: Vec<Charge>, decisions: Decisions) -> Self {
        let enforces = |index: &usize| !policies[charges[*index].policy].shadow;
        let mut effective: Vec<usize> = (0..decisions.len()).filter(enforces).collect();
        if effective.is_empty() {
            // All of them are in shadow mode: the simulation shows how they would decide.
            effective = (0..decisions.len()).collect();
        }
        let decided = || effective.iter().map(|index| &decisions[*index]);
        let shown = binding(decided()).and_then(|index| effective.get(index)).copied().unwrap_or(0);
        let allowed = decided().all(|decision| decision.allowed);
        let delay = decided().map(|decision| decision.delay).max().filter(|_| allowed).unwrap_or_default();
        Self { charges, decisions, shown, allowed, delay }
    }

    /// The charge and the decision of the binding limit.
    pub fn binding(&self) -> (&Charge, &Decision) {
        (&self.charges[self.shown], &self.decisions[self.shown])
    }
}

impl<'a> Player<'a> {
    /// A player of requests against these limits, of which there is at least one.
    pub fn new(gate: &'a Gate, backend: &'a Backend, limits: Vec<PolicyId>) -> Self {
        let now = Timestamp::default();
        Self { gate, backend, limits, now, set_back: 0, in_flight: InFlight::default(), arrivals: 0 }
    }

    /// The limits, in their order.
    pub fn limits(&self) -> impl ExactSizeIterator<Item = &'a Policy> {
        self.limits.iter().map(|id| &self.gate.limits.policies[*id])
    }

    /// Plays an arrival.
    pub async fn arrive(&mut self, arrival: &Arrival) -> Result<Played, StoreError> {
        self.advance(arrival.at).await?;
        let mut per_limit = self.charges(arrival);
        self.arrivals += 1;
        for one in &mut per_limit {
            one.charge.holder = Holder(self.arrivals);
        }
        let policies = &self.gate.limits.policies;
        let is_blocked = |one: &ArrivalCharge| {
            one.preset.is_some_and(|preset| !preset.allowed) && !policies[one.charge.policy].shadow
        };
        let decisions = if per_limit.iter().any(is_blocked) {
            self.peek_charges(&per_limit).await?
        } else {
            let taken = counted(&per_limit);
            merge(&per_limit, &self.backend.store.take(policies, &taken).await?)
        };
        let charges = per_limit.iter().map(|one| one.charge).collect();
        let played = Played::new(policies, charges, decisions);
        self.start_flight(&played, &per_limit, arrival);
        Ok(played)
    }

    /// The status of the key of `arrival` in each limit at a time. Spends nothing.
    pub async fn peek(&mut self, at: Timestamp, arrival: &Arrival) -> Result<Decisions, StoreError> {
        self.advance(at).await?;
        self.peek_charges(&self.charges(arrival)).await
    }

    async fn peek_charges(&self, per_limit: &[ArrivalCharge]) -> Result<Decisions, StoreError> {
        let peeks: Vec<Charge> = counted(per_limit).iter().map(|charge| charge.peek()).collect();
        Ok(merge(per_limit, &self.backend.store.apply(&self.gate.limits.policies, &peeks).await?))
    }

    fn charges(&self, arrival: &Arrival) -> Vec<ArrivalCharge> {
        self.limits.iter().map(|id| charges::arrival_charge(self.gate, *id, arrival)).collect()
    }

    /// When the last request in flight ends, if there is any.
    pub fn busy_until(&self) -> Option<Timestamp> {
        self.in_flight.busy_until().map(|end| self.on_clock(end))
    }

    /// Sets the clock, after doing what is due until then: slots are released, each at its time, and leases are renewed.
    /// A lease is renewed once, even if several renewals are due.
    async fn advance(&mut self, to: Timestamp) -> Result<(), StoreError> {
        self.set_back += self.now.0.saturating_sub(to.0);
        self.now = to;
        let (policies, now) = (&self.gate.limits.policies, self.scheduled(to));
        while let Some((end, charges)) = self.in_flight.next_end(now) {
            self.backend.set_time(self.on_clock(end));
            self.backend.store.apply(policies, &charges).await?;
        }
        self.backend.set_time(to);
        while let Some(charges) = self.in_flight.next_renewal(now, policies) {
            self.backend.store.apply(policies, &charges).await?;
        }
        Ok(())
    }

    /// Records a request that holds slots from its admission until its end.
    fn start_flight(&mut self, played: &Played, per_limit: &[ArrivalCharge], arrival: &Arrival) {
        let policies = &self.gate.limits.policies;
        let policy = |charge: &Charge| &policies[charge.policy];
        let is_denied =
            |(one, decision): (&ArrivalCharge, &Decision)| !decision.allowed && !policy(&one.charge).shadow;
        let both = || per_limit.iter().zip(&played.decisions);
        if both().any(is_denied) {
            return;
        }
        let holds = |(one, decision): &(&ArrivalCharge, &Decision)| {
            decision.allowed
                && one.preset.is_none()
                && one.charge.cost > 0
                && lease(policy(&one.charge)).is_some()
        };
        let slots = both().filter(holds).map(|(one, _)| one.charge).collect();
        let now = self.scheduled(arrival.at);
        let end = now.after(played.delay).after(arrival.in_flight);
        self.in_flight.start(now, end, Flight { slots, ..Flight::default() }, policies);
    }

    /// The time by which requests in flight are scheduled, of a time of the clock.
    fn scheduled(&self, at: Timestamp) -> Timestamp {
        at.after(Micros(self.set_back))
    }

    /// The time of the clock, of one by which requests are scheduled.
    fn on_clock(&self, at: Timestamp) -> Timestamp {
        Timestamp(at.0.saturating_sub(self.set_back))
    }
}

/// The charges that the store has to decide.
fn counted(per_limit: &[ArrivalCharge]) -> Vec<Charge> {
    per_limit.iter().filter(|one| one.preset.is_none()).map(|one| one.charge).collect()
}

/// All decisions in the order of the limits: those of the store, and those that need no count.
fn merge(per_limit: &[ArrivalCharge], counted: &[Decision]) -> Decisions {
    let mut counted = counted.iter().copied();
    per_limit.iter().filter_map(|one| one.preset.or_else(|| counted.next())).collect()
}
