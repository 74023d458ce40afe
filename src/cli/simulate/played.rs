//! The decisions on one arrival.

use crate::limit::{Charge, Decision, Policy, binding};
use crate::store::Decisions;
use crate::telemetry::DecisionSource;
use crate::time::Micros;

/// The decisions on one arrival.
#[derive(Debug)]
pub(super) struct PlayedArrival {
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
    /// The proxy that has decided it; `None` if proxies are not simulated.
    pub origin: Option<DecisionOrigin>,
}

/// Where an arrival was decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecisionOrigin {
    /// The number of the proxy, from 1.
    pub proxy: usize,
    /// What has decided, as in the metrics.
    pub source: DecisionSource,
    /// How many calls to Redis the proxy has sent for it.
    pub calls: usize,
}

impl PlayedArrival {
    /// The decisions of all limits.
    pub fn new(policies: &[Policy], charges: Vec<Charge>, decisions: Decisions) -> Self {
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
        Self { charges, decisions, shown, allowed, delay, origin: None }
    }

    /// The charge and the decision of the binding limit.
    pub fn binding(&self) -> (&Charge, &Decision) {
        (&self.charges[self.shown], &self.decisions[self.shown])
    }
}
