//! Metrics of requests and of the decisions on them.

use std::io::{self, Write};

use super::exposition::{Exposition, MetricKind};
use super::scrape::Scrape;
use crate::telemetry::counts::{CLASSES, LimitSums, RouteSums};
use crate::telemetry::histogram::DURATION_BUCKETS;
use crate::telemetry::outcome::{
    DecisionSource, GrantEvent, Interface, LimitOutcome, SettledOutcome, Verdict,
};
use crate::usage::Unknown;

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
    let help = "Keys that the limit denied in the last minute, or in shadow or mark mode would have denied.";
    out.start(MetricKind::Gauge, "tidegate_denied_keys", help)?;
    scrape.registry.each_limit(|limit, _| {
        let keys = scrape.gauges.denied_keys.get(limit).copied().unwrap_or_default();
        out.series(&[("limit", limit)], keys as u64)
    })?;
    write_grants(scrape, out)?;
    write_settlements(scrape, out)?;
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
    let mode = || scrape.policies.get(limit).map(|policy| policy.mode());
    is_source
        && match outcome {
            LimitOutcome::Allowed | LimitOutcome::NearLimit => true,
            LimitOutcome::Denied => mode() == Some("enforce"),
            LimitOutcome::ShadowDenied => mode() == Some("shadow"),
            LimitOutcome::Marked => mode() == Some("mark"),
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

/// Writes the metrics of costs that responses settle.
fn write_settlements(scrape: &Scrape<'_>, out: &mut Exposition<impl Write>) -> io::Result<()> {
    let settles = |limit: &str| scrape.policies.get(limit).is_some_and(|policy| policy.settles());
    let help = "Units of limits whose costs are settled by responses, by what has become of them.";
    out.start(MetricKind::Counter, "tidegate_settled_units_total", help)?;
    scrape.registry.each_settlement(|limit, sums| {
        for ((_, outcome), units) in SettledOutcome::ALL.iter().zip(sums.units) {
            if settles(limit) || units > 0 {
                out.series(&[("limit", limit), ("outcome", outcome)], units)?;
            }
        }
        Ok::<_, io::Error>(())
    })?;
    let help = "Responses whose cost is unknown, so that what was reserved stays charged, or whose model has no \
                price, by the reason.";
    out.start(MetricKind::Counter, "tidegate_settle_unknown_total", help)?;
    scrape.registry.each_settlement(|limit, sums| {
        for ((_, reason), count) in Unknown::ALL.iter().zip(sums.unknown) {
            if settles(limit) || count > 0 {
                out.series(&[("limit", limit), ("reason", reason)], count)?;
            }
        }
        Ok::<_, io::Error>(())
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
