//! Warnings about responses whose cost is unknown.

use std::cell::RefCell;
use std::time::Duration;

use tokio::time::Instant;

use crate::gate::RouteId;
use crate::time::monotonic;
use crate::usage::Unknown;

/// How often a warning is repeated.
const INTERVAL: Duration = Duration::from_mins(1);

/// When it was last warned of responses of a route whose cost is unknown, for each reason.
#[derive(Debug, Default)]
pub(in crate::proxy) struct SettleWarnings(RefCell<Vec<(Option<RouteId>, Unknown, Instant)>>);

impl SettleWarnings {
    /// Warns that the cost of a response is unknown, once a minute for each route and reason.
    pub fn warn(&self, (route, name): (Option<RouteId>, &str), limit: &str, reason: Unknown) {
        let (now, mut warned) = (monotonic(), self.0.borrow_mut());
        let known = warned.iter_mut().find(|(of, why, _)| *of == route && *why == reason);
        match known {
            Some((_, _, last)) if now - *last < INTERVAL => return,
            Some((_, _, last)) => *last = now,
            None => warned.push((route, reason, now)),
        }
        tracing::warn!(
            "the cost of a response for limit {limit:?} on route {name:?} is unknown, so its estimate stays \
             charged; reason: {}",
            word(reason)
        );
    }
}

/// The reason, as metrics have it.
fn word(reason: Unknown) -> &'static str {
    match reason {
        Unknown::Encoding => "encoding",
        Unknown::Type => "type",
        Unknown::Absent => "absent",
        Unknown::Malformed => "malformed",
    }
}
