//! Metrics of the process and its configuration.

use std::io::{self, Write};

use super::exposition::{Exposition, Kind};
use super::scrape::Scrape;
use crate::time::{Micros, Timestamp};

pub(super) fn write(scrape: &Scrape<'_>, out: &mut Exposition<impl Write>) -> io::Result<()> {
    let unix_time = |at: Timestamp| Micros(at.0).as_secs_f64();
    let help = "Start time of the process, in Unix time.";
    out.start(Kind::Gauge, "process_start_time_seconds", help)?;
    out.seconds(&[], unix_time(scrape.process.started))?;
    out.start(Kind::Gauge, "tidegate_build_info", "The version of tidegate; always 1.")?;
    out.series(&[("version", env!("CARGO_PKG_VERSION"))], 1)?;
    out.start(Kind::Counter, "tidegate_config_reloads_total", "Reloads of the configuration, by outcome.")?;
    for (outcome, count) in ["applied", "rejected"].into_iter().zip(scrape.process.reloads) {
        out.series(&[("outcome", outcome)], count)?;
    }
    let help = "Whether the last reload was applied, so that the file is served as it is.";
    out.start(Kind::Gauge, "tidegate_config_last_reload_successful", help)?;
    out.series(&[], u64::from(!scrape.process.is_stale))?;
    let help = "When the configuration that is served was applied, in Unix time.";
    out.start(Kind::Gauge, "tidegate_config_last_reload_success_timestamp_seconds", help)?;
    out.seconds(&[], unix_time(scrape.process.applied_at))?;
    let help = "Lines of the access log that were dropped because standard output was blocked or too slow.";
    out.start(Kind::Counter, "tidegate_access_log_dropped_lines_total", help)?;
    out.series(&[], scrape.gauges.dropped_lines)?;
    let help = "Lines of the log that were dropped because standard error was blocked or too slow.";
    out.start(Kind::Counter, "tidegate_log_dropped_lines_total", help)?;
    out.series(&[], scrape.gauges.dropped_log_lines)?;
    let help =
        "Spans of traces, by outcome; dropped: the queue was full, or the collector did not accept them.";
    out.start(Kind::Counter, "tidegate_spans_total", help)?;
    for (outcome, count) in ["exported", "dropped"].into_iter().zip(scrape.gauges.spans) {
        out.series(&[("outcome", outcome)], count)?;
    }
    let help = "Attempts to obtain a certificate from the ACME server, by outcome.";
    out.start(Kind::Counter, "tidegate_acme_orders_total", help)?;
    for (outcome, count) in ["obtained", "failed"].into_iter().zip(scrape.gauges.acme.orders) {
        out.series(&[("outcome", outcome)], count)?;
    }
    let help =
        "Names for which a certificate is to be obtained from the ACME server, and that have no valid one.";
    out.start(Kind::Gauge, "tidegate_acme_missing_certificates", help)?;
    out.series(&[], scrape.gauges.acme.missing)?;
    let help = "Names for which the last attempt to obtain a certificate from the ACME server has failed.";
    out.start(Kind::Gauge, "tidegate_acme_failing_certificates", help)?;
    out.series(&[], scrape.gauges.acme.failing)?;
    let help = "When an attempt to obtain a certificate has failed last, in Unix time; 0 if none has.";
    out.start(Kind::Gauge, "tidegate_acme_last_failure_timestamp_seconds", help)?;
    out.seconds(&[], unix_time(scrape.gauges.acme.last_failure))
}
