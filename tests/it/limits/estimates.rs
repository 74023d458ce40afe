//! What requests reserve of limits that their responses settle: by their bodies, within bounds, and what the server gets.

use serde_json::Value;

use super::keys::body::post;
use crate::support::{Client, Tidegate, Upstream};

const JSON: &str = "application/json";
/// A response that does not tell its cost: the estimate stays.
const SILENT: &str = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";

/// A proxy with one limit that has these keys.
fn proxy_for(server: &Upstream, limit: &str) -> Tidegate {
    Tidegate::start(&format!(
        "listen = \"127.0.0.1:0\"
[log]
access = \"json\"
[limits.tokens]
algorithm = \"fixed_window\"
rate = \"1000000/day\"
{limit}
[[routes]]
path = \"/*\"
limits = [\"tokens\"]
upstream = \"{}\"
",
        server.url()
    ))
}

/// The units that each of these requests reserves.
fn reserved(proxy: &Tidegate, requests: &[String]) -> Vec<u64> {
    let mut client = Client::connect(proxy.addr());
    for request in requests {
        assert_eq!(client.ask(request).status(), 200, "{request}");
    }
    let lines = proxy.accesses(requests.len());
    let units = |line: &String| {
        let line: Value = serde_json::from_str(line).unwrap();
        line["reserved"]["tokens"].as_u64().unwrap()
    };
    lines.iter().map(units).collect()
}

fn chat(fields: &str) -> String {
    post("/v1/chat/completions", JSON, &format!("{{\"messages\":[]{fields}}}"))
}

#[test]
fn a_request_reserves_the_maximum_of_its_output() {
    let server = Upstream::answering(SILENT);
    let proxy = proxy_for(&server, "cost = { llm = { input = 0, output = 1 } }");
    let requests = [
        chat(",\"max_tokens\":50"),
        chat(",\"max_tokens\":5,\"max_completion_tokens\":60"),
        chat(",\"max_tokens\":10,\"n\":3"),
        chat(",\"max_tokens\":-1"),
        chat(""),
        "GET /v1/models HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(),
    ];
    assert_eq!(reserved(&proxy, &requests), [50, 60, 30, 1024, 1024, 1]);
}

#[test]
fn a_body_that_can_not_be_read_is_estimated_by_its_length() {
    let server = Upstream::answering(SILENT);
    let limit = "cost = \"llm_tokens\"\nbytes_per_token = 1\ndefault_output = 7\nread_body = \"64KiB\"";
    let proxy = proxy_for(&server, limit);
    let body = "{\"max_tokens\":1}";
    let long = format!("{{\"max_tokens\":1,\"a\":\"{}\"}}", "x".repeat(64 * 1024));
    let chunks = |count: usize| {
        let chunk = format!("1000\r\n{}\r\n", " ".repeat(0x1000)).repeat(count);
        let end = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Type: {JSON}\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{end}"
        )
    };
    let requests = [
        post("/", "text/plain", body),
        post("/", &format!("{JSON}\r\nContent-Encoding: gzip"), body),
        post("/", JSON, "{\"max_tokens\":1"),
        post("/", JSON, &long),
        // Read as a whole: whitespace between values is no text.
        chunks(1),
        // Longer than what is read.
        chunks(17),
    ];
    let length = body.len() as u64;
    let expected = [length + 7, length + 7, length - 1 + 7, long.len() as u64 + 7, length + 1, 64 * 1024 + 7];
    assert_eq!(reserved(&proxy, &requests), expected);
    let received: Vec<usize> = server.requests().iter().map(|request| request.body.len()).collect();
    let sent =
        [body.len(), body.len(), body.len() - 1, long.len(), 0x1000 + body.len(), 0x11000 + body.len()];
    assert_eq!(received, sent, "they are forwarded unchanged");
}

#[test]
fn a_number_of_the_body_is_reserved_and_a_malformed_one_is_no_free_look() {
    let server = Upstream::answering(SILENT);
    let cost = "cost = { reserve = [\"body:/size\", 2], settle = \"header:x-units\" }";
    let proxy = proxy_for(&server, cost);
    let requests: Vec<String> = ["40", "0", "-5", "1e3", "[9]", "40,\"size\":50"]
        .map(|size| post("/", JSON, &format!("{{\"size\":{size}}}")))
        .into();
    assert_eq!(reserved(&proxy, &requests), [42, 2, 2, 1002, 2, 52]);
}

#[test]
fn a_stream_is_made_to_report_its_usage() {
    let server = Upstream::answering(SILENT);
    let proxy = proxy_for(&server, "cost = \"llm_tokens\"\nstream_usage = \"add\"");
    let signed = format!("{JSON}\r\nContent-Digest: sha-256=:AA==:");
    let requests = [
        chat(",\"stream\":true"),
        chat(",\"stream\":true,\"stream_options\":{\"include_usage\":false}"),
        chat(""),
        post("/", &signed, "{\"stream\":true}"),
    ];
    reserved(&proxy, &requests);
    let received = server.requests();
    let bodies: Vec<&str> =
        received.iter().map(|request| std::str::from_utf8(&request.body).unwrap()).collect();
    let added: Value = serde_json::from_str(bodies[0]).unwrap();
    assert_eq!(added["stream_options"]["include_usage"], Value::Bool(true), "{}", bodies[0]);
    assert!(bodies[1].ends_with("{\"include_usage\":false}}"), "an explicit value is kept: {}", bodies[1]);
    assert_eq!(&bodies[2..], ["{\"messages\":[]}", "{\"stream\":true}"]);
}

#[test]
fn a_stream_without_usage_is_rejected_where_usage_is_required() {
    let server = Upstream::answering(SILENT);
    let proxy = proxy_for(&server, "cost = \"llm_tokens\"\nstream_usage = \"require\"");
    let mut client = Client::connect(proxy.addr());
    let rejected = client.ask(&chat(",\"stream\":true"));
    assert_eq!(rejected.status(), 400);
    let cure = "\"stream_options\": {\"include_usage\": true}";
    assert!(rejected.text().replace("\\\"", "\"").contains(cure), "{}", rejected.text());
    for fields in [",\"stream\":true,\"stream_options\":{\"include_usage\":true}", ""] {
        assert_eq!(client.ask(&chat(fields)).status(), 200, "{fields}");
    }
    assert_eq!(server.received(), 2);
}
