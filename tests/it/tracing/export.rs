//! Exported spans: their ids, attributes and events, and what happens when the collector is unavailable.

use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

use crate::support::{
    Collector, Message, Tidegate, Upstream, attribute, eventually, free_address, get, scaled,
};

/// A file with these settings of tracing and further tables.
fn file(endpoint: &str, settings: &str, tables: &str) -> String {
    format!(
        "listen = \"127.0.0.1:0\"\nworkers = 1\nshutdown_grace = \"1s\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [tracing]\nendpoint = \"{endpoint}\"\nsample = 1.0\n{settings}\n{tables}"
    )
}

fn forwarding_to(server: &Upstream) -> String {
    format!("[[routes]]\nname = \"all\"\npath = \"/v1/*\"\nupstream = \"{}\"\n", server.url())
}

fn of_kind(spans: &[Span], kind: SpanKind) -> Vec<&Span> {
    spans.iter().filter(|span| span.kind == kind as i32).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// The attributes of a span.
#[track_caller]
fn assert_attributes(span: &Span, expected: &[(&str, &str)]) {
    for (key, value) in expected {
        assert_eq!(attribute(&span.attributes, key), *value, "{key} of {span:#?}");
    }
}

#[test]
fn a_request_has_a_server_span_and_a_client_span() {
    let (collector, server) = (Collector::start(), Upstream::echo());
    let settings = "headers = { \"x-tenant\" = \"edge\" }\nservice_name = \"edge\"\n\
         resource_attributes = { \"deployment.environment.name\" = \"test\" }\ntrust = \"any\"";
    let proxy = Tidegate::start(&file(&collector.url(), settings, &forwarding_to(&server)));
    let sent = ["traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "User-Agent: test/1"];
    let echoed = get(proxy.addr(), "/v1/a?secret=1", &sent).echoed();
    assert_eq!(proxy.stop().code(), Some(0));
    let spans = collector.spans(2);
    let ([request], [attempt]) = (&*of_kind(&spans, SpanKind::Server), &*of_kind(&spans, SpanKind::Client))
    else {
        panic!("{spans:#?}")
    };
    assert_eq!(hex(&request.trace_id), "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(hex(&request.parent_span_id), "00f067aa0ba902b7");
    assert_eq!((&attempt.trace_id, &attempt.parent_span_id), (&request.trace_id, &request.span_id));
    let passed = echoed.header("traceparent").unwrap();
    assert!(passed.contains(&hex(&attempt.span_id)), "{passed}");
    assert_eq!((&*request.name, &*attempt.name), ("GET /v1/*", "GET"));
    assert_eq!((request.flags, attempt.flags), (0x301, 0x101));
    let port = server.addr().port().to_string();
    let url = format!("{}/v1/a", server.url());
    assert_attributes(
        request,
        &[
            ("http.request.method", "GET"),
            ("url.path", "/v1/a"),
            ("url.scheme", "http"),
            ("http.route", "/v1/*"),
            ("tidegate.route", "all"),
            ("http.response.status_code", "200"),
            ("client.address", "127.0.0.1"),
            ("network.protocol.version", "1.1"),
            ("user_agent.original", "test/1"),
            ("error.type", ""),
        ],
    );
    assert_attributes(
        attempt,
        &[
            ("http.request.method", "GET"),
            ("url.full", &url),
            ("server.address", "127.0.0.1"),
            ("server.port", &port),
            ("http.response.status_code", "200"),
            ("http.request.resend_count", ""),
        ],
    );
    assert!(request.start_time_unix_nano <= attempt.start_time_unix_nano);
    assert!(attempt.end_time_unix_nano <= request.end_time_unix_nano);
    assert!(!format!("{spans:?}").contains("secret"), "the query is not exported");
    let resources = collector.resources();
    let resource = &resources[0].resource.as_ref().unwrap().attributes;
    for (key, value) in [("service.name", "edge"), ("deployment.environment.name", "test")] {
        assert_eq!(attribute(resource, key), value);
    }
    let first: &Message = &collector.requests()[0];
    assert_eq!(first.start, "POST /v1/traces HTTP/1.1");
    assert_eq!(first.header("content-type"), Some("application/x-protobuf"));
    assert_eq!(first.header("x-tenant"), Some("edge"));
}

#[test]
fn each_attempt_has_a_span_with_the_id_that_its_server_is_sent() {
    let collector = Collector::start();
    // The first server closes the connection after the request.
    let (failing, server) = (Upstream::scripted(|caller| drop(caller.request())), Upstream::echo());
    let tables = format!(
        "[upstreams.u]\nservers = [\"{}\", \"{}\"]\n[[routes]]\npath = \"/*\"\nupstream = \"u\"\n",
        failing.url(),
        server.url()
    );
    let proxy = Tidegate::start(&file(&collector.url(), "", &tables));
    while failing.received() == 0 {
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    }
    assert_eq!(proxy.stop().code(), Some(0));
    let lost = failing.requests()[0].header("traceparent").unwrap().to_owned();
    let trace = lost.split('-').nth(1).unwrap();
    let spans = collector.spans(3);
    let spans: Vec<Span> = spans.into_iter().filter(|span| hex(&span.trace_id) == trace).collect();
    let attempts = of_kind(&spans, SpanKind::Client);
    let requests = server.requests();
    let received = requests.iter().filter_map(|request| request.header("traceparent"));
    let repeated = received.into_iter().find(|header| header.contains(trace)).unwrap();
    let ids: Vec<String> = attempts.iter().map(|span| hex(&span.span_id)).collect();
    assert_eq!(ids, [&lost, repeated].map(|header| header.split('-').nth(2).unwrap()));
    assert_attributes(attempts[0], &[("error.type", "connection_lost"), ("http.response.status_code", "")]);
    assert_attributes(attempts[1], &[("http.request.resend_count", "1"), ("error.type", "")]);
    assert_eq!(attempts[0].status.as_ref().map(|status| status.code), Some(2));
    let request = of_kind(&spans, SpanKind::Server)[0];
    assert!(attempts.iter().all(|span| span.parent_span_id == request.span_id));
}

#[test]
fn the_decisions_of_limits_are_events() {
    let collector = Collector::start();
    let tables = "[limits.strict]\nrate = \"1/hour\"\nkey = \"global\"\n\
         [limits.planned]\nrate = \"1/hour\"\nkey = \"global\"\nmode = \"shadow\"\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"strict\", \"planned\"]\nrespond = { status = 200 }\n";
    let proxy = Tidegate::start(&file(&collector.url(), "", tables));
    assert_eq!([(); 2].map(|()| get(proxy.addr(), "/", &[]).status()), [200, 429]);
    assert_eq!(proxy.stop().code(), Some(0));
    let spans = collector.spans(2);
    let of_status = |status: &str| {
        let find = |span: &&Span| attribute(&span.attributes, "http.response.status_code") == status;
        spans.iter().find(find).unwrap_or_else(|| panic!("{spans:#?}"))
    };
    let events = |span: &Span| {
        let of = |key: &str| {
            span.events.iter().map(|event| attribute(&event.attributes, key)).collect::<Vec<_>>().join(" ")
        };
        [of("tidegate.limit.name"), of("tidegate.limit.outcome"), of("tidegate.limit.remaining")]
    };
    let (allowed, denied) = (of_status("200"), of_status("429"));
    assert_attributes(allowed, &[("tidegate.limit.outcome", "allowed"), ("tidegate.limit.source", "store")]);
    assert_attributes(denied, &[("tidegate.limit.outcome", "denied"), ("error.type", "")]);
    assert_eq!(events(allowed), ["strict", "allowed", "0"]);
    assert_eq!(events(denied)[..2], ["strict planned", "denied shadow_denied"]);
}

#[test]
fn failures_have_an_error_type() {
    let collector = Collector::start();
    let tables = format!("[[routes]]\npath = \"/*\"\nupstream = \"http://{}\"\n", free_address());
    let proxy = Tidegate::start(&file(&collector.url(), "", &tables));
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 502);
    assert_eq!(proxy.stop().code(), Some(0));
    for span in collector.spans(2) {
        assert_attributes(&span, &[("error.type", "connect_failed")]);
        assert_eq!(span.status.map(|status| status.code), Some(2));
    }
}

#[test]
fn requests_that_are_not_sampled_have_no_span() {
    let (collector, server) = (Collector::start(), Upstream::echo());
    let unsampled =
        file(&collector.url(), "", &forwarding_to(&server)).replace("sample = 1.0", "sample = 0.0");
    let proxy = Tidegate::start(&unsampled);
    let echoed = get(proxy.addr(), "/v1/a", &[]).echoed();
    assert!(echoed.header("traceparent").unwrap().ends_with("-00"));
    assert_eq!(proxy.stop().code(), Some(0));
    assert_eq!(collector.requests().len(), 0);
}

#[test]
fn an_unavailable_collector_affects_no_request_and_its_spans_are_counted() {
    let server = Upstream::echo();
    let settings = "timeout = \"100ms\"";
    let proxy =
        Tidegate::start(&file(&format!("http://{}", free_address()), settings, &forwarding_to(&server)));
    // More than a batch, which is exported without delay.
    for _ in 0..300 {
        assert_eq!(get(proxy.addr(), "/v1/a", &[]).status(), 200);
    }
    proxy.wait_log("can't export spans to");
    eventually("dropped spans are counted", || {
        proxy.metric("tidegate_spans_total{outcome=\"dropped\"}") >= 512
    });
    assert_eq!(proxy.metric("tidegate_spans_total{outcome=\"exported\"}"), 0);
}

#[test]
fn a_collector_that_does_not_respond_delays_shutdown_for_seconds_at_most() {
    let (collector, _release) = Upstream::gated("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let server = Upstream::echo();
    let proxy = Tidegate::start(&file(&collector.url(), "timeout = \"60s\"", &forwarding_to(&server)));
    assert_eq!(get(proxy.addr(), "/v1/a", &[]).status(), 200);
    let started = std::time::Instant::now();
    assert_eq!(proxy.stop().code(), Some(0));
    assert!(started.elapsed() < scaled(Duration::from_secs(8)), "{:?}", started.elapsed());
}

#[test]
fn a_busy_collector_is_asked_again() {
    let server = Upstream::echo();
    let busy = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n";
    let collector = Collector::over(Upstream::scripted(move |caller| {
        for answer in [busy, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"] {
            if !matches!(caller.request(), Ok(Some(_))) || caller.try_send(answer).is_err() {
                return;
            }
        }
    }));
    let proxy = Tidegate::start(&file(&collector.url(), "", &forwarding_to(&server)));
    assert_eq!(get(proxy.addr(), "/v1/a", &[]).status(), 200);
    assert_eq!(proxy.stop().code(), Some(0));
    let requests = collector.requests();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].body, requests[1].body);
}

#[test]
fn a_reload_changes_the_collector() {
    let (first, second, server) = (Collector::start(), Collector::start(), Upstream::echo());
    let tables = forwarding_to(&server);
    let proxy = Tidegate::start(&file(&first.url(), "", &tables));
    let trace = |proxy: &Tidegate| {
        let echoed = get(proxy.addr(), "/v1/a", &[]).echoed();
        echoed.header("traceparent").unwrap().split('-').nth(1).unwrap().to_owned()
    };
    let before = trace(&proxy);
    proxy.reload(&file(&second.url(), "", &tables));
    let after = trace(&proxy);
    // The first exporter exports what it has as soon as no request uses it.
    let ids = |spans: Vec<Span>| spans.iter().map(|span| hex(&span.trace_id)).collect::<Vec<_>>();
    assert_eq!(ids(first.spans(2)), [&*before, &*before]);
    assert_eq!(proxy.stop().code(), Some(0));
    assert_eq!(ids(second.spans(2)), [&*after, &*after]);
}
