//! One value, many spellings: no other spelling of a method, cookie, header name, path or token gives a request a fresh
//! count or a way round a rule.

use http::{HeaderMap, HeaderValue, Request};

use crate::support::{Client, Http2, Message, Tidegate, Upstream, get};

/// A file whose one route has one limit with these lines.
fn limited(limit: &str) -> String {
    format!(
        "[limits.one]\n{limit}\n[[routes]]\npath = \"/*\"\nlimits = [\"one\"]\nrespond = {{ status = 200 }}\n"
    )
}

/// Sends a request without a body over a connection of its own.
fn ask(proxy: &Tidegate, method: &str, target: &str, headers: &[&str]) -> Message {
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

#[test]
fn a_method_in_another_case_is_refused() {
    let proxy = Tidegate::start(
        "[limits.sign-in]\nrate = \"5/minute\"\n\
         [[routes]]\npath = \"/v1/sessions\"\nmethods = [\"POST\"]\nlimits = [\"sign-in\"]\nrespond = {}\n\
         [[routes]]\npath = \"/cache\"\nmethods = [\"PURGE\"]\nrespond = {}\n\
         [[routes]]\npath = \"/*\"\nrespond = {}\n",
    );
    for method in ["post", "Post", "pOST", "get", "head", "connect", "version-control", "purge"] {
        let response = ask(&proxy, method, "/v1/sessions", &[]);
        assert_eq!(response.status(), 400, "{method}");
        if method != "head" {
            assert!(detail(&response).starts_with("methods are case-sensitive"), "{}", response.text());
        }
    }
    for method in ["POST", "VERSION-CONTROL", "PURGE", "FETCH", "fetch", "Notify"] {
        assert_eq!(ask(&proxy, method, "/v1/sessions", &[]).status(), 200, "{method}");
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
        assert_eq!(ask(&proxy, method, "/", &[]).status(), status, "{method}");
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
fn headers_that_a_server_may_take_for_one_the_file_names_are_removed() {
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
fn no_trailer_brings_back_a_header_that_the_file_names() {
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
fn a_prefix_is_cut_in_whatever_spelling_it_comes() {
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
