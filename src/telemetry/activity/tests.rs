//! What frames show of counters that grow, restart or are very many.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::*;
use crate::limit::{Policy, PolicyId, Quota, Rate};
use crate::telemetry::metrics::{GaugeValues, Metrics, StoreValues};
use crate::telemetry::outcome::{DecisionSource, LimitOutcome};
use crate::telemetry::upstreams::{AttemptOutcome, ServerValues, UpstreamValues};
use crate::time::{Micros, Timestamp, monotonic};

fn policies(names: &[String]) -> Vec<Policy> {
    let quota = || Quota::token_bucket(Rate::new(1, Micros::SECOND).unwrap(), 1).unwrap();
    names.iter().map(|name| Policy::new(name, quota())).collect()
}

/// The counters of a process, and their last reading.
struct Process {
    metrics: Metrics,
    last: CounterSums,
    gauges: GaugeValues,
}

impl Process {
    fn new() -> Self {
        let (metrics, last) = (Metrics::new(Timestamp(0)), CounterSums::zero(monotonic()));
        Self { metrics, last, gauges: GaugeValues::default() }
    }

    /// What has happened since the last frame, in two seconds.
    fn frame(&mut self) -> Value {
        let now: Instant = self.last.at + Duration::from_secs(2);
        let sums = CounterSums::read(&self.metrics, &self.last, now);
        let frame = Frame::between(&self.last, &sums, &self.gauges, Timestamp(1_790_000_000_123_456));
        self.last = sums;
        serde_json::to_value(frame).unwrap()
    }

    fn retain(&self, routes: &[&str], limits: &[Policy]) {
        self.metrics.record_reload(Timestamp(0), limits, routes.iter().copied(), [].into_iter());
    }
}

#[test]
fn a_frame_has_the_differences_to_the_last_reading() {
    let mut process = Process::new();
    let limits = policies(&["a".to_owned(), "b".to_owned()]);
    let counts = process.metrics.counts(0, &limits, ["x", "y"].into_iter());
    let other = process.metrics.counts(1, &limits, ["x", "y"].into_iter());
    for counts in [&counts, &other, &other] {
        counts.requests(Some(0)).record_response(StatusCode::OK);
        counts.requests(Some(0)).record_duration(Duration::from_millis(3), None);
        counts.record_decision(PolicyId(1), LimitOutcome::Denied, DecisionSource::Cache);
        counts.record_decision(PolicyId(1), LimitOutcome::Denied, DecisionSource::Store);
    }
    let frame = process.frame();
    assert_eq!((&frame["time"], &frame["seconds"]), (&json!(1_790_000_000.123), &json!(2.0)));
    assert_eq!((&frame["requests"], &frame["responses"]["2xx"]), (&json!(3), &json!(3)));
    assert_eq!(frame["decisions"], json!({"denied": 6}));
    assert_eq!(frame["limits"], json!([{"name": "b", "decisions": {"denied": 6}}]));
    assert_eq!(frame["routes"][0]["name"], "x");
    assert!(frame["latency"]["p99"].as_f64() < Some(0.004), "{frame}");
    other.requests(None).record_disconnect();
    let frame = process.frame();
    assert_eq!((&frame["requests"], &frame["responses"]["none"]), (&json!(1), &json!(1)));
    assert_eq!(frame["routes"], json!([{"name": "", "requests": 1, "429": 0, "5xx": 0}]));
    assert_eq!((&frame["limits"], frame.get("latency")), (&json!([]), None));
    assert_eq!(process.frame()["routes"], json!([]));
}

#[test]
fn counters_that_start_again_give_no_negative_numbers() {
    let mut process = Process::new();
    let limits = policies(&["a".to_owned()]);
    let send = |process: &Process, count: u64| {
        let counts = process.metrics.counts(0, &limits, ["x"].into_iter());
        for _ in 0..count {
            counts.requests(Some(0)).record_response(StatusCode::OK);
            counts.requests(Some(0)).record_duration(Duration::from_millis(3), None);
            counts.record_decision(PolicyId(0), LimitOutcome::Allowed, DecisionSource::Memory);
        }
    };
    send(&process, 5);
    assert_eq!(process.frame()["requests"], 5);
    // The route and the limit are removed and added again between two readings.
    process.retain(&[], &[]);
    send(&process, 2);
    let frame = process.frame();
    assert_eq!((&frame["requests"], &frame["decisions"]), (&json!(2), &json!({"allowed": 2})));
    process.retain(&[], &[]);
    assert_eq!(process.frame()["requests"], 0);
    send(&process, 1);
    assert_eq!(process.frame()["requests"], 1);
}

#[test]
fn a_frame_lists_denials_and_failures_first_and_is_bounded() {
    let mut process = Process::new();
    let names: Vec<String> = (0..250).map(|number| format!("name-of-some-length-{number}")).collect();
    let limits = policies(&names);
    let counts = process.metrics.counts(0, &limits, names.iter().map(String::as_str));
    for (index, number) in (0..250).zip(0_u16..) {
        for _ in 0..=number {
            counts.requests(Some(index)).record_response(StatusCode::OK);
            counts.requests(Some(index)).record_duration(Duration::from_millis(number.into()), None);
            counts.record_decision(PolicyId(number.into()), LimitOutcome::Allowed, DecisionSource::Memory);
        }
    }
    counts.requests(Some(3)).record_response(StatusCode::BAD_GATEWAY);
    counts.requests(Some(4)).record_response(StatusCode::TOO_MANY_REQUESTS);
    counts.record_decision(PolicyId(5), LimitOutcome::Banned, DecisionSource::Memory);
    counts.record_decision(PolicyId(6), LimitOutcome::ShadowDenied, DecisionSource::Memory);
    let server = |number: usize| ServerValues {
        label: format!("http://10.0.0.{number:03}:8080").into(),
        addresses: 2,
        healthy: 2 - usize::from(number == 240),
        ..ServerValues::default()
    };
    let servers: Vec<ServerValues> = (0..250).map(server).collect();
    let labels = servers.iter().map(|server| &*server.label);
    process.metrics.upstream_counts(0, "api", labels).record_attempt(7, AttemptOutcome::TimedOut);
    process.gauges.upstreams =
        vec![UpstreamValues { label: "api".into(), pending: 0, admission: None, servers }];
    let frame = process.frame();
    let first = |list: &str| {
        let list = frame[list].as_array().unwrap();
        assert_eq!(list.len(), 100);
        [0, 1, 2]
            .map(|index| list[index]["name"].as_str().unwrap().trim_start_matches("name-of-some-length-"))
    };
    assert_eq!((first("limits"), first("routes")), (["5", "6", "249"], ["4", "3", "249"]));
    assert_eq!((&frame["limits_left_out"], &frame["routes_left_out"]), (&json!(150), &json!(150)));
    let servers = frame["upstreams"][0]["servers"].as_array().unwrap();
    let shown = |server: &str| servers.iter().find(|shown| shown["server"] == server).unwrap();
    assert_eq!((servers.len(), &frame["servers_left_out"]), (100, &json!(150)));
    assert_eq!(shown("http://10.0.0.240:8080")["state"], "degraded");
    assert_eq!(shown("http://10.0.0.007:8080")["failures"], 1);
    assert!(frame.to_string().len() < 48 * 1024, "{}", frame.to_string().len());
}

#[test]
fn a_server_is_as_healthy_as_its_addresses() {
    let state = |addresses, healthy, ejected| {
        let values = ServerValues { addresses, healthy, ejected, ..ServerValues::default() };
        super::routes::state(&values)
    };
    assert_eq!(
        [(1, 1, 0), (2, 1, 1), (2, 0, 1), (2, 0, 0), (0, 0, 0)]
            .map(|(all, healthy, ejected)| state(all, healthy, ejected)),
        ["healthy", "degraded", "ejected", "unhealthy", "unresolved"]
    );
}

#[test]
fn units_that_are_still_owed_are_shown() {
    let mut process = Process::new();
    let store =
        StoreValues { breakers_open: 1, owed_keys: 2, charge_back: [10, 4, 2, 1], ..StoreValues::default() };
    process.gauges.store = Some(store);
    let shown = process.frame()["store"].clone();
    assert_eq!((&shown["state"], &shown["owed_units"]), (&json!("unreachable"), &json!(3)));
    process.gauges.store = Some(StoreValues { owed_keys: 0, breakers_open: 0, ..store });
    let shown = process.frame()["store"].clone();
    assert_eq!((&shown["state"], &shown["owed_units"]), (&json!("up"), &json!(0)));
}
