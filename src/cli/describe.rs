//! Describes limits in sentences, for readers that do not know the algorithm.

use crate::gate::{ClassInput, ClassSource, CostBasis, DenyStatus, Gate, SettledCost, Subject};
use crate::limit::{
    Ahead, Align, CalendarUnit, Policy, Quota, Rate, SlidingLog, SlidingWindow, Slots, Window,
};
use crate::time::{Micros, format_duration, format_seconds};

/// Describes how many units or slots of a limit a proxy may hold, and for how long; `None` for a limit without `ahead`.
pub(super) fn ahead(policy: &Policy) -> Option<String> {
    let shown = |span: Micros| format_duration(span.into());
    if let Quota::Concurrency(slots) = &policy.quota {
        let most = Some(slots.max_kept()).filter(|most| policy.keeps_slots && *most > 0)?;
        let kept_for = shown(Slots::KEPT_FOR);
        return Some(format!(
            "freed slots are kept: a proxy holds at most {most} of a key, for {kept_for} at most"
        ));
    }
    let ahead @ Ahead { span, share } = policy.ahead?;
    if !ahead.may_grant(&policy.quota) {
        return Some("Redis decides every request: the limit has too few units for a grant".to_owned());
    }
    // Units whose proxy does not report them stay reserved until their generation ends.
    let (granted_for, held_for) = (shown(span), shown(Micros(2 * span.0)));
    let most = if share.get() == 1 { "all".to_owned() } else { format!("1/{share}") };
    Some(format!(
        "a grant lasts for {granted_for} and has at most {most} of the available units, which are reserved for {held_for} at most"
    ))
}

/// Describes what a client gets whose request is denied.
pub(super) fn denial(status: DenyStatus) -> String {
    match status {
        DenyStatus::Status(status) => format!("with {status}"),
        DenyStatus::Close => {
            "without a response: the connection is closed, or over HTTP/2 the stream is reset".to_owned()
        }
    }
}

/// Describes the class of a request under overload, and what decides it.
pub(super) fn class(gate: &Gate, subject: &Subject<'_>) -> String {
    let (class, source) = gate.class(&ClassInput::of(subject));
    match source {
        ClassSource::NoRoute => format!("{class}, since no route matches"),
        ClassSource::Route => format!("{class}, by the route"),
        ClassSource::Header(name) => format!("{class}, by the header {name} of a trusted proxy"),
        ClassSource::Tier(tier) => format!("{class}, by the tier `{tier}`"),
    }
}

/// Describes statuses, which are in their order: whole classes by their name.
pub(super) fn statuses(statuses: &[u16]) -> String {
    let mut words: Vec<String> = Vec::new();
    for class in statuses.chunk_by(|one, other| one / 100 == other / 100) {
        match class {
            [first, ..] if class.len() == 100 => words.push(format!("{}xx", first / 100)),
            _ => words.extend(class.iter().map(u16::to_string)),
        }
    }
    words.join(" or ")
}

/// Describes from what a request reserves units.
pub(super) fn reservation(cost: &SettledCost) -> String {
    let max = cost.max_reserve;
    match &cost.basis {
        CostBasis::Parts { reserve, .. } => {
            let terms: Vec<String> = reserve.iter().map(ToString::to_string).collect();
            format!("reserved on arrival: {}, from 1 to {max}", terms.join(" + "))
        }
        CostBasis::Llm(_) => format!("reserved on arrival: an estimate of its tokens, from 1 to {max}"),
    }
}

/// Describes what the response decides.
pub(super) fn settlement(cost: &SettledCost) -> String {
    let max = cost.max;
    match &cost.basis {
        CostBasis::Parts { settle, .. } => format!("by {settle} of the response, at most {max}"),
        CostBasis::Llm(llm) => {
            let by = if llm.prices.depend_on_model() { ", by the prices of its model" } else { "" };
            format!("by the tokens that the response reports{by}, at most {max}")
        }
    }
}

/// Units of time in microseconds, the longest first.
const UNITS: [(u64, &str); 4] =
    [(86_400_000_000, "day"), (3_600_000_000, "hour"), (60_000_000, "minute"), (1_000_000, "second")];

/// Describes a quota.
pub(super) fn quota(quota: &Quota) -> String {
    let limit = quota.limit();
    match quota {
        Quota::TokenBucket(bucket) => format!(
            "A bucket of {limit} tokens that refills at {}. Each request takes one, or is denied if there is none.",
            per(bucket.rate())
        ),
        Quota::IntervalBucket(interval) => format!(
            "A bucket of {limit} tokens that gets {} at once each {}. A request without a token is denied.",
            interval.rate().units(),
            length(interval.rate().period())
        ),
        Quota::Gcra(bucket) => format!(
            "Requests spaced evenly at {}; up to {} may come early. Requests that come even earlier are denied.",
            per(bucket.rate()),
            limit - 1
        ),
        Quota::FixedWindow(window) => describe_window(limit, window),
        Quota::SlidingLog(log) => describe_log(log),
        Quota::SlidingWindow(window) => describe_sliding(limit, window),
        Quota::LeakyBucket(bucket) => format!(
            "A queue that forwards {}, spaced evenly. Up to {} requests wait in it; more are denied.",
            per(bucket.rate()),
            limit - 1
        ),
        Quota::Concurrency(_) => {
            format!(
                "At most {limit} in flight at once. A slot is released when the response of its request is complete."
            )
        }
    }
}

fn describe_window(limit: u64, window: &Window) -> String {
    match window.align() {
        Align::Clock => {
            let length = length(window.rate().period());
            format!("At most {limit} in each window; a window starts at each whole {length} of the clock.")
        }
        Align::FirstRequest => {
            let length = length(window.rate().period());
            format!("At most {limit} in each window of one {length}, which the first request in it opens.")
        }
        Align::Calendar(calendar) => {
            let unit = calendar_unit(calendar.unit());
            format!("At most {limit} in each {unit} of the calendar, in {}.", calendar.zone())
        }
    }
}

fn describe_log(log: &SlidingLog) -> String {
    let rates = log.numbers();
    let each = rates.chunks_exact(2).map(|rate| format!("{} in any {}", rate[0], length(Micros(rate[1]))));
    format!("At most {}. Each admitted request counts that long.", each.collect::<Vec<_>>().join(", "))
}

fn describe_sliding(limit: u64, window: &SlidingWindow) -> String {
    let [_, width, parts] = window.numbers()[..] else { return String::new() };
    let period = length(Micros(width * parts));
    if parts == 1 {
        return format!(
            "About {limit} in any {period}: the count of this window and a falling share of the previous one."
        );
    }
    format!(
        "About {limit} in any {period}, counted in {parts} parts; the oldest counts by its share still inside."
    )
}

/// Such as `5 per second` or `7 per 10 minutes`.
fn per(rate: Rate) -> String {
    format!("{} per {}", rate.units(), length(rate.period()))
}

/// Such as `second`, `10 minutes` or `0.25 s`.
fn length(span: Micros) -> String {
    match UNITS.iter().find(|(unit, _)| span.0.is_multiple_of(*unit)) {
        Some((unit, name)) if span.0 == *unit => (*name).to_owned(),
        Some((unit, name)) => format!("{} {name}s", span.0 / unit),
        None => format!("{} s", format_seconds(span)),
    }
}

fn calendar_unit(unit: CalendarUnit) -> &'static str {
    match unit {
        CalendarUnit::Day => "day",
        CalendarUnit::Week => "week",
        CalendarUnit::Month => "month",
        CalendarUnit::Year => "year",
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn a_description_has_the_numbers_of_the_quota() {
        let rate = |units, period| Rate::new(units, Micros(period)).unwrap();
        let (minute, short) = (rate(100, 60_000_000), rate(7, 250_000));
        for (quota, start) in [
            (Quota::token_bucket(minute, 500), "A bucket of 500 tokens that refills at 100 per minute."),
            (
                Quota::interval_bucket(minute, 500),
                "A bucket of 500 tokens that gets 100 at once each minute.",
            ),
            (Quota::gcra(short, 5), "Requests spaced evenly at 7 per 0.25 s; up to 5 may come early."),
            (Quota::fixed_window(rate(5, 600_000_000), Align::Clock), "At most 5 in each window"),
            (
                Quota::sliding_log(&[minute, rate(2, 1_000_000)]),
                "At most 100 in any minute, 2 in any second.",
            ),
            (Quota::sliding_window(minute, 60), "About 100 in any minute, counted in 60 parts"),
            (Quota::leaky_bucket(minute, 9), "A queue that forwards 100 per minute, spaced evenly. Up to 9 "),
            (Quota::concurrency(3, Micros::SECOND), "At most 3 in flight at once."),
        ] {
            let description = super::quota(&quota.unwrap());
            assert!(description.starts_with(start), "{description}");
        }
    }
}
