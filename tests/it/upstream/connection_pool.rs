//! Pools of connections to upstream servers: reuse, bounds, waiting.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::setup::{OK, before, with_servers};
use crate::support::{Client, Upstream, eventually, get};

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
fn a_kept_connection_that_has_ended_costs_no_request() {
    for settings in ["", "retries = 0"] {
        let server = Upstream::scripted(|caller| {
            let _ = caller.request();
            let _ = caller.try_send(OK);
        });
        let proxy = with_servers(&format!("\"{}\"", server.url()), settings);
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
        let proxy = with_servers(&format!("\"{}\"", server.url()), "retries = 0");
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
