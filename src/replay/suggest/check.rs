//! What limits deny of a part of a history, decided by the limiter's own code.

use std::slice;

use serde::Serialize;
use smallvec::SmallVec;

use super::arrival_log::Arrival;
use super::distribution::upper_bound;
use super::history::{History, HistoryPart};
use crate::limit::{Holder, Quota, State};

/// The bits of the largest number of units that is tried.
const MOST_UNITS: u32 = 40;

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

/// Plays this part of the history through the limits, each client by itself.
pub(super) fn check(history: &History, part: HistoryPart, quotas: &[Quota]) -> Check {
    let (mut clients, mut requests, mut denied_clients, mut denied_requests) = (0, 0, 0, 0);
    history.visit(part, |key| {
        let denied = denials(key.arrivals, quotas);
        clients += 1;
        requests += key.arrivals.len() as u64;
        denied_clients += u64::from(denied > 0);
        denied_requests += denied;
    });
    let clients_upper_bound = upper_bound(denied_clients, clients);
    Check { part, clients, denied_clients, clients_upper_bound, requests, denied_requests }
}

/// The least units of the rate with which this limit denies none of these requests; `u64::MAX` if it denies requests with
/// any number, because it has no room for several at once.
pub(super) fn least_units(arrivals: &[Arrival], quota: &Quota) -> u64 {
    let is_enough =
        |units| quota.with_units(units).is_ok_and(|quota| denials(arrivals, slice::from_ref(&quota)) == 0);
    let Some(enough) = (0..MOST_UNITS).map(|bits| 1 << bits).find(|units| is_enough(*units)) else {
        return u64::MAX;
    };
    let (mut low, mut high) = (enough / 2, enough);
    while high - low > 1 {
        let middle = u64::midpoint(low, high);
        if is_enough(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

/// How many of these requests the limits deny. A request is charged on all limits or on none.
pub(super) fn denials(arrivals: &[Arrival], quotas: &[Quota]) -> u64 {
    // No limit denies its first units, and most clients need no more.
    let least = quotas.iter().map(Quota::limit).min().unwrap_or(u64::MAX);
    if arrivals.iter().fold(0, |units: u64, arrival| units.saturating_add(arrival.cost)) <= least {
        return 0;
    }
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
    use crate::limit::{Align, Key, Rate};
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
        let found = check(&history, history.span().unwrap(), &[bucket, total]);
        assert_eq!((found.clients, found.requests), (2, 60));
        assert_eq!((found.denied_clients, found.denied_requests), (1, 38));
        assert!((found.client_share() - 0.5).abs() < 1e-9 && found.clients_upper_bound > 0.9);
    }

    #[test]
    fn the_least_units_deny_nothing_and_one_less_does() {
        let start = 1_767_571_200_000_000;
        let arrivals: Vec<Arrival> = (0..100_u64)
            .map(|n| Arrival { at: Timestamp(start + n / 4 * 7_000_000), cost: 1 + n % 3 })
            .collect();
        let rate = Rate::new(60, Micros(60_000_000)).unwrap();
        for quota in [
            Quota::token_bucket(rate, 60),
            Quota::token_bucket(rate, 7),
            Quota::interval_bucket(rate, 90),
            Quota::gcra(rate, 30),
            Quota::fixed_window(rate, Align::Clock),
            Quota::sliding_log(&[rate, Rate::new(10, Micros::SECOND).unwrap()]),
            Quota::sliding_window(rate, 6),
        ] {
            let quota = quota.unwrap();
            let units = least_units(&arrivals, &quota);
            let denied = |units| denials(&arrivals, &[quota.with_units(units).unwrap()]);
            assert_eq!(denied(units), 0, "{quota:?}: {units}");
            assert!(denied(units - 1) > 0, "{quota:?}: {units}");
        }
        let strict = Quota::gcra(rate, 0).unwrap();
        assert_eq!(least_units(&arrivals, &strict), u64::MAX, "four at once");
    }
}
