//! Metrics of the store.

use std::io::{self, Write};

use super::exposition::{Exposition, Kind};
use super::scrape::{Scrape, StoreValues};
use crate::telemetry::charge_back::ChargeBack;
use crate::telemetry::outcome::StoreRequest;

pub(super) fn write(scrape: &Scrape<'_>, out: &mut Exposition<impl Write>) -> io::Result<()> {
    out.start(Kind::Gauge, "tidegate_memory_keys", "Keys in the in-process store.")?;
    out.series(&[], scrape.gauges.keys as u64)?;
    let help = "Keys that were evicted from the in-process store before they expired, because of `max_keys`.";
    out.start(Kind::Counter, "tidegate_memory_evictions_total", help)?;
    out.series(&[], scrape.gauges.evictions)?;
    let Some(store) = &scrape.gauges.store else { return Ok(()) };
    store_calls(scrape, out)?;
    availability(store, out)
}

fn store_calls(scrape: &Scrape<'_>, out: &mut Exposition<impl Write>) -> io::Result<()> {
    let workers = scrape.registry.workers();
    out.start(Kind::Counter, "tidegate_store_requests_total", "Requests to the store, by outcome.")?;
    for ((_, outcome), count) in StoreRequest::ALL.iter().zip(workers.store_requests) {
        out.series(&[("outcome", outcome)], count)?;
    }
    let help = "Time that requests to the store wait for their call, while another is on its way.";
    out.start(Kind::Histogram, "tidegate_store_queue_duration_seconds", help)?;
    out.histogram(&[], workers.store_waits.buckets(), workers.store_waits.sum())?;
    let help = "Time from a call to the store to its reply or failure.";
    out.start(Kind::Histogram, "tidegate_store_call_duration_seconds", help)?;
    out.histogram(&[], workers.store_calls.buckets(), workers.store_calls.sum())?;
    out.start(Kind::Histogram, "tidegate_store_call_requests", "Requests in one call to the store.")?;
    out.histogram(&[], workers.store_batches.buckets(), workers.store_batches.sum())
}

fn availability(store: &StoreValues, out: &mut Exposition<impl Write>) -> io::Result<()> {
    out.start(Kind::Gauge, "tidegate_store_up", "Whether the store is available to all workers.")?;
    out.series(&[], u64::from(store.breakers_open == 0))?;
    let help = "Workers whose circuit breaker of the store is open.";
    out.start(Kind::Gauge, "tidegate_store_breakers_open", help)?;
    out.series(&[], store.breakers_open as u64)?;
    let help = "Times that a worker's circuit breaker of the store has opened.";
    out.start(Kind::Counter, "tidegate_store_breaker_openings_total", help)?;
    out.series(&[], store.breaker_openings)?;
    let help = "Units that were admitted while the store was unavailable, by outcome.";
    out.start(Kind::Counter, "tidegate_charge_back_units_total", help)?;
    for ((_, outcome), count) in ChargeBack::ALL.iter().zip(store.charge_back) {
        out.series(&[("outcome", outcome)], count)?;
    }
    let help = "Keys with units to be charged to the store that were admitted while it was unavailable.";
    out.start(Kind::Gauge, "tidegate_owed_keys", help)?;
    out.series(&[], store.owed_keys as u64)
}
