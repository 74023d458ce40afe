//! One value, many spellings: no other spelling of a method, cookie, header name, path or token gives a request a fresh
//! count or a way round a rule.

use std::time::{Duration, Instant};

use http::{HeaderMap, HeaderValue, Request};

use crate::support::{Client, Http2, Issuer, Message, Tidegate, Upstream, get, jwks, scaled};

/// A file whose one route has one limit with these lines.
fn limited(limit: &str) -> String {
    format!(
        "[limits.one]\n{limit}\n[[routes]]\npath = \"/*\"\nlimits = [\"one\"]\nrespond = {{ status = 200 }}\n"
    )
}

/// Sends a request without a body over a connection of its own.
fn send(proxy: &Tidegate, method: &str, target: &str, headers: &[&str]) -> Message {
    let mut request = format!("{method} {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n");
    for header in headers {
        request.push_str(header);
        request.push_str("\r\n");
    }
    Client::connect(proxy.addr()).ask(&(request + "\r\n"))
}

/// A request over HTTP/2.
fn request(method: &str, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(format!("http://a{path}"))
}

fn detail(response: &Message) -> String {
    let body: serde_json::Value = serde_json::from_str(response.text()).unwrap();
    body["detail"].as_str().unwrap().to_owned()
}

/// Each of these requests is counted under the same key as the first.
#[track_caller]
fn share_one_count(config: &str, requests: &[&[&str]]) {
    let proxy = Tidegate::start(&limited(config));
    for (number, headers) in requests.iter().enumerate() {
        let response = get(proxy.addr(), "/", headers);
        let remaining: usize = response.header("x-ratelimit-remaining").unwrap().parse().unwrap();
        assert_eq!(remaining, 99 - number, "{headers:?}");
    }
}

#[test]
fn a_method_in_another_case_is_rejected() {
    let proxy = Tidegate::start(
        "[limits.sign-in]\nrate = \"5/minute\"\n\
         [[routes]]\npath = \"/v1/sessions\"\nmethods = [\"POST\"]\nlimits = [\"sign-in\"]\nrespond = {}\n\
         [[routes]]\npath = \"/cache\"\nmethods = [\"PURGE\"]\nrespond = {}\n\
         [[routes]]\npath = \"/*\"\nrespond = {}\n",
    );
    for method in ["post", "Post", "pOST", "get", "head", "connect", "version-control", "purge"] {
        let response = send(&proxy, method, "/v1/sessions", &[]);
        assert_eq!(response.status(), 400, "{method}");
        if method != "head" {
            assert!(detail(&response).starts_with("methods are case-sensitive"), "{}", response.text());
        }
    }
    for method in ["POST", "VERSION-CONTROL", "PURGE", "FETCH", "fetch", "Notify"] {
        assert_eq!(send(&proxy, method, "/v1/sessions", &[]).status(), 200, "{method}");
    }
    let http2 = Http2::connect(proxy.addr());
    let refused = http2.ask(request("post", "/v1/sessions").body(()).unwrap(), b"x");
    assert_eq!(refused.status(), 400);
}

#[test]
fn unregistered_methods_share_one_count() {
    let proxy = Tidegate::start(&limited("rate = \"2/hour\"\nkey = \"method\"\nblock = [\"key:TRACE\"]"));
    for (method, status) in [
        ("FETCH", 200),
        ("fetch", 200),
        ("ANYTHING", 429),
        ("other", 429),
        ("GET", 200),
        ("PROPFIND", 200),
        ("TRACE", 403),
    ] {
        assert_eq!(send(&proxy, method, "/", &[]).status(), status, "{method}");
    }
}

#[test]
fn the_number_of_query_parameters_is_bounded() {
    let proxy = Tidegate::start(
        "[limits.by-key]\nrate = \"100/hour\"\nkey = \"query:key\"\n\
         [[routes]]\npath = \"/q\"\nquery = { a = \"1\", b = \"2\" }\nrespond = {}\n\
         [[routes]]\npath = \"/counted\"\nlimits = [\"by-key\"]\nrespond = {}\n\
         [[routes]]\npath = \"/plain\"\nrespond = {}\n",
    );
    let target = |path: &str, pairs: usize| format!("{path}?{}b=2", "a=1&".repeat(pairs - 1));
    let begun = Instant::now();
    for path in ["/q", "/counted"] {
        assert_eq!(send(&proxy, "GET", &target(path, 1_000), &[]).status(), 200, "{path}");
        for pairs in [1_001, 8_000] {
            let response = send(&proxy, "GET", &target(path, pairs), &[]);
            assert_eq!(response.status(), 400, "{path} {pairs}");
            assert_eq!(detail(&response), "the query has more than 1000 parameters");
        }
    }
    assert!(begun.elapsed() < scaled(Duration::from_secs(5)), "{:?}", begun.elapsed());
    // Where no route and no key looks at the query, the number of its parameters does not matter.
    assert_eq!(send(&proxy, "GET", &target("/plain", 8_000), &[]).status(), 200);
}

#[test]
fn conflicting_values_of_a_key_header_are_rejected() {
    for limit in [
        "rate = \"9/hour\"\nkey = \"header:x-name\"\non_missing = \"skip\"",
        "rate = \"9/hour\"\nkey = \"header:x-name\"\nblock = [\"key:stolen\"]",
        "rate = \"9/hour\"\ncost = \"header:x-name\"\ntrust = \"any\"",
        "rate = \"9/hour\"\ntrust = \"any\"\ntiers = { by = \"header:x-name\", pro = { rate = \"99/hour\" } }",
    ] {
        let proxy = Tidegate::start(&limited(limit));
        for values in [["a", "b"], ["stolen", "b"], ["a", ""]] {
            let headers = values.map(|value| format!("X-Name: {value}"));
            let response = get(proxy.addr(), "/", &headers.each_ref().map(String::as_str));
            assert_eq!(response.status(), 400, "{limit} {values:?}");
            assert_eq!(detail(&response), "the header x-name has several values that differ");
        }
        assert_eq!(get(proxy.addr(), "/", &["X-Name: 1", "X-Name:  1 "]).status(), 200, "{limit}");
        assert_eq!(get(proxy.addr(), "/", &["X-Other: 1", "X-Other: 2"]).status(), 200, "{limit}");
    }
    // A limit in shadow mode rejects no request.
    let shadow = "rate = \"9/hour\"\nmode = \"shadow\"\nkey = \"header:x-name\"\non_missing = \"skip\"\ncost = \"header:x-name\"";
    let proxy = Tidegate::start(&limited(shadow));
    assert_eq!(get(proxy.addr(), "/", &["X-Name: 1", "X-Name: 2"]).status(), 200);
}

#[test]
fn conflicting_tokens_are_rejected_if_a_limit_counts_by_a_claim() {
    let issuer = Issuer::new(jsonwebtoken::Algorithm::EdDSA, "k");
    let [alice, bob] = ["alice", "bob"].map(|name| issuer.token(&serde_json::json!({ "sub": name })));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("jwks.json");
    std::fs::write(&file, jwks(&[&issuer])).unwrap();
    let config = |limits: &str| {
        format!(
            "[jwt]\njwks = \"{}\"\n{}[[routes]]\npath = \"/free\"\nrespond = {{}}\n",
            file.display(),
            limited(limits)
        )
        .replace("path = \"/*\"", "path = \"/counted\"")
    };
    let proxy = Tidegate::start(&config("rate = \"9/hour\"\nkey = \"jwt:sub\"\non_missing = \"skip\""));
    for other in [format!("Authorization: Bearer {bob}"), "Authorization: Basic YTpi".to_owned()] {
        let headers = [format!("Authorization: Bearer {alice}"), other];
        let headers = headers.each_ref().map(String::as_str);
        let response = get(proxy.addr(), "/counted", &headers);
        assert_eq!(response.status(), 400);
        assert_eq!(detail(&response), "the header authorization has several values that differ");
        assert_eq!(get(proxy.addr(), "/free", &headers).status(), 200);
    }
    let same = [format!("Authorization: Bearer {alice}"), format!("Authorization: bearer   {alice}")];
    assert_eq!(get(proxy.addr(), "/counted", &same.each_ref().map(String::as_str)).status(), 200);
}

#[test]
fn conflicting_cookies_and_parameters_are_counted_by_address() {
    for on_missing in ["skip", "deny", "client_ip"] {
        for (part, one, two) in [("cookie:sid", "sid=1; sid=2", "/"), ("query:sid", "x=y", "/?sid=1&sid=2")] {
            let config = format!("rate = \"2/hour\"\nkey = \"{part}\"\non_missing = \"{on_missing}\"");
            let proxy = Tidegate::start(&limited(&config));
            let statuses = [(); 3].map(|()| get(proxy.addr(), two, &[&format!("Cookie: {one}")]).status());
            assert_eq!(statuses, [200, 200, 429], "{part} {on_missing}");
        }
    }
}

#[test]
fn block_and_allow_rules_check_every_value() {
    let config = "rate = \"1/hour\"\nkey = [\"cookie:sid\", \"query:id\"]\non_missing = \"skip\"\n\
                  block = [\"key:stolen\", \"key:half|stolen\"]\nallow = [\"key:friend\", \"key:other\"]";
    let proxy = Tidegate::start(&limited(config));
    let status =
        |cookie: &str, target: &str| get(proxy.addr(), target, &[&format!("Cookie: {cookie}")]).status();
    for (cookie, target) in [
        ("sid=stolen", "/?id=1"),
        ("sid=mine; sid=stolen", "/?id=1"),
        ("sid=stolen; sid=friend", "/?id=1"),
        ("sid=mine; sid=stolen", "/"),
        ("sid=half", "/?id=x&id=stolen"),
        ("sid=a; sid=half", "/?id=stolen&id=y"),
    ] {
        assert_eq!(status(cookie, target), 403, "{cookie} {target}");
    }
    for _ in 0..2 {
        assert_eq!(status("sid=friend; sid=other", "/?id=1"), 200);
        assert_eq!(status("sid=friend", "/?id=1&id=2"), 200);
    }
    // A value without a rule beside one that is allowed is counted.
    assert_eq!([(); 2].map(|()| status("sid=friend; sid=mine", "/?id=1")), [200, 429]);
    let many = (0..300).map(|number| format!("sid={number}")).collect::<Vec<_>>().join("; ");
    let response = get(proxy.addr(), "/?id=1", &[&format!("Cookie: {many}")]);
    assert_eq!(response.status(), 400);
    assert_eq!(detail(&response), "the request has too many different values for cookie:sid");
}

#[test]
fn all_spellings_of_a_cookie_share_one_key() {
    share_one_count(
        "rate = \"100/hour\"\nkey = \"cookie:sid\"",
        &[
            &["Cookie: sid=abc"],
            &["Cookie: sid=\"abc\""],
            &[r#"Cookie: sid="\141bc""#],
            &[r#"Cookie: sid="\a\b\143""#],
            &[r"Cookie: sid=\141bc"],
            &["Cookie: sid =abc"],
            &["Cookie: x=y;\tsid\t=  abc "],
            &["Cookie: sid=%61bc"],
            &["Cookie: sid=%61%62%63"],
            &["Cookie: sid=\"%61bc\""],
            &["Cookie: sid=%22abc%22"],
            &[r#"Cookie: sid="\04561bc""#],
            &["Cookie: sid=abc\u{a0}"],
            &["Cookie: sid=abc; sid=\"abc\"; sid=%61bc"],
        ],
    );
    share_one_count(
        "rate = \"100/hour\"\nkey = \"cookie:sid\"",
        &[&["Cookie: sid=a+b"], &["Cookie: sid=a%20b"], &["Cookie: sid=a%2Bb"], &["Cookie: sid=\"a b\""]],
    );
    let proxy = Tidegate::start(&limited(
        "rate = \"100/hour\"\nkey = \"cookie:sid\"\nblock = ['key:\"st%6flen\"']\non_missing = \"skip\"",
    ));
    for cookie in ["stolen", "%73tolen", r#""\163tolen""#] {
        assert_eq!(get(proxy.addr(), "/", &[&format!("Cookie: sid={cookie}")]).status(), 403, "{cookie}");
    }
}

#[test]
fn all_spellings_of_an_authorization_header_share_one_key() {
    let by = "rate = \"100/hour\"\nkey = \"header:authorization\"";
    share_one_count(
        by,
        &[
            &["Authorization: Bearer abc"],
            &["Authorization: bearer abc"],
            &["Authorization: BEARER   abc"],
            &["Authorization: Bearer\tabc"],
            &["Authorization: Bearer abc", "Authorization: bearer  abc"],
        ],
    );
    share_one_count(
        by,
        &[
            &["Authorization: Basic YTpi"],
            &["Authorization: basic  YTpi"],
            &["Authorization: Basic YT pi"],
            &["Authorization: Basic Y!T.pi"],
        ],
    );
    share_one_count(
        by,
        &[
            &["Authorization: Basic YTpiYw=="],
            &["Authorization: Basic YTpiYw"],
            &["Authorization: Basic YTpiYx=="],
        ],
    );
    let blocked = format!("{by}\nblock = [\"key:Bearer stolen\"]");
    let proxy = Tidegate::start(&limited(&blocked));
    for value in ["Bearer stolen", "bearer  stolen"] {
        assert_eq!(get(proxy.addr(), "/", &[&format!("Authorization: {value}")]).status(), 403, "{value}");
    }
}

/// A file that names a header in each of the places that can.
fn naming_headers(upstream: &str) -> String {
    format!(
        "[client_ip]\ntrusted_proxies = [\"192.0.2.1\"]\n\
         [limits.one]\nrate = \"9/s\"\nkey = [\"header:x-api-key\"]\ncost = \"header:x-cost\"\n\
         tiers = {{ by = \"header:x-plan\", pro = {{ rate = \"9/s\" }} }}\n\
         [[routes]]\npath = \"/never\"\nheaders = {{ x-beta-user = \"1\" }}\nrespond = {{}}\n\
         [[routes]]\npath = \"/never\"\nlimits = [\"one\"]\nrespond = {{}}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"{upstream}\"\n\
         request_headers = {{ set = {{ x_by_gate = \"1\" }}, remove = [\"x-in-ternal\"] }}\n"
    )
}

#[test]
fn headers_with_confusable_names_are_removed() {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&naming_headers(&server.url()));
    let names = [
        "X_Api_Key",
        "x-api_key",
        "X_Cost",
        "X_Plan",
        "X_Beta-User",
        "X_In_Ternal",
        "X-By-Gate",
        "X-By_Gate",
        "X_Request_Id",
        "Transfer_Encoding",
    ];
    let headers: Vec<String> = names.iter().map(|name| format!("{name}: 1")).collect();
    let mut headers: Vec<&str> = headers.iter().map(String::as_str).collect();
    headers.extend(["X_Free: 1", "X-Api-Key: 2"]);
    let received = get(proxy.addr(), "/", &headers).echoed();
    let names = received.names();
    let own: Vec<&String> = names
        .iter()
        .filter(|name| name.contains('_') || name.starts_with("x-by") || name.starts_with("x-api"))
        .collect();
    assert_eq!(own, ["x-api-key", "x_by_gate", "x_free"]);
}

#[test]
fn trailers_with_configured_header_names_are_removed() {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&naming_headers(&server.url()));
    let names = "X-Sum, X_Free, X_Api_Key, X-Api-Key, x-cost, X_Plan, X-In-Ternal, x_by_gate";
    let fields = names.replace(", ", ": 1\r\n") + ": 1\r\n";
    let mut client = Client::connect(proxy.addr());
    let response = client.ask(&format!(
        "POST / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\nTrailer: {names}\r\n\r\n\
         2\r\nhi\r\n0\r\n{fields}\r\n"
    ));
    let mut trailers: Vec<&str> = response.trailers.iter().map(|(name, _)| &**name).collect();
    trailers.sort_unstable();
    assert_eq!(trailers, ["x-sum", "x_free"]);
    let requests = server.requests();
    let received = requests.last().unwrap();
    assert_eq!(received.header("trailer"), Some("x-sum, x_free"));
    // Over HTTP/2 trailers need no announcement.
    let seen = Http2::connect(proxy.addr()).block_on(async |sender| {
        let request = request("POST", "/").header("trailer", names).body(()).unwrap();
        let (response, mut body) = sender.send_request(request, false).unwrap();
        body.send_data("hi".into(), false).unwrap();
        let mut trailers = HeaderMap::new();
        for name in names.split(", ") {
            trailers.insert(
                name.to_lowercase().parse::<http::HeaderName>().unwrap(),
                HeaderValue::from_static("1"),
            );
        }
        body.send_trailers(trailers).unwrap();
        response.await.unwrap().status().as_u16()
    });
    assert_eq!(seen, 200);
    let requests = server.requests();
    let mut trailers: Vec<&str> = requests.last().unwrap().trailers.iter().map(|(name, _)| &**name).collect();
    trailers.sort_unstable();
    assert_eq!(trailers, ["x-sum", "x_free"]);
}

#[test]
fn a_prefix_is_stripped_in_every_spelling() {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&format!(
        "[[routes]]\npath = \"/v1:beta/*\"\nupstream = \"{0}\"\nrewrite = {{ strip_prefix = \"/v1:beta\" }}\n\
         [[routes]]\npath = \"/a%40b/*\"\nupstream = \"{0}\"\nrewrite = {{ strip_prefix = \"/a%40b\" }}\n",
        server.url()
    ));
    for (sent, received) in [
        ("/v1:beta/x", "/x"),
        ("/v1%3Abeta/x", "/x"),
        ("/v1%3abeta/x%3Ay", "/x%3Ay"),
        ("/%761%3Abeta/", "/"),
        ("/a@b/x", "/x"),
        ("/a%40b/x", "/x"),
    ] {
        let request = get(proxy.addr(), sent, &[]).echoed();
        assert_eq!(request.start, format!("GET {received} HTTP/1.1"), "{sent}");
    }
}
