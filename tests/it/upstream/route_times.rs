//! Timeouts and retries of a route, in place of those of its upstream.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::Response;
use tokio::sync::Semaphore;

use super::setup::refusing_url;
use crate::support::{Client, Http2Server, Tidegate, Upstream, assert_problem, get, patience};

/// Two routes to one upstream with these keys, of which `/own` has its own.
fn two_routes(url: &str, upstream: &str, own: &str) -> Tidegate {
    Tidegate::start(&format!(
        "workers = 1\n[upstreams.u]\nservers = [\"{url}\"]\n{upstream}\n\
         [[routes]]\npath = \"/own\"\nupstream = \"u\"\n{own}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"u\"\n"
    ))
}

/// A server that sends `first` at once, and `rest` after a message on the channel, but only for the path `/waits` or `/own`.
fn waiting(first: &'static str, rest: &'static str) -> (Upstream, Sender<()>) {
    let (release, released) = channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let server = Upstream::scripted(move |caller| {
        while let Ok(Some(request)) = caller.request() {
            if request.start.contains("/never") {
                // Until the proxy closes the connection.
                let _ = caller.try_send(first);
                let _ = caller.request();
                return;
            }
            let _ = caller.try_send(first);
            let _ = released.lock().unwrap().recv_timeout(patience());
            let _ = caller.try_send(rest);
        }
    });
    (server, release)
}

const WHOLE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n.";

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

#[test]
fn a_route_waits_longer_for_a_response_than_its_upstream() {
    let (server, release) = waiting("", WHOLE);
    let proxy = two_routes(&server.url(), "response_timeout = \"300ms\"", "response_timeout = \"1h\"");
    let mut patient = Client::connect(proxy.addr());
    patient.send(request("/own"));
    // This request is sent later, and times out before the other one has its response.
    let response = get(proxy.addr(), "/never", &[]);
    assert_problem(&response, 504, "Gateway Timeout", "the upstream did not respond in time");
    release.send(()).unwrap();
    assert_eq!(patient.read().text(), "ok");
}

#[test]
fn a_route_waits_less_for_a_response_than_its_upstream_on_the_same_connection() {
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            if request.start.contains("/own") {
                let _ = caller.request();
                return;
            }
            let _ = caller.try_send(WHOLE);
        }
    });
    let proxy = two_routes(&server.url(), "", "response_timeout = \"300ms\"");
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.get("/", &[]).text(), "ok");
    assert_eq!(client.get("/own", &[]).status(), 504);
    assert_eq!(server.connections(), 1);
    // The next connection is one for both routes as well.
    assert_eq!(client.get("/", &[]).text(), "ok");
    assert_eq!(client.get("/own", &[]).status(), 504);
    assert_eq!(server.connections(), 2);
}

#[test]
fn a_route_has_its_own_stall_and_total_timeouts() {
    for (upstream, own) in [
        ("stall_timeout = \"300ms\"", "stall_timeout = \"1h\""),
        ("total_timeout = \"300ms\"", "total_timeout = \"off\""),
        ("total_timeout = \"300ms\"", "total_timeout = \"1h\""),
    ] {
        let (server, release) = waiting(HEAD, "..");
        let proxy = two_routes(&server.url(), upstream, own);
        let mut patient = Client::connect(proxy.addr());
        patient.send(request("/own"));
        assert_eq!(patient.read_head().unwrap().unwrap().status(), 200, "{own}");
        let mut cut = Client::connect(proxy.addr());
        cut.send(request("/never"));
        assert_eq!(cut.read_head().unwrap().unwrap().status(), 200, "{own}");
        assert_eq!(cut.read_to_close(), b".", "{own}");
        release.send(()).unwrap();
        assert_eq!(patient.take(3).unwrap(), b"...", "{own}");
    }
}

#[test]
fn a_route_has_its_own_retries() {
    for (upstream, own, expected) in
        [("", "retries = 0", [502, 200, 502, 200]), ("retries = 0", "retries = 1", [200; 4])]
    {
        let server = Upstream::answering(WHOLE);
        let servers = format!("{}\", \"{}", refusing_url(), server.url());
        let upstream = format!("{upstream}\neject = \"off\"");
        let proxy = two_routes(&servers, &upstream, own);
        let mut client = Client::connect(proxy.addr());
        assert_eq!([(); 4].map(|()| client.get("/own", &[]).status()), expected, "{own}");
        let others = [(); 4].map(|()| client.get("/", &[]).status());
        assert_ne!(others, expected, "{own}");
    }
}

#[test]
fn streams_of_one_connection_have_the_timeouts_of_their_routes() {
    let released = Arc::new(Semaphore::new(0));
    let release = Arc::clone(&released);
    let server = Http2Server::start(h2::server::Builder::new(), None, move |(request, mut respond)| {
        let released = Arc::clone(&released);
        async move {
            let is_stalled = request.uri().query() == Some("stall");
            let mut body = None;
            if is_stalled {
                let mut stream = respond.send_response(Response::new(()), false).unwrap();
                let _ = stream.send_data(Bytes::from_static(b"."), false);
                body = Some(stream);
            }
            if request.uri().path() != "/own" {
                return std::future::pending().await;
            }
            released.acquire().await.unwrap().forget();
            let mut body = body.unwrap_or_else(|| respond.send_response(Response::new(()), false).unwrap());
            let _ = body.send_data(Bytes::from_static(b"ok"), true);
        }
    });
    let upstream = "protocol = \"h2\"\nresponse_timeout = \"300ms\"\nstall_timeout = \"300ms\"";
    let proxy = two_routes(&server.url(), upstream, "response_timeout = \"1h\"\nstall_timeout = \"1h\"");
    let (mut waits, mut stalls) = (Client::connect(proxy.addr()), Client::connect(proxy.addr()));
    waits.send(request("/own"));
    stalls.send(request("/own?stall"));
    assert_eq!(stalls.read_head().unwrap().unwrap().status(), 200);
    assert_eq!(get(proxy.addr(), "/never", &[]).status(), 504);
    let mut cut = Client::connect(proxy.addr());
    cut.send(request("/never?stall"));
    assert_eq!(cut.read_head().unwrap().unwrap().status(), 200);
    assert_eq!(cut.read_chunk().unwrap(), b".");
    cut.expect_close();
    release.add_permits(2);
    assert_eq!(waits.read().text(), "ok");
    assert_eq!(stalls.read_chunk().unwrap(), b".");
    assert_eq!(stalls.read_chunk().unwrap(), b"ok");
}
