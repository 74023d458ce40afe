//! Retries of requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::setup::{
    OK, PLAIN, among, assert_bad_gateway, ended, metric, refusing_url, started_with, with_servers,
};
use crate::support::{Caller, Client, Tidegate, Upstream, eventually, get};

#[test]
fn a_refused_connection_is_retried_on_another_server() {
    let server = Upstream::echo();
    let proxy = with_servers(&format!("\"{}\", \"{}\"", refusing_url(), server.url()), "");
    let mut client = Client::connect(proxy.addr());
    for _ in 0..4 {
        client.get("/", &[]).echoed();
        // Nothing was sent to the first server, so any request may be retried.
        let response = client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(response.echoed().text(), "hi");
    }
    assert_eq!(server.requests().len(), 8);
    let proxy = with_servers(&format!("\"{}\", \"{}\"", refusing_url(), refusing_url()), "");
    assert_bad_gateway(&get(proxy.addr(), "/", &[]), "the upstream can't be reached");
    let proxy = with_servers(&format!("\"{}\", \"{}\"", refusing_url(), server.url()), "retries = 0");
    let mut client = Client::connect(proxy.addr());
    assert_eq!([(); 4].map(|()| client.get("/", &[]).status()), [502, 200, 502, 200]);
}

/// Answers the first request of its first connection, and closes that on the second request. Runs `others` for other
/// connections.
fn closing_on_reuse(others: fn(&mut Caller)) -> Upstream {
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

/// RFC 9110 §9.2.2.
#[test]
fn idempotent_requests_lost_on_a_reused_connection_are_retried_once() {
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
        let server = closing_on_reuse(reliable);
        let proxy = with_servers(&format!("\"{}\"", server.url()), settings);
        let mut client = Client::connect(proxy.addr());
        assert_eq!(client.get("/", &[]).status(), 200);
        let response = client.ask(&request);
        let request = &request[..request.len().min(80)];
        assert_eq!(response.status(), status, "{request}");
        if status == 502 {
            assert_bad_gateway(&response, "the upstream sent no valid response");
        }
        let requests = server.requests();
        assert_eq!(requests.len(), seen, "{request}");
        assert!(requests[1..].iter().all(|sent| sent.body == requests[1].body), "{request}");
        assert_eq!(server.connections(), seen - 1, "{request}");
    }
}

#[test]
fn a_request_is_retried_once_and_only_before_a_response_begins() {
    let server = closing_on_reuse(|caller| drop(caller.request()));
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.get("/", &[]).status(), 200);
    assert_bad_gateway(&client.get("/", &[]), "the upstream sent no valid response");
    assert_eq!(server.requests().len(), 3);
    // Part of a response rules out a retry.
    let server = Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.try_send(OK);
        let _ = caller.request();
        let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-");
    });
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    assert_eq!(client.get("/", &[]).status(), 200);
    assert_bad_gateway(&client.get("/", &[]), "the upstream sent no valid response");
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn unanswered_idempotent_requests_are_retried_on_another_server() {
    let dying = Upstream::scripted(|caller| drop(caller.request()));
    let healthy = Upstream::echo();
    let settings = "eject = \"off\"\nretry_budget = 1.0";
    let proxy = among(&[&dying, &healthy], settings);
    for _ in 0..10 {
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    }
    assert!(!dying.requests().is_empty());
    let retried = ",outcome=\"sent\"";
    assert_eq!(metric(&proxy, "retries_total", retried), dying.requests().len());
    assert_eq!(metric(&proxy, "requests_total", &ended(&dying, "connection_error")), dying.requests().len());
    // A request that is not idempotent may have been processed already.
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    let statuses: Vec<u16> = (0..10).map(|_| Client::connect(proxy.addr()).ask(post).status()).collect();
    assert!(statuses.contains(&502) && statuses.contains(&200), "{statuses:?}");
    // At most `retries` times.
    let others = [(); 3].map(|()| Upstream::scripted(|caller| drop(caller.request())));
    for (retries, seen) in [(0, 1), (1, 2), (2, 3), (5, 3)] {
        let settings = format!("{settings}\nretries = {retries}\nbalance = \"least_requests\"");
        let before: usize = others.iter().map(|server| server.requests().len()).sum();
        let proxy = among(&[&others[0], &others[1], &others[2]], &settings);
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 502);
        let after: usize = others.iter().map(|server| server.requests().len()).sum();
        assert!(after - before >= seen && after - before <= retries + 1, "{retries}: {}", after - before);
    }
}

#[test]
fn retries_respect_retry_budget() {
    let (dying, healthy) = (Upstream::scripted(|caller| drop(caller.request())), Upstream::echo());
    // Without a budget, the minimum remains: a burst of ten retries for each worker, and one per second.
    let proxy = among(&[&dying, &healthy], "eject = \"off\"\nretry_budget = 0.0");
    let statuses: Vec<u16> = (0..100).map(|_| get(proxy.addr(), "/", &[]).status()).collect();
    let failed = statuses.iter().filter(|status| **status == 502).count();
    assert!(failed > 0 && statuses.contains(&200), "{statuses:?}");
    assert_eq!(metric(&proxy, "retries_total", ",outcome=\"over_budget\""), failed);
    let sent = metric(&proxy, "retries_total", ",outcome=\"sent\"");
    assert_eq!(sent + failed, dying.requests().len());
    assert!((20..45).contains(&sent), "{sent}");
}

/// The connection fails on reuse, while another request waits for a permit.
#[test]
fn a_retry_uses_a_new_connection_even_after_waiting() {
    let may_continue = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let gates = may_continue.clone();
    let server = Upstream::scripted(move |caller| {
        if !matches!(caller.request(), Ok(Some(_))) {
            return;
        }
        if caller.number() == 1 {
            eventually("the server may respond", || gates[1].load(Ordering::SeqCst));
        }
        let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        if let Ok(Some(_)) = caller.request()
            && caller.number() == 0
        {
            eventually("the server may close the connection", || gates[0].load(Ordering::SeqCst));
        }
    });
    let servers = format!("\"{}\"", server.url());
    let proxy = started_with(1, &servers, "max_connections = 1\npending_timeout = \"9s\"");
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    let mut clients = [(); 2].map(|()| Client::connect(proxy.addr()));
    let waits = || eventually("one request waits", || metric(&proxy, "pending_requests", "") == 1);
    clients[0].send(PLAIN);
    eventually("the first request reuses the idle connection", || server.requests().len() == 2);
    clients[1].send(PLAIN);
    waits();
    // The request that lost its connection waits behind the other one.
    may_continue[0].store(true, Ordering::SeqCst);
    eventually("the server has the other request", || server.requests().len() == 3);
    waits();
    may_continue[1].store(true, Ordering::SeqCst);
    assert_eq!(clients.map(|mut client| client.read().status()), [200, 200]);
    assert_eq!(server.connections(), 3);
}
