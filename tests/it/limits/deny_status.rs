//! `deny_status` of limits and routes: another status of denials, or no response.

use h2::Reason;
use http::Request;

use crate::support::{Client, Http2, Tidegate, Upstream, eventually, get};

/// A limit of one request, with a file around it.
fn one(limit: &str, routes: &str) -> String {
    format!(
        "listen = \"127.0.0.1:0\"\n[log]\naccess = \"json\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [limits.one]\nrate = \"1/hour\"\nkey = \"path\"\n{limit}\n{routes}\n\
         [[routes]]\npath = \"/open\"\ninherit_limits = false\nrespond = {{ body = \"open\" }}\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"one\"]\nrespond = {{ body = \"ok\" }}\n"
    )
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn request(method: &str, path: &str) -> http::request::Builder {
    Request::builder().method(method).uri(format!("http://a{path}"))
}

#[test]
fn a_denial_has_the_status_of_its_limit_and_all_else_is_as_before() {
    let proxy = Tidegate::start(&one("deny_status = 503", ""));
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.get("/", &[]).status(), 200);
    let denied = client.get("/", &[]);
    assert_eq!(denied.start, "HTTP/1.1 503 Service Unavailable");
    assert_eq!(denied.header("retry-after"), Some("3600"));
    assert_eq!(denied.header("x-ratelimit-limit"), Some("1"));
    assert_eq!(denied.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(denied.header("content-type"), Some("application/problem+json"));
    assert!(denied.text().contains("\"status\":503,"), "{}", denied.text());
    assert!(denied.text().contains("\"violated-policies\":[\"one\"]"), "{}", denied.text());
    let line = &proxy.accesses(2)[1];
    assert!(line.contains("\"status\":503,") && line.contains("\"denied_by\":\"one\""), "{line}");
    assert_eq!(proxy.decisions("one", "denied"), 1);
    let requests = "tidegate_interface_requests_total{interface=\"proxy\",outcome=\"denied\"}";
    assert_eq!(proxy.metric(requests), 1);
}

#[test]
fn the_route_comes_before_the_limit_and_the_limit_before_the_answers() {
    let answers = "[answers]\ndenied = { status = 420, body = \"{status} {limit}\" }\n\
                   [limits.plain]\nrate = \"1/hour\"\nkey = \"path\"\n";
    let routes = "[[routes]]\npath = \"/route/*\"\nlimits = [\"one\"]\ndeny_status = 403\nrespond = {}\n\
                  [[routes]]\npath = \"/plain\"\nlimits = [\"plain\"]\nrespond = {}\n";
    let proxy = Tidegate::start(&one("deny_status = 503", &format!("{answers}{routes}")));
    for (path, status) in [("/route/a", 403), ("/limit", 503), ("/plain", 420)] {
        assert_eq!(get(proxy.addr(), path, &[]).status(), 200, "{path}");
        let denied = get(proxy.addr(), path, &[]);
        assert_eq!((denied.status(), denied.text()), (status, &*format!("{status} 1")), "{path}");
    }
}

#[test]
fn bans_have_the_status_too_and_blocked_keys_have_not() {
    let ban = "ban = { after = 1, within = \"1m\", for = \"2h\" }\nblock = [\"192.0.2.0/24\"]\ndeny_status = 418\n\
               [client_ip]\ntrusted_proxies = [\"127.0.0.1\"]";
    let proxy = Tidegate::start(&one(ban, ""));
    let statuses = [(); 3].map(|()| get(proxy.addr(), "/", &[]).status());
    assert_eq!(statuses, [200, 418, 418]);
    assert_eq!(proxy.decisions("one", "banned"), 2);
    assert_eq!(get(proxy.addr(), "/x", &["X-Forwarded-For: 192.0.2.7"]).status(), 403);
}

#[test]
fn close_ends_a_connection_of_http_1_without_a_response() {
    let proxy = Tidegate::start(&one("deny_status = \"close\"", ""));
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.ask(GET).text(), "ok");
    client.send(GET);
    client.expect_close();
    // Also with a body that is not sent yet, and with further requests behind it.
    for rest in ["POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n", &format!("{GET}{GET}")] {
        let mut client = Client::connect(proxy.addr());
        client.send(rest);
        client.expect_close();
    }
    let lines = proxy.accesses(4);
    let denied = lines.iter().filter(|line| line.contains("\"denied_by\":\"one\"")).collect::<Vec<_>>();
    assert_eq!(denied.len(), 3);
    for line in denied {
        assert!(line.contains("\"status\":444,\"bytes\":0,") && !line.contains("\"error\""), "{line}");
    }
    assert_eq!(proxy.decisions("one", "denied"), 3);
    assert_eq!(proxy.metric("tidegate_interface_requests_total{interface=\"proxy\",outcome=\"denied\"}"), 3);
}

#[test]
fn close_resets_the_stream_of_http_2_and_no_other() {
    let proxy = Tidegate::start(&one("deny_status = \"close\"", ""));
    let client = Http2::connect(proxy.addr());
    let ask = |method: &str, body: &[u8]| client.try_ask(request(method, "/").body(()).unwrap(), body);
    assert_eq!(ask("GET", b"").unwrap().text(), "ok");
    for (method, body) in [("GET", &b""[..]), ("POST", b"body")] {
        let error = ask(method, body).unwrap_err();
        assert!(error.is_reset() && error.is_remote(), "{error}");
        assert_eq!(error.reason(), Some(Reason::ENHANCE_YOUR_CALM), "{error}");
    }
    // Many resets are no attack of the client.
    for _ in 0..200 {
        ask("GET", b"").unwrap_err();
    }
    assert_eq!(client.ask(request("GET", "/open").body(()).unwrap(), b"").text(), "open");
    assert!(proxy.accesses(4)[1].contains("\"status\":444,"));
}

#[test]
fn a_grpc_call_gets_its_usual_denial_instead_of_close() {
    let proxy = Tidegate::start(&one("deny_status = \"close\"", ""));
    let client = Http2::connect(proxy.addr());
    let call = || {
        let call =
            request("POST", "/a.B/C").header("content-type", "application/grpc").header("te", "trailers");
        client.ask(call.body(()).unwrap(), b"\0\0\0\0\0")
    };
    call();
    let denied = call();
    let header = |name: &str| denied.response.headers().get(name).and_then(|value| value.to_str().ok());
    assert_eq!((denied.status(), header("grpc-status")), (200, Some("8")));
    assert_eq!(header("grpc-retry-pushback-ms"), Some("3600000"));
}

#[test]
fn a_route_that_blocks_has_another_status_or_closes() {
    let routes = "[[routes]]\npath = \"/gone\"\nblock = true\ndeny_status = 410\n\
                  [[routes]]\npath = \"/silent\"\nblock = true\ndeny_status = \"close\"\n";
    let proxy = Tidegate::start(&one("", routes));
    assert_eq!(get(proxy.addr(), "/gone", &[]).start, "HTTP/1.1 410 Gone");
    let mut client = Client::connect(proxy.addr());
    client.send("GET /silent HTTP/1.1\r\nHost: a\r\n\r\n");
    client.expect_close();
}

/// A client that holds the slot of a limit is served, and the next one is closed on.
#[test]
fn close_applies_to_concurrency_limits() {
    let (server, release) = Upstream::gated("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let proxy = Tidegate::start(&format!(
        "[limits.slots]\nalgorithm = \"concurrency\"\nmax_in_flight = 1\ndeny_status = \"close\"\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"slots\"]\nupstream = \"{}\"\n",
        server.url()
    ));
    let mut first = Client::connect(proxy.addr());
    first.send(GET);
    eventually("the server has the request", || server.received() == 1);
    let mut second = Client::connect(proxy.addr());
    second.send(GET);
    second.expect_close();
    release.send(()).unwrap();
    assert_eq!(first.read().text(), "ok");
}
