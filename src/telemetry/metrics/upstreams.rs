//! Metrics of upstreams and their servers.

use std::io::{self, Write};

use super::exposition::{Exposition, MetricKind};
use super::scrape::Scrape;
use crate::overload::Class;
use crate::telemetry::histogram::DurationSums;
use crate::telemetry::upstreams::{
    AdmissionValues, AttemptOutcome, ServerSums, ServerValues, UpstreamEvent, UpstreamSums,
};

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

/// A gauge of the admission of upstreams: name, help text and value.
type AdmissionGauge = (&'static str, &'static str, fn(&AdmissionValues) -> u64);

const ADMISSION_GAUGES: [AdmissionGauge; 2] = [
    (
        "tidegate_upstream_concurrency_limit",
        "The limit of requests in flight of an upstream with `overload`.",
        |admission| admission.limit,
    ),
    (
        "tidegate_upstream_requests_in_flight",
        "Requests in flight that the limit of an upstream with `overload` counts.",
        |admission| admission.in_flight,
    ),
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
    refusals(scrape, out)?;
    let help = "Requests that were refused because their client had reached a bound of the upstream.";
    out.start(MetricKind::Counter, "tidegate_upstream_client_refusals_total", help)?;
    registry.each_upstream(|upstream, sums| {
        for (event, bound) in UpstreamEvent::CLIENT_REFUSALS {
            out.series(&[("upstream", upstream), ("bound", bound)], count_of(&sums, event))?;
        }
        Ok::<_, io::Error>(())
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
    waits(scrape, out)
}

/// Those of the admission of an upstream have a class.
fn refusals(scrape: &Scrape<'_>, out: &mut Exposition<impl Write>) -> io::Result<()> {
    let help = "Requests that got no connection because all were in use, and with a class those that the limit of the upstream refused.";
    out.start(MetricKind::Counter, "tidegate_upstream_refusals_total", help)?;
    let has_admission = |label: &str| {
        scrape.gauges.upstreams.iter().any(|one| *one.label == *label && one.admission.is_some())
    };
    scrape.registry.each_upstream(|upstream, sums| {
        out.series(&[("upstream", upstream)], sums.events[UpstreamEvent::Full as usize])?;
        if sums.classes.is_none() && !has_admission(upstream) {
            return Ok(());
        }
        let classes = sums.classes.unwrap_or_default();
        for class in Class::ALL {
            let labels = [("upstream", upstream), ("class", class.name())];
            out.series(&labels, classes.refusals[class.index()])?;
        }
        Ok::<_, io::Error>(())
    })
}

/// Those for the admission of an upstream have a class.
fn waits(scrape: &Scrape<'_>, out: &mut Exposition<impl Write>) -> io::Result<()> {
    let help = "Time that requests wait for a connection while all are in use, and with a class for their admission, whether they get it or not.";
    out.start(MetricKind::Histogram, "tidegate_upstream_queue_duration_seconds", help)?;
    scrape.registry.each_upstream(|upstream, UpstreamSums { waits, classes, .. }| {
        if !waits.is_empty() {
            out.histogram(&[("upstream", upstream)], waits.buckets(), waits.sum())?;
        }
        for (class, waits) in Class::ALL.iter().zip(classes.iter().flat_map(|classes| &classes.waits)) {
            if !waits.is_empty() {
                let labels = [("upstream", upstream), ("class", class.name())];
                out.histogram(&labels, waits.buckets(), waits.sum())?;
            }
        }
        Ok::<_, io::Error>(())
    })
}

fn upstream_gauges(scrape: &Scrape<'_>, out: &mut Exposition<impl Write>) -> io::Result<()> {
    out.start(
        MetricKind::Gauge,
        "tidegate_upstream_pending_requests",
        "Requests that wait for a connection, or for their admission.",
    )?;
    for upstream in &scrape.gauges.upstreams {
        out.series(&[("upstream", &*upstream.label)], upstream.pending as u64)?;
    }
    for (name, help, value) in ADMISSION_GAUGES {
        out.start(MetricKind::Gauge, name, help)?;
        for upstream in &scrape.gauges.upstreams {
            if let Some(admission) = &upstream.admission {
                out.series(&[("upstream", &*upstream.label)], value(admission))?;
            }
        }
    }
    above_limit(scrape, out)?;
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

fn above_limit(scrape: &Scrape<'_>, out: &mut Exposition<impl Write>) -> io::Result<()> {
    let help = "Requests above the limit of an upstream, which its `overload` in shadow mode has admitted.";
    out.start(MetricKind::Counter, "tidegate_upstream_above_limit_total", help)?;
    for upstream in &scrape.gauges.upstreams {
        let above = upstream.admission.map_or([0; Class::COUNT], |admission| admission.above_limit);
        // None in enforcing mode.
        for (class, count) in Class::ALL.iter().zip(above).filter(|(_, count)| *count > 0) {
            out.series(&[("upstream", &*upstream.label), ("class", class.name())], count)?;
        }
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
