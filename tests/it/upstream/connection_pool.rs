//! Reuse of connections to upstream servers.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use super::setup::{OK, with_servers};
use crate::support::{Client, Tidegate, Upstream, eventually, get, patience};

#[test]
fn connection_close_of_a_server_keeps_the_client_connection() {
    let server = Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.try_send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
    });
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    for count in 1..=3 {
        let response = client.get("/", &[]);
        assert_eq!((response.status(), response.header("connection")), (200, None));
        assert_eq!(server.connections(), count);
    }
}

#[test]
fn a_closed_idle_connection_fails_no_request() {
    for settings in ["", "retries = 0"] {
        let server = Upstream::scripted(|caller| {
            let _ = caller.request();
            let _ = caller.try_send(OK);
        });
        let proxy = with_servers(&format!("\"{}\"", server.url()), settings);
        let mut client = Client::connect(proxy.addr());
        for count in 1..=5 {
            let response = client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
            assert_eq!(response.status(), 200, "{settings}");
            assert_eq!(server.requests().len(), count);
            eventually("the server has closed the connection", || server.open() == 0);
        }
    }
}

#[test]
fn unsolicited_bytes_are_never_forwarded() {
    const POISON: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    // Together with the response, and later, when the connection is idle.
    for is_late in [false, true] {
        let ((release, released), (report, sent)) = (channel::<()>(), channel());
        let (released, report) = (Mutex::new(released), Mutex::new(report));
        let server = Upstream::scripted(move |caller| {
            let _ = caller.request();
            if is_late {
                let _ = caller.try_send(OK);
                let _ = released.lock().unwrap().recv_timeout(patience());
                let _ = caller.try_send(POISON);
            } else {
                let _ = caller.try_send(format!("{OK}{POISON}"));
            }
            report.lock().unwrap().send(()).unwrap();
            while let Ok(Some(_)) = caller.request() {
                let _ = caller.try_send("HTTP/1.1 500 Reused\r\nContent-Length: 0\r\n\r\n");
            }
        });
        // Without retries: the proxy must see the bytes before it sends the next request.
        let proxy = with_servers(&format!("\"{}\"", server.url()), "retries = 0");
        for count in 1..=3 {
            let response = get(proxy.addr(), "/", &[]);
            assert_eq!((response.status(), response.text()), (200, "ok"), "late: {is_late}");
            // The worker has put the connection into the pool when it responses a later request.
            proxy.wait_read();
            release.send(()).unwrap();
            sent.recv_timeout(patience()).unwrap();
            assert_eq!(server.connections(), count);
        }
    }
}

#[test]
fn idle_connections_are_shared_by_clients() {
    let server = Upstream::echo();
    let proxy = Tidegate::forwarding_to(&server.url());
    for _ in 0..5 {
        get(proxy.addr(), "/", &[]).echoed();
        Client::connect(proxy.addr())
            .ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi")
            .echoed();
    }
    assert_eq!((server.connections(), server.requests().len()), (1, 10));
}
