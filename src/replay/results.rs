//! What a configuration would have done with the requests of a log.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde::Serialize;

use super::entry::LoggedRequest;
use super::part_sources::absent_parts_of;
use super::planned::PlannedEntry;
use super::player::{PlayedEntry, ReplayVerdict};
use super::tally::{Series, Tally};
use crate::gate::{Gate, KeyPart, RouteId};
use crate::id_vec::Id as _;
use crate::limit::PolicyId;
use crate::telemetry::{KeyConsumer, KeyLabel};
use crate::time::Timestamp;

/// How many keys of each limit are counted exactly.
const EXACT_KEYS: usize = 100_000;

/// What a configuration would have done with the requests of a log.
#[derive(Debug)]
pub struct Results {
    /// The requests, by what would have happened to them.
    pub counts: LogCounts,
    /// By route.
    pub routes: BTreeMap<RouteId, RouteResults>,
    /// Requests whose host the log has.
    pub with_host: u64,
    /// The most further fields, `extra1` and so on, that a line has.
    pub extra_fields: usize,
    /// All requests and denials over time.
    pub series: Series,
    /// The arrivals of the first and the last.
    pub period: Option<(Timestamp, Timestamp)>,
    /// By limit.
    pub limits: Vec<LimitResults>,
    /// The client of all requests so far, if there is only one.
    clients: Clients,
}

/// The requests of a log, by what would have happened to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LogCounts {
    /// All.
    pub all: u64,
    /// Those that are forwarded, or get the response of their route.
    pub forwarded: u64,
    /// Those that a limit denies.
    pub denied: u64,
    /// Those without a route.
    pub unrouted: u64,
    /// Those that are rejected for another reason, by the reason.
    pub rejected: BTreeMap<String, u64>,
    /// Those of which the log has too little to play them, by the reason.
    pub unplayed: BTreeMap<String, u64>,
}

/// What one limit would have done.
#[derive(Debug)]
pub struct LimitResults {
    /// The requests that it decided, and its denials. Those of a limit in shadow mode are the ones that it would make.
    pub tally: Tally,
    /// Requests of its routes.
    pub requests: u64,
    /// Requests that lack a part of its key, and would have been denied for that.
    pub without_key: u64,
    /// Requests that it exempts.
    pub exempt: u64,
    /// The parts of its key that logs can lack, each with the number of requests that lack it.
    pub missing: Vec<(KeyPart, u64)>,
    parts: Vec<KeyPart>,
}

/// What would have happened to the requests of one route.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteResults {
    /// All.
    pub requests: u64,
    /// Those that a limit would have denied.
    pub denied: u64,
}

#[derive(Debug, Default)]
enum Clients {
    #[default]
    None,
    One(IpAddr),
    Several,
}

impl Results {
    /// No results yet, for the limits of this configuration.
    #[must_use]
    pub fn new(gate: &Gate) -> Self {
        Self {
            counts: LogCounts::default(),
            routes: BTreeMap::new(),
            with_host: 0,
            extra_fields: 0,
            series: Series::default(),
            period: None,
            limits: gate.limits().map(|(limit, _)| LimitResults::new(gate, limit)).collect(),
            clients: Clients::None,
        }
    }

    /// Adds what happens to a request.
    pub fn record(
        &mut self,
        entry: &LoggedRequest<'_>,
        played: &PlayedEntry,
        planned: Option<&PlannedEntry<'_>>,
    ) {
        self.counts.all += 1;
        let first = self.period.map_or(entry.arrival, |(first, _)| first);
        self.period = Some((first, entry.arrival));
        self.series.record(entry.arrival, matches!(played.verdict, ReplayVerdict::Denied(_)));
        if let Some(planned) = planned {
            self.clients.add(planned.client());
            self.record_route(entry, played);
            self.record_decisions(entry, played, planned);
            self.record_missing(planned);
        }
        for limit in &played.exempt {
            self.of(*limit, |limit| limit.exempt += 1);
        }
        match &played.verdict {
            ReplayVerdict::Forwarded(_) if played.route.is_none() => self.counts.unrouted += 1,
            ReplayVerdict::Forwarded(_) => self.counts.forwarded += 1,
            ReplayVerdict::Denied(_) => self.counts.denied += 1,
            ReplayVerdict::Missing(part) => {
                self.reject(part.detail());
                self.of(part.limit, |limit| limit.without_key += 1);
            }
            ReplayVerdict::Consumer(error) => self.reject(error.to_string()),
            ReplayVerdict::Blocked(_) => self.reject("the route blocks all requests".to_owned()),
            ReplayVerdict::Rejected(error) => self.reject(error.to_string()),
            ReplayVerdict::Incomplete(error) => {
                *self.counts.unplayed.entry(error.to_string()).or_default() += 1;
            }
        }
    }

    /// The client of all requests, if there is only one.
    #[must_use]
    pub fn only_client(&self) -> Option<IpAddr> {
        if let Clients::One(client) = self.clients { Some(client) } else { None }
    }

    fn record_decisions(
        &mut self,
        entry: &LoggedRequest<'_>,
        played: &PlayedEntry,
        planned: &PlannedEntry<'_>,
    ) {
        for (limit, charge, decision) in &played.decisions {
            let label = || label(planned.key_label(charge));
            self.of(*limit, |limit| {
                limit.tally.record(charge.key, entry.arrival, !decision.allowed, label);
            });
        }
    }

    fn record_route(&mut self, entry: &LoggedRequest<'_>, played: &PlayedEntry) {
        self.with_host += u64::from(entry.host.is_some());
        let extra = entry.fields.iter().filter(|(name, _)| name.starts_with("extra")).count();
        self.extra_fields = self.extra_fields.max(extra);
        if let Some(route) = played.route {
            let route = self.routes.entry(route).or_default();
            route.requests += 1;
            route.denied += u64::from(matches!(played.verdict, ReplayVerdict::Denied(_)));
        }
    }

    fn record_missing(&mut self, planned: &PlannedEntry<'_>) {
        for limit in planned.limits() {
            self.of(*limit, |limit| {
                limit.requests += 1;
                if !limit.parts.is_empty() {
                    let lacks = planned.lacks(&limit.parts);
                    for ((_, count), is_missing) in limit.missing.iter_mut().zip(lacks) {
                        *count += u64::from(is_missing);
                    }
                }
            });
        }
    }

    fn reject(&mut self, reason: String) {
        *self.counts.rejected.entry(reason).or_default() += 1;
    }

    fn of(&mut self, limit: PolicyId, change: impl FnOnce(&mut LimitResults)) {
        if let Some(limit) = self.limits.get_mut(limit.index()) {
            change(limit);
        }
    }
}

impl LogCounts {
    /// Whether the log had too little of every request to play it.
    #[must_use]
    pub fn are_none_played(&self) -> bool {
        self.unplayed.values().sum::<u64>() == self.all
    }
}

impl LimitResults {
    fn new(gate: &Gate, limit: PolicyId) -> Self {
        let parts = absent_parts_of(gate, limit);
        let missing = parts.iter().map(|part| (part.clone(), 0)).collect();
        Self { tally: Tally::new(EXACT_KEYS), requests: 0, without_key: 0, exempt: 0, missing, parts }
    }
}

impl Clients {
    fn add(&mut self, client: IpAddr) {
        match self {
            Self::None => *self = Self::One(client),
            Self::One(only) if *only != client => *self = Self::Several,
            Self::One(_) | Self::Several => {}
        }
    }
}

fn label(name: Option<String>) -> Arc<KeyLabel> {
    Arc::new(KeyLabel { consumer: KeyConsumer::None, name: name.map(Into::into) })
}
