//! What goes upstream and what comes back, byte for byte, and which server it goes to.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{Caller, Client, Message, Tidegate, Upstream, eventually, get};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A proxy that sends everything to one place.
fn before(upstream: &str, settings: &str) -> Tidegate {
    Tidegate::start(&format!("{settings}\n[[routes]]\npath = \"/*\"\nupstream = \"{upstream}\"\n"))
}

/// The same with these lines in its route.
fn with_route(upstream: &str, lines: &str) -> Tidegate {
    Tidegate::start(&format!("[[routes]]\npath = \"/*\"\nupstream = \"{upstream}\"\n{lines}\n"))
}

/// An address where nobody listens.
fn nobody() -> String {
    format!("http://{}", TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap())
}

#[track_caller]
fn assert_bad_gateway(answer: &Message, detail: &str) {
    assert_eq!(answer.start, "HTTP/1.1 502 Bad Gateway");
    let body = format!(r#"{{"type":"about:blank","title":"Bad Gateway","status":502,"detail":"{detail}"}}"#);
    assert_eq!(answer.text(), body + "\n");
}

#[test]
fn a_plain_request_gets_who_asks_and_nothing_else() {
    let server = Upstream::echo();
    let proxy = before(&server.url(), "");
    let answer = get(proxy.addr(), "/a?b", &["Host: a.test:80", "Accept: x/y", "X-Odd:  two words "]);
    let mut received = answer.echoed();
    assert_eq!(received.start, "GET /a?b HTTP/1.1");
    received.headers.sort();
    let [id, via] = ["x-request-id", "via"].map(|name| received.header(name).unwrap().to_owned());
    let expected = [
        ("accept", "x/y"),
        ("forwarded", "for=127.0.0.1;host=\"a.test:80\";proto=http"),
        ("host", "a.test:80"),
        ("via", &*via),
        ("x-forwarded-for", "127.0.0.1"),
        ("x-forwarded-host", "a.test:80"),
        ("x-forwarded-proto", "http"),
        ("x-odd", "two words"),
        ("x-request-id", &*id),
    ];
    assert_eq!(received.headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    assert_eq!(received.body, b"");
}

#[test]
fn hop_by_hop_headers_of_a_request_stay_here() {
    let server = Upstream::echo();
    let proxy = before(&server.url(), "");
    let mut client = Client::connect(proxy.addr());
    let answer = client.ask(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\
         Connection: X-Secret, Host, keep-alive, content-length\r\nConnection: x-other ,,Upgrade, HTTP2-Settings, x-forwarded-for\r\n\
         X-Secret: 1\r\nX-Other: 2\r\nKeep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nTE: gzip\r\n\
         Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nProxy-Authorization: Basic eDp5\r\n\
         Proxy-Authenticate: Basic\r\nX-Kept: 3\r\n\r\nhi",
    );
    let received = answer.echoed();
    let expected = [
        "content-length",
        "forwarded",
        "host",
        "via",
        "x-forwarded-for",
        "x-forwarded-host",
        "x-forwarded-proto",
        "x-kept",
        "x-request-id",
    ];
    assert_eq!(received.names(), expected);
    assert_eq!((received.header("host"), received.header("x-forwarded-for")), (Some("a"), Some("127.0.0.1")));
    assert_eq!(received.text(), "hi");
    // `close` is meant for the proxy: the connection upstream is kept.
    let answer = client.get("/", &["Connection: close"]);
    assert_eq!(answer.echoed().all("connection"), Vec::<&str>::new());
    assert_eq!(answer.header("connection"), Some("close"));
    client.expect_close();
    assert_eq!(get(proxy.addr(), "/", &["TE: trailers, gzip"]).echoed().header("te"), Some("trailers"));
    assert_eq!(server.connections(), 1);
}

#[test]
fn hop_by_hop_headers_of_a_response_stay_here() {
    let server = Upstream::answering(
        "HTTP/1.1 200 Fine\r\nContent-Length: 2\r\nConnection: X-Hop, keep-alive\r\nConnection: x-pop\r\nX-Hop: 1\r\nX-Pop: 2\r\n\
         Keep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\nProxy-Connection: close\r\nUpgrade: h2c\r\nTE: x\r\n\
         Trailer: X-Sum, Content-Length\r\nServer: theirs\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n\r\nok",
    );
    let proxy = before(&server.url(), "");
    let mut client = Client::connect(proxy.addr());
    for _ in 0..2 {
        let answer = client.get("/", &[]);
        assert_eq!(answer.status(), 200);
        assert_eq!(
            answer.names(),
            ["content-length", "date", "server", "set-cookie", "set-cookie", "trailer", "x-request-id"]
        );
        assert_eq!(answer.all("set-cookie"), ["a=1", "b=2"]);
        assert_eq!(answer.header("server"), Some("theirs"));
        assert_eq!(answer.header("trailer"), Some("x-sum"));
        assert_eq!(answer.header("date"), Some("Thu, 01 Jan 1970 00:00:00 GMT"));
        assert_eq!(answer.text(), "ok");
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_server_that_closes_does_not_close_the_client() {
    let server = Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.try_send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
    });
    let proxy = before(&server.url(), "");
    let mut client = Client::connect(proxy.addr());
    for count in 1..=3 {
        let answer = client.get("/", &[]);
        assert_eq!((answer.status(), answer.header("connection")), (200, None));
        assert_eq!(server.connections(), count);
    }
}

#[test]
fn a_response_without_length_ends_with_its_connection() {
    let server = Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.try_send("HTTP/1.1 200 OK\r\n\r\nsome text");
    });
    let proxy = before(&server.url(), "");
    let mut client = Client::connect(proxy.addr());
    for _ in 0..2 {
        let answer = client.get("/", &[]);
        assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
        assert_eq!(answer.text(), "some text");
    }
}

#[test]
fn strangers_are_introduced_and_trusted_proxies_believed() {
    const CLAIMS: [&str; 6] = [
        "Host: a.test",
        "X-Forwarded-For: 203.0.113.9, 10.0.0.1",
        "X-Forwarded-For: 10.0.0.2",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Host: real.test",
        "Forwarded: for=203.0.113.9;proto=https, for=10.0.0.2",
    ];
    let server = Upstream::echo();
    let proxy = before(&server.url(), "[client_ip]\ntrusted_proxies = [\"127.0.0.1\"]\n");
    let trusted = get(proxy.addr(), "/", &CLAIMS).echoed();
    assert_eq!(trusted.header("x-forwarded-for"), Some("203.0.113.9, 10.0.0.1, 10.0.0.2, 127.0.0.1"));
    assert_eq!(trusted.header("x-forwarded-proto"), Some("https"));
    assert_eq!(trusted.header("x-forwarded-host"), Some("real.test"));
    // 10.0.0.2 is no trusted proxy, so it is the client.
    let chain = "for=10.0.0.2;host=\"real.test\";proto=https, for=127.0.0.1;host=\"a.test\";proto=http";
    assert_eq!(trusted.header("forwarded"), Some(chain));
    let silent = get(proxy.addr(), "/", &["Host: a.test"]).echoed();
    assert_eq!(silent.header("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(silent.header("x-forwarded-proto"), Some("http"));
    assert_eq!(silent.header("x-forwarded-host"), Some("a.test"));
    let stranger = Client::connect_from("127.0.0.2", proxy.addr()).get("/", &CLAIMS).echoed();
    assert_eq!(stranger.header("x-forwarded-for"), Some("127.0.0.2"));
    assert_eq!(stranger.header("x-forwarded-proto"), Some("http"));
    assert_eq!(stranger.header("x-forwarded-host"), Some("a.test"));
    assert_eq!(stranger.header("forwarded"), Some("for=127.0.0.2;host=\"a.test\";proto=http"));
}

#[test]
fn a_header_that_only_proxies_may_set_is_taken_from_strangers() {
    let server = Upstream::echo();
    let settings = "[client_ip]\ntrusted_proxies = [\"127.0.0.1\"]\nheader = \"cf-connecting-ip\"\n";
    let proxy = before(&server.url(), settings);
    let line = "CF-Connecting-IP: 203.0.113.9";
    let trusted = get(proxy.addr(), "/", &[line]).echoed();
    assert_eq!(trusted.header("cf-connecting-ip"), Some("203.0.113.9"));
    let stranger = Client::connect_from("127.0.0.2", proxy.addr()).get("/", &[line]).echoed();
    assert_eq!(stranger.header("cf-connecting-ip"), None);
}

#[test]
fn the_host_upstream_is_the_one_that_is_wanted() {
    let server = Upstream::echo();
    let own = server.addr().to_string();
    for (rule, expected) in [
        ("", "Client.test:99"),
        ("rewrite = { host = \"upstream\" }", &own),
        ("rewrite = { host = \"Named.test:8\" }", "Named.test:8"),
    ] {
        let proxy = with_route(&server.url(), rule);
        let received = get(proxy.addr(), "/", &["Host: Client.test:99"]).echoed();
        assert_eq!(received.header("host"), Some(expected), "{rule}");
        assert_eq!(received.header("x-forwarded-host"), Some("Client.test:99"));
    }
    let proxy = with_route(&server.url(), "");
    let received = get(proxy.addr(), "http://Target.test:7/x", &["Host: other.test"]).echoed();
    assert_eq!((&*received.start, received.header("host")), ("GET /x HTTP/1.1", Some("Target.test:7")));
    assert_eq!(received.header("x-forwarded-host"), Some("Target.test:7"));
    assert_eq!(received.header("forwarded"), Some("for=127.0.0.1;host=\"Target.test:7\";proto=http"));
    // HTTP/1.0 may name none, and HTTP/1.1 must.
    let received = Client::connect(proxy.addr()).ask("GET / HTTP/1.0\r\n\r\n").echoed();
    assert_eq!((&*received.start, received.header("host")), ("GET / HTTP/1.1", Some(&*own)));
}

#[test]
fn a_servers_reason_phrase_is_passed_on() {
    for phrase in ["OK", "Fine", ""] {
        let server = Upstream::answering(format!("HTTP/1.1 200 {phrase}\r\nContent-Length: 0\r\n\r\n"));
        let proxy = before(&server.url(), "");
        let answer = get(proxy.addr(), "/", &["Host: a"]);
        assert_eq!(answer.start.trim_end(), format!("HTTP/1.1 200 {phrase}").trim_end());
    }
}

#[test]
fn paths_are_rewritten_by_whole_segments() {
    let server = Upstream::echo();
    let base = format!("{}/base/", server.url());
    for (upstream, lines, sent, received) in [
        (&server.url(), "rewrite = { strip_prefix = \"/v1\" }", "/v1/a?b", "/a?b"),
        (&server.url(), "rewrite = { strip_prefix = \"/v1\" }", "/v1?b", "/?b"),
        (&server.url(), "rewrite = { strip_prefix = \"/v1\" }", "/v1/", "/"),
        (&server.url(), "rewrite = { strip_prefix = \"/v1\" }", "/v12/a", "/v12/a"),
        (&server.url(), "rewrite = { strip_prefix = \"/v1\" }", "/x/../v1/a", "/a"),
        (&server.url(), "rewrite = { strip_prefix = \"/v1\" }", "/v1//../v1/a", "/a"),
        (&base, "", "/a?b", "/base/a?b"),
        (&base, "", "/", "/base/"),
        (&base, "", "/../a", "/base/a"),
        (&base, "rewrite = { strip_prefix = \"/v1\" }", "/v1/a", "/base/a"),
    ] {
        let proxy = with_route(upstream, lines);
        let start = get(proxy.addr(), sent, &[]).echoed().start;
        assert_eq!(start, format!("GET {received} HTTP/1.1"), "{sent} with {lines}");
    }
}

#[test]
fn headers_are_set_and_removed_both_ways() {
    let server = Upstream::answering(
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nServer: x\r\nX-Powered-By: y\r\nCache-Control: public\r\nCache-Control: a\r\n\r\n",
    );
    let proxy = with_route(
        &server.url(),
        "request_headers = { set = { x-gate = \"tidegate\", x-both = \"set\", x-forwarded-proto = \"https\" }, remove = [\"X-Internal\", \"x-both\", \"forwarded\"] }\n\
         response_headers = { set = { cache-control = \"no-store\" }, remove = [\"Server\", \"x-powered-by\"] }",
    );
    let answer = get(proxy.addr(), "/", &["X-Internal: 1", "x-internal: 2", "X-Both: 3", "X-Gate: 4"]);
    assert_eq!(answer.names(), ["cache-control", "content-length", "date", "x-request-id"]);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let received = &server.requests()[0];
    assert_eq!(received.header("x-gate"), Some("tidegate"));
    assert_eq!(received.header("x-both"), Some("set"));
    assert_eq!(received.header("x-forwarded-proto"), Some("https"));
    assert_eq!((received.header("x-internal"), received.header("forwarded")), (None, None));
}

/// `[upstreams.many]` with these servers, and a route to it.
/// A client's connection outlives a server that is not there, or it is told that it does not.
#[test]
fn who_sends_a_body_for_nothing_hears_what_becomes_of_the_connection() {
    let deaf = Upstream::scripted(|caller| {
        let _ = caller.read_head();
    });
    let long = "x".repeat(1024 * 1024);
    for (upstream, framing, body, goes_on) in [
        (&nobody(), "Content-Length: 2", "hi", true),
        (&nobody(), "Content-Length: 1048576", &*long, false),
        (&nobody(), "Transfer-Encoding: chunked", "2\r\nhi\r\n0\r\n\r\n", false),
        (&deaf.url(), "Content-Length: 1048576", &*long, false),
    ] {
        let proxy = before(upstream, "");
        let mut client = Client::connect(proxy.addr());
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
        // So that the body comes when the server is known to be away.
        std::thread::sleep(Duration::from_millis(50));
        let _ = client.try_send(body);
        let answer = client.read();
        assert_eq!(
            (answer.status(), answer.header("connection")),
            (502, (!goes_on).then_some("close")),
            "{framing}"
        );
        if goes_on {
            assert_eq!(client.get("/", &[]).status(), 502);
        }
    }
}

fn among(servers: &str, settings: &str) -> Tidegate {
    Tidegate::start(&format!(
        "[upstreams.many]\nservers = [{servers}]\n{settings}\n[[routes]]\npath = \"/*\"\nupstream = \"many\"\n"
    ))
}

#[test]
fn servers_take_turns_by_their_weight() {
    let servers = [(); 3].map(|()| Upstream::echo());
    let [one, two, three] = [&servers[0], &servers[1], &servers[2]].map(Upstream::url);
    let list = format!("\"{one}\", {{ url = \"{two}\", weight = 2 }}, {{ url = \"{three}/base\" }}");
    let proxy = among(&list, "");
    let mut client = Client::connect(proxy.addr());
    let paths: Vec<String> = (0..8).map(|_| client.get("/x", &[]).echoed().start).collect();
    assert_eq!(servers.each_ref().map(|server| server.requests().len()), [2, 4, 2]);
    assert_eq!(paths.iter().filter(|start| *start == "GET /base/x HTTP/1.1").count(), 2);
    // Each has one connection, which it keeps.
    assert_eq!(servers.each_ref().map(Upstream::connections), [1, 1, 1]);
}

#[test]
fn a_dead_server_is_passed_over() {
    let server = Upstream::echo();
    let proxy = among(&format!("\"{}\", \"{}\"", nobody(), server.url()), "");
    let mut client = Client::connect(proxy.addr());
    for _ in 0..4 {
        client.get("/", &[]).echoed();
        // Nothing of it was sent, so that it may be sent elsewhere, whatever it is.
        let answer = client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(answer.echoed().text(), "hi");
    }
    assert_eq!(server.requests().len(), 8);
    let proxy = among(&format!("\"{}\", \"{}\"", nobody(), nobody()), "");
    assert_bad_gateway(&get(proxy.addr(), "/", &[]), "the upstream can't be reached");
    let proxy = among(&format!("\"{}\", \"{}\"", nobody(), server.url()), "retries = 0");
    let mut client = Client::connect(proxy.addr());
    assert_eq!([(); 4].map(|()| client.get("/", &[]).status()), [502, 200, 502, 200]);
}

/// Answers the first request of its first connection, and closes that when the second arrives. Other
/// connections do what `others` says.
fn forgetful(others: fn(&mut Caller)) -> Upstream {
    Upstream::scripted(move |caller| {
        if caller.number() > 0 {
            return others(caller);
        }
        let _ = caller.request();
        let _ = caller.try_send(OK);
        let _ = caller.request();
    })
}

fn reliable(caller: &mut Caller) {
    while let Ok(Some(_)) = caller.request() {
        let _ = caller.try_send(OK);
    }
}

#[test]
fn what_is_lost_on_a_kept_connection_is_sent_again_once_if_that_is_safe() {
    let plain = |method: &str| format!("{method} /x HTTP/1.1\r\nHost: a\r\n\r\n");
    let with = |method: &str, length: usize| {
        let body = "x".repeat(length);
        format!("{method} /x HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    for (request, settings, status, seen) in [
        (plain("GET"), "", 200, 3),
        (plain("HEAD"), "", 200, 3),
        (plain("DELETE"), "", 200, 3),
        (plain("GET"), "retries = 0", 502, 2),
        (plain("POST"), "", 502, 2),
        (plain("PATCH"), "", 502, 2),
        (with("POST", 2), "", 502, 2),
        (with("PUT", 2), "", 200, 3),
        (with("PUT", 65_536), "", 200, 3),
        (with("PUT", 65_537), "", 502, 2),
    ] {
        let server = forgetful(reliable);
        let proxy = among(&format!("\"{}\"", server.url()), settings);
        let mut client = Client::connect(proxy.addr());
        assert_eq!(client.get("/", &[]).status(), 200);
        let answer = client.ask(&request);
        let request = &request[..request.len().min(80)];
        assert_eq!(answer.status(), status, "{request}");
        if status == 502 {
            assert_bad_gateway(&answer, "the upstream gave no valid response");
        }
        let requests = server.requests();
        assert_eq!(requests.len(), seen, "{request}");
        assert!(requests[1..].iter().all(|sent| sent.body == requests[1].body), "{request}");
        assert_eq!(server.connections(), seen - 1, "{request}");
    }
}

#[test]
fn a_request_is_sent_again_only_once_and_only_if_nothing_was_answered() {
    let server = forgetful(|caller| drop(caller.request()));
    let proxy = before(&server.url(), "");
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.get("/", &[]).status(), 200);
    assert_bad_gateway(&client.get("/", &[]), "the upstream gave no valid response");
    assert_eq!(server.requests().len(), 3);
    // Half of an answer is an answer.
    let server = Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.try_send(OK);
        let _ = caller.request();
        let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-");
    });
    let proxy = before(&server.url(), "");
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.get("/", &[]).status(), 200);
    assert_bad_gateway(&client.get("/", &[]), "the upstream gave no valid response");
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn a_kept_connection_that_has_ended_costs_no_request() {
    for settings in ["", "retries = 0"] {
        let server = Upstream::scripted(|caller| {
            let _ = caller.request();
            let _ = caller.try_send(OK);
        });
        let proxy = among(&format!("\"{}\"", server.url()), settings);
        let mut client = Client::connect(proxy.addr());
        for count in 1..=5 {
            let answer = client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
            assert_eq!(answer.status(), 200, "{settings}");
            assert_eq!(server.requests().len(), count);
            eventually("the server has closed", || server.open() == 0);
        }
    }
}

#[test]
fn an_answer_that_ends_in_more_than_one_place_is_502() {
    for framing in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: gzip",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n6\r\nhello!\r\n0\r\n\r\n");
        let server = Upstream::answering(answer);
        let proxy = Tidegate::start(&format!("[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url()));
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 502, "{framing}");
    }
}

/// A character that must be escaped takes three: what no longer fits into a target must not go on as it came.
#[test]
fn a_path_that_grows_too_long_is_refused() {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&format!(
        "[[routes]]\npath = \"/s/*\"\nrewrite = {{ strip_prefix = \"/s\" }}\nupstream = \"{}\"\n",
        server.url()
    ));
    let quotes = |count| format!("/s/zz/..//{}", "\"".repeat(count));
    assert_eq!(get(proxy.addr(), &quotes(100), &[]).status(), 200);
    assert_eq!(get(proxy.addr(), &quotes(31_000), &[]).status(), 400);
    assert_eq!(server.requests().len(), 1);
    assert!(server.requests()[0].start.starts_with("GET /%22%22"));
}

#[test]
fn an_upstream_that_switches_protocols_unasked_is_502() {
    let server = Upstream::answering(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
    );
    let proxy = before(&server.url(), "");
    let mut client = Client::connect(proxy.addr());
    for headers in [&[][..], &["Connection: upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]] {
        assert_bad_gateway(&client.get("/", headers), "the upstream switched protocols unasked");
    }
    assert!(server.requests().iter().all(|request| request.header("upgrade").is_none()));
    assert_eq!(server.connections(), 2);
}

#[test]
fn interim_responses_are_not_the_answer() {
    let server = Upstream::answering(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    );
    let proxy = before(&server.url(), "");
    let mut client = Client::connect(proxy.addr());
    for _ in 0..2 {
        let answer = client.get("/", &[]);
        assert_eq!((answer.status(), answer.text(), answer.header("link")), (200, "ok", None));
    }
}

#[test]
fn interim_responses_without_end_are_no_answer() {
    let server = Upstream::scripted(|caller| {
        let _ = caller.request();
        while caller.try_send("HTTP/1.1 102 Processing\r\n\r\n".repeat(50)).is_ok() {}
    });
    let proxy = before(&server.url(), "");
    let answer = get(proxy.addr(), "/", &[]);
    assert_bad_gateway(&answer, "the upstream gave no valid response");
    eventually("the connection is given up", || server.open() == 0);
}

#[test]
fn bytes_that_nobody_asked_for_reach_nobody() {
    const POISON: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    // In one piece with the answer; and later, when the connection is idle.
    for is_late in [false, true] {
        let sent = Arc::new(AtomicBool::new(false));
        let note = Arc::clone(&sent);
        let server = Upstream::scripted(move |caller| {
            let _ = caller.request();
            if is_late {
                let _ = caller.try_send(OK);
                // The proxy must have put the connection aside; that it has, nothing tells outside.
                std::thread::sleep(std::time::Duration::from_millis(200));
                let _ = caller.try_send(POISON);
            } else {
                let _ = caller.try_send(format!("{OK}{POISON}"));
            }
            note.store(true, Ordering::SeqCst);
            while let Ok(Some(_)) = caller.request() {
                let _ = caller.try_send("HTTP/1.1 500 Reused\r\nContent-Length: 0\r\n\r\n");
            }
        });
        // Without a second try: it must be seen before the next request is sent.
        let proxy = among(&format!("\"{}\"", server.url()), "retries = 0");
        for count in 1..=3 {
            let answer = get(proxy.addr(), "/", &[]);
            assert_eq!((answer.status(), answer.text()), (200, "ok"), "late: {is_late}");
            eventually("the stray bytes are sent", || sent.swap(false, Ordering::SeqCst));
            assert_eq!(server.connections(), count);
        }
    }
}

#[test]
fn connections_are_kept_and_shared_by_clients() {
    let server = Upstream::echo();
    let proxy = before(&server.url(), "");
    for _ in 0..5 {
        get(proxy.addr(), "/", &[]).echoed();
        Client::connect(proxy.addr())
            .ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")
            .echoed();
    }
    assert_eq!((server.connections(), server.requests().len()), (1, 10));
}
