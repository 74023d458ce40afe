//! Requests by route in a span of time.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use super::sums::{CounterSums, Cursor};
use super::values::{Latency, SharedName, largest};
use crate::telemetry::counters::counted_since;
use crate::telemetry::counts::{CLASSES, RouteSums, SERVER_ERROR, TOO_MANY_REQUESTS};
use crate::telemetry::histogram::DurationSums;

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
