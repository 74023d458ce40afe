//! What would have happened to the requests of a route.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;

use super::super::results::RouteResults;
use crate::gate::{Gate, RouteId};

/// How many routes are listed.
const LISTED: usize = 1_000;

/// What would have happened to the requests of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RouteReport {
    /// Its name.
    pub name: String,
    /// Its requests.
    pub requests: u64,
    /// Those that a limit would have denied.
    pub denied: u64,
}

impl RouteReport {
    /// The routes with the most requests first.
    pub(super) fn most_used(gate: &Gate, results: &BTreeMap<RouteId, RouteResults>) -> Vec<Self> {
        let mut routes: Vec<(&RouteId, &RouteResults)> = results.iter().collect();
        routes.sort_by_key(|(id, route)| (Reverse(route.requests), **id));
        let report = |(id, route): (&RouteId, &RouteResults)| Self {
            name: gate.routes.get(*id).name.to_string(),
            requests: route.requests,
            denied: route.denied,
        };
        routes.into_iter().take(LISTED).map(report).collect()
    }
}
