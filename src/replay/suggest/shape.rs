//! What the requests of a client look like over time, and the clients that need most of limits.

use std::cmp::Reverse;

use serde::Serialize;

use super::arrival_log::Arrival;
use super::check::{denials, share};
use super::history::History;
use super::peaks::{DAY, WINDOWS, peak, peaks};
use crate::limit::{Key, Quota};
use crate::time::Micros;

const HOUR: Micros = Micros(3_600_000_000);
const MINUTE: Micros = Micros(60_000_000);
/// A client that sends this share of its requests in one hour sends them in bursts.
const BURST_SHARE: f64 = 0.5;
/// A client without fixed hours that is active in a smaller share of the hours between its first and its last request sends
/// its requests in bursts.
const ACTIVE_SHARE: f64 = 1.0 / 3.0;
/// A client that sends this share of its requests within [`WORKING_HOURS`] hours of the day follows the hours.
const HOURS_SHARE: f64 = 0.9;
const WORKING_HOURS: usize = 12;
/// The busiest minute of a client that sends bursts at certain hours has more than so many times that mean.
const BURSTY_RATIO: f64 = 20.0;
/// The busiest minute of a steady client has at most so many times its mean of the minutes in active hours.
const STEADY_RATIO: f64 = 5.0;

/// The kinds of clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ShapeKind {
    /// About the same at all times.
    Steady,
    /// Most in a short time, with little in between.
    Bursty,
    /// At the same hours of the day.
    ByHours,
}

/// What the requests of a client look like over time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// The kind.
    pub kind: ShapeKind,
    /// Why it is of this kind, for people.
    pub reason: String,
    /// Requests by the hour of the day, in UTC.
    pub hours: [u64; 24],
}

impl ShapeKind {
    /// The name, for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Bursty => "bursty",
            Self::ByHours => "by hours",
        }
    }
}

impl Shape {
    /// The shape of these arrivals, which are in the order of time.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn of(arrivals: &[Arrival]) -> Self {
        let hour = |arrival: &Arrival| arrival.at.0 / HOUR.0;
        let requests = arrivals.len() as u64;
        let by_hour = || arrivals.chunk_by(|one, next| hour(one) == hour(next)).map(|hour| hour.len() as u64);
        let (active, busiest) = (by_hour().count() as u64, by_hour().max().unwrap_or_default());
        let days = arrivals.chunk_by(|one, next| one.at.0 / DAY.0 == next.at.0 / DAY.0).count();
        let mut hours = [0_u64; 24];
        for arrival in arrivals {
            hours[(hour(arrival) % 24) as usize] += 1;
        }
        let of_kind = |kind, reason| Self { kind, reason, hours };
        if share(busiest, requests) >= BURST_SHARE {
            let percent = 100.0 * share(busiest, requests);
            return of_kind(ShapeKind::Bursty, format!("{percent:.0} % of its requests in one hour"));
        }
        let minute = peak(arrivals, MINUTE) as f64;
        let ratio = minute / (requests as f64 / (active * 60) as f64);
        let of_minute = || format!("its busiest minute has {ratio:.1} times its mean");
        if ratio > BURSTY_RATIO {
            return of_kind(ShapeKind::Bursty, of_minute());
        }
        let (start, within) = busiest_hours(&hours);
        if days > 1 && share(within, requests) >= HOURS_SHARE {
            let (percent, end) = (100.0 * share(within, requests), (start + WORKING_HOURS) % 24);
            let reason = format!("{percent:.0} % of its requests from {start:02} to {end:02} h UTC");
            return of_kind(ShapeKind::ByHours, reason);
        }
        let hours_between = match (arrivals.first(), arrivals.last()) {
            (Some(first), Some(last)) => hour(last) - hour(first) + 1,
            _ => 0,
        };
        if share(active, hours_between) < ACTIVE_SHARE {
            let reason = format!("its requests are in {active} of {hours_between} hours");
            return of_kind(ShapeKind::Bursty, reason);
        }
        of_kind(if ratio > STEADY_RATIO { ShapeKind::Bursty } else { ShapeKind::Steady }, of_minute())
    }
}

/// The first of the [`WORKING_HOURS`] hours in a row that have the most requests, and how many these are.
fn busiest_hours(hours: &[u64; 24]) -> (usize, u64) {
    let within = |start: usize| (start..start + WORKING_HOURS).map(|hour| hours[hour % 24]).sum::<u64>();
    let all = (0..24).map(|start| (start, within(start)));
    all.min_by_key(|(_, count)| Reverse(*count)).unwrap_or_default()
}

/// How many clients are listed.
const LISTED: usize = 10;

/// A client of a limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ListedClient {
    /// Its key in a readable form.
    pub name: String,
    /// Its requests.
    pub requests: u64,
    /// Those that the suggested limits deny.
    pub denied: u64,
    /// Its most units in 1 s, 10 s, 1 min, 10 min, 1 h and 1 d.
    pub peaks: [u64; WINDOWS.len()],
    /// The user agent of most of its requests.
    pub user_agent: Option<String>,
    /// The consumer of most of its requests.
    pub consumer: Option<String>,
    /// What its requests look like over time.
    pub shape: Shape,
}

/// The clients with the most denied requests, then those with the most units in a minute, over all of the time.
pub(super) fn listed(history: &History, quotas: &[Quota]) -> Vec<ListedClient> {
    let Some(span) = history.span() else { return Vec::new() };
    let mut first: Vec<(Reverse<(u64, u64)>, usize)> = Vec::new();
    history.visit(span, |key| {
        let denied = if quotas.is_empty() { 0 } else { denials(key.arrivals, quotas) };
        first.push((Reverse((denied, peak(key.arrivals, MINUTE))), key.position));
        if first.len() > 2 * LISTED {
            first.sort_unstable();
            first.truncate(LISTED);
        }
    });
    first.sort_unstable();
    first.truncate(LISTED);
    let mut buffer = Vec::new();
    let mut listed = |(Reverse((denied, _)), position)| {
        let read = history.read(position, span, &mut buffer)?;
        let requests = read.arrivals.len() as u64;
        let [user_agent, consumer] =
            history.description(position, requests).map(|text| text.map(|text| text.to_string()));
        Some(ListedClient {
            name: history.name(read.key).map_or_else(|| tag(read.key), str::to_owned),
            requests,
            denied,
            user_agent,
            consumer,
            peaks: peaks(read.arrivals),
            shape: Shape::of(read.arrivals),
        })
    };
    first.into_iter().filter_map(&mut listed).collect()
}

/// The form of a key of which no name is known.
fn tag(key: Key) -> String {
    format!("{}{key}", Key::TAG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    fn shape(seconds: impl Iterator<Item = u64>) -> Shape {
        let arrival = |second| Arrival { at: Timestamp(second * 1_000_000), cost: 1 };
        Shape::of(&seconds.map(arrival).collect::<Vec<_>>())
    }

    #[test]
    fn a_client_that_comes_at_changing_hours_is_bursty() {
        let starts = [3_u64, 29, 60, 81, 115];
        let crawl =
            shape(starts.into_iter().flat_map(|start| (start * 3_600..(start + 2) * 3_600).step_by(2)));
        assert_eq!((crawl.kind, &*crawl.reason), (ShapeKind::Bursty, "its requests are in 10 of 114 hours"));
    }

    #[test]
    fn clients_are_steady_bursty_or_follow_the_hours() {
        let steady = shape((0..7 * 86_400).step_by(30));
        assert_eq!(steady.kind, ShapeKind::Steady);
        assert_eq!(steady.reason, "its busiest minute has 1.0 times its mean");
        let storm = shape((0..600).chain([40_000, 90_000]));
        assert_eq!((storm.kind, &*storm.reason), (ShapeKind::Bursty, "100 % of its requests in one hour"));
        let working =
            (0..5).flat_map(|day| (9 * 3_600..17 * 3_600).step_by(20).map(move |s| day * 86_400 + s));
        let by_hours = shape(working);
        assert_eq!(by_hours.kind, ShapeKind::ByHours);
        assert_eq!(by_hours.hours[9], 5 * 180);
        let pages = shape((0..86_400).step_by(1_200).flat_map(|start| (0..40).map(move |_| start)));
        assert_eq!(pages.kind, ShapeKind::Bursty);
    }
}
