//! The metrics as text. The only module with their names.

mod exposition;
mod process;
mod requests;
mod scrape;
mod upstreams;

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

pub use self::exposition::MetricsFormat;
pub use self::scrape::{GaugeValues, StoreValues};

use self::exposition::Exposition;
use self::process::{write_listeners, write_process, write_store};
use self::scrape::{ProcessValues, Scrape};
use super::counts::Counts;
use super::registry::Registry;
use super::upstreams::UpstreamCounts;
use crate::limit::Policy;
use crate::time::Timestamp;

/// The counters of the process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    started: Timestamp,
    applied: AtomicU64,
    rejected: AtomicU64,
    /// Whether the last reload was rejected.
    is_stale: AtomicBool,
    /// When the configuration that is served was applied.
    applied_at: AtomicU64,
}

impl Metrics {
    /// Metrics of a process that started at this time.
    #[must_use]
    pub fn new(started: Timestamp) -> Self {
        Self {
            registry: Registry::default(),
            started,
            applied: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            is_stale: AtomicBool::new(false),
            applied_at: AtomicU64::new(started.0),
        }
    }

    /// The counters of one worker for these limits and routes.
    #[must_use]
    pub fn counts<'a>(
        &self,
        worker: usize,
        policies: &[Policy],
        routes: impl Iterator<Item = &'a str>,
    ) -> Counts {
        self.registry.counts(worker, policies, routes)
    }

    /// Records a reload that was applied `now`. Counters of other limits, routes and upstreams than these are removed.
    pub fn record_reload<'a>(
        &self,
        now: Timestamp,
        policies: &[Policy],
        routes: impl Iterator<Item = &'a str>,
        upstreams: impl Iterator<Item = &'a str>,
    ) {
        self.registry.retain(policies, routes, upstreams);
        self.applied.fetch_add(1, Ordering::Relaxed);
        self.applied_at.store(now.0, Ordering::Relaxed);
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
        self.registry.upstream(worker, name, servers)
    }

    /// The counters of requests, decisions, the store and upstreams.
    pub(super) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// When the process has started.
    #[must_use]
    pub fn started(&self) -> Timestamp {
        self.started
    }

    /// Writes all metrics; `policies` are those of the current configuration.
    pub fn write(
        &self,
        format: MetricsFormat,
        gauges: &GaugeValues,
        policies: &[Policy],
        out: impl Write,
    ) -> io::Result<()> {
        let scrape = self.scrape(gauges, policies);
        let mut out = Exposition::new(out, format);
        write_process(&scrape, &mut out)?;
        write_listeners(&scrape, &mut out)?;
        requests::write_interfaces(&scrape, false, &mut out)?;
        requests::write_decisions(&scrape, &mut out)?;
        write_store(&scrape, &mut out)?;
        upstreams::write(&scrape, &mut out)?;
        requests::write(&scrape, &mut out)?;
        out.finish()
    }

    /// Writes the metrics of limits and their store alone.
    pub fn write_limits(
        &self,
        format: MetricsFormat,
        gauges: &GaugeValues,
        policies: &[Policy],
        out: impl Write,
    ) -> io::Result<()> {
        let scrape = self.scrape(gauges, policies);
        let mut out = Exposition::new(out, format);
        requests::write_decisions(&scrape, &mut out)?;
        requests::write_interfaces(&scrape, true, &mut out)?;
        write_store(&scrape, &mut out)?;
        out.finish()
    }

    fn scrape<'a>(&'a self, gauges: &'a GaugeValues, policies: &'a [Policy]) -> Scrape<'a> {
        // Tiers and overrides have the name of their limit, whose own policy comes first.
        let policies = policies.iter().rev().map(|policy| (&*policy.name, policy)).collect();
        let values = ProcessValues {
            started: self.started,
            applied_at: Timestamp(self.applied_at.load(Ordering::Relaxed)),
            reloads: [&self.applied, &self.rejected].map(|count| count.load(Ordering::Relaxed)),
            is_stale: self.is_stale(),
        };
        Scrape { registry: &self.registry, process: values, gauges, policies }
    }
}

#[cfg(test)]
mod tests;
