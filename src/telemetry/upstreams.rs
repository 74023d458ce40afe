//! Counters and gauges of upstreams.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::counts::{Counters, OnDemand, PerWorker};
use super::histogram::{DurationSums, Durations};
use crate::overload::Class;
use crate::time::Nanos;

/// How an attempt to forward a request to a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// With a response.
    Responded,
    /// With a response of 502, 503 or 504.
    Unavailable,
    /// No connection could be established.
    Unreachable,
    /// It timed out.
    TimedOut,
    /// The connection failed, or the response was malformed.
    Broken,
    /// The client disconnected, or did not send the rest of its request.
    Abandoned,
}

/// Other events of an upstream's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamEvent {
    /// A request was retried.
    Retried,
    /// A request was not retried because the retry budget was used up.
    OverBudget,
    /// A request got no connection because all were in use.
    Full,
    /// A request was refused because its client had too many in flight.
    TooManyRequests,
    /// A request was refused because its client had too many tunnels open.
    TooManyTunnels,
    /// As an authorization server it let a request pass.
    Authorized,
    /// As an authorization server it refused a request.
    Unauthorized,
    /// As an authorization server it decided nothing on a request.
    AuthorizationFailed,
    /// A request passed by an earlier decision of the authorization server.
    AuthorizationReused,
}

/// One worker's counters of an upstream, and of its servers by index. The default counts nothing that is shown.
#[derive(Clone, Debug, Default)]
pub struct UpstreamCounts {
    own: Arc<OnDemand<UpstreamCounters>>,
    servers: Box<[Arc<OnDemand<ServerCounters>>]>,
}

/// One worker's counters of an upstream.
#[derive(Debug, Default)]
#[repr(align(128))]
struct UpstreamCounters {
    events: Counters<{ UpstreamEvent::COUNT }>,
    waits: Durations,
    classes: OnDemand<ClassCounters>,
}

/// One worker's counters of an upstream's admission, by [`Class::index`].
#[derive(Debug, Default)]
#[repr(align(128))]
struct ClassCounters {
    refusals: Counters<{ Class::COUNT }>,
    waits: [Durations; Class::COUNT],
}

/// One worker's counters of a server.
#[derive(Debug, Default)]
#[repr(align(128))]
struct ServerCounters {
    attempts: Counters<{ AttemptOutcome::ALL.len() }>,
    first_bytes: Durations,
    durations: Durations,
}

/// The counters of an upstream, with its servers by label.
#[derive(Debug, Default)]
pub(super) struct NamedUpstream {
    own: PerWorker<OnDemand<UpstreamCounters>>,
    servers: BTreeMap<Box<str>, PerWorker<OnDemand<ServerCounters>>>,
}

/// The sums of an upstream's counters.
#[derive(Clone, Debug, Default)]
pub(super) struct UpstreamSums {
    pub events: [u64; UpstreamEvent::COUNT],
    pub waits: DurationSums,
    /// Those of its admission, by [`Class::index`]; none if it has refused no request, and none has waited.
    pub classes: Option<Box<ClassSums>>,
    pub servers: Vec<(Box<str>, ServerSums)>,
}

/// The sums of the counters of an upstream's admission, by [`Class::index`].
#[derive(Clone, Debug, Default)]
pub(super) struct ClassSums {
    pub refusals: [u64; Class::COUNT],
    pub waits: [DurationSums; Class::COUNT],
}

/// The sums of a server's counters.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerSums {
    pub attempts: [u64; AttemptOutcome::ALL.len()],
    pub first_bytes: DurationSums,
    pub durations: DurationSums,
}

/// Gauges of an upstream at one time.
#[derive(Clone, Debug, Default)]
pub struct UpstreamValues {
    /// Its label in metrics.
    pub label: Box<str>,
    /// Requests that wait for a connection, or for their admission.
    pub pending: usize,
    /// Its admission, if it has `overload`.
    pub admission: Option<AdmissionValues>,
    /// Its servers.
    pub servers: Vec<ServerValues>,
}

/// Gauges of an upstream's admission at one time.
#[derive(Clone, Copy, Debug, Default)]
pub struct AdmissionValues {
    /// The limit of requests in flight.
    pub limit: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Requests that were admitted above the limit in shadow mode, by [`Class::index`].
    pub above_limit: [u64; Class::COUNT],
}

/// Gauges of a server at one time.
#[derive(Clone, Debug, Default)]
pub struct ServerValues {
    /// Its label in metrics.
    pub label: Box<str>,
    /// Its addresses: several for a name with several, none before it is resolved.
    pub addresses: usize,
    /// Its healthy addresses.
    pub healthy: usize,
    /// Its addresses that are ejected.
    pub ejected: usize,
    /// Open connections to it.
    pub connections: usize,
    /// How often one of its addresses was ejected since it was resolved.
    pub ejections: u64,
}

impl UpstreamValues {
    /// Merges upstreams with the same label, and their servers with the same label: a metric must not have two series with
    /// the same labels.
    #[must_use]
    pub fn merged(mut all: Vec<Self>) -> Vec<Self> {
        all.sort_by(|one, other| one.label.cmp(&other.label));
        all.dedup_by(|later, first| {
            let is_same = later.label == first.label;
            if is_same {
                first.pending += later.pending;
                if let Some(later) = later.admission {
                    let sum = first.admission.get_or_insert_default();
                    sum.limit += later.limit;
                    sum.in_flight += later.in_flight;
                    sum.above_limit.iter_mut().zip(later.above_limit).for_each(|(sum, more)| *sum += more);
                }
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
                    first.ejected += later.ejected;
                    first.connections += later.connections;
                    first.ejections += later.ejections;
                }
                is_same
            });
        }
        all
    }
}

impl AttemptOutcome {
    /// Every variant with its label, in the order of the type.
    pub(super) const ALL: [(Self, &'static str); 6] = [
        (Self::Responded, "ok"),
        (Self::Unavailable, "unavailable"),
        (Self::Unreachable, "unreachable"),
        (Self::TimedOut, "timeout"),
        (Self::Broken, "connection_error"),
        (Self::Abandoned, "abandoned"),
    ];

    /// Whether it counts as a failure of the server.
    #[must_use]
    pub fn is_failure(self) -> bool {
        !matches!(self, Self::Responded | Self::Abandoned)
    }
}

impl UpstreamEvent {
    /// The number of variants.
    pub(super) const COUNT: usize = 9;

    /// The refusals by a bound for each client, with the key of the configuration.
    pub(super) const CLIENT_REFUSALS: [(Self, &'static str); 2] = [
        (Self::TooManyRequests, "max_requests_per_client"),
        (Self::TooManyTunnels, "max_tunnels_per_client"),
    ];

    /// The outcomes of authorization with their labels.
    pub(super) const AUTHORIZATIONS: [(Self, &'static str); 4] = [
        (Self::Authorized, "allowed"),
        (Self::Unauthorized, "denied"),
        (Self::AuthorizationFailed, "failed"),
        (Self::AuthorizationReused, "cached"),
    ];
}

impl UpstreamCounts {
    /// Counts an attempt at the server of this index.
    pub fn record_attempt(&self, server: usize, attempt: AttemptOutcome) {
        if let Some(server) = self.servers.get(server) {
            server.get().attempts.add(attempt as usize, 1);
        }
    }

    /// Counts an attempt at this server that has a response, and the time from the selection of the server to its head.
    pub fn record_response(&self, server: usize, attempt: AttemptOutcome, took: impl Into<Nanos>) {
        if let Some(server) = self.servers.get(server) {
            let server = server.get();
            server.attempts.add(attempt as usize, 1);
            server.first_bytes.record(took);
        }
    }

    /// Counts the time from the selection of this server to the end of its response.
    pub fn record_duration(&self, server: usize, took: impl Into<Nanos>) {
        if let Some(server) = self.servers.get(server) {
            server.get().durations.record(took);
        }
    }

    /// Counts how long a request waited for a connection, whether it got one or not.
    pub fn record_wait(&self, waited: Duration) {
        self.own.get().waits.record(waited);
    }

    /// Counts a request of this class that the admission of the upstream has refused.
    pub fn record_refusal(&self, class: Class) {
        self.own.get().classes.get().refusals.add(class.index(), 1);
    }

    /// Counts how long a request of this class has waited for its admission, whether it was admitted or not.
    pub fn record_admission_wait(&self, class: Class, waited: Duration) {
        self.own.get().classes.get().waits[class.index()].record(waited);
    }

    /// Counts an event.
    pub fn record_event(&self, event: UpstreamEvent) {
        self.own.get().events.add(event as usize, 1);
    }
}

impl NamedUpstream {
    /// A worker's counters of servers with these labels. Equal labels share counters; those of other servers are removed.
    pub fn counts<'a>(&mut self, worker: usize, labels: impl Iterator<Item = &'a str>) -> UpstreamCounts {
        let labels: Vec<&str> = labels.collect();
        self.servers.retain(|label, _| labels.contains(&&**label));
        let server = |label: &str| self.servers.entry(label.into()).or_default().of(worker);
        UpstreamCounts { servers: labels.into_iter().map(server).collect(), own: self.own.of(worker) }
    }

    /// The sums over all workers.
    pub fn sums(&self) -> UpstreamSums {
        let mut sums = UpstreamSums::default();
        for own in self.own.used() {
            own.events.sum_into(&mut sums.events);
            own.waits.sum_into(&mut sums.waits);
            if let Some(classes) = own.classes.used() {
                let sums = sums.classes.get_or_insert_default();
                classes.refusals.sum_into(&mut sums.refusals);
                for (waits, sum) in classes.waits.iter().zip(&mut sums.waits) {
                    waits.sum_into(sum);
                }
            }
        }
        for (label, counters) in &self.servers {
            let mut server = ServerSums::default();
            for counters in counters.used() {
                counters.attempts.sum_into(&mut server.attempts);
                counters.first_bytes.sum_into(&mut server.first_bytes);
                counters.durations.sum_into(&mut server.durations);
            }
            sums.servers.push((label.clone(), server));
        }
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_labels_are_merged_into_one_series() {
        let server = |label: &str, addresses| ServerValues {
            label: label.into(),
            addresses,
            ..ServerValues::default()
        };
        let upstream = |label: &str, servers| UpstreamValues {
            label: label.into(),
            pending: 1,
            admission: None,
            servers,
        };
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
    fn labels_are_in_the_order_of_the_type() {
        assert!(
            AttemptOutcome::ALL.iter().enumerate().all(|(index, (attempt, _))| *attempt as usize == index)
        );
        assert_eq!(UpstreamEvent::AuthorizationReused as usize + 1, UpstreamEvent::COUNT);
    }
}
