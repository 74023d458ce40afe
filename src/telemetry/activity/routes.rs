//! The requests of routes, and those to servers of upstreams, in a span of time.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::sums::{CounterSums, Cursor, Latency, ServerName, SharedName, SortedByName, largest};
use crate::telemetry::counts::{CLASSES, RouteSums, SERVER_ERROR, TOO_MANY_REQUESTS, counted_since};
use crate::telemetry::histogram::DurationSums;
use crate::telemetry::upstreams::{AttemptOutcome, ServerSums, ServerValues, UpstreamValues};

/// Requests by status class, in the order of [`CLASSES`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Responses([u64; CLASSES.len()]);

/// The requests of a route.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RouteActivity {
    name: SharedName,
    requests: u64,
    #[serde(rename = "429")]
    too_many_requests: u64,
    #[serde(rename = "5xx")]
    server_errors: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<Latency>,
}

/// The routes with requests, and the requests of all routes.
pub(super) struct Requested {
    pub responses: Responses,
    pub latency: Option<Latency>,
    pub routes: Vec<RouteActivity>,
    pub left_out: usize,
}

/// A route at both ends of the span.
struct RouteChange<'a> {
    /// None for requests that no route matched.
    name: Option<&'a Arc<str>>,
    /// None if it had counted nothing yet.
    earlier: Option<&'a RouteSums>,
    later: &'a RouteSums,
    responses: Responses,
}

/// The requests between two readings of the counters.
pub(super) fn requested(earlier: &CounterSums, later: &CounterSums) -> Requested {
    let unrouted = RouteChange::new(None, Some(&earlier.unrouted), &later.unrouted);
    let mut known = Cursor::of(&earlier.routes);
    let routes =
        later.routes.iter().map(|(name, later)| RouteChange::new(Some(name), known.seek(name), later));
    let (mut responses, mut durations, mut active) =
        (Responses::default(), DurationSums::default(), Vec::new());
    for route in std::iter::once(unrouted).chain(routes) {
        let ended = route.durations();
        if route.responses.total() > 0 || !ended.is_empty() {
            responses.add(&route.responses);
            durations.add(&ended);
            active.push(route);
        }
    }
    let rank = |RouteChange { responses, .. }: &RouteChange<'_>| {
        (responses.0[TOO_MANY_REQUESTS] + responses.0[SERVER_ERROR], responses.total())
    };
    let (routes, left_out) = largest(active, rank);
    let routes = routes.iter().map(RouteChange::activity).collect();
    Requested { responses, latency: Latency::of(&durations), routes, left_out }
}

impl<'a> RouteChange<'a> {
    fn new(name: Option<&'a Arc<str>>, earlier: Option<&'a RouteSums>, later: &'a RouteSums) -> Self {
        let classes =
            earlier.map_or(later.classes, |earlier| counted_since(&earlier.classes, &later.classes));
        Self { name, earlier, later, responses: Responses(classes) }
    }

    /// The durations of requests that have ended in the span.
    fn durations(&self) -> DurationSums {
        self.earlier.map_or(self.later.durations, |earlier| self.later.durations.since(&earlier.durations))
    }

    fn activity(&self) -> RouteActivity {
        RouteActivity {
            name: SharedName(self.name.map_or_else(Arc::default, Arc::clone)),
            requests: self.responses.total(),
            too_many_requests: self.responses.0[TOO_MANY_REQUESTS],
            server_errors: self.responses.0[SERVER_ERROR],
            latency: Latency::of(&self.durations()),
        }
    }
}

impl Responses {
    /// The requests of all classes.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum += count);
    }
}

impl Serialize for Responses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(CLASSES.iter().zip(self.0))
    }
}

/// The state of a server all of whose addresses are available.
const HEALTHY: &str = "healthy";

/// An upstream and its servers.
#[derive(Clone, Debug, Serialize)]
pub(super) struct UpstreamActivity {
    name: SharedName,
    servers: Vec<ServerActivity>,
}

/// The requests to a server, and its health at the end.
#[derive(Clone, Debug, Serialize)]
struct ServerActivity {
    server: SharedName,
    state: &'static str,
    addresses: usize,
    healthy: usize,
    ejected: usize,
    requests: u64,
    failures: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<Latency>,
}

/// The requests to servers between two readings of their counters, and the number of servers that are not listed. `values`
/// are in ascending order of their labels.
pub(super) fn upstreams(
    earlier: &SortedByName<ServerName, ServerSums>,
    later: &SortedByName<ServerName, ServerSums>,
    values: &[UpstreamValues],
) -> (Vec<UpstreamActivity>, usize) {
    let (mut counted, mut known) = (Cursor::of(later), Cursor::of(earlier));
    let mut all: Vec<(Arc<str>, ServerActivity)> = Vec::new();
    for (upstream, values) in servers(values) {
        let label = (upstream, &*values.label);
        let later = counted.find(|(upstream, server)| (&**upstream, &**server).cmp(&label));
        let ((upstream, server), sums) = match later {
            Some((name, later)) => (name.clone(), since(known.seek(name), later)),
            None => ((upstream.into(), values.label.as_ref().into()), ServerSums::default()),
        };
        all.push((upstream, ServerActivity::new(server, values, &sums)));
    }
    let (mut listed, left_out) = largest(all, |(_, server)| (server.state != HEALTHY, server.requests));
    listed.sort_by(|one, other| (&one.0, &one.1.server.0).cmp(&(&other.0, &other.1.server.0)));
    let mut grouped: Vec<UpstreamActivity> = Vec::new();
    for (upstream, server) in listed {
        match grouped.last_mut().filter(|last| last.name.0 == upstream) {
            Some(last) => last.servers.push(server),
            None => grouped.push(UpstreamActivity { name: SharedName(upstream), servers: vec![server] }),
        }
    }
    (grouped, left_out)
}

/// The servers of all upstreams, with the label of their upstream.
fn servers(values: &[UpstreamValues]) -> impl Iterator<Item = (&str, &ServerValues)> {
    values.iter().flat_map(|upstream| upstream.servers.iter().map(|server| (&*upstream.label, server)))
}

fn since(earlier: Option<&ServerSums>, later: &ServerSums) -> ServerSums {
    let Some(earlier) = earlier else { return later.clone() };
    ServerSums {
        attempts: counted_since(&earlier.attempts, &later.attempts),
        first_bytes: later.first_bytes.since(&earlier.first_bytes),
        durations: later.durations.since(&earlier.durations),
    }
}

impl ServerActivity {
    fn new(server: Arc<str>, values: &ServerValues, sums: &ServerSums) -> Self {
        let counts = || AttemptOutcome::ALL.iter().zip(sums.attempts);
        Self {
            server: SharedName(server),
            state: state(values),
            addresses: values.addresses,
            healthy: values.healthy,
            ejected: values.ejected,
            requests: sums.attempts.iter().sum(),
            failures: counts().filter(|((attempt, _), _)| attempt.is_failure()).map(|(_, count)| count).sum(),
            latency: Latency::of(&sums.first_bytes),
        }
    }
}

pub(super) fn state(values: &ServerValues) -> &'static str {
    match values {
        ServerValues { addresses: 0, .. } => "unresolved",
        ServerValues { addresses, healthy, .. } if addresses == healthy => HEALTHY,
        ServerValues { healthy: 1.., .. } => "degraded",
        ServerValues { ejected: 1.., .. } => "ejected",
        _ => "unhealthy",
    }
}
