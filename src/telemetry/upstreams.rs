//! What is counted of requests that go upstream.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::counts::Counters;

/// How one attempt to have a server answer a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// With an answer.
    Answered,
    /// With the answer that a gateway could not have one: 502, 503 or 504.
    Unavailable,
    /// No connection could be made.
    Unreachable,
    /// No answer came in time.
    Late,
    /// The connection broke, or what came was no answer.
    Broken,
    /// The client went away, or did not bring the rest of its request.
    Abandoned,
}

/// What else happens to the requests of an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request was sent again.
    Retried,
    /// A request could have been sent again, but too many were.
    OverBudget,
    /// A request got no connection: all were in use.
    Full,
}

pub(super) type ByAttempt = Counters<{ Attempt::ALL.len() }>;
pub(super) type ByEvent = Counters<{ Event::COUNT }>;

/// One worker's counters for an upstream, and for its servers in their places. The default counts nothing.
#[derive(Clone, Debug, Default)]
pub struct UpstreamCounts {
    events: Arc<ByEvent>,
    servers: Box<[Arc<ByAttempt>]>,
}

/// One worker's counters for an upstream, by the labels of its servers.
#[derive(Debug, Default)]
pub(super) struct NamedUpstream {
    events: Arc<ByEvent>,
    servers: BTreeMap<Box<str>, Arc<ByAttempt>>,
}

/// What all workers have counted for an upstream.
#[derive(Clone, Debug, Default)]
pub(super) struct UpstreamSums {
    pub events: [u64; Event::COUNT],
    pub servers: BTreeMap<Box<str>, [u64; Attempt::ALL.len()]>,
}

/// What there is to measure of an upstream at one time.
#[derive(Clone, Debug, Default)]
pub struct UpstreamValues {
    /// What metrics call it.
    pub label: Box<str>,
    /// Requests that wait for a connection.
    pub pending: usize,
    /// Its servers.
    pub servers: Vec<ServerValues>,
}

/// What there is to measure of a server at one time.
#[derive(Clone, Debug, Default)]
pub struct ServerValues {
    /// What metrics call it.
    pub label: Box<str>,
    /// Its addresses: several if a name has several, none if it has not been resolved.
    pub addresses: usize,
    /// Those of them that are well.
    pub healthy: usize,
    /// Open connections to them.
    pub connections: usize,
    /// How often one was ejected since it is known.
    pub ejections: u64,
}

impl UpstreamValues {
    /// Puts together the upstreams that have one label, and their servers that have one, since a series may be there
    /// only once.
    #[must_use]
    pub fn merged(mut all: Vec<Self>) -> Vec<Self> {
        all.sort_by(|one, other| one.label.cmp(&other.label));
        all.dedup_by(|later, first| {
            let is_same = later.label == first.label;
            if is_same {
                first.pending += later.pending;
                first.servers.append(&mut later.servers);
            }
            is_same
        });
        for upstream in &mut all {
            upstream.servers.sort_by(|one, other| one.label.cmp(&other.label));
            upstream.servers.dedup_by(|later, first| {
                let is_same = later.label == first.label;
                if is_same {
                    first.addresses += later.addresses;
                    first.healthy += later.healthy;
                    first.connections += later.connections;
                    first.ejections += later.ejections;
                }
                is_same
            });
        }
        all
    }
}

impl Attempt {
    /// Every end, in the order of the type.
    pub(super) const ALL: [(Self, &'static str); 6] = [
        (Self::Answered, "answered"),
        (Self::Unavailable, "unavailable"),
        (Self::Unreachable, "unreachable"),
        (Self::Late, "timeout"),
        (Self::Broken, "broken"),
        (Self::Abandoned, "abandoned"),
    ];

    /// Whether it speaks against the server.
    #[must_use]
    pub fn is_failure(self) -> bool {
        !matches!(self, Self::Answered | Self::Abandoned)
    }
}

impl Event {
    /// How many there are.
    pub(super) const COUNT: usize = 3;
}

impl UpstreamCounts {
    /// An attempt at the server of this place has ended.
    pub fn ended(&self, server: usize, attempt: Attempt) {
        if let Some(counters) = self.servers.get(server) {
            counters.add(attempt as usize, 1);
        }
    }

    /// Something has happened.
    pub fn happened(&self, event: Event) {
        self.events.add(event as usize, 1);
    }
}

impl NamedUpstream {
    /// The counters of servers with these labels; equal ones share them, and those of others go.
    pub fn counts<'a>(&mut self, urls: impl Iterator<Item = &'a str>) -> UpstreamCounts {
        let urls: Vec<&str> = urls.collect();
        self.servers.retain(|url, _| urls.contains(&&**url));
        let urls = urls.into_iter();
        let servers = urls.map(|url| Arc::clone(self.servers.entry(url.into()).or_default())).collect();
        UpstreamCounts { events: Arc::clone(&self.events), servers }
    }

    pub fn sum_into(&self, sums: &mut UpstreamSums) {
        self.events.sum_into(&mut sums.events);
        for (url, counters) in &self.servers {
            counters.sum_into(sums.servers.entry(url.clone()).or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_one_label_is_one_series() {
        let server = |label: &str, addresses| ServerValues {
            label: label.into(),
            addresses,
            ..ServerValues::default()
        };
        let upstream = |label: &str, servers| UpstreamValues { label: label.into(), pending: 1, servers };
        let merged = UpstreamValues::merged(vec![
            upstream("b", vec![server("y", 1), server("x", 2), server("y", 3)]),
            upstream("a", vec![server("x", 4)]),
            upstream("b", vec![server("x", 5)]),
        ]);
        let shown = |upstream: &UpstreamValues| {
            let servers =
                upstream.servers.iter().map(|server| format!(" {}={}", server.label, server.addresses));
            format!("{} {}{}", upstream.label, upstream.pending, servers.collect::<String>())
        };
        assert_eq!(merged.iter().map(shown).collect::<Vec<_>>(), ["a 1 x=4", "b 2 x=7 y=4"]);
    }

    #[test]
    fn names_stand_in_the_order_of_the_type() {
        assert!(Attempt::ALL.iter().enumerate().all(|(place, (end, _))| *end as usize == place));
        assert_eq!(Event::Full as usize + 1, Event::COUNT);
    }
}
