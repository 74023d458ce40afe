//! The scenario of a simulation.

use super::arrivals::SimulatedArrival;
use super::charges;
use super::proxy_settings::ProxySettings;
use crate::gate::Gate;
use crate::limit::{Key, Policy, PolicyId};

/// Arrivals, and the limits that they are played against.
#[derive(Debug)]
pub(super) struct Scenario<'a> {
    pub gate: &'a Gate,
    pub policies: &'a [Policy],
    /// The limits of each player.
    pub players: Vec<Vec<PolicyId>>,
    /// Whether each limit is played by itself.
    pub compare: bool,
    /// The proxies of limits with `ahead`.
    pub proxies: ProxySettings,
    pub arrivals: &'a [SimulatedArrival],
}

impl Scenario<'_> {
    /// Every key that the arrivals are charged to, without duplicates.
    pub fn keys(&self) -> Vec<(PolicyId, Key)> {
        let charges = self.players.iter().flat_map(|limits| {
            self.arrivals.iter().flat_map(|arrival| charges::charges(self.gate, limits, arrival))
        });
        let mut keys: Vec<(PolicyId, Key)> = charges.map(|one| (one.charge.policy, one.charge.key)).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}
