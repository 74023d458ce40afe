//! Forwarding headers of clients and of trusted proxies.

use crate::support::{Client, Http2, Message, Tidegate, Upstream, get};

/// The headers that the proxy sets, and Host.
const OWN: [&str; 7] =
    ["forwarded", "host", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-request-id"];

/// Headers with which a client could claim to be another client or a proxy, or to have sent another request.
const FAMILY: [&str; 32] = [
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
    "X-Original-URI",
    "X-Original-Host",
    "X-Original-Forwarded-For",
    "X-Forwarded",
    "Forwarded-For",
    "Client-IP",
    "X-ProxyUser-Ip",
    "X-Host",
    "X-HTTP-Method-Override",
    "X-HTTP-Method",
    "X-Method-Override",
    "X-Original-Method",
    "X-Rewrite-URL",
    "X-Envoy-External-Address",
    "Front-End-Https",
    "X-Scheme",
    "Proxy",
    "X-Request-Id",
];

/// The name with hyphens or underscores.
fn spellings(name: &str) -> Vec<String> {
    let mut spellings = vec![name.to_owned(), name.replace('-', "_"), name.replacen('-', "_", 1)];
    spellings.dedup();
    spellings
}

fn claims() -> Vec<String> {
    let names = FAMILY.iter().flat_map(|name| spellings(name));
    names.map(|name| format!("{name}: 203.0.113.9")).collect()
}

fn proxy_for(server: &Upstream, client_ip: &str) -> Tidegate {
    Tidegate::start(&format!(
        "[client_ip]\n{client_ip}\n[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n",
        server.url()
    ))
}

/// A request with these headers from 127.0.0.1, as the server receives it.
fn seen(proxy: &Tidegate, lines: &[&str]) -> Message {
    get(proxy.addr(), "/", lines).echoed()
}

fn lines(claims: &[String]) -> Vec<&str> {
    claims.iter().map(String::as_str).collect()
}

fn other_names(message: &Message) -> Vec<String> {
    message.names().into_iter().filter(|name| !OWN.contains(&name.as_str())).collect()
}

#[test]
fn forwarding_headers_of_clients_are_removed() {
    let server = Upstream::echo();
    let proxy = Tidegate::forwarding_to(&server.url());
    let claims = claims();
    let more = ["X-Hosts: kept", "X_Free: kept", "X-Real-IP-Too: kept", "Proxy-Kind: kept"];
    let received = seen(&proxy, &[&lines(&claims)[..], &more].concat());
    assert_eq!(other_names(&received), ["proxy-kind", "x-hosts", "x-real-ip-too", "x_free"]);
    for name in OWN {
        assert_eq!(received.all(name).len(), 1, "{name}");
    }
    assert_eq!(received.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(received.header("forwarded"), Some("for=127.0.0.1;host=\"localhost\";proto=http"));
    assert_ne!(received.header("x-request-id"), Some("203.0.113.9"));
}

#[test]
fn forwarding_headers_are_removed_over_http_2_and_from_trailers() {
    let server = Upstream::echo();
    let proxy = Tidegate::forwarding_to(&server.url());
    let request = FAMILY
        .iter()
        .flat_map(|name| spellings(name))
        .fold(http::Request::get("http://a/"), |request, name| {
            request.header(name.to_lowercase(), "203.0.113.9")
        });
    let response = Http2::connect(proxy.addr()).ask(request.body(()).unwrap(), b"");
    assert_eq!(other_names(&Message::parse(response.text().as_bytes())), Vec::<String>::new());
    let names: Vec<String> = FAMILY.iter().flat_map(|name| spellings(name)).collect();
    let trailers = claims().join("\r\n");
    let mut client = Client::connect(proxy.addr());
    let response = client.ask(&format!(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, {}\r\n\r\n\
         2\r\nhi\r\n0\r\nX-Sum: 7\r\n{trailers}\r\n\r\n",
        names.join(", ")
    ));
    assert_eq!(response.status(), 200);
    let received = &server.requests()[1];
    assert_eq!(received.header("trailer"), Some("x-sum"));
    assert_eq!(received.trailers, [("x-sum".to_owned(), "7".to_owned())]);
}

#[test]
fn the_list_of_removed_headers_is_configurable() {
    let server = Upstream::echo();
    let claims =
        ["X-Real-IP: 1", "X-User: 2", "X_User: 3", "X-Auth-Name: 4", "x_auth_name: 5", "X-Author: 6"];
    let proxy = proxy_for(&server, "remove_headers = [\"X-User\", \"x-auth-*\"]");
    assert_eq!(other_names(&seen(&proxy, &claims)), ["x-author", "x-real-ip"]);
    let proxy = proxy_for(&server, "remove_headers = []");
    let received = seen(&proxy, &["X-Real-IP: 1", "X-Forwarded-Port: 1", "X-Forwarded-For: 1"]);
    assert_eq!(other_names(&received), ["x-forwarded-port", "x-real-ip"]);
    assert_eq!(received.header("x-forwarded-for"), Some("127.0.0.1"));
    // A route may set a header that is removed from clients.
    let route = format!(
        "[[routes]]\npath = \"/*\"\nupstream = \"{}\"\nrequest_headers = {{ set = {{ x-real-ip = \"9\" }} }}\n",
        server.url()
    );
    let proxy = Tidegate::start(&route);
    assert_eq!(seen(&proxy, &["X-Real-IP: 1"]).all("x-real-ip"), ["9"]);
}

#[test]
fn request_headers_are_filled_with_parts_of_the_request() {
    let server = Upstream::echo();
    let edits = "x-real-ip = \"{client_ip}\", x-origin = \"{scheme}://{host}:{port}\", x-sent = \"<{authority}>\", \
               x-json = '{\"a\":{}}'";
    let route = format!(
        "[client_ip]\ntrusted_proxies = [\"127.0.0.1\"]\n[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n\
         request_headers = {{ set = {{ {edits} }} }}\n",
        server.url()
    );
    let proxy = Tidegate::start(&route);
    let seen = |client: &mut Client, lines: &[&str]| {
        let received = client.get("/", lines).echoed();
        ["x-real-ip", "x-origin", "x-sent", "x-json"].map(|name| received.all(name).join(", "))
    };
    let mut client = Client::connect_from("127.0.0.2", proxy.addr());
    let sent = ["Host: A.test:81", "X-Real-IP: 1", "X_Real_IP: 2", "X-Forwarded-For: 3", "X-Sent: 4"];
    let expected = ["127.0.0.2", "http://a.test:81", "<A.test:81>", "{\"a\":{}}"];
    assert_eq!(seen(&mut client, &sent), expected);
    // A trusted proxy names the address and the scheme of its client.
    let sent = ["Host: a.test", "X-Forwarded-For: 192.0.2.1", "X-Forwarded-Proto: https"];
    let mut client = Client::connect_from("127.0.0.1", proxy.addr());
    assert_eq!(seen(&mut client, &sent)[..2], ["192.0.2.1", "https://a.test:443"]);
}

#[test]
fn trusted_proxies_may_send_forwarding_headers_in_standard_spelling() {
    let server = Upstream::echo();
    let proxy = proxy_for(&server, "trusted_proxies = [\"127.0.0.1\"]");
    let received = seen(&proxy, &lines(&claims()));
    let mut expected: Vec<String> = FAMILY.iter().map(|name| name.to_lowercase()).collect();
    expected.retain(|name| !OWN.contains(&name.as_str()));
    expected.sort();
    assert_eq!(other_names(&received), expected);
    let untrusted = Client::connect_from("127.0.0.2", proxy.addr()).get("/", &lines(&claims())).echoed();
    assert_eq!(other_names(&untrusted), Vec::<String>::new());
}

#[test]
fn forwarded_is_rebuilt_from_x_forwarded_for_of_a_trusted_proxy() {
    let server = Upstream::echo();
    let proxy = proxy_for(&server, "trusted_proxies = [\"127.0.0.1\"]");
    let forged = "Forwarded: for=6.6.6.6;proto=gopher;host=evil";
    let xff = "X-Forwarded-For: 203.0.113.9";
    let received = seen(&proxy, &["Host: a", forged, xff, "X-Forwarded-Proto: https", "X-Forwarded-Host: b"]);
    assert_eq!(
        received.all("forwarded"),
        ["for=203.0.113.9;host=\"b\";proto=https, for=127.0.0.1;host=\"a\";proto=http"]
    );
    assert_eq!(received.all("x-forwarded-for"), ["203.0.113.9, 127.0.0.1"]);
    // Values that are invalid in Forwarded are left out of it.
    let odd =
        ["Host: a", "X-Forwarded-For: 2001:db8::7", "X-Forwarded-Proto: x;y", "X-Forwarded-Host: \"c, d"];
    assert_eq!(
        seen(&proxy, &odd).all("forwarded"),
        ["for=\"[2001:db8::7]\", for=127.0.0.1;host=\"a\";proto=http"]
    );
    assert_eq!(seen(&proxy, &["Host: a", forged]).all("forwarded"), ["for=127.0.0.1;host=\"a\";proto=http"]);
}

#[test]
fn x_forwarded_headers_are_rebuilt_from_forwarded_of_a_trusted_proxy() {
    let server = Upstream::echo();
    let proxy =
        proxy_for(&server, "trusted_proxies = [\"127.0.0.1\", \"10.0.0.0/8\"]\nheader = \"forwarded\"");
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
        assert_eq!(received.all("x-forwarded-for"), ["203.0.113.9, 127.0.0.1"], "{forwarded}");
        assert_eq!(received.all("x-forwarded-proto"), ["http"], "{forwarded}");
        assert_eq!(received.all("x-forwarded-host"), ["a"], "{forwarded}");
    }
    let received = seen(&proxy, &forged);
    assert_eq!(received.all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(received.all("forwarded"), ["for=127.0.0.1;host=\"a\";proto=http"]);
}

#[test]
fn forwarding_headers_are_rebuilt_from_a_custom_client_ip_header() {
    let server = Upstream::echo();
    let proxy = proxy_for(&server, "trusted_proxies = [\"127.0.0.1\"]\nheader = \"cf-connecting-ip\"");
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
fn connection_cannot_remove_headers_of_the_proxy() {
    let server = Upstream::echo();
    let connection = format!("Connection: close, {}", OWN.join(", "));
    let proxy = proxy_for(&server, "trusted_proxies = [\"127.0.0.9\"]");
    let received = seen(&proxy, &[&connection]);
    assert_eq!(received.names(), OWN);
    // The client's address is not lost if a load balancer forwards Connection.
    let lines = [&connection[..], "X-Forwarded-For: 203.0.113.9"];
    let received = Client::connect_from("127.0.0.9", proxy.addr()).get("/", &lines).echoed();
    assert_eq!(received.names(), OWN);
    assert_eq!(received.header("x-forwarded-for"), Some("203.0.113.9, 127.0.0.9"));
}
