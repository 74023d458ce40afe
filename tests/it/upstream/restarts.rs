//! Requests that wait while no server answers.

use std::net::{SocketAddr, TcpListener};
use std::thread;

use super::setup::{OK, assert_bad_gateway, metric, started};
use crate::support::{Caller, Client, Tidegate, Upstream, eventually, free_address, get};

fn pending(proxy: &Tidegate) -> usize {
    metric(proxy, "pending_requests", "")
}

fn serving(address: SocketAddr, script: fn(&mut Caller)) -> Upstream {
    Upstream::listening(TcpListener::bind(address).unwrap(), script)
}

fn reliable(caller: &mut Caller) {
    while let Ok(Some(_)) = caller.request() {
        let _ = caller.try_send(OK);
    }
}

#[test]
fn requests_wait_for_a_server_that_restarts() {
    let address = free_address();
    let proxy = started(&format!("\"http://{address}\""), "retry_for = \"1m\"");
    let requests =
        ["GET / HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi"];
    let at = proxy.addr();
    let clients = requests.map(|request| thread::spawn(move || Client::connect(at).ask(request).status()));
    eventually("both requests wait", || pending(&proxy) == 2);
    let server = serving(address, reliable);
    assert_eq!(clients.map(|client| client.join().unwrap()), [200, 200]);
    assert_eq!(pending(&proxy), 0);
    let requests = server.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests.iter().any(|request| request.text() == "hi"));
    assert!(metric(&proxy, "retries_total", ",outcome=\"sent\"") >= 2);
}

#[test]
fn a_request_lost_with_its_connection_waits_only_if_it_is_idempotent() {
    // Each connection closes after its first request, the first one without a response.
    let dying = |caller: &mut Caller| {
        let _ = caller.request();
        if caller.number() > 0 {
            let _ = caller.try_send(OK);
        }
    };
    for (request, status) in [
        ("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", 200),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", 502),
    ] {
        let server = Upstream::scripted(dying);
        let proxy = started(&format!("\"{}\"", server.url()), "retry_for = \"1m\"");
        assert_eq!(Client::connect(proxy.addr()).ask(request).status(), status, "{request}");
    }
}

#[test]
fn the_wait_is_bounded_in_time_and_number() {
    let down = format!("\"http://{}\"", free_address());
    for settings in [
        "retry_for = \"100ms\"",
        "retry_for = \"1m\"\nmax_pending = 0",
        "retry_for = \"1m\"\ntotal_timeout = \"100ms\"",
    ] {
        let proxy = started(&down, settings);
        assert_bad_gateway(&get(proxy.addr(), "/", &[]), "the upstream can't be reached");
        assert_eq!(pending(&proxy), 0, "{settings}");
    }
}

#[test]
fn the_request_of_a_client_that_disconnects_waits_no_longer() {
    let proxy = started(&format!("\"http://{}\"", free_address()), "retry_for = \"1m\"");
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the request waits", || pending(&proxy) == 1);
    drop(client);
    eventually("it has been dropped", || pending(&proxy) == 0);
}
