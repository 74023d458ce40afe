//! Warnings about responses whose cost is unknown or too high.

use std::cell::RefCell;
use std::time::Duration;

use tokio::time::Instant;

use crate::gate::RouteId;
use crate::time::monotonic;
use crate::usage::Unknown;

/// How often a warning is repeated.
const INTERVAL: Duration = Duration::from_mins(1);

/// When it was last warned of responses of a route, for each reason.
#[derive(Debug, Default)]
pub(in crate::proxy) struct SettleWarnings(RefCell<Vec<(Option<RouteId>, Reason, Instant)>>);

/// What is wrong with the cost of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Unknown(Unknown),
    /// It is more than `cost_max`.
    Cut,
}

impl SettleWarnings {
    /// Warns that the cost of a response is unknown, or that its model has no price, once a minute for each route
    /// and reason.
    pub fn warn_unknown(&self, (route, name): (Option<RouteId>, &str), limit: &str, reason: Unknown) {
        if !self.is_due(route, Reason::Unknown(reason)) {
            return;
        }
        if reason == Unknown::Model {
            tracing::warn!(
                "no price of limit {limit:?} is for the model of a response on route {name:?}, so it costs the default"
            );
        } else {
            tracing::warn!(
                "the cost of a response for limit {limit:?} on route {name:?} is unknown, so its estimate stays \
                 charged; reason: {}",
                reason.label()
            );
        }
    }

    /// Warns that a response has cost more than `cost_max`, once a minute for each route.
    pub fn warn_cut(&self, (route, name): (Option<RouteId>, &str), limit: &str, max: u64) {
        if self.is_due(route, Reason::Cut) {
            tracing::warn!(
                "the cost of a response for limit {limit:?} on route {name:?} was cut to its cost_max of {max}"
            );
        }
    }

    fn is_due(&self, route: Option<RouteId>, reason: Reason) -> bool {
        let (now, mut warned) = (monotonic(), self.0.borrow_mut());
        let known = warned.iter_mut().find(|(of, why, _)| *of == route && *why == reason);
        match known {
            Some((_, _, last)) if now - *last < INTERVAL => return false,
            Some((_, _, last)) => *last = now,
            None => warned.push((route, reason, now)),
        }
        true
    }
}
