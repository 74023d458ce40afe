//! Metrics of requests and of the decisions on them, and of upstreams and their servers.

use std::io::{self, Write};

use super::exposition::{Exposition, MetricKind};
use super::scrape::Scrape;
use crate::telemetry::counts::{CLASSES, LimitSums, RouteSums};
use crate::telemetry::histogram::{DURATION_BUCKETS, DurationSums};
use crate::telemetry::outcome::{DecisionSource, GrantEvent, Interface, LimitOutcome, Verdict};
use crate::telemetry::upstreams::{AttemptOutcome, ServerSums, ServerValues, UpstreamEvent, UpstreamSums};

/// Writes the requests by interface: those of the proxy, or that of the library.
pub(super) fn write_interfaces(
    scrape: &Scrape<'_>,
    is_library: bool,
    out: &mut Exposition<impl Write>,
) -> io::Result<()> {
    let requests = scrape.registry.workers().requests;
    let help = "Requests that were decided, by the interface through which they came.";
    out.start(MetricKind::Counter, "tidegate_interface_requests_total", help)?;
    let is_shown = |interface: Interface| (interface == Interface::Library) == is_library;
    for (interface, interface_name) in Interface::ALL.into_iter().filter(|(it, _)| is_shown(*it)) {
        for (verdict, verdict_name) in Verdict::ALL {
            let labels = [("interface", interface_name), ("outcome", verdict_name)];
            out.series(&labels, requests[interface.cell(verdict)])?;
        }
    }
    Ok(())
}

/// Writes the metrics of decisions and delays.
pub(super) fn write_decisions(scrape: &Scrape<'_>, out: &mut Exposition<impl Write>) -> io::Result<()> {
    let help = "Decisions of limits on requests, by outcome and by what has made them.";
    out.start(MetricKind::Counter, "tidegate_decisions_total", help)?;
    scrape.registry.each_limit(|limit, sums| limit_decisions(scrape, limit, &sums, out))?;
    let help = "Keys that the limit denied in the last minute, or in shadow mode would have denied.";
    out.start(MetricKind::Gauge, "tidegate_denied_keys", help)?;
    scrape.registry.each_limit(|limit, _| {
        let keys = scrape.gauges.denied_keys.get(limit).copied().unwrap_or_default();
        out.series(&[("limit", limit)], keys as u64)
    })?;
    write_grants(scrape, out)?;
    let workers = scrape.registry.workers();
    let help = "Time to decide on a request that has limits, including the wait for the store.";
    out.start(MetricKind::Histogram, "tidegate_decision_duration_seconds", help)?;
    out.histogram(&[], workers.decisions.buckets(), workers.decisions.sum())?;
    out.start(
        MetricKind::Histogram,
        "tidegate_request_delay_seconds",
        "Delays of requests by leaky buckets.",
    )?;
    out.histogram(&[], workers.delays.buckets(), workers.delays.sum())?;
    let help = "How long connections are not read after refused requests while a worker is saturated.";
    out.start(MetricKind::Histogram, "tidegate_refusal_pause_seconds", help)?;
    out.histogram(&[], workers.pauses.buckets(), workers.pauses.sum())
}

fn limit_decisions(
    scrape: &Scrape<'_>,
    limit: &str,
    sums: &LimitSums,
    out: &mut Exposition<impl Write>,
) -> io::Result<()> {
    for (source, source_name) in DecisionSource::ALL {
        for (outcome, outcome_name) in LimitOutcome::ALL {
            let count = sums[outcome.cell(source)];
            if count > 0 || is_expected(scrape, limit, outcome, source) {
                let labels = [("limit", limit), ("outcome", outcome_name), ("source", source_name)];
                out.series(&labels, count)?;
            }
        }
    }
    Ok(())
}

/// Whether a series is written while it is 0, so that a query sees its first increment.
fn is_expected(scrape: &Scrape<'_>, limit: &str, outcome: LimitOutcome, source: DecisionSource) -> bool {
    let is_source = match source {
        DecisionSource::Store | DecisionSource::Fallback => scrape.gauges.store.is_some(),
        DecisionSource::Memory => scrape.gauges.store.is_none(),
        DecisionSource::Ahead => has_grants(scrape, limit),
        DecisionSource::Cache | DecisionSource::Config => false,
    };
    let is_shadow = || scrape.policies.get(limit).map(|policy| policy.shadow);
    is_source
        && match outcome {
            LimitOutcome::Allowed | LimitOutcome::NearLimit => true,
            LimitOutcome::Denied => is_shadow() == Some(false),
            LimitOutcome::ShadowDenied => is_shadow() == Some(true),
            _ => false,
        }
}

/// Whether the store grants units of a limit.
fn has_grants(scrape: &Scrape<'_>, limit: &str) -> bool {
    let has_ahead = || scrape.policies.get(limit).is_some_and(|policy| policy.ahead.is_some());
    scrape.gauges.store.is_some() && has_ahead()
}

/// Writes the metrics of granted units.
fn write_grants(scrape: &Scrape<'_>, out: &mut Exposition<impl Write>) -> io::Result<()> {
    let of = |limit: &str| scrape.gauges.grants.get(limit).copied().unwrap_or_default();
    let help = "Units that the store has granted ahead of requests, by what has become of them.";
    out.start(MetricKind::Counter, "tidegate_ahead_units_total", help)?;
    scrape.registry.each_limit(|limit, _| {
        for ((_, event), units) in GrantEvent::ALL.iter().zip(of(limit).events) {
            if has_grants(scrape, limit) || units > 0 {
                out.series(&[("limit", limit), ("event", event)], units)?;
            }
        }
        Ok::<_, io::Error>(())
    })?;
    let help = "Granted units that this process can spend without the store.";
    out.start(MetricKind::Gauge, "tidegate_ahead_units_held", help)?;
    scrape.registry.each_limit(|limit, _| {
        if has_grants(scrape, limit) { out.series(&[("limit", limit)], of(limit).held) } else { Ok(()) }
    })
}

/// Writes the metrics of requests, of which there may be very many.
pub(super) fn write(scrape: &Scrape<'_>, out: &mut Exposition<impl Write>) -> io::Result<()> {
    let registry = scrape.registry;
    let unrouted = registry.unrouted();
    let help = "Requests by route and status class, 429 apart; none: the client disconnected before the response; empty \
                route: no route matched.";
    out.start(MetricKind::Counter, "tidegate_requests_total", help)?;
    let mut write = |route: &str, sums: RouteSums| {
        for (class, count) in CLASSES.iter().zip(sums.classes) {
            out.series(&[("route", route), ("status", class)], count)?;
        }
        Ok::<_, io::Error>(())
    };
    write("", unrouted.clone())?;
    registry.each_route(write)?;
    let help = "Time from a request's head to the end of its response, by route.";
    out.start(MetricKind::Histogram, "tidegate_request_duration_seconds", help)?;
    let mut write = |route: &str, RouteSums { durations, exemplars, .. }: RouteSums| {
        // Most of many routes have no requests.
        if durations.is_empty() {
            return Ok(());
        }
        let exemplars = exemplars.map_or([None; DURATION_BUCKETS], |exemplars| *exemplars);
        let buckets = durations.buckets().zip(exemplars);
        let buckets = buckets.map(|((bound, count), exemplar)| (bound, count, exemplar));
        out.histogram_with_exemplars(&[("route", route)], buckets, durations.sum())
    };
    write("", unrouted)?;
    registry.each_route(write)
}

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

pub(super) fn write_upstreams(scrape: &Scrape<'_>, out: &mut Exposition<impl Write>) -> io::Result<()> {
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
