//! The decisions on arrivals, which may become known in another order.

use std::collections::VecDeque;

use crate::limit::{DecidedCharge, DecidedCharges, Policy, binding};
use crate::telemetry::DecisionSource;
use crate::time::Micros;

/// The decisions on one arrival.
#[derive(Debug)]
pub(super) struct PlayedArrival {
    /// The charge of each limit, which is made if the arrival is admitted, and its decision.
    pub decided: DecidedCharges,
    /// The index of the limit whose decision is shown.
    shown: usize,
    /// Whether it is admitted.
    pub allowed: bool,
    /// How long it is held before it is forwarded.
    pub delay: Micros,
    /// The proxy that has decided it; `None` if proxies are not simulated.
    pub origin: Option<DecisionOrigin>,
}

/// Where an arrival was decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecisionOrigin {
    /// The number of the proxy, from 1.
    pub proxy: usize,
    /// The source of the decision, as in the metrics.
    pub source: DecisionSource,
    /// How many calls to Redis the proxy has sent for it.
    pub calls: usize,
}

impl PlayedArrival {
    /// The decisions of all limits.
    pub fn new(policies: &[Policy], decided: DecidedCharges) -> Self {
        let enforces = |index: &usize| !policies[decided[*index].charge.policy].shadow;
        let mut effective: Vec<usize> = (0..decided.len()).filter(enforces).collect();
        if effective.is_empty() {
            // All of them are in shadow mode: the simulation shows how they would decide.
            effective = (0..decided.len()).collect();
        }
        let decisions = || effective.iter().map(|index| &decided[*index].decision);
        let shown = binding(decisions()).and_then(|index| effective.get(index)).copied().unwrap_or(0);
        let allowed = decisions().all(|decision| decision.allowed);
        let delay = decisions().map(|decision| decision.delay).max().filter(|_| allowed).unwrap_or_default();
        Self { decided, shown, allowed, delay, origin: None }
    }

    /// The charge and the decision of the binding limit.
    pub fn binding(&self) -> &DecidedCharge {
        &self.decided[self.shown]
    }
}

/// The results of arrivals, from the first one whose result was not taken.
#[derive(Debug, Default)]
pub(super) struct ArrivalResults {
    waiting: VecDeque<Option<PlayedArrival>>,
    /// How many results were taken.
    taken: usize,
    /// How many results are not known.
    unknown: usize,
}

impl ArrivalResults {
    /// Adds an arrival without a result; returns its index.
    pub fn add(&mut self) -> usize {
        self.waiting.push_back(None);
        self.unknown += 1;
        self.taken + self.waiting.len() - 1
    }

    /// Sets the result of an arrival.
    pub fn set(&mut self, index: usize, played: PlayedArrival) {
        if let Some(waiting) = self.waiting.get_mut(index - self.taken) {
            *waiting = Some(played);
            self.unknown -= 1;
        }
    }

    /// Whether the result of every arrival is known.
    pub fn is_complete(&self) -> bool {
        self.unknown == 0
    }

    /// Takes the results that are known of the first arrivals, in their order.
    pub fn take(&mut self) -> impl Iterator<Item = PlayedArrival> {
        let known = self.waiting.iter().take_while(|result| result.is_some()).count();
        self.taken += known;
        self.waiting.drain(..known).flatten()
    }
}
