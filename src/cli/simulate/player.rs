//! Plays arrivals against the same limits.

use std::collections::VecDeque;

use super::arrivals::SimulatedArrival;
use super::exact::ExactPlayer;
use super::played::PlayedArrival;
use super::proxy_player::ProxyPlayer;
use crate::gate::Gate;
use crate::limit::{DecidedCharges, Policy, PolicyId};
use crate::store::StoreError;
use crate::time::Timestamp;

/// Plays requests against the same limits.
pub(super) struct ArrivalPlayer<'a> {
    gate: &'a Gate,
    limits: Vec<PolicyId>,
    engine: Decider<'a>,
    /// The results that are known, in the order of the arrivals.
    results: VecDeque<PlayedArrival>,
}

/// What decides the arrivals.
pub(super) enum Decider<'a> {
    /// The store, at once.
    Exact(ExactPlayer<'a>),
    /// Proxies that hold grants.
    Proxies(Box<ProxyPlayer<'a>>),
}

impl<'a> ArrivalPlayer<'a> {
    /// A player of requests against these limits, of which there is at least one.
    pub fn new(gate: &'a Gate, limits: Vec<PolicyId>, engine: Decider<'a>) -> Self {
        Self { gate, limits, engine, results: VecDeque::new() }
    }

    /// The limits, in their order.
    pub fn limits(&self) -> impl ExactSizeIterator<Item = &'a Policy> {
        self.limits.iter().map(|id| &self.gate.limits.policies[*id])
    }

    /// Plays an arrival. Its result may be known only after later arrivals.
    pub async fn arrive(&mut self, arrival: &SimulatedArrival) -> Result<(), StoreError> {
        match &mut self.engine {
            Decider::Exact(exact) => self.results.push_back(exact.arrive(arrival).await?),
            Decider::Proxies(proxies) => {
                proxies.arrive(arrival).await?;
                self.results.extend(proxies.take_results());
            }
        }
        Ok(())
    }

    /// Plays on until the results of all arrivals are known.
    pub async fn finish(&mut self) -> Result<(), StoreError> {
        if let Decider::Proxies(proxies) = &mut self.engine {
            proxies.finish().await?;
            self.results.extend(proxies.take_results());
        }
        Ok(())
    }

    /// The results that are known and were not taken yet, in the order of the arrivals.
    pub fn results(&mut self) -> &mut VecDeque<PlayedArrival> {
        &mut self.results
    }

    /// The status of the key of `arrival` in each limit at a time. Spends nothing.
    pub async fn peek(
        &mut self,
        at: Timestamp,
        arrival: &SimulatedArrival,
    ) -> Result<DecidedCharges, StoreError> {
        match &mut self.engine {
            Decider::Exact(exact) => exact.peek(at, arrival).await,
            Decider::Proxies(proxies) => proxies.peek(at, arrival).await,
        }
    }

    /// When the last request in flight ends, if there is any.
    pub fn busy_until(&self) -> Option<Timestamp> {
        match &self.engine {
            Decider::Exact(exact) => exact.busy_until(),
            Decider::Proxies(_) => None,
        }
    }

    /// The simulated proxies, if a limit has `ahead`.
    pub fn proxies(&self) -> Option<&ProxyPlayer<'a>> {
        match &self.engine {
            Decider::Exact(_) => None,
            Decider::Proxies(proxies) => Some(proxies),
        }
    }
}
