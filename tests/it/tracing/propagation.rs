//! What servers are sent of a trace, and what the access log says of it.

use serde_json::Value;

use crate::support::{Client, Http2, Http2Server, Message, Tidegate, Upstream, get};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

/// A proxy with a JSON access log and these settings of tracing, which forwards every request.
fn traced(settings: &str, server: &str) -> Tidegate {
    Tidegate::start(&format!(
        "workers = 1\n[log]\naccess = \"json\"\n[tracing]\n{settings}\n[[routes]]\npath = \"/*\"\nupstream = \"{server}\"\n"
    ))
}

/// The parts of a `traceparent`.
fn parts(header: &str) -> [String; 4] {
    let parts: Vec<String> = header.split('-').map(str::to_owned).collect();
    parts.try_into().unwrap_or_else(|_| panic!("{header:?} does not have four parts"))
}

/// The headers that the server has received, as it has echoed them.
#[track_caller]
fn forwarded(proxy: &Tidegate, headers: &[&str]) -> Message {
    get(proxy.addr(), "/", headers).echoed()
}

#[test]
fn a_trace_is_started_where_there_is_none() {
    let server = Upstream::echo();
    let proxy = traced("sample = 1.0", &server.url());
    let [version, trace, span, flags] = parts(forwarded(&proxy, &[]).header("traceparent").unwrap());
    assert_eq!((&*version, &*flags), ("00", "01"));
    assert_eq!((trace.len(), span.len()), (32, 16));
    assert!(format!("{trace}{span}").bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
    let line: Value = serde_json::from_str(&proxy.accesses(1)[0]).unwrap();
    assert_eq!(line["trace_id"], trace.as_str());
    let [_, other, ..] = parts(forwarded(&proxy, &[]).header("traceparent").unwrap());
    assert_ne!(other, trace);
}

#[test]
fn a_trace_is_continued_with_its_state() {
    let server = Upstream::echo();
    let proxy = traced("sample = 0.0\ntrust = \"any\"", &server.url());
    for flags in ["00", "01"] {
        let header = format!("traceparent: 00-{TRACE}-{SPAN}-{flags}");
        let echoed = forwarded(&proxy, &[&header, "tracestate: rojo=1,a=b", "tracestate: congo=2"]);
        let [_, trace, span, passed] = parts(echoed.header("traceparent").unwrap());
        assert_eq!((&*trace, &*passed), (TRACE, flags));
        assert_ne!(span, SPAN);
        assert_eq!(echoed.all("tracestate"), ["rojo=1,a=b", "congo=2"]);
    }
    let lines = proxy.accesses(2);
    assert!(lines.iter().all(|line| line.contains(&format!("\"trace_id\":\"{TRACE}\""))), "{lines:?}");
}

#[test]
fn the_sampled_flag_of_an_untrusted_client_is_replaced() {
    let server = Upstream::echo();
    let header = |flags| format!("traceparent: 00-{TRACE}-{SPAN}-{flags}");
    for (ratio, sent, passed) in [("0.0", "01", "00"), ("1.0", "00", "01")] {
        let proxy = traced(&format!("sample = {ratio}"), &server.url());
        let echoed = forwarded(&proxy, &[&header(sent)]);
        let [_, trace, _, flags] = parts(echoed.header("traceparent").unwrap());
        assert_eq!((&*trace, &*flags), (TRACE, passed));
        let trusting = format!("sample = {ratio}\n[client_ip]\ntrusted_proxies = [\"127.0.0.1\"]");
        let proxy = traced(&trusting, &server.url());
        let echoed = forwarded(&proxy, &[&header(sent)]);
        assert_eq!(parts(echoed.header("traceparent").unwrap())[3], sent);
    }
}

#[test]
fn an_invalid_trace_is_replaced_and_an_invalid_state_removed() {
    let server = Upstream::echo();
    let proxy = traced("", &server.url());
    let valid = format!("traceparent: 00-{TRACE}-{SPAN}-01");
    for header in [
        format!("traceparent: ff-{TRACE}-{SPAN}-01"),
        format!("traceparent: 00-{TRACE}-{SPAN}-01-more"),
        format!("traceparent: 00-{}-{SPAN}-01", TRACE.to_uppercase()),
        format!("traceparent: 00-{TRACE}-{}-01", "0".repeat(16)),
        format!("{valid}\r\n{valid}"),
    ] {
        let echoed = forwarded(&proxy, &[&header, "tracestate: rojo=1"]);
        assert_eq!(echoed.all("traceparent").len(), 1, "{header}");
        assert_ne!(parts(echoed.header("traceparent").unwrap())[1], TRACE, "{header}");
        assert_eq!(echoed.header("tracestate"), None, "{header}");
    }
    for state in ["rojo", "rojo=1,rojo=2", "Rojo=1"] {
        let echoed = forwarded(&proxy, &[&valid, &format!("tracestate: {state}")]);
        assert_eq!(parts(echoed.header("traceparent").unwrap())[1], TRACE);
        assert_eq!(echoed.header("tracestate"), None, "{state}");
    }
    let later = format!("traceparent: cc-{TRACE}-{SPAN}-01-more");
    let echoed = forwarded(&proxy, &[&later, "tracestate: rojo=1"]);
    let [version, trace, ..] = parts(echoed.header("traceparent").unwrap());
    assert_eq!((&*version, &*trace, echoed.header("tracestate")), ("00", TRACE, Some("rojo=1")));
}

#[test]
fn a_client_can_not_have_the_trace_removed_but_a_route_can() {
    let server = Upstream::echo();
    let remove = "request_headers = { remove = [\"traceparent\"] }";
    let proxy = Tidegate::start(&format!(
        "[tracing]\n[[routes]]\npath = \"/kept\"\nupstream = \"{0}\"\n\
         [[routes]]\npath = \"/removed\"\nupstream = \"{0}\"\n{remove}\n",
        server.url()
    ));
    let mut client = Client::connect(proxy.addr());
    let sent = format!("traceparent: 00-{TRACE}-{SPAN}-01");
    let kept = client.get("/kept", &[&sent, "Connection: traceparent"]).echoed();
    assert_eq!(parts(kept.header("traceparent").unwrap())[1], TRACE);
    assert_eq!(client.get("/removed", &[&sent]).echoed().header("traceparent"), None);
}

#[test]
fn traces_pass_over_http2_in_both_directions() {
    let server = Http2Server::echo();
    let proxy = Tidegate::start(&format!(
        "[tracing]\n[upstreams.u]\nservers = [\"{}\"]\nprotocol = \"h2\"\n[[routes]]\npath = \"/*\"\nupstream = \"u\"\n",
        server.url()
    ));
    let header = format!("00-{TRACE}-{SPAN}-01");
    let request = http::Request::get("http://a/").header("traceparent", &header).header("tracestate", "a=b");
    let answer = Http2::connect(proxy.addr()).ask(request.body(()).unwrap(), b"");
    let text = answer.text();
    assert!(
        text.contains(&format!("traceparent: 00-{TRACE}-")) && text.contains("tracestate: a=b"),
        "{text}"
    );
    assert!(!text.contains(SPAN), "{text}");
}

#[test]
fn without_tracing_the_headers_are_forwarded_as_any_others() {
    let server = Upstream::echo();
    let proxy = Tidegate::forwarding_to(&server.url());
    let echoed = forwarded(&proxy, &["traceparent: anything", "tracestate: at all"]);
    assert_eq!(
        (echoed.header("traceparent"), echoed.header("tracestate")),
        (Some("anything"), Some("at all"))
    );
    assert_eq!(forwarded(&proxy, &[]).header("traceparent"), None);
}
