//! What limits deny of a part of a history, decided by the limiter's own code.

use serde::Serialize;
use smallvec::SmallVec;

use super::arrival_log::Arrival;

use super::distribution::upper_bound;
use super::history::{History, HistoryPart};
use crate::limit::{Holder, Quota, State};

/// What limits together deny of a part of the time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// The part of the time. All clients start it with unused limits.
    #[serde(flatten)]
    pub part: HistoryPart,
    /// Clients with requests.
    pub clients: u64,
    /// Clients of which at least one request is denied.
    pub denied_clients: u64,
    /// The upper bound of the share of clients that are denied, with a confidence of 95 %.
    pub clients_upper_bound: f64,
    /// Requests.
    pub requests: u64,
    /// Requests that are denied.
    pub denied_requests: u64,
}

/// A client of which requests are denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClientDenials {
    /// Its position in the history.
    pub position: usize,
    pub requests: u64,
    /// Those that are denied.
    pub denied: u64,
}

impl Check {
    /// The share of clients of which requests are denied.
    #[must_use]
    pub fn client_share(&self) -> f64 {
        share(self.denied_clients, self.clients)
    }

    /// The share of requests that are denied.
    #[must_use]
    pub fn request_share(&self) -> f64 {
        share(self.denied_requests, self.requests)
    }
}

/// `count` of `of`; zero of none.
#[allow(clippy::cast_precision_loss)]
pub(super) fn share(count: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { count as f64 / of as f64 }
}

/// Plays this part of the history through the limits, each client by itself. Returns the sums, and the denied clients.
pub(super) fn check(history: &History, part: HistoryPart, quotas: &[Quota]) -> (Check, Vec<ClientDenials>) {
    let (mut clients, mut requests) = (0, 0);
    let mut denied = Vec::new();
    let least = quotas.iter().map(Quota::limit).min().unwrap_or(u64::MAX);
    history.visit(part, |key| {
        let of_key = key.arrivals.len() as u64;
        clients += 1;
        requests += of_key;
        // No limit denies its first units, and most clients need no more.
        let units = key.arrivals.iter().fold(0, |units: u64, arrival| units.saturating_add(arrival.cost));
        let count = if units <= least { 0 } else { denials(key.arrivals, quotas) };
        if count > 0 {
            denied.push(ClientDenials { position: key.position, requests: of_key, denied: count });
        }
    });
    let denied_clients = denied.len() as u64;
    let check = Check {
        part,
        clients,
        denied_clients,
        clients_upper_bound: upper_bound(denied_clients, clients),
        requests,
        denied_requests: denied.iter().map(|client| client.denied).sum(),
    };
    (check, denied)
}

/// How many of these requests the limits deny. A request is charged on all limits or on none.
fn denials(arrivals: &[Arrival], quotas: &[Quota]) -> u64 {
    let mut states: SmallVec<[Option<State>; 4]> = SmallVec::from_elem(None, quotas.len());
    let mut denied = 0;
    for arrival in arrivals {
        let mut next: SmallVec<[Option<State>; 4]> = SmallVec::new();
        let mut is_allowed = true;
        for (quota, state) in quotas.iter().zip(&states) {
            let step = quota.step(state.as_ref(), arrival.at, arrival.cost, Holder::default());
            is_allowed &= step.decision.allowed;
            next.push(step.next);
        }
        if is_allowed {
            for (state, next) in states.iter_mut().zip(next) {
                *state = next.or_else(|| state.take());
            }
        } else {
            denied += 1;
        }
    }
    denied
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Key, Rate};
    use crate::time::{Micros, Timestamp};

    #[test]
    fn a_request_is_charged_on_all_limits_or_on_none() {
        let mut history = History::default();
        // Client 0 sends one a second; client 1 sends five at once, each second.
        for second in 0..10 {
            for client in [0, 1, 1, 1, 1, 1] {
                let arrival = Arrival { at: Timestamp(second * 1_000_000), cost: 1 };
                history.record(Key([client; 16]), arrival, usize::MAX, || None);
            }
        }
        let bucket = Quota::token_bucket(Rate::new(2, Micros::SECOND).unwrap(), 2).unwrap();
        let total = Quota::sliding_log(&[Rate::new(12, Micros(3_600_000_000)).unwrap()]).unwrap();
        let (found, denied) = check(&history, history.span().unwrap(), &[bucket, total]);
        assert_eq!((found.clients, found.requests), (2, 60));
        assert_eq!((found.denied_clients, found.denied_requests), (1, 38));
        assert_eq!(denied, [ClientDenials { position: 1, requests: 50, denied: 38 }]);
        assert!((found.client_share() - 0.5).abs() < 1e-9 && found.clients_upper_bound > 0.9);
    }
}
