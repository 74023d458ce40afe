//! `[answers]`: the operator's own responses in place of problem+json.

use std::fmt::Write as _;

use crate::consumers::setup::{CONSUMERS, ConsumersFile};
use crate::support::{Client, Message, RedisServer, Tidegate, Upstream, get};
use crate::upstream::setup::refusing_url;

const KINDS: [&str; 9] = [
    "denied",
    "unauthorized",
    "forbidden",
    "not_found",
    "bad_request",
    "payload_too_large",
    "unavailable",
    "bad_gateway",
    "timeout",
];

/// `[answers]` with a body for each kind, which names it.
fn answers() -> String {
    let mut text = "[answers]\n".to_owned();
    for kind in KINDS {
        let body = format!(
            r#"{{"kind":"{kind}","status":{{status}},"detail":"{{detail}}","limit":{{limit}},"wait":{{retry_after}},"id":"{{request_id}}"}}"#
        );
        writeln!(text, "{kind} = {{ content_type = \"application/json\", body = '{body}' }}").unwrap();
    }
    text
}

/// Checks that a response has the status and the body of this kind; returns its detail.
#[track_caller]
fn assert_kind(response: &Message, status: u16, kind: &str) -> String {
    assert_eq!(response.status(), status, "{}", response.text());
    assert_eq!(response.header("content-type"), Some("application/json"));
    let body: serde_json::Value = serde_json::from_str(response.text()).unwrap();
    assert_eq!((body["kind"].as_str(), body["status"].as_u64()), (Some(kind), Some(status.into())), "{body}");
    assert_eq!(body["id"].as_str(), response.header("x-request-id"));
    body["detail"].as_str().unwrap().to_owned()
}

#[test]
fn each_kind_of_response_has_its_own_body() {
    let file = ConsumersFile::new(CONSUMERS);
    let silent = Upstream::scripted(|caller| while let Ok(Some(_)) = caller.request() {});
    let redis = RedisServer::absent();
    let config = format!(
        "{}{}[limits.one]\nrate = \"1/hour\"\non_store_failure = \"local\"\n\
         [limits.checked]\nrate = \"9/hour\"\non_store_failure = \"deny\"\n\
         [upstreams.silent]\nservers = [\"{}\"]\nresponse_timeout = \"50ms\"\nretries = 0\n\
         [[routes]]\npath = \"/limited\"\nconsumers = \"public\"\nlimits = [\"one\"]\nrespond = {{}}\n\
         [[routes]]\npath = \"/checked\"\nconsumers = \"public\"\nlimits = [\"checked\"]\nrespond = {{}}\n\
         [[routes]]\npath = \"/pro\"\nconsumers = [\"pro\"]\nrespond = {{}}\n\
         [[routes]]\npath = \"/small\"\nconsumers = \"public\"\nmax_body = 1\nrespond = {{}}\n\
         [[routes]]\npath = \"/down\"\nconsumers = \"public\"\nupstream = \"{}\"\n\
         [[routes]]\npath = \"/silent\"\nconsumers = \"public\"\nupstream = \"silent\"\n\
         [store]\nurl = \"{}\"\n",
        file.table(""),
        answers(),
        silent.url(),
        refusing_url(),
        redis.url(),
    );
    let proxy = Tidegate::start(&config);
    let ask = |path: &str, header: &str| get(proxy.addr(), path, &[header]);
    assert_eq!(ask("/limited", "X: y").status(), 200);
    let denied = ask("/limited", "X: y");
    let detail = assert_kind(&denied, 429, "denied");
    assert!(detail.starts_with("the limit one is used up; try again in "), "{detail}");
    assert!(denied.text().contains(r#""limit":1,"#), "{}", denied.text());
    assert!(denied.header("retry-after").is_some());
    let unauthorized = ask("/pro", "X: y");
    let detail = assert_kind(&unauthorized, 401, "unauthorized");
    assert_eq!(detail, "the request must have exactly one x-api-key header");
    assert_eq!(unauthorized.header("www-authenticate"), Some("ApiKey"));
    assert!(unauthorized.text().contains(r#""limit":0,"wait":0,"#), "{}", unauthorized.text());
    for (path, header, status, kind) in [
        ("/pro", "X-Api-Key: s-1", 403, "forbidden"),
        ("/none", "X-Api-Key: s-1", 404, "not_found"),
        ("/%zz", "X: y", 400, "bad_request"),
        ("/small", "Content-Length: 2", 413, "payload_too_large"),
        ("/checked", "X: y", 503, "unavailable"),
        ("/down", "X: y", 502, "bad_gateway"),
        ("/silent", "X: y", 504, "timeout"),
    ] {
        assert_kind(&ask(path, header), status, kind);
    }
    let mut client = Client::connect(proxy.addr());
    let connect = client.ask("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n");
    assert_kind(&connect, 405, "bad_request");
    assert!(connect.header("allow").is_some());
    let trace = "TRACE /down HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n";
    assert_kind(&Client::connect(proxy.addr()).ask(trace), 405, "bad_request");
}

#[test]
fn status_and_content_type_can_be_replaced_and_values_are_escaped() {
    let proxy = Tidegate::start(
        "[answers]\n\
         not_found = { status = 410, content_type = \"text/html\", body = \"<p title='{detail}'>{status} {limit}</p>\" }\n\
         bad_request = { body = \"{detail} {x}\" }\n\
         [[routes]]\npath = \"/a\"\nlimits = []\nheaders = { x-a = \"1\" }\nrespond = {}\n",
    );
    let gone = get(proxy.addr(), "/", &[]);
    assert_eq!((gone.status(), gone.header("content-type")), (410, Some("text/html")));
    assert_eq!(gone.text(), "<p title='no route matches this request'>410 0</p>");
    let mut client = Client::connect(proxy.addr());
    let odd = client.ask("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n");
    assert_eq!((odd.status(), odd.header("content-type")), (405, Some("text/plain; charset=utf-8")));
    assert_eq!(odd.text(), "CONNECT is supported for WebSocket over HTTP/2 only {x}");
}
