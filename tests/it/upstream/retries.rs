//! Retries: when a request is sent again, and when not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::setup::{
    OK, PLAIN, among, assert_bad_gateway, before, ended, metric, nobody, started_with, with_servers,
};
use crate::support::{Caller, Client, Upstream, eventually, get};

#[test]
fn a_dead_server_is_passed_over() {
    let server = Upstream::echo();
    let proxy = with_servers(&format!("\"{}\", \"{}\"", nobody(), server.url()), "");
    let mut client = Client::connect(proxy.addr());
    for _ in 0..4 {
        client.get("/", &[]).echoed();
        // Nothing of it was sent, so that it may be sent elsewhere, whatever it is.
        let answer = client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(answer.echoed().text(), "hi");
    }
    assert_eq!(server.requests().len(), 8);
    let proxy = with_servers(&format!("\"{}\", \"{}\"", nobody(), nobody()), "");
    assert_bad_gateway(&get(proxy.addr(), "/", &[]), "the upstream can't be reached");
    let proxy = with_servers(&format!("\"{}\", \"{}\"", nobody(), server.url()), "retries = 0");
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
        let proxy = with_servers(&format!("\"{}\"", server.url()), settings);
        let mut client = Client::connect(proxy.addr());
        assert_eq!(client.get("/", &[]).status(), 200);
        let answer = client.ask(&request);
        let request = &request[..request.len().min(80)];
        assert_eq!(answer.status(), status, "{request}");
        if status == 502 {
            assert_bad_gateway(&answer, "the upstream sent no valid response");
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
    assert_bad_gateway(&client.get("/", &[]), "the upstream sent no valid response");
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
    assert_bad_gateway(&client.get("/", &[]), "the upstream sent no valid response");
    assert_eq!(server.requests().len(), 2);
}

#[test]
fn what_got_no_answer_goes_to_another_server_if_that_is_safe() {
    let dying = Upstream::scripted(|caller| drop(caller.request()));
    let well = Upstream::echo();
    let settings = "eject = \"off\"\nretry_budget = 1.0";
    let proxy = among(&[&dying, &well], settings);
    for _ in 0..10 {
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    }
    assert!(!dying.requests().is_empty());
    let retried = ",outcome=\"sent\"";
    assert_eq!(metric(&proxy, "retries_total", retried), dying.requests().len());
    assert_eq!(metric(&proxy, "requests_total", &ended(&dying, "broken")), dying.requests().len());
    // What may have been done already is not done again.
    let post = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    let statuses: Vec<u16> = (0..10).map(|_| Client::connect(proxy.addr()).ask(post).status()).collect();
    assert!(statuses.contains(&502) && statuses.contains(&200), "{statuses:?}");
    // Several times, but not for ever.
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
fn retries_are_within_their_budget() {
    let (dying, well) = (Upstream::scripted(|caller| drop(caller.request())), Upstream::echo());
    // Nothing but what a quiet proxy may do: ten at once for each worker, and one a second.
    let proxy = among(&[&dying, &well], "eject = \"off\"\nretry_budget = 0.0");
    let statuses: Vec<u16> = (0..100).map(|_| get(proxy.addr(), "/", &[]).status()).collect();
    let refused = statuses.iter().filter(|status| **status == 502).count();
    assert!(refused > 0 && statuses.contains(&200), "{statuses:?}");
    assert_eq!(metric(&proxy, "retries_total", ",outcome=\"over_budget\""), refused);
    let sent = metric(&proxy, "retries_total", ",outcome=\"sent\"");
    assert_eq!(sent + refused, dying.requests().len());
    assert!((20..45).contains(&sent), "{sent}");
}

/// Connections that die of their second request: what waits must not be sent again over one that is handed on.
#[test]
fn a_second_try_has_a_new_connection_even_after_a_wait() {
    let may_go_on = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let gates = may_go_on.clone();
    let server = Upstream::scripted(move |caller| {
        if !matches!(caller.request(), Ok(Some(_))) {
            return;
        }
        if caller.number() == 1 {
            eventually("it may answer", || gates[1].load(Ordering::SeqCst));
        }
        let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        if let Ok(Some(_)) = caller.request()
            && caller.number() == 0
        {
            eventually("it may close", || gates[0].load(Ordering::SeqCst));
        }
    });
    let servers = format!("\"{}\"", server.url());
    let proxy = started_with(1, &servers, "max_connections = 1\npending_timeout = \"9s\"");
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    let mut clients = [(); 2].map(|()| Client::connect(proxy.addr()));
    let waits = || eventually("one waits", || metric(&proxy, "pending", "") == 1);
    clients[0].send(PLAIN);
    eventually("it has the connection that was kept", || server.requests().len() == 2);
    clients[1].send(PLAIN);
    waits();
    // What had the dead one goes to the end of the line.
    may_go_on[0].store(true, Ordering::SeqCst);
    eventually("the other one is there", || server.requests().len() == 3);
    waits();
    may_go_on[1].store(true, Ordering::SeqCst);
    assert_eq!(clients.map(|mut client| client.read().status()), [200, 200]);
    assert_eq!(server.connections(), 3);
}
