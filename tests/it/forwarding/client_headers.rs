//! Which headers about the client reach an upstream server, and who may set them.

use crate::support::{Client, Http2, Message, Tidegate, Upstream, get};

/// The headers that the proxy writes itself, and Host.
const OWN: [&str; 7] =
    ["forwarded", "host", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-request-id"];

/// Names by which a client could pass itself off as another client or as a proxy.
const FAMILY: [&str; 20] = [
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Forwarded-Port",
    "X-Forwarded-Prefix",
    "X-Forwarded-Ssl",
    "X-Forwarded-Client-Cert",
    "Forwarded",
    "X-Real-IP",
    "X-Client-IP",
    "X-Cluster-Client-IP",
    "True-Client-IP",
    "CF-Connecting-IP",
    "X-Original-URL",
    "X-Rewrite-URL",
    "X-Envoy-External-Address",
    "Front-End-Https",
    "X-Scheme",
    "Proxy",
    "X-Request-Id",
];

/// The same names with other signs between their words.
fn spellings(name: &str) -> Vec<String> {
    let mut spellings = vec![name.to_owned(), name.replace('-', "_"), name.replacen('-', "_", 1)];
    spellings.dedup();
    spellings
}

fn claims() -> Vec<String> {
    let names = FAMILY.iter().flat_map(|name| spellings(name));
    names.map(|name| format!("{name}: 203.0.113.9")).collect()
}

fn before(server: &Upstream, client_ip: &str) -> Tidegate {
    Tidegate::start(&format!(
        "[client_ip]\n{client_ip}\n[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
        server.url()
    ))
}

/// What the server sees of a request with these headers, sent by the trusted proxy 127.0.0.1.
fn seen(proxy: &Tidegate, lines: &[&str]) -> Message {
    get(proxy.addr(), "/", lines).echoed()
}

fn lines(claims: &[String]) -> Vec<&str> {
    claims.iter().map(String::as_str).collect()
}

fn names_beside_our_own(message: &Message) -> Vec<String> {
    message.names().into_iter().filter(|name| !OWN.contains(&name.as_str())).collect()
}

#[test]
fn a_client_cannot_send_any_header_of_a_proxy() {
    let server = Upstream::echo();
    let proxy = before(&server, "");
    let claims = claims();
    let more = ["X-Forwarded: kept", "X_Free: kept", "X-Real-IP-Too: kept", "Proxy-Kind: kept"];
    let received = seen(&proxy, &[&lines(&claims)[..], &more].concat());
    assert_eq!(names_beside_our_own(&received), ["proxy-kind", "x-forwarded", "x-real-ip-too", "x_free"]);
    for name in OWN {
        assert_eq!(received.all(name).len(), 1, "{name}");
    }
    assert_eq!(received.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(received.header("forwarded"), Some("for=127.0.0.1;host=\"localhost\";proto=http"));
    assert_ne!(received.header("x-request-id"), Some("203.0.113.9"));
}

#[test]
fn a_client_cannot_send_them_over_http2_or_in_trailers_either() {
    let server = Upstream::echo();
    let proxy = before(&server, "");
    let request = FAMILY
        .iter()
        .flat_map(|name| spellings(name))
        .fold(http::Request::get("http://a/"), |request, name| {
            request.header(name.to_lowercase(), "203.0.113.9")
        });
    let answer = Http2::connect(proxy.addr()).ask(request.body(()).unwrap(), b"");
    assert_eq!(names_beside_our_own(&Message::parse(answer.text().as_bytes())), Vec::<String>::new());
    let names: Vec<String> = FAMILY.iter().flat_map(|name| spellings(name)).collect();
    let trailers = claims().join("\r\n");
    let mut client = Client::connect(proxy.addr());
    let answer = client.ask(&format!(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, {}\r\n\r\n\
         2\r\nhi\r\n0\r\nX-Sum: 7\r\n{trailers}\r\n\r\n",
        names.join(", ")
    ));
    assert_eq!(answer.status(), 200);
    let received = &server.requests()[1];
    assert_eq!(received.header("trailer"), Some("x-sum"));
    assert_eq!(received.trailers, [("x-sum".to_owned(), "7".to_owned())]);
}

#[test]
fn the_list_of_removed_headers_is_configurable() {
    let server = Upstream::echo();
    let claims =
        ["X-Real-IP: 1", "X-User: 2", "X_User: 3", "X-Auth-Name: 4", "x_auth_name: 5", "X-Author: 6"];
    let proxy = before(&server, "remove_headers = [\"X-User\", \"x-auth-*\"]");
    assert_eq!(names_beside_our_own(&seen(&proxy, &claims)), ["x-author", "x-real-ip"]);
    let proxy = before(&server, "remove_headers = []");
    let received = seen(&proxy, &["X-Real-IP: 1", "X-Forwarded-Port: 1", "X-Forwarded-For: 1"]);
    assert_eq!(names_beside_our_own(&received), ["x-forwarded-port", "x-real-ip"]);
    assert_eq!(received.header("x-forwarded-for"), Some("127.0.0.1"));
    // A route may set what clients may not.
    let route = format!(
        "[[routes]]\npath = \"/*\"\nupstream = \"{}\"\nrequest_headers = {{ set = {{ x-real-ip = \"9\" }} }}\n",
        server.url()
    );
    let proxy = Tidegate::start(&route);
    assert_eq!(seen(&proxy, &["X-Real-IP: 1"]).all("x-real-ip"), ["9"]);
}

#[test]
fn a_trusted_proxy_may_send_them_but_for_other_spellings() {
    let server = Upstream::echo();
    let proxy = before(&server, "trusted_proxies = [\"127.0.0.1\"]");
    let received = seen(&proxy, &lines(&claims()));
    let mut kept: Vec<String> = FAMILY.iter().map(|name| name.to_lowercase()).collect();
    kept.retain(|name| !OWN.contains(&name.as_str()));
    kept.sort();
    assert_eq!(names_beside_our_own(&received), kept);
    let stranger = Client::connect_from("127.0.0.2", proxy.addr()).get("/", &lines(&claims())).echoed();
    assert_eq!(names_beside_our_own(&stranger), Vec::<String>::new());
}

#[test]
fn behind_a_proxy_that_writes_x_forwarded_for_forwarded_is_written_anew() {
    let server = Upstream::echo();
    let proxy = before(&server, "trusted_proxies = [\"127.0.0.1\"]");
    let forged = "Forwarded: for=6.6.6.6;proto=gopher;host=evil";
    let xff = "X-Forwarded-For: 203.0.113.9";
    let received = seen(&proxy, &["Host: a", forged, xff, "X-Forwarded-Proto: https", "X-Forwarded-Host: b"]);
    assert_eq!(
        received.all("forwarded"),
        ["for=203.0.113.9;host=\"b\";proto=https, for=127.0.0.1;host=\"a\";proto=http"]
    );
    assert_eq!(received.all("x-forwarded-for"), ["203.0.113.9, 127.0.0.1"]);
    // What can't stand in Forwarded is left out of it.
    let odd =
        ["Host: a", "X-Forwarded-For: 2001:db8::7", "X-Forwarded-Proto: x;y", "X-Forwarded-Host: \"c, d"];
    assert_eq!(
        seen(&proxy, &odd).all("forwarded"),
        ["for=\"[2001:db8::7]\", for=127.0.0.1;host=\"a\";proto=http"]
    );
    assert_eq!(seen(&proxy, &["Host: a", forged]).all("forwarded"), ["for=127.0.0.1;host=\"a\";proto=http"]);
}

#[test]
fn behind_a_proxy_that_writes_forwarded_the_others_are_written_anew() {
    let server = Upstream::echo();
    let proxy = before(&server, "trusted_proxies = [\"127.0.0.1\", \"10.0.0.0/8\"]\nheader = \"forwarded\"");
    let forged = [
        "Host: a",
        "X-Forwarded-For: 6.6.6.6",
        "X-Forwarded-Proto: gopher",
        "X-Forwarded-Host: evil",
        "X-Forwarded-Port: 70",
    ];
    let forwarded = "Forwarded: for=1.1.1.1, for=203.0.113.9;proto=https;host=\"b.test:8443\", for=10.0.0.2";
    let received = seen(&proxy, &[&forged[..], &[forwarded]].concat());
    assert_eq!(
        received.all("forwarded"),
        [format!("{}, for=127.0.0.1;host=\"a\";proto=http", &forwarded["Forwarded: ".len()..])]
    );
    assert_eq!(received.all("x-forwarded-for"), ["203.0.113.9, 127.0.0.1"]);
    assert_eq!(received.all("x-forwarded-proto"), ["https"]);
    assert_eq!(received.all("x-forwarded-host"), ["b.test:8443"]);
    assert_eq!(received.header("x-forwarded-port"), None);
    for forwarded in [
        "Forwarded: for=203.0.113.9",
        "Forwarded: for=203.0.113.9;proto=\"gopher\";host=\"b, c\"",
        "Forwarded: for=203.0.113.9;proto=http;proto=https;host=b;host=c",
    ] {
        let received = seen(&proxy, &[&forged[..], &[forwarded]].concat());
        assert_eq!(received.all("x-forwarded-for"), ["203.0.113.9, 127.0.0.1"]);
        assert_eq!(received.all("x-forwarded-proto"), ["http"], "{forwarded}");
        assert_eq!(received.all("x-forwarded-host"), ["a"], "{forwarded}");
    }
    let received = seen(&proxy, &forged);
    assert_eq!(received.all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(received.all("forwarded"), ["for=127.0.0.1;host=\"a\";proto=http"]);
}

#[test]
fn behind_a_proxy_that_writes_a_header_of_its_own_both_are_written_anew() {
    let server = Upstream::echo();
    let proxy = before(&server, "trusted_proxies = [\"127.0.0.1\"]\nheader = \"cf-connecting-ip\"");
    let forged =
        ["Host: a", "X-Forwarded-For: 6.6.6.6", "Forwarded: for=6.6.6.6", "X-Forwarded-Proto: https"];
    let received = seen(&proxy, &[&forged[..], &["CF-Connecting-IP: 203.0.113.9"]].concat());
    assert_eq!(received.all("x-forwarded-for"), ["203.0.113.9, 127.0.0.1"]);
    assert_eq!(
        received.all("forwarded"),
        ["for=203.0.113.9;proto=https, for=127.0.0.1;host=\"a\";proto=http"]
    );
    assert_eq!(received.all("x-forwarded-proto"), ["https"]);
    assert_eq!(received.all("cf-connecting-ip"), ["203.0.113.9"]);
}

#[test]
fn connection_cannot_remove_what_the_proxy_sets() {
    let server = Upstream::echo();
    let connection = format!("Connection: close, {}", OWN.join(", "));
    let proxy = before(&server, "trusted_proxies = [\"127.0.0.9\"]");
    let received = seen(&proxy, &[&connection]);
    assert_eq!(received.names(), OWN);
    // The client's address is not lost where a balancer passes its client's Connection on.
    let lines = [&connection[..], "X-Forwarded-For: 203.0.113.9"];
    let received = Client::connect_from("127.0.0.9", proxy.addr()).get("/", &lines).echoed();
    assert_eq!(received.names(), OWN);
    assert_eq!(received.header("x-forwarded-for"), Some("203.0.113.9, 127.0.0.9"));
}
