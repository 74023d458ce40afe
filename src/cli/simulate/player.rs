//! Plays arrivals against the same limits.

use std::collections::VecDeque;
use std::io;

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

/// The part of the simulation that decides arrivals.
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

/// Why a simulation stops.
#[derive(Debug, thiserror::Error)]
pub(super) enum SimulateError {
    /// The Redis of `--store` can't be reached.
    #[error(
        "can't reach {0}: {1}\nhelp: name a Redis that runs with --store URL, or leave --store out to play in memory"
    )]
    Unreachable(String, StoreError),
    /// A call to the store failed.
    #[error("the store failed: {0}")]
    Store(#[from] StoreError),
    /// Standard output can't be written.
    #[error(transparent)]
    Output(#[from] io::Error),
    /// SIGINT.
    #[error("interrupted")]
    Interrupted,
}

/// Plays all arrivals, and passes each to `write` with the results of all players, in order.
pub(super) async fn play(
    arrivals: &[SimulatedArrival],
    players: &mut [ArrivalPlayer<'_>],
    mut write: impl FnMut(&SimulatedArrival, &[PlayedArrival]) -> io::Result<()>,
) -> Result<(), SimulateError> {
    let mut unwritten = arrivals.iter();
    for arrival in arrivals {
        for player in &mut *players {
            player.arrive(arrival).await?;
        }
        write_known(&mut unwritten, players, &mut write)?;
    }
    for player in &mut *players {
        player.finish().await?;
    }
    write_known(&mut unwritten, players, &mut write)?;
    Ok(())
}

/// Writes the next arrivals whose results are known to all players.
fn write_known<'a>(
    unwritten: &mut impl Iterator<Item = &'a SimulatedArrival>,
    players: &mut [ArrivalPlayer<'_>],
    write: &mut impl FnMut(&SimulatedArrival, &[PlayedArrival]) -> io::Result<()>,
) -> io::Result<()> {
    while players.iter_mut().all(|player| !player.results().is_empty()) {
        let Some(arrival) = unwritten.next() else { break };
        let results: Vec<PlayedArrival> =
            players.iter_mut().filter_map(|player| player.results().pop_front()).collect();
        write(arrival, &results)?;
    }
    Ok(())
}
