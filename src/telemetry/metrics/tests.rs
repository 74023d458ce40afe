//! Tests of the metrics' text.

use std::time::Duration;

use http::StatusCode;

use super::*;
use crate::limit::{Ahead, PolicyId, Quota, Rate};
use crate::telemetry::{
    AcmeValues, AttemptOutcome, DecisionSource, GrantValues, Handshake, HandshakeFailure, Interface,
    LimitOutcome, ListenerCounts, ListenerValues, ServerValues, SettledOutcome, StoreRequest, TraceId,
    UpstreamEvent, UpstreamValues, Verdict,
};
use crate::time::Micros;
use crate::usage::Unknown;

fn policy(name: &str) -> Policy {
    Policy::new(name, Quota::token_bucket(Rate::new(5, Micros::SECOND).unwrap(), 5).unwrap())
}

fn text(metrics: &Metrics, format: MetricsFormat, gauges: &GaugeValues, policies: &[Policy]) -> String {
    let mut text = Vec::new();
    metrics.write(format, gauges, policies, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// Gauges of a process with Redis and one of everything.
fn gauges() -> GaugeValues {
    let counts = ListenerCounts::default();
    counts.record_accepted();
    counts.record_handshake(Handshake::ResumedTls13);
    counts.record_failure(HandshakeFailure::Timeout);
    let listener = ListenerValues {
        address: "127.0.0.1:8080".parse().unwrap(),
        connections: 3,
        over_limit: 4,
        over_client_limit: 5,
        counts: counts.values(),
        certificates: vec![("api.example".into(), Timestamp(1_800_000_000_000_000))],
    };
    let server = ServerValues { label: "http://a".into(), addresses: 3, ..ServerValues::default() };
    let server = ServerValues { healthy: 2, connections: 7, ejections: 5, ..server };
    GaugeValues {
        store_servers: vec![("redis://a:6379".into(), true), ("redis://b:6379".into(), false)],
        listeners: vec![listener],
        store: Some(StoreValues {
            breakers_open: 1,
            breaker_openings: 6,
            owed_keys: 2,
            charge_back: [9, 6, 0, 1],
        }),
        keys: 9,
        evictions: 8,
        dropped_lines: 4,
        dropped_log_lines: 5,
        spans: [7, 3],
        acme: AcmeValues {
            orders: [6, 2],
            last_failure: Timestamp(1_790_000_001_000_000),
            missing: 1,
            failing: 3,
        },
        denied_keys: [("per-key".into(), 2)].into(),
        grants: [("granting".into(), GrantValues { events: [9, 5, 2, 1], held: 1 })].into(),
        upstreams: vec![UpstreamValues {
            label: "api".into(),
            pending: 6,
            admission: None,
            servers: vec![server],
        }],
    }
}

fn metrics(policies: &[Policy]) -> Metrics {
    let metrics = Metrics::new(Timestamp(1_790_000_000_500_000));
    for worker in 0..2 {
        let counts = metrics.counts(worker, policies, ["say \"a\"", "quiet"].into_iter());
        counts.record_decision(PolicyId(0), LimitOutcome::Denied, DecisionSource::Cache);
        counts.record_decision_duration(Duration::from_micros(300));
        counts.record_request(Interface::EnvoyRateLimit, Verdict::Denied);
        counts.record_delay(Duration::from_millis(20));
        counts.requests(Some(0)).record_response(StatusCode::TOO_MANY_REQUESTS);
        counts.requests(Some(0)).record_duration(Duration::from_micros(300), None);
        counts.record_store_request(StoreRequest::Deadline);
        counts.store().record_batch(3);
        counts.store().record_wait(Duration::from_micros(100));
        counts.store().record_call(Duration::from_millis(1));
        let upstream = metrics.upstream_counts(worker, "api", ["http://a", "http://b"].into_iter());
        upstream.record_attempt(1, AttemptOutcome::TimedOut);
        upstream.record_response(1, AttemptOutcome::Responded, Duration::from_millis(3));
        upstream.record_duration(1, Duration::from_mins(1));
        upstream.record_wait(Duration::from_secs(1));
        upstream.record_event(UpstreamEvent::OverBudget);
        upstream.record_event(UpstreamEvent::TooManyTunnels);
    }
    metrics.record_rejected_reload();
    metrics
}

#[test]
fn every_metric_is_in_the_text() {
    let ahead = Ahead { span: Micros::SECOND, share: Ahead::DEFAULT_SHARE };
    let mut policies = [policy("per-key"), policy("watched"), policy("granting").with_ahead(ahead)];
    policies[1].shadow = true;
    let text = text(&metrics(&policies), MetricsFormat::Prometheus, &gauges(), &policies);
    for line in [
        "process_start_time_seconds 1790000000.5",
        concat!("tidegate_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
        "tidegate_config_reloads_total{outcome=\"applied\"} 0",
        "tidegate_config_reloads_total{outcome=\"rejected\"} 1",
        "tidegate_config_last_reload_successful 0",
        "tidegate_config_last_reload_success_timestamp_seconds 1790000000.5",
        "tidegate_access_log_dropped_lines_total 4",
        "tidegate_log_dropped_lines_total 5",
        "tidegate_spans_total{outcome=\"dropped\"} 3",
        "tidegate_acme_orders_total{outcome=\"obtained\"} 6",
        "tidegate_acme_orders_total{outcome=\"failed\"} 2",
        "tidegate_acme_missing_certificates 1",
        "tidegate_acme_failing_certificates 3",
        "tidegate_acme_last_failure_timestamp_seconds 1790000001",
        "tidegate_connections{listener=\"127.0.0.1:8080\"} 3",
        "tidegate_connections_accepted_total{listener=\"127.0.0.1:8080\"} 1",
        "tidegate_connections_refused_total{listener=\"127.0.0.1:8080\",bound=\"max_connections\"} 4",
        "tidegate_connections_refused_total{listener=\"127.0.0.1:8080\",bound=\"max_connections_per_client\"} 5",
        "tidegate_tls_handshakes_total{listener=\"127.0.0.1:8080\",version=\"TLSv1.3\",resumed=\"true\"} 1",
        "tidegate_tls_handshakes_total{listener=\"127.0.0.1:8080\",version=\"TLSv1.2\",resumed=\"false\"} 0",
        "tidegate_handshake_failures_total{listener=\"127.0.0.1:8080\",reason=\"timeout\"} 1",
        "tidegate_certificate_expiry_timestamp_seconds{listener=\"127.0.0.1:8080\",certificate=\"api.example\"} 1800000000",
        "tidegate_interface_requests_total{interface=\"proxy\",outcome=\"denied\"} 0",
        "tidegate_interface_requests_total{interface=\"envoy_ratelimit\",outcome=\"denied\"} 2",
        "tidegate_decisions_total{limit=\"per-key\",outcome=\"denied\",source=\"cache\"} 2",
        "tidegate_decisions_total{limit=\"per-key\",outcome=\"denied\",source=\"store\"} 0",
        "tidegate_decisions_total{limit=\"per-key\",outcome=\"near_limit\",source=\"store\"} 0",
        "tidegate_decisions_total{limit=\"watched\",outcome=\"shadow_denied\",source=\"fallback\"} 0",
        "tidegate_denied_keys{limit=\"per-key\"} 2",
        "tidegate_denied_keys{limit=\"watched\"} 0",
        "tidegate_decisions_total{limit=\"granting\",outcome=\"allowed\",source=\"ahead\"} 0",
        "tidegate_ahead_units_total{limit=\"granting\",event=\"granted\"} 9",
        "tidegate_ahead_units_total{limit=\"granting\",event=\"lapsed\"} 1",
        "tidegate_ahead_units_held{limit=\"granting\"} 1",
        "tidegate_decision_duration_seconds_bucket{le=\"0.000244140625\"} 0",
        "tidegate_decision_duration_seconds_bucket{le=\"0.00048828125\"} 2",
        "tidegate_request_delay_seconds_sum 0.04",
        "tidegate_requests_total{route=\"say \\\"a\\\"\",status=\"429\"} 2",
        "tidegate_requests_total{route=\"say \\\"a\\\"\",status=\"4xx\"} 0",
        "tidegate_requests_total{route=\"quiet\",status=\"none\"} 0",
        "tidegate_requests_total{route=\"\",status=\"4xx\"} 0",
        "tidegate_request_duration_seconds_bucket{route=\"say \\\"a\\\"\",le=\"0.000244140625\"} 0",
        "tidegate_request_duration_seconds_bucket{route=\"say \\\"a\\\"\",le=\"+Inf\"} 2",
        "tidegate_request_duration_seconds_sum{route=\"say \\\"a\\\"\"} 0.0006",
        "tidegate_store_requests_total{outcome=\"timeout\"} 2",
        "tidegate_store_requests_total{outcome=\"connection_lost\"} 0",
        "tidegate_store_queue_duration_seconds_sum 0.0002",
        "tidegate_store_call_duration_seconds_count 2",
        "tidegate_store_call_requests_bucket{le=\"2.0\"} 0",
        "tidegate_store_call_requests_bucket{le=\"4.0\"} 2",
        "tidegate_store_call_requests_sum 6",
        "tidegate_store_up 0",
        "tidegate_store_server_up{server=\"redis://b:6379\"} 0",
        "tidegate_store_breakers_open 1",
        "tidegate_store_breaker_openings_total 6",
        "tidegate_charge_back_units_total{outcome=\"paid\"} 6",
        "tidegate_owed_keys 2",
        "tidegate_memory_keys 9",
        "tidegate_memory_evictions_total 8",
        "tidegate_upstream_requests_total{upstream=\"api\",server=\"http://b\",outcome=\"timeout\"} 2",
        "tidegate_upstream_requests_total{upstream=\"api\",server=\"http://a\",outcome=\"ok\"} 0",
        "tidegate_upstream_time_to_first_byte_seconds_sum{upstream=\"api\",server=\"http://b\"} 0.006",
        "tidegate_upstream_request_duration_seconds_bucket{upstream=\"api\",server=\"http://b\",le=\"32.0\"} 0",
        "tidegate_upstream_request_duration_seconds_bucket{upstream=\"api\",server=\"http://b\",le=\"+Inf\"} 2",
        "tidegate_upstream_retries_total{upstream=\"api\",outcome=\"over_budget\"} 2",
        "tidegate_upstream_refusals_total{upstream=\"api\"} 0",
        "tidegate_upstream_client_refusals_total{upstream=\"api\",bound=\"max_tunnels_per_client\"} 2",
        "tidegate_upstream_queue_duration_seconds_count{upstream=\"api\"} 2",
        "tidegate_upstream_pending_requests{upstream=\"api\"} 6",
        "tidegate_upstream_addresses{upstream=\"api\",server=\"http://a\"} 3",
        "tidegate_upstream_healthy_addresses{upstream=\"api\",server=\"http://a\"} 2",
        "tidegate_upstream_connections{upstream=\"api\",server=\"http://a\"} 7",
        "tidegate_upstream_ejections_total{upstream=\"api\",server=\"http://a\"} 5",
    ] {
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
    for absent in [
        "limit=\"per-key\",outcome=\"shadow_denied\"",
        "limit=\"watched\",outcome=\"denied\"",
        "source=\"memory\"",
        "request_duration_seconds_count{route=\"quiet\"}",
        "# EOF",
    ] {
        assert!(!text.contains(absent), "{absent} in\n{text}");
    }
}

#[test]
fn each_series_is_written_once_in_both_formats() {
    let policies = [policy("per-key"), policy("per-key")];
    let metrics = metrics(&policies);
    let series = |format| {
        let text = text(&metrics, format, &gauges(), &policies);
        let lines = text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned);
        lines.collect::<Vec<String>>()
    };
    let prometheus = series(MetricsFormat::Prometheus);
    assert_eq!(prometheus, series(MetricsFormat::OpenMetrics));
    let mut names: Vec<&str> = prometheus.iter().map(|line| line.rsplit_once(' ').unwrap().0).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn traced_requests_are_exemplars_in_openmetrics() {
    let metrics = Metrics::new(Timestamp(0));
    for (worker, millis) in [(0, 3), (1, 1_000)] {
        let counts = metrics.counts(worker, &[], ["a"].into_iter());
        let trace = TraceId::parse(b"abababababababababababababababab");
        counts.requests(Some(0)).record_duration(Duration::from_millis(millis), trace);
        counts.requests(Some(0)).record_duration(Duration::from_millis(20), None);
    }
    let exemplars = |format| {
        let text = text(&metrics, format, &gauges(), &[]);
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let found =
            lines.filter_map(|line| line.split_once(" # ").map(|(series, rest)| format!("{series} {rest}")));
        found.collect::<Vec<String>>()
    };
    let found = exemplars(MetricsFormat::OpenMetrics);
    let id = "ab".repeat(16);
    for (exemplar, (le, count, seconds)) in found.iter().zip([("0.00390625", 1, "0.003"), ("1.0", 4, "1")]) {
        let start = format!(
            "tidegate_request_duration_seconds_bucket{{route=\"a\",le=\"{le}\"}} {count} {{trace_id=\"{id}\"}} {seconds} "
        );
        assert!(exemplar.strip_prefix(&start).unwrap().parse::<f64>().unwrap() > 1.7e9, "{exemplar}");
    }
    assert_eq!((found.len(), exemplars(MetricsFormat::Prometheus).len()), (2, 0));
}

#[test]
fn metrics_of_redis_are_left_out_without_it() {
    let policies = [policy("per-key")];
    let gauges = GaugeValues { store: None, ..gauges() };
    let text = text(&Metrics::new(Timestamp(0)), MetricsFormat::OpenMetrics, &gauges, &policies);
    assert!(!text.contains("tidegate_store_") && text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn limits_that_settle_costs_have_series_of_their_own() {
    let policies = [policy("plain"), policy("tokens").with_settlement(100)];
    let metrics = Metrics::new(Timestamp(0));
    let counts = metrics.counts(0, &policies, std::iter::empty());
    counts.record_settled(PolicyId(1), SettledOutcome::Reserved, 40);
    counts.record_settled(PolicyId(1), SettledOutcome::Extra, 3);
    counts.record_settle_unknown(PolicyId(1), Unknown::Malformed);
    let text = text(&metrics, MetricsFormat::OpenMetrics, &GaugeValues::default(), &policies);
    let settled: Vec<&str> = text.lines().filter(|line| line.starts_with("tidegate_settle")).collect();
    let units = |outcome, units| {
        format!("tidegate_settled_units_total{{limit=\"tokens\",outcome=\"{outcome}\"}} {units}")
    };
    let unknown = |reason, count| {
        format!("tidegate_settle_unknown_total{{limit=\"tokens\",reason=\"{reason}\"}} {count}")
    };
    assert_eq!(
        settled,
        [
            units("reserved", 40),
            units("settled", 0),
            units("refunded", 0),
            units("extra", 3),
            units("cut", 0),
            unknown("encoding", 0),
            unknown("type", 0),
            unknown("absent", 0),
            unknown("malformed", 1),
            unknown("model", 0),
        ]
    );
}
