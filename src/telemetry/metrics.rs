//! The metrics in the text format of `OpenMetrics`. The only module with their names.

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

/// The media type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The counters of the process.
#[derive(Debug)]
pub struct Metrics {
    workers: Workers,
    started: Timestamp,
    applied: AtomicU64,
    rejected: AtomicU64,
    /// Whether the last reload was rejected.
    is_stale: AtomicBool,
}

/// Values that are read at each scrape.
#[derive(Clone, Debug, Default)]
pub struct GaugeValues {
    /// Of each listener.
    pub listeners: Vec<ListenerValues>,
    /// Workers whose circuit breaker of the store is open.
    pub breakers_open: usize,
    /// How often a circuit breaker has opened since the start.
    pub breaker_openings: u64,
    /// Keys in the in-process store.
    pub keys: usize,
    /// Keys that were evicted from the in-process store before they expired.
    pub evictions: u64,
    /// Keys with debts to the store.
    pub owed_keys: usize,
    /// Units that were admitted while the store was unavailable, by [`ChargeBack`].
    pub charge_back: [u64; ChargeBack::COUNT],
    /// Lines of the access log that were dropped since the start.
    pub dropped_lines: u64,
    /// Lines of the log that were dropped since the start.
    pub dropped_log_lines: u64,
    /// Of each upstream.
    pub upstreams: Vec<UpstreamValues>,
}

/// Client connections of one listener.
#[derive(Clone, Copy, Debug)]
pub struct ListenerValues {
    /// Its address.
    pub address: SocketAddr,
    /// Open connections.
    pub connections: usize,
    /// Connections that were refused since the start because of `max_connections`.
    pub over_limit: u64,
    /// Connections that were refused since the start because of `max_connections_per_client`.
    pub over_client_limit: u64,
}

/// The values of one scrape.
#[derive(Debug)]
struct Scrape {
    sums: Sums,
    gauges: GaugeValues,
    /// The names of limits in shadow mode, which have other outcomes.
    shadows: Vec<Box<str>>,
    /// The numbers of applied and of rejected reloads.
    reloads: [u64; 2],
    is_stale: bool,
}

/// A gauge of servers: name, help text and value.
type ServerGauge = (&'static str, &'static str, fn(&ServerValues) -> usize);

/// Metrics with conventional names, without the prefix of this program.
#[derive(Debug)]
struct Process {
    started: Timestamp,
}

impl Metrics {
    /// Metrics of a process that started at this time.
    #[must_use]
    pub fn new(started: Timestamp) -> Self {
        let (applied, rejected) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { workers: Workers::default(), started, applied, rejected, is_stale: AtomicBool::new(false) }
    }

    /// The counters of one worker for these limits and routes.
    #[must_use]
    pub fn counts<'a>(
        &self,
        worker: usize,
        policies: &[Policy],
        routes: impl Iterator<Item = &'a str>,
    ) -> Counts {
        self.workers.counts(worker, policies, routes)
    }

    /// Records an applied reload. Counters of other limits, routes and upstreams than these are removed.
    pub fn record_reload<'a>(
        &self,
        policies: &[Policy],
        routes: impl Iterator<Item = &'a str>,
        upstreams: impl Iterator<Item = &'a str>,
    ) {
        self.workers.retain(policies, routes, upstreams);
        self.applied.fetch_add(1, Ordering::Relaxed);
        self.is_stale.store(false, Ordering::Relaxed);
    }

    /// Records a rejected reload.
    pub fn record_rejected_reload(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        self.is_stale.store(true, Ordering::Relaxed);
    }

    /// Whether the last reload was rejected, so that the configuration served is not that of the file.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        self.is_stale.load(Ordering::Relaxed)
    }

    /// The counters of one worker for an upstream with servers of these labels.
    #[must_use]
    pub fn upstream_counts<'a>(
        &self,
        worker: usize,
        name: &str,
        servers: impl Iterator<Item = &'a str>,
    ) -> UpstreamCounts {
        self.workers.upstream(worker, name, servers)
    }

    /// All metrics as text; `policies` are those of the current configuration.
    #[must_use]
    pub fn text(&self, gauges: GaugeValues, policies: &[Policy]) -> String {
        let shadows = policies.iter().filter(|policy| policy.shadow).map(|policy| policy.name.clone());
        let scrape = Scrape {
            sums: self.workers.sums(),
            gauges,
            shadows: shadows.collect(),
            reloads: [&self.applied, &self.rejected].map(|count| count.load(Ordering::Relaxed)),
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
        let help = "Start time of the process, in Unix time.";
        let mut metric =
            encoder.encode_descriptor("process_start_time", help, Some(&Unit::Seconds), MetricType::Gauge)?;
        metric.encode_gauge(&Micros(self.started.0).as_secs_f64())
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        self.decisions(&mut encoder)?;
        self.requests(&mut encoder)?;
        self.store(&mut encoder)?;
        self.upstream_requests(&mut encoder)?;
        self.upstream_gauges(&mut encoder)?;
        self.process_gauges(&mut encoder)
    }
}

impl Scrape {
    fn decisions(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let help = "Rate-limit decisions by limit and outcome.";
        let mut metric = encoder.encode_descriptor("decisions", help, None, MetricType::Counter)?;
        for (limit, counts) in &self.sums.limits {
            let is_shadow = self.shadows.contains(limit);
            for ((outcome, name), count) in Outcome::ALL.iter().zip(counts) {
                let belongs = is_shadow == matches!(outcome, Outcome::ShadowAllowed | Outcome::ShadowDenied);
                // A limit that had another mode before a reload keeps its counts of that mode.
                if belongs || *count > 0 {
                    counter(&mut metric, &[("limit", &**limit), ("outcome", *name)], *count)?;
                }
            }
        }
        Ok(())
    }

    fn requests(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let help = "Requests by route and status class; class none: the client disconnected first; empty route: no route matched.";
        let mut metric = encoder.encode_descriptor("requests", help, None, MetricType::Counter)?;
        let routes = self.sums.routes.iter().map(|(name, counts)| (&**name, counts));
        for (route, counts) in routes.chain([("", &self.sums.unrouted)]) {
            for (class, count) in CLASSES.iter().zip(counts) {
                counter(&mut metric, &[("route", route), ("status", *class)], *count)?;
            }
        }
        let help = "Time from a request's head to the end of its response.";
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
        let sum = Micros(durations[DURATION_CELLS - 1]).as_secs_f64();
        metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn store(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let help = "Calls to the store for decisions on requests, by outcome.";
        let mut metric = encoder.encode_descriptor("store_calls", help, None, MetricType::Counter)?;
        for ((_, name), count) in StoreCall::ALL.iter().zip(&self.sums.store) {
            counter(&mut metric, &[("outcome", *name)], *count)?;
        }
        let help = "Whether the store is available to all workers.";
        gauge(encoder, "store_up", help, usize::from(self.gauges.breakers_open == 0))?;
        let help = "Workers whose circuit breaker of the store is open.";
        gauge(encoder, "store_breakers_open", help, self.gauges.breakers_open)?;
        let help = "Times that a worker's circuit breaker of the store has opened.";
        total(encoder, "store_breaker_openings", help, self.gauges.breaker_openings)?;
        let help = "Units that were admitted while the store was unavailable, by outcome.";
        let mut metric = encoder.encode_descriptor("charge_back_units", help, None, MetricType::Counter)?;
        for ((_, name), count) in ChargeBack::ALL.iter().zip(&self.gauges.charge_back) {
            counter(&mut metric, &[("outcome", *name)], *count)?;
        }
        let help = "Keys with units to be charged to the store that were admitted while it was unavailable.";
        gauge(encoder, "owed_keys", help, self.gauges.owed_keys)?;
        gauge(encoder, "local_keys", "Keys in the in-process store.", self.gauges.keys)?;
        let help =
            "Keys that were evicted from the in-process store before they expired, because of `max_keys`.";
        total(encoder, "store_evictions", help, self.gauges.evictions)
    }

    fn upstream_requests(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let help = "Attempts to forward a request to a server, by outcome.";
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
        let help = "Retries that were sent, and those that were not because the retry budget was used up.";
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

    fn upstream_gauges(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let help = "Requests that wait for a connection.";
        let mut metric = encoder.encode_descriptor("upstream_pending", help, None, MetricType::Gauge)?;
        for upstream in &self.gauges.upstreams {
            metric.encode_family(&[("upstream", &*upstream.label)])?.encode_gauge(&upstream.pending)?;
        }
        let gauges: [ServerGauge; 3] = [
            ("upstream_addresses", "Addresses of a server.", |server| server.addresses),
            ("upstream_healthy", "Healthy addresses of a server.", |server| server.healthy),
            ("upstream_connections", "Open connections to a server.", |server| server.connections),
        ];
        for (name, help, value) in gauges {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (labels, server) in self.servers() {
                metric.encode_family(&labels)?.encode_gauge(&value(server))?;
            }
        }
        let help = "Ejections of an address of a server because of failed requests.";
        let mut metric = encoder.encode_descriptor("upstream_ejections", help, None, MetricType::Counter)?;
        for (labels, server) in self.servers() {
            counter(&mut metric, &labels, server.ejections)?;
        }
        Ok(())
    }

    fn servers(&self) -> impl Iterator<Item = ([(&str, &str); 2], &ServerValues)> {
        self.gauges.upstreams.iter().flat_map(|upstream| {
            let labels = |server| [("upstream", &*upstream.label), ("server", server)];
            upstream.servers.iter().map(move |server| (labels(&*server.label), server))
        })
    }

    fn process_gauges(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let help = "Open client connections.";
        let mut metric = encoder.encode_descriptor("connections", help, None, MetricType::Gauge)?;
        for listener in &self.gauges.listeners {
            let labels = [("listener", listener.address.to_string())];
            metric.encode_family(&labels)?.encode_gauge(&listener.connections)?;
        }
        let help = "Client connections that were refused, by the bound that was reached.";
        let mut metric = encoder.encode_descriptor("connections_refused", help, None, MetricType::Counter)?;
        for listener in &self.gauges.listeners {
            let address = listener.address.to_string();
            let counts = [
                ("max_connections", listener.over_limit),
                ("max_connections_per_client", listener.over_client_limit),
            ];
            for (bound, count) in counts {
                counter(&mut metric, &[("listener", &*address), ("bound", bound)], count)?;
            }
        }
        let help =
            "Lines of the access log that were dropped because standard output was blocked or too slow.";
        total(encoder, "access_log_dropped_lines", help, self.gauges.dropped_lines)?;
        let help = "Lines of the log that were dropped because standard error was blocked or too slow.";
        total(encoder, "log_dropped_lines", help, self.gauges.dropped_log_lines)?;
        let help = "Reloads of the configuration, by outcome.";
        let mut metric = encoder.encode_descriptor("reloads", help, None, MetricType::Counter)?;
        for (outcome, count) in ["applied", "refused"].iter().zip(self.reloads) {
            counter(&mut metric, &[("outcome", *outcome)], count)?;
        }
        let help = "Whether the configuration that was read last is the one that is served.";
        gauge(encoder, "config_current", help, usize::from(!self.is_stale))?;
        let mut metric =
            encoder.encode_descriptor("build", "The version of tidegate.", None, MetricType::Info)?;
        metric.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])
    }
}

fn counter(metric: &mut MetricEncoder, labels: &impl EncodeLabelSet, count: u64) -> fmt::Result {
    metric.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)
}

fn gauge(encoder: &mut DescriptorEncoder, name: &str, help: &str, value: usize) -> fmt::Result {
    encoder.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
}

fn total(encoder: &mut DescriptorEncoder, name: &str, help: &str, count: u64) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    metric.encode_counter::<NoLabelSet, _, u64>(&count, None)
}

#[cfg(test)]
mod tests;
