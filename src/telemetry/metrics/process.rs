//! Metrics of the process, of listeners and their connections, and of the store.

use std::io::{self, Write};

use super::exposition::{Exposition, MetricKind};
use super::scrape::{Scrape, StoreValues};
use crate::telemetry::listeners::{Handshake, HandshakeFailure, ListenerValues};
use crate::telemetry::outcome::{ChargeBack, StoreRequest};
use crate::time::{Micros, Timestamp};

pub(super) fn write_process(scrape: &Scrape<'_>, out: &mut Exposition<impl Write>) -> io::Result<()> {
    let unix_time = |at: Timestamp| Micros(at.0).as_secs_f64();
    let help = "Start time of the process, in Unix time.";
    out.start(MetricKind::Gauge, "process_start_time_seconds", help)?;
    out.seconds(&[], unix_time(scrape.process.started))?;
    out.start(MetricKind::Gauge, "tidegate_build_info", "The version of tidegate; always 1.")?;
    out.series(&[("version", env!("CARGO_PKG_VERSION"))], 1)?;
    out.start(
        MetricKind::Counter,
        "tidegate_config_reloads_total",
        "Reloads of the configuration, by outcome.",
    )?;
    for (outcome, count) in ["applied", "rejected"].into_iter().zip(scrape.process.reloads) {
        out.series(&[("outcome", outcome)], count)?;
    }
    let help = "Whether the last reload was applied, so that the file is served as it is.";
    out.start(MetricKind::Gauge, "tidegate_config_last_reload_successful", help)?;
    out.series(&[], u64::from(!scrape.process.is_stale))?;
    let help = "When the configuration that is served was applied, in Unix time.";
    out.start(MetricKind::Gauge, "tidegate_config_last_reload_success_timestamp_seconds", help)?;
    out.seconds(&[], unix_time(scrape.process.applied_at))?;
    let help = "Lines of the access log that were dropped because standard output was blocked or too slow.";
    out.start(MetricKind::Counter, "tidegate_access_log_dropped_lines_total", help)?;
    out.series(&[], scrape.gauges.dropped_lines)?;
    let help = "Lines of the log that were dropped because standard error was blocked or too slow.";
    out.start(MetricKind::Counter, "tidegate_log_dropped_lines_total", help)?;
    out.series(&[], scrape.gauges.dropped_log_lines)?;
    let help =
        "Spans of traces, by outcome; dropped: the queue was full, or the collector did not accept them.";
    out.start(MetricKind::Counter, "tidegate_spans_total", help)?;
    for (outcome, count) in ["exported", "dropped"].into_iter().zip(scrape.gauges.spans) {
        out.series(&[("outcome", outcome)], count)?;
    }
    let help = "Attempts to obtain a certificate from the ACME server, by outcome.";
    out.start(MetricKind::Counter, "tidegate_acme_orders_total", help)?;
    for (outcome, count) in ["obtained", "failed"].into_iter().zip(scrape.gauges.acme.orders) {
        out.series(&[("outcome", outcome)], count)?;
    }
    let help =
        "Names for which a certificate is to be obtained from the ACME server, and that have no valid one.";
    out.start(MetricKind::Gauge, "tidegate_acme_missing_certificates", help)?;
    out.series(&[], scrape.gauges.acme.missing)?;
    let help = "Names for which the last attempt to obtain a certificate from the ACME server has failed.";
    out.start(MetricKind::Gauge, "tidegate_acme_failing_certificates", help)?;
    out.series(&[], scrape.gauges.acme.failing)?;
    let help = "When an attempt to obtain a certificate has failed last, in Unix time; 0 if none has.";
    out.start(MetricKind::Gauge, "tidegate_acme_last_failure_timestamp_seconds", help)?;
    out.seconds(&[], unix_time(scrape.gauges.acme.last_failure))
}

pub(super) fn write_listeners(scrape: &Scrape<'_>, out: &mut Exposition<impl Write>) -> io::Result<()> {
    let label = |listener: &ListenerValues| listener.address.to_string();
    let listeners: Vec<(String, &ListenerValues)> =
        scrape.gauges.listeners.iter().map(|listener| (label(listener), listener)).collect();
    out.start(MetricKind::Gauge, "tidegate_connections", "Open client connections.")?;
    for (listener, values) in &listeners {
        out.series(&[("listener", listener)], values.connections as u64)?;
    }
    out.start(
        MetricKind::Counter,
        "tidegate_connections_accepted_total",
        "Client connections that were accepted.",
    )?;
    for (listener, values) in &listeners {
        out.series(&[("listener", listener)], values.counts.accepted)?;
    }
    let help = "Client connections that were refused, by the bound that was reached.";
    out.start(MetricKind::Counter, "tidegate_connections_refused_total", help)?;
    for (listener, values) in &listeners {
        let counts = [
            ("max_connections", values.over_limit),
            ("max_connections_per_client", values.over_client_limit),
        ];
        for (bound, count) in counts {
            out.series(&[("listener", listener), ("bound", bound)], count)?;
        }
    }
    handshakes(&listeners, out)?;
    let help = "When a certificate expires, in Unix time.";
    out.start(MetricKind::Gauge, "tidegate_certificate_expiry_timestamp_seconds", help)?;
    for (listener, values) in &listeners {
        for (name, expires) in &values.certificates {
            let labels = [("listener", &**listener), ("certificate", &**name)];
            out.seconds(&labels, Micros(expires.0).as_secs_f64())?;
        }
    }
    Ok(())
}

fn handshakes(listeners: &[(String, &ListenerValues)], out: &mut Exposition<impl Write>) -> io::Result<()> {
    let has_tls = |values: &ListenerValues| !values.certificates.is_empty();
    out.start(
        MetricKind::Counter,
        "tidegate_tls_handshakes_total",
        "TLS handshakes with clients that succeeded.",
    )?;
    for (listener, values) in listeners {
        for ((_, version, resumed), count) in Handshake::ALL.iter().zip(values.counts.handshakes) {
            if has_tls(values) || count > 0 {
                out.series(&[("listener", listener), ("version", version), ("resumed", resumed)], count)?;
            }
        }
    }
    let help = "Client connections that were closed before their first request, by reason.";
    out.start(MetricKind::Counter, "tidegate_handshake_failures_total", help)?;
    for (listener, values) in listeners {
        for ((_, reason), count) in HandshakeFailure::ALL.iter().zip(values.counts.failures) {
            if has_tls(values) || count > 0 {
                out.series(&[("listener", listener), ("reason", reason)], count)?;
            }
        }
    }
    Ok(())
}

pub(super) fn write_store(scrape: &Scrape<'_>, out: &mut Exposition<impl Write>) -> io::Result<()> {
    out.start(MetricKind::Gauge, "tidegate_memory_keys", "Keys in the in-process store.")?;
    out.series(&[], scrape.gauges.keys as u64)?;
    let help = "Keys that were evicted from the in-process store before they expired, because of `max_keys`.";
    out.start(MetricKind::Counter, "tidegate_memory_evictions_total", help)?;
    out.series(&[], scrape.gauges.evictions)?;
    let Some(store) = &scrape.gauges.store else { return Ok(()) };
    store_calls(scrape, out)?;
    availability(store, out)?;
    servers_up(&scrape.gauges.store_servers, out)
}

fn store_calls(scrape: &Scrape<'_>, out: &mut Exposition<impl Write>) -> io::Result<()> {
    let workers = scrape.registry.workers();
    out.start(MetricKind::Counter, "tidegate_store_requests_total", "Requests to the store, by outcome.")?;
    for ((_, outcome), count) in StoreRequest::ALL.iter().zip(workers.store_requests) {
        out.series(&[("outcome", outcome)], count)?;
    }
    let help = "Time that requests to the store wait for their call, while another is on its way.";
    out.start(MetricKind::Histogram, "tidegate_store_queue_duration_seconds", help)?;
    out.histogram(&[], workers.store_waits.buckets(), workers.store_waits.sum())?;
    let help = "Time from a call to the store to its reply or failure.";
    out.start(MetricKind::Histogram, "tidegate_store_call_duration_seconds", help)?;
    out.histogram(&[], workers.store_calls.buckets(), workers.store_calls.sum())?;
    out.start(MetricKind::Histogram, "tidegate_store_call_requests", "Requests in one call to the store.")?;
    out.histogram(&[], workers.store_batches.buckets(), workers.store_batches.sum())
}

fn servers_up(servers: &[(Box<str>, bool)], out: &mut Exposition<impl Write>) -> io::Result<()> {
    if servers.is_empty() {
        return Ok(());
    }
    let help = "Whether a server of the store is available to all workers.";
    out.start(MetricKind::Gauge, "tidegate_store_server_up", help)?;
    for (server, is_up) in servers {
        out.series(&[("server", server)], u64::from(*is_up))?;
    }
    Ok(())
}

fn availability(store: &StoreValues, out: &mut Exposition<impl Write>) -> io::Result<()> {
    out.start(MetricKind::Gauge, "tidegate_store_up", "Whether the store is available to all workers.")?;
    out.series(&[], u64::from(store.breakers_open == 0))?;
    let help = "Workers whose circuit breaker of the store is open.";
    out.start(MetricKind::Gauge, "tidegate_store_breakers_open", help)?;
    out.series(&[], store.breakers_open as u64)?;
    let help = "Times that a worker's circuit breaker of the store has opened.";
    out.start(MetricKind::Counter, "tidegate_store_breaker_openings_total", help)?;
    out.series(&[], store.breaker_openings)?;
    let help = "Units that were admitted while the store was unavailable, by outcome.";
    out.start(MetricKind::Counter, "tidegate_charge_back_units_total", help)?;
    for ((_, outcome), count) in ChargeBack::ALL.iter().zip(store.charge_back) {
        out.series(&[("outcome", outcome)], count)?;
    }
    let help = "Keys with units to be charged to the store that were admitted while it was unavailable.";
    out.start(MetricKind::Gauge, "tidegate_owed_keys", help)?;
    out.series(&[], store.owed_keys as u64)
}
