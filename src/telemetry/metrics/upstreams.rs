//! Metrics of upstreams and their servers.

use std::io::{self, Write};

use super::exposition::{Exposition, MetricKind};
use super::scrape::Scrape;
use crate::telemetry::histogram::DurationSums;
use crate::telemetry::upstreams::{AttemptOutcome, ServerSums, ServerValues, UpstreamEvent, UpstreamSums};

/// A gauge of servers: name, help text and value.
type ServerGauge = (&'static str, &'static str, fn(&ServerValues) -> usize);
/// A histogram of servers: name, help text and value.
type ServerHistogram = (&'static str, &'static str, fn(&ServerSums) -> &DurationSums);

const HISTOGRAMS: [ServerHistogram; 2] = [
    (
        "tidegate_upstream_time_to_first_byte_seconds",
        "Time from the selection of a server to the head of its response, including the wait for a connection.",
        |sums| &sums.first_bytes,
    ),
    (
        "tidegate_upstream_request_duration_seconds",
        "Time from the selection of a server to the end of its response.",
        |sums| &sums.durations,
    ),
];

const GAUGES: [ServerGauge; 3] = [
    ("tidegate_upstream_addresses", "Addresses of a server.", |server| server.addresses),
    ("tidegate_upstream_healthy_addresses", "Healthy addresses of a server.", |server| server.healthy),
    ("tidegate_upstream_connections", "Open connections to a server.", |server| server.connections),
];

pub(super) fn write(scrape: &Scrape<'_>, out: &mut Exposition<impl Write>) -> io::Result<()> {
    server_requests(scrape, out)?;
    upstream_events(scrape, out)?;
    upstream_gauges(scrape, out)
}

fn server_requests(scrape: &Scrape<'_>, out: &mut Exposition<impl Write>) -> io::Result<()> {
    let registry = scrape.registry;
    let help = "Attempts to forward a request to a server, by outcome.";
    out.start(MetricKind::Counter, "tidegate_upstream_requests_total", help)?;
    registry.each_upstream(|upstream, sums| {
        for (server, sums) in &sums.servers {
            for ((_, outcome), count) in AttemptOutcome::ALL.iter().zip(sums.attempts) {
                let labels = [("upstream", upstream), ("server", &**server), ("outcome", *outcome)];
                out.series(&labels, count)?;
            }
        }
        Ok::<_, io::Error>(())
    })?;
    for (name, help, durations) in HISTOGRAMS {
        out.start(MetricKind::Histogram, name, help)?;
        registry.each_upstream(|upstream, sums| {
            let all = sums.servers.iter().map(|(server, sums)| (server, durations(sums)));
            for (server, durations) in all.filter(|(_, durations)| !durations.is_empty()) {
                let labels = [("upstream", upstream), ("server", &**server)];
                out.histogram(&labels, durations.buckets(), durations.sum())?;
            }
            Ok::<_, io::Error>(())
        })?;
    }
    Ok(())
}

fn upstream_events(scrape: &Scrape<'_>, out: &mut Exposition<impl Write>) -> io::Result<()> {
    let registry = scrape.registry;
    let count_of = |sums: &UpstreamSums, event: UpstreamEvent| sums.events[event as usize];
    let help = "Retries that were sent, and those that were not because the retry budget was used up.";
    out.start(MetricKind::Counter, "tidegate_upstream_retries_total", help)?;
    registry.each_upstream(|upstream, sums| {
        for (event, outcome) in [(UpstreamEvent::Retried, "sent"), (UpstreamEvent::OverBudget, "over_budget")]
        {
            out.series(&[("upstream", upstream), ("outcome", outcome)], count_of(&sums, event))?;
        }
        Ok::<_, io::Error>(())
    })?;
    let help = "Requests that got no connection because all were in use.";
    out.start(MetricKind::Counter, "tidegate_upstream_refusals_total", help)?;
    registry.each_upstream(|upstream, sums| {
        out.series(&[("upstream", upstream)], count_of(&sums, UpstreamEvent::Full))
    })?;
    let help = "Requests that an authorization server decided on, or failed to.";
    out.start(MetricKind::Counter, "tidegate_authorizations_total", help)?;
    registry.each_upstream(|upstream, sums| {
        let counts = UpstreamEvent::AUTHORIZATIONS.map(|(event, outcome)| (outcome, count_of(&sums, event)));
        // Most upstreams are no authorization servers.
        if counts.iter().any(|(_, count)| *count > 0) {
            for (outcome, count) in counts {
                out.series(&[("upstream", upstream), ("outcome", outcome)], count)?;
            }
        }
        Ok::<_, io::Error>(())
    })?;
    let help = "Time that requests wait for a connection while all are in use, whether they get one or not.";
    out.start(MetricKind::Histogram, "tidegate_upstream_queue_duration_seconds", help)?;
    registry.each_upstream(|upstream, UpstreamSums { waits, .. }| {
        if waits.is_empty() {
            return Ok(());
        }
        out.histogram(&[("upstream", upstream)], waits.buckets(), waits.sum())
    })
}

fn upstream_gauges(scrape: &Scrape<'_>, out: &mut Exposition<impl Write>) -> io::Result<()> {
    out.start(
        MetricKind::Gauge,
        "tidegate_upstream_pending_requests",
        "Requests that wait for a connection.",
    )?;
    for upstream in &scrape.gauges.upstreams {
        out.series(&[("upstream", &*upstream.label)], upstream.pending as u64)?;
    }
    for (name, help, value) in GAUGES {
        out.start(MetricKind::Gauge, name, help)?;
        for (labels, server) in servers(scrape) {
            out.series(&labels, value(server) as u64)?;
        }
    }
    let help = "Ejections of an address of a server because of failed requests.";
    out.start(MetricKind::Counter, "tidegate_upstream_ejections_total", help)?;
    for (labels, server) in servers(scrape) {
        out.series(&labels, server.ejections)?;
    }
    Ok(())
}

fn servers<'a>(
    scrape: &'a Scrape<'_>,
) -> impl Iterator<Item = ([(&'static str, &'a str); 2], &'a ServerValues)> {
    scrape.gauges.upstreams.iter().flat_map(|upstream| {
        let labels = |server| [("upstream", &*upstream.label), ("server", server)];
        upstream.servers.iter().map(move |server| (labels(&*server.label), server))
    })
}
