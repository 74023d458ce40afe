//! Statuses, headers and log lines of decisions, and requests that get none.

use http::Request;

use super::setup::{ASKING, PROXY, ask, asking};
use crate::support::{Collector, Http2, Tidegate, attribute, get};

const LIMITED: &str = "
    [limits.one]
    rate = \"1/hour\"
    [[routes]]
    name = \"orders\"
    path = \"/orders\"
    limits = [\"one\"]
    respond = { status = 200 }
    [[routes]]
    path = \"/secret\"
    block = true";

#[test]
fn decisions_have_the_headers_of_responses() {
    let proxy = Tidegate::start(&format!("{ASKING}{LIMITED}"));
    let decide = || ask(proxy.addr(), "GET a.test /orders", "192.0.2.1", &[]);
    let allowed = decide();
    assert_eq!((allowed.status(), allowed.text()), (200, ""));
    assert_eq!(allowed.header("x-ratelimit-limit"), Some("1"));
    assert_eq!(allowed.header("x-ratelimit-remaining"), Some("0"));
    assert!(allowed.header("x-request-id").is_some());
    assert_eq!((allowed.header("retry-after"), allowed.header("x-tidegate-status")), (None, None));
    let denied = decide();
    assert_eq!(denied.status(), 429);
    assert_eq!(denied.header("retry-after"), Some("3600"));
    assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));
    assert!(denied.text().contains("\"violated-policies\":[\"one\"]"), "{}", denied.text());
    assert_eq!(denied.header("x-tidegate-status"), None);
}

#[test]
fn a_limit_and_a_route_say_the_status_of_a_denial_and_none_closes_the_connection() {
    for (limit, route, listener, status, shown) in [
        ("deny_status = 503", "", "", 503, None),
        ("deny_status = 503", "deny_status = 418", "", 418, None),
        ("deny_status = \"close\"", "", "", 429, None),
        ("deny_status = \"close\"", "", "deny_status = 403\n", 403, Some("429")),
        ("deny_status = 503", "", "deny_status = 403\n", 403, Some("503")),
    ] {
        let asking = ASKING.replace("\"decide\"\n", &format!("\"decide\"\n{listener}"));
        let limited = LIMITED.replace("\"1/hour\"", &format!("\"1/hour\"\n{limit}"));
        let limited = limited.replace("limits = [\"one\"]", &format!("limits = [\"one\"]\n{route}"));
        let proxy = Tidegate::start(&format!("{asking}{limited}"));
        let decide = || ask(proxy.addr(), "GET a.test /orders", "192.0.2.1", &[]);
        assert_eq!(decide().status(), 200);
        let denied = decide();
        assert_eq!((denied.status(), denied.header("x-tidegate-status")), (status, shown), "{limit} {route}");
        assert_eq!(denied.header("retry-after"), Some("3600"));
    }
}

#[test]
fn every_denial_has_the_status_that_the_proxy_expects() {
    let asking = ASKING.replace("\"decide\"\n", "\"decide\"\ndeny_status = 403\n");
    let proxy = Tidegate::start(&format!("{asking}{LIMITED}"));
    let decide = |request: &str| {
        let response = ask(proxy.addr(), request, "192.0.2.1", &[]);
        (response.status(), response.header("x-tidegate-status").map(str::to_owned))
    };
    let denied = |status: &str| (403, Some(status.to_owned()));
    assert_eq!(decide("GET a /orders"), (200, None));
    assert_eq!(decide("GET a /orders"), denied("429"));
    assert_eq!(decide("GET a /secret"), denied("403"));
    assert_eq!(decide("GET a /nowhere"), denied("404"));
    assert_eq!(decide("GET a /a%2fb"), denied("400"));
    let response = ask(proxy.addr(), "GET a /orders", "192.0.2.1", &[]);
    assert_eq!((response.status(), response.header("retry-after")), (403, Some("3600")));
    // An authorization request without a decision keeps its status, since the file of the proxy is wrong.
    let response = ask(proxy.addr(), "GET a nothing", "192.0.2.1", &[]);
    assert_eq!((response.status(), response.header("x-tidegate-status")), (400, None));
}

/// A gRPC client gets the status of a denial in a response with 200, which a proxy would take for permission.
#[test]
fn a_denied_grpc_call_is_no_success() {
    let proxy = Tidegate::start(&format!("{}{LIMITED}", ASKING.replace(PROXY, "127.0.0.1")));
    let client = Http2::connect(proxy.addr());
    let decide = || {
        let request = Request::post(proxy.url("/"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("x-forwarded-method", "POST")
            .header("x-forwarded-host", "a.test")
            .header("x-forwarded-uri", "/orders")
            .header("x-forwarded-for", "192.0.2.1");
        let answer = client.ask(request.body(()).unwrap(), b"body");
        assert!(!answer.response.headers().contains_key("grpc-status"));
        answer.status()
    };
    assert_eq!((decide(), decide()), (200, 429));
}

#[test]
fn the_log_has_the_original_request() {
    let proxy = Tidegate::start(&format!("{ASKING}[log]\naccess = \"json\"\n{LIMITED}"));
    for _ in 0..2 {
        ask(proxy.addr(), "POST a.test /orders?x=1", "192.0.2.1", &[]);
    }
    let lines = proxy.accesses(2);
    for (line, status) in lines.iter().zip([200, 429]) {
        for part in [
            "\"client\":\"192.0.2.1\"",
            "\"method\":\"POST\",\"host\":\"a.test\",\"target\":\"/orders?x=1\"",
            &format!("\"status\":{status},"),
            "\"interface\":\"forward_auth\",\"route\":\"orders\"",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }
    assert!(lines[1].contains("\"denied_by\":\"one\""), "{}", lines[1]);
}

#[test]
fn the_span_has_the_scheme_of_the_original_request() {
    let collector = Collector::start();
    let tracing = format!("[tracing]\nendpoint = \"{}\"\nsample = 1.0\n", collector.url());
    let proxy = Tidegate::start(&format!("{ASKING}{tracing}{LIMITED}"));
    for scheme in [&["X-Forwarded-Proto: https"][..], &[]] {
        ask(proxy.addr(), "GET a.test /orders", "192.0.2.1", scheme);
    }
    assert_eq!(proxy.stop().code(), Some(0));
    let spans = collector.spans(2);
    let of = |key: &str| spans.iter().map(|span| attribute(&span.attributes, key)).collect::<Vec<_>>();
    assert_eq!(of("url.scheme"), ["https", ""]);
    assert_eq!(of("url.path"), ["/orders", "/orders"]);
    assert_eq!(of("tidegate.interface"), ["forward_auth", "forward_auth"]);
}

#[test]
fn only_trusted_proxies_get_decisions() {
    let proxy = Tidegate::start(&format!("{ASKING}{LIMITED}"));
    let headers = [
        "X-Forwarded-Method: GET",
        "X-Forwarded-Host: a",
        "X-Forwarded-Uri: /orders",
        "X-Forwarded-For: 192.0.2.1",
    ];
    for _ in 0..3 {
        let refused = get(proxy.addr(), "/", &headers);
        assert_eq!(refused.status(), 403);
        assert!(refused.text().contains("decisions are for trusted proxies only"), "{}", refused.text());
        assert_eq!(refused.header("x-ratelimit-limit"), None);
    }
    let line = proxy.wait_log("rejected an authorization request");
    assert!(line.contains("127.0.0.1") && line.contains("trusted_proxies"), "{line}");
    assert_eq!(proxy.logged("rejected an authorization request"), 1, "the log is not flooded");
    // Nothing was charged.
    assert_eq!(asking(proxy.addr(), "/", &headers).status(), 200);
}

#[test]
fn an_authorization_request_without_an_original_request_says_what_is_missing() {
    let proxy = Tidegate::start(&format!("{ASKING}{LIMITED}"));
    let uri = "X-Forwarded-Uri: /orders";
    let (method, host, client) =
        ("X-Forwarded-Method: GET", "X-Forwarded-Host: a", "X-Forwarded-For: 192.0.2.1");
    for (headers, why) in [
        (&[][..], "names the original request"),
        (&[uri, host, client], "x-forwarded-method is missing"),
        (&[uri, method, client], "x-forwarded-host is missing"),
        (&[uri, method, host], "x-forwarded-for is missing"),
        (&[uri, method, host, client, "X-Original-URI: /free"], "both x-original-uri and x-forwarded-uri"),
        (&[uri, method, host, client, "X-Original-URL: http://a/free"], "both x-original-url"),
        (&[uri, method, host, client, "X-Forwarded-Uri: /free"], "exactly one valid x-forwarded-uri"),
        (&[uri, method, host, client, host], "exactly one valid x-forwarded-host"),
        (&[method, host, client, "X-Forwarded-Uri: http://b/x"], "exactly one valid x-forwarded-uri"),
    ] {
        let response = asking(proxy.addr(), "/", headers);
        assert_eq!(response.status(), 400, "{headers:?}");
        assert!(response.text().contains(why), "{headers:?}: {}", response.text());
    }
    // Nothing was charged.
    assert_eq!(ask(proxy.addr(), "GET a /orders", "192.0.2.1", &[]).status(), 200);
}

/// A proxy that copies both headers replaces those of its client in any case, so they may be empty.
#[test]
fn decisions_have_the_headers_of_soft_limits() {
    let proxy = Tidegate::start(&format!(
        "{ASKING}
        [limits.few]
        rate = \"2/day\"
        warn_at = 0.9
        [limits.plan]
        rate = \"1/day\"
        mode = \"mark\"
        [[routes]]
        path = \"/soft\"
        limits = [\"few\", \"plan\"]
        respond = {{ status = 200 }}
        [[routes]]
        path = \"/free\"
        respond = {{ status = 200 }}"
    ));
    let headers = |target: &str| {
        let response =
            ask(proxy.addr(), &format!("GET a {target}"), "192.0.2.1", &["X-RateLimit-Denied: mine"]);
        let of = |name| response.all(name).join(" and ");
        (response.status(), of("x-ratelimit-warning"), of("x-ratelimit-denied"))
    };
    let expected = |status, warning: &str, denied: &str| (status, warning.to_owned(), denied.to_owned());
    assert_eq!(headers("/free"), expected(200, "", ""));
    assert_eq!(headers("/soft"), expected(200, "", ""));
    assert_eq!(headers("/soft"), expected(200, "few", "plan"));
    assert_eq!(headers("/soft"), expected(429, "", ""));
    let response = ask(proxy.addr(), "GET a /free", "192.0.2.1", &[]);
    assert_eq!(
        (response.header("x-ratelimit-warning"), response.header("x-ratelimit-denied")),
        (Some(""), Some(""))
    );
}
