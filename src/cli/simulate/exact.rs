//! Plays arrivals against limits that are decided at once, as by one proxy next to its store.

use super::arrivals::{ArrivalCharge, SimulatedArrival};
use super::backend::Backend;
use super::played::PlayedArrival;
use super::scenario::{charges, counted, is_blocked, merge, peek};
use crate::gate::Gate;
use crate::limit::{Charge, DecidedCharge, DecidedCharges, Holder, Policy, PolicyId};
use crate::replay::{Flight, FlightCharges, RequestsInFlight, lease, settlement};
use crate::store::StoreError;
use crate::time::{Micros, Timestamp};

/// Plays requests against the same limits, each of which is decided when it arrives.
#[derive(Debug)]
pub(super) struct ExactPlayer<'a> {
    gate: &'a Gate,
    backend: &'a Backend,
    limits: Vec<PolicyId>,
    now: Timestamp,
    /// By how much the clock has been set back so far. Requests in flight are scheduled by a time that never runs
    /// backwards: that of the clock plus this.
    set_back: u64,
    in_flight: RequestsInFlight,
    /// The number of arrivals so far, which are the holders of slots.
    arrivals: u64,
}

impl<'a> ExactPlayer<'a> {
    /// A player of requests against these limits, of which there is at least one.
    pub fn new(gate: &'a Gate, backend: &'a Backend, limits: Vec<PolicyId>) -> Self {
        let now = Timestamp::default();
        Self { gate, backend, limits, now, set_back: 0, in_flight: RequestsInFlight::default(), arrivals: 0 }
    }

    /// Plays an arrival.
    pub async fn arrive(&mut self, arrival: &SimulatedArrival) -> Result<PlayedArrival, StoreError> {
        self.advance(arrival.at).await?;
        let mut per_limit = charges(self.gate, &self.limits, arrival);
        self.arrivals += 1;
        for one in &mut per_limit {
            one.charge.holder = Holder(self.arrivals);
        }
        let policies = &self.gate.limits.policies;
        let decided = if is_blocked(policies, &per_limit) {
            peek(&self.backend.store, policies, &per_limit).await?
        } else {
            let taken = counted(&per_limit);
            merge(&per_limit, self.backend.store.take(policies, &taken).await?)
        };
        let played = PlayedArrival::new(policies, decided);
        self.start_flight(&played, &per_limit, arrival);
        Ok(played)
    }

    /// The status of the key of `arrival` in each limit at a time. Spends nothing.
    pub async fn peek(
        &mut self,
        at: Timestamp,
        arrival: &SimulatedArrival,
    ) -> Result<DecidedCharges, StoreError> {
        self.advance(at).await?;
        let per_limit = charges(self.gate, &self.limits, arrival);
        peek(&self.backend.store, &self.gate.limits.policies, &per_limit).await
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
    fn start_flight(
        &mut self,
        played: &PlayedArrival,
        per_limit: &[ArrivalCharge],
        arrival: &SimulatedArrival,
    ) {
        let policies = &self.gate.limits.policies;
        let policy = |charge: &Charge| &policies[charge.policy];
        if played.decided.iter().any(|one| !one.decision.allowed && !policy(&one.charge).shadow) {
            return;
        }
        let holds = |(one, decided): &(&ArrivalCharge, &DecidedCharge)| {
            decided.decision.allowed
                && one.preset.is_none()
                && one.charge.cost > 0
                && lease(policy(&one.charge)).is_some()
        };
        let slots = per_limit.iter().zip(&played.decided).filter(holds).map(|(one, _)| one.charge).collect();
        let settlement = end_charges(policies, per_limit, played, arrival);
        let now = self.scheduled(arrival.at);
        let end = now.after(played.delay).after(arrival.in_flight);
        self.in_flight.start(now, end, Flight { slots, settlement }, policies);
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

/// What limits that settle refund or charge at the end of an admitted arrival.
fn end_charges(
    policies: &[Policy],
    per_limit: &[ArrivalCharge],
    played: &PlayedArrival,
    arrival: &SimulatedArrival,
) -> FlightCharges {
    let Some(units) = arrival.settle else { return FlightCharges::new() };
    let has_taken = |(one, decided): &(&ArrivalCharge, &DecidedCharge)| {
        let policy = &policies[one.charge.policy];
        policy.settles() && decided.decision.allowed && one.preset.is_none() && one.charge.takes_units()
    };
    let taken = per_limit.iter().zip(&played.decided).filter(has_taken);
    taken.filter_map(|(one, decided)| settlement(&policies[one.charge.policy], decided, units)).collect()
}
