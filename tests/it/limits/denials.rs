//! Responses to denied requests: status, Retry-After, body.

use super::setup::{TWO_AN_HOUR, answering};
use crate::support::{Client, RedisServer, Tidegate, assert_problem, assert_seconds, get};

#[test]
fn rate_headers_and_the_problem_of_a_denial() {
    let proxy = Tidegate::start(TWO_AN_HOUR);
    let mut client = Client::connect(proxy.addr());
    for (remaining, reset) in [("1", 1800), ("0", 3600)] {
        let response = client.get("/", &[]);
        assert_eq!(response.start, "HTTP/1.1 200 OK");
        let expected = [
            "content-length",
            "content-type",
            "date",
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
            "x-request-id",
        ];
        assert_eq!(response.names(), expected);
        assert_eq!(response.header("content-type"), Some("text/plain; charset=utf-8"));
        assert_eq!(response.header("x-ratelimit-limit"), Some("2"));
        assert_eq!(response.header("x-ratelimit-remaining"), Some(remaining));
        assert_seconds(response.header("x-ratelimit-reset"), reset);
        assert_eq!(response.text(), "ok\n");
    }
    let response = client.get("/", &[]);
    assert_eq!(response.start, "HTTP/1.1 429 Too Many Requests");
    let expected = [
        "cache-control",
        "content-length",
        "content-type",
        "date",
        "retry-after",
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "x-request-id",
    ];
    assert_eq!(response.names(), expected);
    assert_eq!(response.header("cache-control"), Some("no-store"));
    assert_eq!(response.header("content-type"), Some("application/problem+json"));
    assert_eq!(response.header("x-ratelimit-limit"), Some("2"));
    assert_eq!(response.header("x-ratelimit-remaining"), Some("0"));
    assert_seconds(response.header("x-ratelimit-reset"), 3600);
    assert_seconds(response.header("retry-after"), 1800);
    let wait = response.header("retry-after").unwrap();
    let expected = format!(
        r#"{{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,"detail":"the limit few is used up; try again in {wait} seconds","violated-policies":["few"]}}"#
    );
    assert_eq!(response.text(), expected + "\n");
    // The connection stays open.
    assert_eq!(client.get("/", &[]).status(), 429);
}

#[test]
fn a_head_request_is_limited_without_a_body() {
    let proxy = Tidegate::start(TWO_AN_HOUR);
    let mut client = Client::connect(proxy.addr());
    let ask = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
    let (first, _, third) = (client.ask(ask), client.ask(ask), client.ask(ask));
    assert_eq!((first.status(), first.header("content-length")), (200, Some("3")));
    assert_eq!(third.status(), 429);
    assert!(third.body.is_empty());
    assert_ne!(third.header("content-length"), Some("0"));
    // A body of the denial would precede this response.
    assert_eq!(client.get("/", &[]).start, "HTTP/1.1 429 Too Many Requests");
}

#[test]
fn all_denying_limits_are_named() {
    let proxy = Tidegate::start(
        r#"
        [limits]
        short = { rate = "1/minute" }
        long = { rate = "1/day" }
        open = { rate = "9/minute" }
        [[routes]]
        path = "/*"
        limits = ["short", "open", "long"]
        respond = { status = 200 }
        "#,
    );
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    let denied = get(proxy.addr(), "/", &[]);
    assert_eq!(denied.status(), 429);
    assert!(denied.text().contains("\"detail\":\"the limit long is used up; try again in 86400 seconds\""));
    assert!(denied.text().ends_with("\"violated-policies\":[\"short\",\"long\"]}\n"), "{}", denied.text());
    assert_eq!(denied.header("retry-after"), Some("86400"));
    assert_eq!(denied.header("x-ratelimit-limit"), Some("1"));
    assert_seconds(denied.header("x-ratelimit-reset"), 86_400);
}

#[test]
fn the_response_of_a_denial_is_configurable() {
    let proxy = answering(
        "retry_after_max = \"10s\"\n\
         [answers.denied]\nstatus = 503\ncontent_type = \"application/json\"\n\
         body = '{\"of\": {limit}, \"left\": {remaining}, \"reset\": {reset}, \"wait\": {retry_after}, \"id\": \"{request_id}\", \"x\": {y}}'\n",
    );
    let ids = [(); 4].map(|()| {
        let response = get(proxy.addr(), "/", &[]);
        if response.status() == 200 {
            return String::new();
        }
        assert_eq!(response.start, "HTTP/1.1 503 Service Unavailable");
        assert_eq!(response.header("content-type"), Some("application/json"));
        assert_eq!(response.header("cache-control"), Some("no-store"));
        assert_eq!(response.header("retry-after"), Some("10"));
        let text = response.text();
        let reset = response.header("x-ratelimit-reset").unwrap();
        // The header is capped, and the body has the exact time.
        let front = format!(r#"{{"of": 2, "left": 0, "reset": {reset}, "wait": "#);
        let filled = text.strip_prefix(&front).and_then(|rest| rest.strip_suffix(r#"", "x": {y}}"#));
        let (wait, id) =
            filled.and_then(|rest| rest.split_once(r#", "id": ""#)).unwrap_or_else(|| panic!("{text}"));
        assert_seconds(Some(wait), 1_800);
        assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
        id.to_owned()
    });
    assert_eq!(&ids[..2], ["", ""]);
    assert_ne!(ids[2], ids[3]);
}

#[test]
fn jitter_only_increases_retry_after() {
    let proxy = answering("retry_after_jitter = 1.0\nretry_after_max = \"3000s\"");
    let waits: Vec<u64> = (0..40)
        .map(|_| get(proxy.addr(), "/", &[]))
        .filter_map(|response| response.header("retry-after").map(|wait| wait.parse().unwrap()))
        .collect();
    assert_eq!(waits.len(), 38);
    assert!(waits.iter().all(|wait| (1780..=3000).contains(wait)), "{waits:?}");
    assert!(waits.iter().max() > waits.iter().min());
}

#[test]
fn on_store_failure_deny_is_503() {
    let redis = RedisServer::absent();
    let proxy = Tidegate::start(&format!(
        "[store]\nurl = \"{}\"\n\
         [limits]\nstrict = {{ rate = \"9/hour\", on_store_failure = \"deny\" }}\nlax = {{ rate = \"9/hour\" }}\n\
         [[routes]]\npath = \"/strict\"\nlimits = [\"lax\", \"strict\"]\nrespond = {{ status = 200 }}\n\
         [[routes]]\npath = \"/*\"\nrespond = {{ status = 200 }}\n",
        redis.url()
    ));
    let response = get(proxy.addr(), "/strict", &[]);
    let detail = "the limits of this route can't be checked at the moment";
    assert_problem(&response, 503, "Service Unavailable", detail);
    assert_eq!(response.header("retry-after"), Some("1"));
    assert_eq!(response.header("cache-control"), Some("no-store"));
    assert_eq!(response.header("x-ratelimit-limit"), None);
    assert!(!response.text().contains("edis"));
    assert_eq!(get(proxy.addr(), "/free", &[]).status(), 200);
}

#[test]
fn requests_without_a_route_are_404_and_charged_to_default_limits() {
    let proxy = Tidegate::start(
        r#"
        default_limits = ["few"]
        [limits.few]
        rate = "2/hour"
        [[routes]]
        path = "/here"
        respond = { status = 200 }
        "#,
    );
    let response = get(proxy.addr(), "/elsewhere", &[]);
    assert_problem(&response, 404, "Not Found", "no route matches this request");
    assert_eq!(response.header("x-ratelimit-remaining"), Some("1"));
    assert_eq!(get(proxy.addr(), "/here", &[]).header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(get(proxy.addr(), "/nowhere", &[]).status(), 429);
}
