//! CORS: what a browser needs to let a page read responses, and preflights.

use crate::consumers::setup::{CONSUMERS, ConsumersFile};
use crate::support::{Client, Message, Tidegate, Upstream, get};
use crate::upstream::setup::{proxy_for, refusing_url, with_route};

const APP: &str = "Origin: https://app.example.com";
const CORS: &str = "[cors]\norigins = [\"https://app.example.com\"]\n";

/// The CORS headers of a response and its Vary, as `name: value`, sorted.
fn cors_headers(response: &Message) -> Vec<String> {
    let is_cors = |name: &str| name.starts_with("access-control-") || name == "vary";
    let named = response.headers.iter().filter(|(name, _)| is_cors(name));
    let mut lines: Vec<String> = named.map(|(name, value)| format!("{name}: {value}")).collect();
    lines.sort();
    lines
}

fn preflight(proxy: &Tidegate, path: &str, method: &str, headers: &[&str]) -> Message {
    let headers: String = headers.iter().flat_map(|line| [line, "\r\n"]).collect();
    Client::connect(proxy.addr()).ask(&format!(
        "OPTIONS {path} HTTP/1.1\r\nHost: a.test\r\nAccess-Control-Request-Method: {method}\r\n{headers}\r\n"
    ))
}

const EXPOSED: &str = "access-control-expose-headers: retry-after, x-request-id, x-ratelimit-limit, \
     x-ratelimit-remaining, x-ratelimit-reset, x-ratelimit-warning, ratelimit, ratelimit-policy";
const ALLOWED: &str = "access-control-allow-origin: https://app.example.com";

#[test]
fn a_page_of_an_allowed_origin_may_read_responses() {
    let server = Upstream::answering(
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nAccess-Control-Allow-Origin: *\r\nVary: Accept-Encoding\r\n\
         Access-Control-Allow-Credentials: true\r\nAccess-Control-Expose-Headers: x-theirs\r\n\r\nok",
    );
    let proxy = proxy_for(&server.url(), CORS);
    let read = get(proxy.addr(), "/", &[APP]);
    assert_eq!(cors_headers(&read), [ALLOWED, EXPOSED, "vary: Accept-Encoding, Origin"]);
    for origin in
        ["Origin: https://evil.test", "Origin: null", "X: y", "Origin: https://app.example.com\r\nOrigin: x"]
    {
        let refused = get(proxy.addr(), "/", &[origin]);
        assert_eq!(refused.status(), 200, "{origin}");
        assert_eq!(cors_headers(&refused), ["vary: Accept-Encoding, Origin"], "{origin}");
    }
}

#[test]
fn responses_of_the_proxy_itself_can_be_read() {
    let file = ConsumersFile::new(CONSUMERS);
    let routes = format!(
        "[limits.one]\nrate = \"1/hour\"\n\
         [[routes]]\npath = \"/limited\"\nconsumers = \"public\"\nlimits = [\"one\"]\nrespond = {{}}\n\
         [[routes]]\npath = \"/pro\"\nconsumers = [\"pro\"]\nrespond = {{}}\n\
         [[routes]]\npath = \"/down\"\nconsumers = \"public\"\nupstream = \"{}\"\n",
        refusing_url()
    );
    let proxy = Tidegate::start(&(file.table("") + CORS + &routes));
    for (path, key, status) in [
        ("/limited", "X: y", 200),
        ("/limited", "X: y", 429),
        ("/pro", "X: y", 401),
        ("/pro", "X-Api-Key: s-1", 403),
        ("/down", "X: y", 502),
        ("/none", "X-Api-Key: s-1", 404),
        ("/%zz", "X: y", 400),
    ] {
        let response = get(proxy.addr(), path, &[APP, key]);
        assert_eq!(response.status(), status, "{path}");
        assert_eq!(cors_headers(&response), [ALLOWED, EXPOSED, "vary: Origin"], "{path}");
        assert_eq!(response.header("retry-after").is_some(), status == 429, "{path}");
    }
}

#[test]
fn a_preflight_costs_nothing_and_needs_nothing() {
    let server = Upstream::echo();
    let file = ConsumersFile::new(CONSUMERS);
    let config = format!(
        "{}{CORS}\
         [limits.one]\nrate = \"1/hour\"\nkey = \"header:x-user\"\non_missing = \"deny\"\n[log]\naccess = \"json\"\n\
         [[routes]]\nname = \"api\"\npath = \"/*\"\nlimits = [\"one\"]\nupstream = \"{}\"\n",
        file.table(""),
        server.url()
    );
    let proxy = Tidegate::start(&config);
    for _ in 0..5 {
        let asked = "Access-Control-Request-Headers: content-type,x-api-key";
        let response = preflight(&proxy, "/a?b=c", "PUT", &[APP, asked]);
        assert_eq!(response.start, "HTTP/1.1 204 No Content");
        assert_eq!(
            cors_headers(&response),
            [
                "access-control-allow-headers: content-type,x-api-key",
                "access-control-allow-methods: PUT",
                ALLOWED,
                "access-control-max-age: 600",
                "vary: Access-Control-Request-Method, Access-Control-Request-Headers, Origin",
            ]
        );
        assert_eq!(response.header("x-ratelimit-limit"), None);
        assert!(response.header("x-request-id").is_some());
    }
    assert_eq!(server.received(), 0);
    let known = [APP, "X-Api-Key: k-2", "X-User: u"];
    assert_eq!(get(proxy.addr(), "/", &known).status(), 200, "the preflights have not spent the one request");
    assert_eq!(get(proxy.addr(), "/", &known).status(), 429);
    let lines = proxy.accesses(7);
    assert!(lines[0].contains(r#""route":"api""#) && lines[0].contains(r#""status":204"#), "{}", lines[0]);
}

#[test]
fn a_preflight_is_refused_without_cors_headers() {
    let server = Upstream::echo();
    let proxy =
        proxy_for(&server.url(), &format!("{CORS}methods = [\"PUT\"]\nheaders = [\"x-a\", \"x-b\"]\n"));
    let vary = "vary: Access-Control-Request-Method, Access-Control-Request-Headers, Origin";
    let refused = preflight(&proxy, "/", "PUT", &["Origin: https://evil.test"]);
    assert_eq!((refused.status(), cors_headers(&refused)), (204, vec![vary.to_owned()]));
    for (method, allowed) in
        [("PUT", true), ("DELETE", false), ("POST", true), ("put", false), ("CONNECT", false)]
    {
        let response = preflight(&proxy, "/", method, &[APP]);
        assert_eq!(response.header("access-control-allow-methods"), allowed.then_some(method), "{method}");
        assert_eq!(response.header("access-control-allow-headers"), Some("x-a, x-b"), "{method}");
    }
    assert_eq!(server.received(), 0);
    // Other requests with OPTIONS go upstream.
    assert_eq!(preflight(&proxy, "/", "PUT", &["X: y"]).echoed().start, "OPTIONS / HTTP/1.1");
    let options =
        Client::connect(proxy.addr()).ask(&format!("OPTIONS / HTTP/1.1\r\nHost: a\r\n{APP}\r\n\r\n"));
    assert_eq!(options.echoed().start, "OPTIONS / HTTP/1.1");
    assert_eq!(cors_headers(&options), [ALLOWED, EXPOSED, "vary: Origin"]);
    assert_eq!(preflight(&proxy, "/%zz", "PUT", &[APP]).status(), 400);
}

#[test]
fn a_preflight_gets_the_policy_of_the_route_of_its_method() {
    let server = Upstream::echo();
    let url = server.url();
    let proxy = Tidegate::start(&format!(
        "{CORS}\
         [[routes]]\npath = \"/a\"\nmethods = [\"PUT\"]\nheaders = {{ \"x-v\" = \"2\" }}\nupstream = \"{url}\"\n\
         cors = {{ origins = [\"https://*.other.test\"], credentials = true, max_age = \"1h\" }}\n\
         [[routes]]\npath = \"/a\"\nmethods = [\"DELETE\"]\ncors = \"off\"\nupstream = \"{url}\"\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{url}\"\n"
    ));
    let other = "Origin: https://one.other.test";
    let put = preflight(&proxy, "/a", "PUT", &[other]);
    assert_eq!(put.header("access-control-allow-origin"), Some("https://one.other.test"));
    assert_eq!(put.header("access-control-allow-credentials"), Some("true"));
    assert_eq!(put.header("access-control-max-age"), Some("3600"));
    assert_eq!(preflight(&proxy, "/a", "PUT", &[APP]).header("access-control-allow-origin"), None);
    let patch = preflight(&proxy, "/a", "PATCH", &[APP]);
    assert_eq!(patch.header("access-control-allow-origin"), Some("https://app.example.com"));
    assert_eq!(patch.header("access-control-allow-credentials"), None);
    assert_eq!(server.received(), 0);
    assert_eq!(preflight(&proxy, "/a", "DELETE", &[APP]).echoed().start, "OPTIONS /a HTTP/1.1");
    let ask = |method: &str, more: &str| {
        let head = format!("{method} /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n{more}\r\n\r\n");
        cors_headers(&Client::connect(proxy.addr()).ask(&head))
    };
    assert_eq!(ask("DELETE", APP), Vec::<String>::new(), "`off` leaves the response as it is");
    let own = ask("PUT", &format!("X-V: 2\r\n{other}"));
    assert!(own.contains(&"access-control-allow-credentials: true".to_owned()), "{own:?}");
    assert_eq!(
        ask("PUT", APP),
        [ALLOWED, EXPOSED, "vary: Origin"],
        "the condition on the header does not hold"
    );
}

#[test]
fn any_origin_gets_a_response_that_does_not_vary() {
    let server = Upstream::echo();
    let route = "cors = { origins = [\"*\"], methods = [\"*\"], expose_headers = [\"*\"] }";
    let proxy = with_route(&server.url(), route);
    for header in [APP, "X: y"] {
        let all = ["access-control-allow-origin: *", "access-control-expose-headers: *"];
        assert_eq!(cors_headers(&get(proxy.addr(), "/", &[header])), all);
    }
    let response = preflight(&proxy, "/", "PURGE", &[APP]);
    assert_eq!(response.header("access-control-allow-methods"), Some("PURGE"));
    assert_eq!(response.header("access-control-allow-origin"), Some("*"));
    // A route without a policy, and no [cors]: nothing changes.
    let plain = proxy_for(&server.url(), "");
    assert_eq!(cors_headers(&get(plain.addr(), "/", &[APP])), Vec::<String>::new());
    assert_eq!(preflight(&plain, "/", "PUT", &[APP]).echoed().start, "OPTIONS / HTTP/1.1");
}
