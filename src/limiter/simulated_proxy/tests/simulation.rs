//! The course of a simulation: its events in the order of their times.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use super::load::{self, Arrival, Phase};
use super::process::{Call, Place, Process, Verdict};
use super::reference::{Reference, take};
use crate::limit::{Charge, Key, Policy, PolicyId, State};
use crate::limiter::limits::{Limits, OnStoreFailure};
use crate::store::{Granted, Memory};
use crate::time::{Clock, Micros, Timestamp};

/// When simulations start by the clock of the store: a second before midnight of 2026-09-22 UTC.
const START: u64 = 1_790_035_199_000_000;
/// How long a process waits for a reply.
const DEADLINE: u64 = 300_000;

/// The messages between processes and the store.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// How many calls or replies in a thousand are lost.
    pub lost: u16,
    /// How many messages in a thousand take 20 to 40 milliseconds longer.
    pub slow: u16,
}

/// A simulation before it starts.
#[derive(Clone, Debug)]
pub struct Setup {
    pub policy: Policy,
    pub places: Vec<Place>,
    pub network: Network,
    pub phases: Vec<Phase>,
    /// Processes that crash, and when.
    pub crashes: Vec<(usize, Micros)>,
    pub seed: u64,
}

/// The totals of a simulation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub requests: u64,
    /// Requests to the last process, and those of them that were decided without a call.
    pub requests_of_last: u64,
    pub at_once_of_last: u64,
    pub calls: u64,
    /// Admitted units.
    pub admitted: u64,
    /// Those of them that were spent from grants.
    pub spent: u64,
    /// Those of them that the limit does not allow.
    pub over: u64,
    /// What the limit would have admitted if each request were decided exactly when it comes.
    pub oracle: u64,
}

enum Event {
    Request(Arrival),
    Arrives(Box<Call>),
    Replied(Box<Call>, Box<Granted>),
    /// A process waits for a reply no longer.
    Lost(Box<Call>),
    Sweep(usize),
    Crash(usize),
}

struct Simulation {
    limits: Limits,
    network: Network,
    store: Memory,
    processes: Vec<Process>,
    events: BTreeMap<(u64, u64), Event>,
    /// The number of the next event.
    number: u64,
    random: fastrand::Rng,
    reference: Reference,
    oracle: Option<State>,
    /// When the demand ends.
    end: u64,
    totals: Totals,
}

impl Totals {
    /// Calls to the store for each request.
    pub fn calls_per_request(&self) -> f64 {
        ratio(self.calls, self.requests)
    }

    /// Admitted units for each one that the oracle admits.
    pub fn admitted_of_oracle(&self) -> f64 {
        ratio(self.admitted, self.oracle)
    }

    /// The share of the last process's requests that did not wait for a call.
    pub fn at_once_of_last(&self) -> f64 {
        ratio(self.at_once_of_last, self.requests_of_last)
    }
}

#[expect(clippy::cast_precision_loss, reason = "the numbers are small")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

impl Setup {
    /// Four processes half a millisecond away from the store, with clocks of different speeds, on a network with some slow
    /// messages.
    pub fn new(policy: Policy, phases: Vec<Phase>) -> Self {
        let place = |drift| Place { travel: Micros(500), drift };
        let places = [-500, -100, 300, 500].map(place).to_vec();
        let network = Network { lost: 0, slow: 2 };
        Self { policy, places, network, phases, crashes: Vec::new(), seed: 1 }
    }

    /// Runs the simulation.
    pub fn run(&self) -> Totals {
        let mut simulation = Simulation::new(self);
        while let Some(((now, _), event)) = simulation.events.pop_first() {
            simulation.handle(event, now);
        }
        simulation.totals
    }
}

impl Simulation {
    fn new(setup: &Setup) -> Self {
        let policy = setup.policy.clone();
        let store = Memory::new(16, Clock::manual(Timestamp(START)));
        let reference = Reference::new(&policy.quota);
        let processes: Vec<Process> = setup.places.iter().map(|place| Process::new(*place)).collect();
        let mut simulation = Self {
            limits: Limits::new(vec![(policy, OnStoreFailure::Deny)], NonZeroU64::MIN),
            network: setup.network,
            store,
            processes,
            events: BTreeMap::new(),
            number: 0,
            random: fastrand::Rng::with_seed(setup.seed),
            reference,
            oracle: None,
            end: setup.phases.iter().map(|phase| phase.length.0).sum(),
            totals: Totals::default(),
        };
        for arrival in load::arrivals(&setup.phases, setup.places.len(), &mut simulation.random) {
            simulation.push(arrival.at, Event::Request(arrival));
        }
        for (process, at) in &setup.crashes {
            simulation.push(at.0, Event::Crash(process % setup.places.len()));
        }
        for process in 0..setup.places.len() {
            let first = simulation.random.u64(..simulation.sweep_interval());
            simulation.push(first, Event::Sweep(process));
        }
        simulation
    }

    fn policy(&self) -> &Policy {
        &self.limits.policies[0]
    }

    fn sweep_interval(&self) -> u64 {
        self.policy().ahead.map_or(1_000_000, |ahead| ahead.span.0 / 4)
    }

    fn push(&mut self, at: u64, event: Event) {
        self.number += 1;
        self.events.insert((at, self.number), event);
    }

    fn handle(&mut self, event: Event, now: u64) {
        match event {
            Event::Request(arrival) => self.request(arrival, now),
            Event::Arrives(call) => self.answer(call, now),
            Event::Replied(call, granted) => {
                self.processes[call.process].receive(&self.limits, *call, &granted, now);
            }
            Event::Lost(call) => drop(call),
            Event::Sweep(process) => {
                let calls = self.processes[process].sweep(process, now);
                for call in calls {
                    self.send(call, now);
                }
                if now < self.end {
                    self.push(now + self.sweep_interval(), Event::Sweep(process));
                }
            }
            Event::Crash(process) => self.processes[process].crash(),
        }
    }

    fn request(&mut self, arrival: Arrival, now: u64) {
        let Arrival { process, cost, .. } = arrival;
        self.totals.requests += 1;
        let time = Timestamp(START + now);
        if take(&self.limits.policies[0].quota, &mut self.oracle, time, cost) {
            self.totals.oracle += cost;
        }
        let charge = Charge::take(PolicyId(0), Key([1; 16]), cost);
        let response = self.processes[process].decide(&self.limits, &charge, (process, now));
        if response.verdict == Verdict::Admitted {
            self.totals.spent += cost;
            self.admit(cost, now);
        }
        if process + 1 == self.processes.len() {
            self.totals.requests_of_last += 1;
            self.totals.at_once_of_last += u64::from(response.verdict != Verdict::Waiting);
        }
        for call in response.calls {
            self.send(call, now);
        }
    }

    fn send(&mut self, call: Call, now: u64) {
        let call = Box::new(call);
        self.totals.calls += 1;
        if self.is_lost() {
            self.push(now + DEADLINE, Event::Lost(call));
        } else {
            let arrives = now + self.travel(&call);
            self.push(arrives, Event::Arrives(call));
        }
    }

    /// The store decides a call. A request whose reply is lost counts as admitted as well.
    fn answer(&mut self, call: Box<Call>, now: u64) {
        self.store.clock().set(Timestamp(START + now));
        let (policies, charges, requests) =
            (&self.limits.policies, call.sent.charges(), call.sent.requests());
        let granted = if call.sent.decides_request() {
            self.store.take_with_grants(policies, charges, requests)
        } else {
            self.store.apply_with_grants(policies, charges, requests)
        };
        let cost = charges[0].cost;
        if granted.decisions[0].allowed && cost > 0 {
            self.admit(cost, now);
        }
        if self.is_lost() {
            self.push(now + DEADLINE, Event::Lost(call));
        } else {
            let arrives = now + self.travel(&call);
            self.push(arrives, Event::Replied(call, Box::new(granted)));
        }
    }

    fn admit(&mut self, units: u64, now: u64) {
        self.totals.admitted += units;
        if !self.reference.admit(&self.limits.policies[0].quota, Timestamp(START + now), units) {
            self.totals.over += units;
        }
    }

    fn is_lost(&mut self) -> bool {
        self.random.u16(..1_000) < self.network.lost
    }

    /// How long a message takes: at least half of the average.
    fn travel(&mut self, call: &Call) -> u64 {
        let half = self.processes[call.process].place.travel.0 / 2;
        let is_slow = self.random.u16(..1_000) < self.network.slow;
        let slow = if is_slow { self.random.u64(20_000..40_000) } else { 0 };
        // Exponentially distributed beyond that.
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a few seconds at most"
        )]
        let more = (-(half as f64) * (1.0 - self.random.f64()).ln()) as u64;
        1 + half + more + slow
    }
}
