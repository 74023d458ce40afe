//! HTTP/2 with upstream servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Response;
use tokio::sync::Barrier;

use super::*;
use crate::support::{Asked, Authority, Http2Server, patience};

/// A proxy in front of an HTTP/2 server, with these lines in its upstream. It has one worker, since workers share no
/// connections.
pub(super) fn proxy_for(url: &str, lines: &str) -> Tidegate {
    Tidegate::start(&format!(
        "workers = 1\n[upstreams.u]\nservers = [\"{url}\"]\nprotocol = \"h2\"\n{lines}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"u\"\n"
    ))
}

/// A response with this status, and without a body.
pub(super) fn status(status: u16) -> Response<()> {
    Response::builder().status(status).body(()).unwrap()
}

/// Responds with this text.
pub(super) fn respond_with((_request, mut respond): Asked, text: &'static str) {
    // The stream may be reset already.
    if let Ok(mut body) = respond.send_response(status(200), false) {
        let _ = body.send_data(Bytes::from_static(text.as_bytes()), true);
    }
}

#[test]
fn http_1_and_http_2_requests_share_an_upstream_connection() {
    let server = Http2Server::echo();
    let proxy = proxy_for(&server.url(), "");
    let response = Client::connect(proxy.addr())
        .ask("POST /a?b=c HTTP/1.1\r\nHost: h:1\r\nTE: trailers\r\nContent-Length: 4\r\n\r\nbody");
    let seen = response.echoed();
    assert_eq!(seen.start, "POST http://h:1/a?b=c HTTP/2.0");
    assert_eq!((seen.header("host"), seen.header("connection")), (None, None));
    assert_eq!((seen.header("te"), seen.header("content-length")), (Some("trailers"), Some("4")));
    assert_eq!((seen.header("x-forwarded-host"), seen.text()), (Some("h:1"), "body"));
    let client = Http2::connect(proxy.addr());
    client.block_on(async |sender| {
        let mut waiting = Vec::new();
        for number in 0..50 {
            let request = request("GET", &format!("/{number}")).body(()).unwrap();
            waiting.push(sender.send_request(request, true).unwrap().0);
        }
        for (number, response) in waiting.into_iter().enumerate() {
            let response = crate::support::http2::read(response.await.unwrap()).await.unwrap();
            assert!(response.text().starts_with(&format!("GET http://localhost/{number} HTTP/2.0")));
        }
    });
    assert_eq!(server.connections(), 1);
}

#[test]
fn bodies_and_trailers_stream_both_ways_at_once() {
    let server = Http2Server::start(h2::server::Builder::new(), None, |(request, mut respond)| async move {
        // The response begins before the request body, and echoes it.
        let mut upload = request.into_body();
        let mut body = respond.send_response(status(200), false).unwrap();
        while let Some(data) = upload.data().await {
            let data = data.unwrap();
            upload.flow_control().release_capacity(data.len()).unwrap();
            body.send_data(data, false).unwrap();
        }
        body.send_trailers(upload.trailers().await.unwrap().unwrap()).unwrap();
    });
    let proxy = proxy_for(&server.url(), "");
    let client = Http2::connect(proxy.addr());
    let trailers = client.block_on(async |sender| {
        let (response, mut say) = sender.send_request(request("POST", "/").body(()).unwrap(), false).unwrap();
        let mut heard = response.await.unwrap().into_body();
        for word in ["one", "two", "three"] {
            say.send_data(Bytes::from_static(word.as_bytes()), false).unwrap();
            assert_eq!(heard.data().await.unwrap().unwrap(), word);
        }
        let mut trailers = HeaderMap::new();
        for name in ["x-sum", "host", "content-length", "x-forwarded-for"] {
            trailers.insert(name, "7".parse().unwrap());
        }
        say.send_trailers(trailers).unwrap();
        assert!(heard.data().await.is_none());
        heard.trailers().await.unwrap().unwrap()
    });
    let names: Vec<_> = trailers.keys().map(http::HeaderName::as_str).collect();
    assert_eq!(names, ["x-sum"]);
}

#[test]
fn requests_above_max_concurrent_streams_are_answered() {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(3);
    // Requests are answered in groups of three, so as many must be open at once.
    let group = Arc::new(Barrier::new(3));
    let server = Http2Server::start(builder, None, move |asked| {
        let group = Arc::clone(&group);
        async move {
            group.wait().await;
            respond_with(asked, "done");
        }
    });
    let proxy = proxy_for(&server.url(), "");
    let client = Http2::connect(proxy.addr());
    client.block_on(async |sender| {
        let mut waiting = Vec::new();
        for _ in 0..30 {
            waiting.push(sender.send_request(request("GET", "/").body(()).unwrap(), true).unwrap().0);
        }
        for response in waiting {
            let answer = crate::support::http2::read(response.await.unwrap()).await.unwrap();
            assert_eq!((answer.status(), answer.text()), (200, "done"));
        }
    });
}

#[test]
fn a_server_with_one_stream_gets_a_connection_per_request() {
    let mut builder = h2::server::Builder::new();
    builder.max_concurrent_streams(1);
    let (report, paths) = std::sync::mpsc::channel();
    let report = std::sync::Mutex::new(report);
    let server = Http2Server::start(builder, None, move |asked| {
        let path = asked.0.uri().path().to_owned();
        report.lock().unwrap().send(path.clone()).unwrap();
        async move {
            if path == "/held" {
                std::future::pending::<()>().await;
            }
            respond_with(asked, "yes");
        }
    });
    let proxy = proxy_for(&server.url(), "");
    let mut held = Client::connect(proxy.addr());
    held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(paths.recv_timeout(patience()).unwrap(), "/held");
    assert_eq!(get(proxy.addr(), "/", &[]).text(), "yes");
    assert_eq!(server.connections(), 2);
}

#[test]
fn each_worker_has_a_connection_despite_max_connections() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let server = Http2Server::start(h2::server::Builder::new(), None, move |asked| {
        let is_held = asked.0.uri().path() == "/held";
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            if is_held {
                std::future::pending::<()>().await;
            }
            respond_with(asked, "yes");
        }
    });
    let proxy = Tidegate::start(&format!(
        "workers = 2\n[upstreams.u]\nservers = [\"{}\"]\nprotocol = \"h2\"\nmax_connections = 1\n\
         [[routes]]\npath = \"/*\"\nupstream = \"u\"\n",
        server.url()
    ));
    let mut held = Client::connect(proxy.addr());
    held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("one connection is busy", || asked.load(Ordering::SeqCst) == 1);
    for _ in 0..40 {
        assert_eq!(get(proxy.addr(), "/", &[]).text(), "yes");
    }
    assert_eq!(server.connections(), 2);
}

#[test]
fn an_aborted_request_body_does_not_count_against_the_server() {
    let server = Http2Server::echo();
    let proxy = Tidegate::start(&format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\nbody_timeout = \"300ms\"\n\
         [upstreams.u]\nservers = [\"{}\"]\nprotocol = \"h2\"\n\
         [[routes]]\npath = \"/*\"\nmax_body = 8\nupstream = \"u\"\n",
        server.url()
    ));
    for (chunk, status) in [("9\r\n123456789\r\n", 413), ("4\r\n1234\r\n", 408), ("x\r\n", 400)] {
        let mut client = Client::connect(proxy.addr());
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}"));
        assert_eq!(client.read().status(), status, "{chunk:?}");
    }
    let client = Http2::connect(proxy.addr());
    for (body, expected) in [("123456789", 413), ("1234", 408)] {
        let found = client.block_on(async |sender| {
            let (response, mut stream) =
                sender.send_request(request("POST", "/").body(()).unwrap(), false).unwrap();
            stream.send_data(Bytes::from_static(body.as_bytes()), false).unwrap();
            response.await.unwrap().status().as_u16()
        });
        assert_eq!(found, expected, "{body}");
    }
    // None of this counts as a failure of the server.
    let metrics = get(proxy.admin(), "/metrics", &[]);
    let row = metrics
        .text()
        .lines()
        .find(|row| row.contains("upstream_requests") && row.contains("\"connection_error\""));
    assert!(row.is_some_and(|row| row.ends_with(" 0")), "{}", metrics.text());
    assert_eq!(server.connections(), 1);
}

#[test]
fn goaway_loses_no_request() {
    let server =
        Http2Server::start(h2::server::Builder::new(), Some(3), |asked| async { respond_with(asked, "yes") });
    let proxy = proxy_for(&server.url(), "");
    let mut client = Client::connect(proxy.addr());
    for _ in 0..20 {
        assert_eq!(client.get("/", &[]).text(), "yes");
    }
    assert!(server.connections() >= 5, "{}", server.connections());
}

#[test]
fn a_silent_server_is_504_and_its_connection_is_replaced() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let server = Http2Server::start(h2::server::Builder::new(), None, move |asked| {
        let number = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            if number == 0 {
                std::future::pending::<()>().await;
            }
            respond_with(asked, "yes");
        }
    });
    let proxy = proxy_for(&server.url(), "response_timeout = \"1s\"");
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 504);
    assert_eq!(get(proxy.addr(), "/", &[]).text(), "yes");
    assert_eq!(server.connections(), 2);
}

#[test]
fn a_response_timeout_does_not_close_a_live_connection() {
    let server = Http2Server::start(h2::server::Builder::new(), None, |(request, mut respond)| async move {
        match request.uri().path() {
            "/never" => std::future::pending().await,
            "/events" => {
                let mut body = respond.send_response(status(200), false).unwrap();
                // Real time is tested: this stream shows that the connection is alive.
                while body.send_data(Bytes::from_static(b"x"), false).is_ok() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            _ => respond_with((request, respond), "yes"),
        }
    });
    let proxy = proxy_for(&server.url(), "response_timeout = \"1s\"\nmax_connections = 1");
    let mut events = Client::connect(proxy.addr());
    events.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(events.read_head().unwrap().unwrap().status(), 200);
    for _ in 0..2 {
        assert_eq!(get(proxy.addr(), "/never", &[]).status(), 504);
        assert_eq!(get(proxy.addr(), "/", &[]).text(), "yes");
    }
    assert_eq!(server.connections(), 1);
}

#[test]
fn stall_timeout_applies_to_bodies_but_not_to_event_streams() {
    let server = Http2Server::start(h2::server::Builder::new(), None, |(request, mut respond)| async move {
        let kind = request.uri().path().trim_start_matches('/').to_owned();
        let head = Response::builder().header("content-type", kind).body(()).unwrap();
        let mut body = respond.send_response(head, false).unwrap();
        body.send_data(Bytes::from_static(b"one"), false).unwrap();
        // Real time is tested: longer than the stall timeout.
        tokio::time::sleep(Duration::from_millis(900)).await;
        let _ = body.send_data(Bytes::from_static(b"two"), true);
    });
    let proxy = proxy_for(&server.url(), "stall_timeout = \"300ms\"");
    for (kind, whole) in [("text/plain", false), ("text/event-stream", true), ("application/grpc+x", true)] {
        let client = Http2::connect(proxy.addr());
        let response = client.try_ask(request("GET", &format!("/{kind}")).body(()).unwrap(), b"");
        assert_eq!(response.is_ok_and(|response| response.text() == "onetwo"), whole, "{kind}");
    }
}

#[test]
fn a_client_disconnect_resets_the_upstream_stream() {
    let (report, events) = std::sync::mpsc::channel();
    let report = std::sync::Mutex::new(report);
    let server = Http2Server::start(h2::server::Builder::new(), None, move |(_request, mut respond)| {
        let report = report.lock().unwrap().clone();
        async move {
            report.send("received").unwrap();
            let _ = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
            report.send("reset").unwrap();
        }
    });
    let proxy = proxy_for(&server.url(), "");
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(events.recv_timeout(patience()).unwrap(), "received");
    drop(client);
    assert_eq!(events.recv_timeout(patience()).unwrap(), "reset");
}

#[test]
fn health_checks_use_http_2() {
    let server = Http2Server::start(h2::server::Builder::new(), None, |(request, mut respond)| async move {
        let is_check = request.uri().path() == "/healthz" && request.uri().authority().is_some();
        respond.send_response(status(if is_check { 503 } else { 200 }), true).unwrap();
    });
    let health = "health = { path = \"/healthz\", interval = \"50ms\", unhealthy_after = 1 }";
    let proxy = proxy_for(&server.url(), health);
    proxy.wait_log("is unhealthy: the response is 503 Service Unavailable");
}

#[test]
fn total_timeout_includes_the_response_body() {
    let server = Http2Server::start(h2::server::Builder::new(), None, |(_, mut respond)| async move {
        let mut body = respond.send_response(status(200), false).unwrap();
        // Real time is tested: the body never stalls, and takes longer than the total timeout.
        for _ in 0..40 {
            let _ = body.send_data(Bytes::from_static(b"x"), false);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let _ = body.send_data(Bytes::new(), true);
    });
    let proxy = proxy_for(&server.url(), "total_timeout = \"500ms\"");
    let client = Http2::connect(proxy.addr());
    assert!(client.try_ask(request("GET", "/").body(()).unwrap(), b"").is_err());
}

#[test]
fn a_server_without_http_2_is_502_and_logged_once() {
    let server =
        Upstream::answering("HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    let proxy = proxy_for(&server.url(), "");
    for _ in 0..3 {
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 502);
    }
    let line = proxy.wait_log("is `protocol = \"h2\"` right for it?");
    assert!(line.contains("WARN") && line.contains(&server.url()["http://".len()..]), "{line}");
    assert_eq!(proxy.logged("right for it?"), 1);
    // Over TLS, ALPN fails before any request is sent.
    let authority = Authority::new();
    authority.sign("localhost");
    let tls = authority.listener("localhost");
    let server = Tidegate::start(&format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\nprotocols = [\"h1\"]\n{tls}\n\
         [[routes]]\npath = \"/\"\nrespond = {{ status = 200 }}\n"
    ));
    let trust =
        format!("tls = {{ ca = \"{}\", server_name = \"localhost\" }}", authority.file("ca.pem").display());
    let proxy = proxy_for(&format!("https://{}", server.addr()), &trust);
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 502);
    proxy.wait_log("the TLS handshake with ");
}
