//! The metrics, in the text format of `OpenMetrics`. The only place that has their names.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, MetricEncoder, NoLabelSet, text::encode,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::charge_back::ChargeBack;
use super::counts::{CLASSES, Counts, DURATION_CELLS, DURATIONS, Outcome, StoreCall, Sums, Workers};
use super::upstreams::{Attempt, Event, ServerValues, UpstreamCounts, UpstreamSums, UpstreamValues};
use crate::limit::Policy;
use crate::time::{Micros, Timestamp};

/// The type of what [`Metrics::text`] gives, as Content-Type names it.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Everything that a process counts.
#[derive(Debug)]
pub struct Metrics {
    workers: Workers,
    started: Timestamp,
    applied: AtomicU64,
    refused: AtomicU64,
    /// Whether the last reload was refused.
    is_stale: AtomicBool,
}

/// What is read at the moment when somebody asks.
#[derive(Clone, Debug, Default)]
pub struct GaugeValues {
    /// Each listener.
    pub listeners: Vec<ListenerValues>,
    /// Workers that have the store away, their breakers being open.
    pub breakers_open: usize,
    /// How many times a breaker has opened since the start.
    pub breaker_openings: u64,
    /// Keys that this process knows by itself.
    pub keys: usize,
    /// Keys that were evicted from this process before their time.
    pub evictions: u64,
    /// Keys that owe the store something.
    pub owed_keys: usize,
    /// What became of units that were admitted while it was away, in the order of [`ChargeBack`].
    pub charge_back: [u64; ChargeBack::COUNT],
    /// Lines of the access log that were dropped since the start.
    pub dropped_lines: u64,
    /// The same of the log.
    pub dropped_log_lines: u64,
    /// Each upstream.
    pub upstreams: Vec<UpstreamValues>,
}

/// Connections of clients on one address.
#[derive(Clone, Copy, Debug)]
pub struct ListenerValues {
    /// Where.
    pub address: SocketAddr,
    /// How many are open.
    pub connections: usize,
    /// How many were refused since the start because as many were open as may be.
    pub over_all: u64,
    /// How many were because their client had as many as it may.
    pub over_own: u64,
}

/// All that is said at one time.
#[derive(Debug)]
struct Scrape {
    sums: Sums,
    levels: GaugeValues,
    /// The limits in shadow mode, which have other outcomes.
    shadows: Vec<Box<str>>,
    /// How many reloads were applied, and refused.
    reloads: [u64; 2],
    is_stale: bool,
}

/// A name, a help text, and what is measured of a server.
type Level = (&'static str, &'static str, fn(&ServerValues) -> usize);

/// What has the names of its whole ecosystem, without a prefix.
#[derive(Debug)]
struct Process {
    started: Timestamp,
}

impl Metrics {
    /// Metrics of a process that started then.
    #[must_use]
    pub fn new(started: Timestamp) -> Self {
        let (applied, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { workers: Workers::default(), started, applied, refused, is_stale: AtomicBool::new(false) }
    }

    /// The counters of one worker for these limits and routes, in their places.
    #[must_use]
    pub fn counts<'a>(
        &self,
        worker: usize,
        policies: &[Policy],
        routes: impl Iterator<Item = &'a str>,
    ) -> Counts {
        self.workers.counts(worker, policies, routes)
    }

    /// Another configuration was taken up, with these limits, routes and upstreams: the others' counters go.
    pub fn reloaded<'a>(
        &self,
        policies: &[Policy],
        routes: impl Iterator<Item = &'a str>,
        upstreams: impl Iterator<Item = &'a str>,
    ) {
        self.workers.retain(policies, routes, upstreams);
        self.applied.fetch_add(1, Ordering::Relaxed);
        self.is_stale.store(false, Ordering::Relaxed);
    }

    /// A configuration was refused: the one before it is served.
    pub fn refused_reload(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.is_stale.store(true, Ordering::Relaxed);
    }

    /// Whether the last reload was refused.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Relaxed)
    }

    /// The counters of one worker for an upstream with servers of these labels, in their places.
    #[must_use]
    pub fn upstream_counts<'a>(
        &self,
        worker: usize,
        name: &str,
        urls: impl Iterator<Item = &'a str>,
    ) -> UpstreamCounts {
        self.workers.upstream(worker, name, urls)
    }

    /// All metrics as text; `policies` are the present limits.
    #[must_use]
    pub fn text(&self, levels: GaugeValues, policies: &[Policy]) -> String {
        let shadows = policies.iter().filter(|policy| policy.shadow).map(|policy| policy.name.clone());
        let scrape = Scrape {
            sums: self.workers.sums(),
            levels,
            shadows: shadows.collect(),
            reloads: [&self.applied, &self.refused].map(|count| count.load(Ordering::Relaxed)),
            is_stale: self.is_stale(),
        };
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process { started: self.started }));
        registry.sub_registry_with_prefix("tidegate").register_collector(Box::new(scrape));
        let mut text = String::new();
        // Writing to a string can't fail.
        let _ = encode(&mut text, &registry);
        text
    }
}

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let help = "When the process started, in Unix time.";
        let mut metric =
            encoder.encode_descriptor("process_start_time", help, Some(&Unit::Seconds), MetricType::Gauge)?;
        metric.encode_gauge(&seconds(Micros(self.started.0)))
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        self.decisions(&mut encoder)?;
        self.requests(&mut encoder)?;
        self.store(&mut encoder)?;
        self.upstream_requests(&mut encoder)?;
        self.upstream_levels(&mut encoder)?;
        self.levels(&mut encoder)
    }
}

impl Scrape {
    fn decisions(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let help = "What each limit said to requests.";
        let mut metric = encoder.encode_descriptor("decisions", help, None, MetricType::Counter)?;
        for (limit, counts) in &self.sums.limits {
            let is_shadow = self.shadows.contains(limit);
            for ((outcome, name), count) in Outcome::ALL.iter().zip(counts) {
                let belongs = is_shadow == matches!(outcome, Outcome::ShadowAllowed | Outcome::ShadowDenied);
                // A limit that was another kind before a reload keeps what it has counted.
                if belongs || *count > 0 {
                    counter(&mut metric, &[("limit", &**limit), ("outcome", *name)], *count)?;
                }
            }
        }
        Ok(())
    }

    fn requests(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let help = "Requests by the class of their answer, none if the client was gone before it; those without a route have an empty one.";
        let mut metric = encoder.encode_descriptor("requests", help, None, MetricType::Counter)?;
        let routes = self.sums.routes.iter().map(|(name, counts)| (&**name, counts));
        for (route, counts) in routes.chain([("", &self.sums.unrouted)]) {
            for (class, count) in CLASSES.iter().zip(counts) {
                counter(&mut metric, &[("route", route), ("status", *class)], *count)?;
            }
        }
        let help = "From a request's head to the end of its answer.";
        let mut metric = encoder.encode_descriptor(
            "request_duration",
            help,
            Some(&Unit::Seconds),
            MetricType::Histogram,
        )?;
        let durations = &self.sums.durations;
        let bounds = DURATIONS.iter().map(Duration::as_secs_f64).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(durations.iter().copied()).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = seconds(Micros(durations[DURATION_CELLS - 1]));
        metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn store(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let help = "Calls to the store for the decision of a request, by how they ended.";
        let mut metric = encoder.encode_descriptor("store_calls", help, None, MetricType::Counter)?;
        for ((_, name), count) in StoreCall::ALL.iter().zip(&self.sums.store) {
            counter(&mut metric, &[("outcome", *name)], *count)?;
        }
        let help = "Whether the store answers every worker.";
        gauge(encoder, "store_up", help, usize::from(self.levels.breakers_open == 0))?;
        let help = "Workers that do not ask the store, because it does not answer.";
        gauge(encoder, "store_breakers_open", help, self.levels.breakers_open)?;
        let help = "How many times a worker has stopped asking the store.";
        total(encoder, "store_breaker_openings", help, self.levels.breaker_openings)?;
        let help = "Units that were admitted while the store was away, and what became of them.";
        let mut metric = encoder.encode_descriptor("charge_back_units", help, None, MetricType::Counter)?;
        for ((_, name), count) in ChargeBack::ALL.iter().zip(&self.levels.charge_back) {
            counter(&mut metric, &[("outcome", *name)], *count)?;
        }
        let help = "Keys that owe the store what was admitted while it was away.";
        gauge(encoder, "owed_keys", help, self.levels.owed_keys)?;
        gauge(encoder, "local_keys", "Keys that this process knows by itself.", self.levels.keys)?;
        let help = "Keys that were evicted from this process before their time, because it knew `max_keys`.";
        total(encoder, "store_evictions", help, self.levels.evictions)
    }

    fn upstream_requests(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let help = "Attempts to have a server answer a request, by how they ended.";
        let mut metric = encoder.encode_descriptor("upstream_requests", help, None, MetricType::Counter)?;
        for (upstream, sums) in &self.sums.upstreams {
            for (server, counts) in &sums.servers {
                for ((_, name), count) in Attempt::ALL.iter().zip(counts) {
                    let labels = [("upstream", &**upstream), ("server", &**server), ("outcome", *name)];
                    counter(&mut metric, &labels, *count)?;
                }
            }
        }
        let count_of = |sums: &UpstreamSums, event: Event| sums.events[event as usize];
        let help = "Requests that were sent again, and those that were not because too many were.";
        let mut metric = encoder.encode_descriptor("upstream_retries", help, None, MetricType::Counter)?;
        for (upstream, sums) in &self.sums.upstreams {
            for (event, name) in [(Event::Retried, "sent"), (Event::OverBudget, "over_budget")] {
                let labels = [("upstream", &**upstream), ("outcome", name)];
                counter(&mut metric, &labels, count_of(sums, event))?;
            }
        }
        let help = "Requests that got no connection because all were in use.";
        let mut metric = encoder.encode_descriptor("upstream_refusals", help, None, MetricType::Counter)?;
        for (upstream, sums) in &self.sums.upstreams {
            counter(&mut metric, &[("upstream", &**upstream)], count_of(sums, Event::Full))?;
        }
        Ok(())
    }

    fn upstream_levels(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let help = "Requests that wait for a connection.";
        let mut metric = encoder.encode_descriptor("upstream_pending", help, None, MetricType::Gauge)?;
        for upstream in &self.levels.upstreams {
            metric.encode_family(&[("upstream", &*upstream.label)])?.encode_gauge(&upstream.pending)?;
        }
        let levels: [Level; 3] = [
            ("upstream_addresses", "Addresses of a server.", |server| server.addresses),
            ("upstream_healthy", "Addresses of a server that are well.", |server| server.healthy),
            ("upstream_connections", "Open connections to a server.", |server| server.connections),
        ];
        for (name, help, level) in levels {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, server) in self.servers() {
                metric.encode_family(&labels)?.encode_gauge(&level(server))?;
            }
        }
        let help = "How often an address of a server was put out because requests failed there.";
        let mut metric = encoder.encode_descriptor("upstream_ejections", help, None, MetricType::Counter)?;
        for (labels, server) in self.servers() {
            counter(&mut metric, &labels, server.ejections)?;
        }
        Ok(())
    }

    fn servers(&self) -> impl Iterator<Item = ([(&str, &str); 2], &ServerValues)> {
        self.levels.upstreams.iter().flat_map(|upstream| {
            let labels = |server| [("upstream", &*upstream.label), ("server", server)];
            upstream.servers.iter().map(move |server| (labels(&*server.label), server))
        })
    }

    fn levels(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let help = "Connections of clients that are open.";
        let mut metric = encoder.encode_descriptor("connections", help, None, MetricType::Gauge)?;
        for listener in &self.levels.listeners {
            let labels = [("listener", listener.address.to_string())];
            metric.encode_family(&labels)?.encode_gauge(&listener.connections)?;
        }
        let help = "Connections of clients that were closed at once, by the bound that they met.";
        let mut metric = encoder.encode_descriptor("connections_refused", help, None, MetricType::Counter)?;
        for listener in &self.levels.listeners {
            let address = listener.address.to_string();
            let counts =
                [("max_connections", listener.over_all), ("max_connections_per_client", listener.over_own)];
            for (bound, count) in counts {
                counter(&mut metric, &[("listener", &*address), ("bound", bound)], count)?;
            }
        }
        let help = "Lines of the access log that were dropped because standard output did not take them.";
        total(encoder, "access_log_dropped_lines", help, self.levels.dropped_lines)?;
        let help = "Lines of the log that were dropped because standard error did not take them.";
        total(encoder, "log_dropped_lines", help, self.levels.dropped_log_lines)?;
        let help = "Reloads of the configuration.";
        let mut metric = encoder.encode_descriptor("reloads", help, None, MetricType::Counter)?;
        for (outcome, count) in ["applied", "refused"].iter().zip(self.reloads) {
            counter(&mut metric, &[("outcome", *outcome)], count)?;
        }
        let help = "Whether the file, as it was last read, is what is served.";
        gauge(encoder, "config_current", help, usize::from(!self.is_stale))?;
        let mut metric = encoder.encode_descriptor("build", "What is running.", None, MetricType::Info)?;
        metric.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])
    }
}

fn counter(metric: &mut MetricEncoder, labels: &impl EncodeLabelSet, count: u64) -> fmt::Result {
    metric.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)
}

fn gauge(encoder: &mut DescriptorEncoder, name: &str, help: &str, level: usize) -> fmt::Result {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&level)
}

fn total(encoder: &mut DescriptorEncoder, name: &str, help: &str, count: u64) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    metric.encode_counter::<NoLabelSet, _, u64>(&count, None)
}

/// Seconds as metrics have them.
fn seconds(span: Micros) -> f64 {
    Duration::from(span).as_secs_f64()
}

#[cfg(test)]
mod tests;
