//! Tests of the metrics' text.

use http::StatusCode;

use super::*;
use crate::limit::{PolicyId, Quota, Rate};

#[test]
fn every_metric_is_in_the_text() {
    let rate = Rate::new(5, Micros::SECOND).unwrap();
    let policies = [Policy::new("per-key", Quota::token_bucket(rate, 5).unwrap())];
    let metrics = Metrics::new(Timestamp(1_790_000_000_500_000));
    for worker in 0..2 {
        let counts = metrics.counts(worker, &policies, ["say \"a\""].into_iter());
        counts.record_decision(PolicyId(0), Outcome::Denied);
        counts.record_response(Some(0), StatusCode::TOO_MANY_REQUESTS);
        counts.record_duration(Duration::from_micros(300));
        counts.record_store_call(StoreCall::Deadline);
        let upstream = metrics.upstream_counts(worker, "api", ["http://a", "http://b"].into_iter());
        upstream.record_attempt(1, Attempt::TimedOut);
        upstream.record_event(Event::OverBudget);
    }
    metrics.record_rejected_reload();
    let address = "127.0.0.1:8080".parse().unwrap();
    let listeners = vec![ListenerValues { address, connections: 3, over_limit: 4, over_client_limit: 5 }];
    let server = ServerValues { label: "http://a".into(), addresses: 3, ..ServerValues::default() };
    let server = ServerValues { healthy: 2, connections: 7, ejections: 5, ..server };
    let upstreams = vec![UpstreamValues { label: "api".into(), pending: 6, servers: vec![server] }];
    let gauges = GaugeValues {
        listeners,
        breakers_open: 1,
        breaker_openings: 6,
        keys: 9,
        evictions: 8,
        owed_keys: 2,
        charge_back: [9, 6, 0, 1],
        dropped_lines: 4,
        dropped_log_lines: 5,
        upstreams,
    };
    let text = metrics.text(gauges, &policies);
    for line in [
        "process_start_time_seconds 1790000000.5",
        "tidegate_decisions_total{limit=\"per-key\",outcome=\"denied\"} 2",
        "tidegate_decisions_total{limit=\"per-key\",outcome=\"store_failure_local_denied\"} 0",
        "tidegate_requests_total{route=\"say \\\"a\\\"\",status=\"4xx\"} 2",
        "tidegate_requests_total{route=\"\",status=\"4xx\"} 0",
        "tidegate_request_duration_seconds_bucket{le=\"0.00025\"} 0",
        "tidegate_request_duration_seconds_bucket{le=\"0.0005\"} 2",
        "tidegate_request_duration_seconds_bucket{le=\"+Inf\"} 2",
        "tidegate_request_duration_seconds_sum 0.0006",
        "tidegate_store_calls_total{outcome=\"deadline\"} 2",
        "tidegate_store_calls_total{outcome=\"lost\"} 0",
        "tidegate_store_up 0",
        "tidegate_store_breakers_open 1",
        "tidegate_store_breaker_openings_total 6",
        "tidegate_local_keys 9",
        "tidegate_store_evictions_total 8",
        "tidegate_connections{listener=\"127.0.0.1:8080\"} 3",
        "tidegate_connections_refused_total{listener=\"127.0.0.1:8080\",bound=\"max_connections\"} 4",
        "tidegate_connections_refused_total{listener=\"127.0.0.1:8080\",bound=\"max_connections_per_client\"} 5",
        "tidegate_access_log_dropped_lines_total 4",
        "tidegate_log_dropped_lines_total 5",
        "tidegate_reloads_total{outcome=\"applied\"} 0",
        "tidegate_reloads_total{outcome=\"refused\"} 1",
        "tidegate_config_current 0",
        "tidegate_upstream_requests_total{upstream=\"api\",server=\"http://b\",outcome=\"timeout\"} 2",
        "tidegate_upstream_retries_total{upstream=\"api\",outcome=\"over_budget\"} 2",
        "tidegate_upstream_refusals_total{upstream=\"api\"} 0",
        "tidegate_upstream_pending{upstream=\"api\"} 6",
        "tidegate_upstream_addresses{upstream=\"api\",server=\"http://a\"} 3",
        "tidegate_upstream_healthy{upstream=\"api\",server=\"http://a\"} 2",
        "tidegate_upstream_connections{upstream=\"api\",server=\"http://a\"} 7",
        "tidegate_upstream_ejections_total{upstream=\"api\",server=\"http://a\"} 5",
        concat!("tidegate_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
    ] {
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
    assert!(!text.contains("shadow"));
    assert!(text.ends_with("# EOF\n"));
}
