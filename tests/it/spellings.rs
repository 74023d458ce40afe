//! One value, many spellings: no other spelling of a method, cookie, header name, path or token gives a request a fresh
//! count or a way round a rule.

use http::{HeaderMap, HeaderValue, Request};

use crate::support::{Client, Http2, Tidegate, Upstream, get};

/// A request over HTTP/2.
fn request(method: &str, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(format!("http://a{path}"))
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
