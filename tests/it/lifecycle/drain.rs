//! Signals, and the drain of connections before the process exits.

use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::support::frames::{DATA, END_STREAM, Frames, WINDOW_UPDATE};
use crate::support::{Client, Tidegate, Upstream, eventually, get, is_between, patience, scaled, timed};

/// A server that responds only when it is released.
pub fn slow() -> (Upstream, Sender<()>) {
    Upstream::gated("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate")
}

pub fn proxy_for(server: &Upstream, settings: &str) -> Tidegate {
    Tidegate::start(&format!("{settings}\n[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url()))
}

/// Sends a request that the server has received, but not answered yet.
pub fn unanswered(proxy: &Tidegate, server: &Upstream) -> Client {
    let mut client = Client::connect(proxy.addr());
    let count = server.requests().len();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the server has the request", || server.requests().len() > count);
    client
}

pub fn is_closed(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, patience()).is_err()
}

pub const OWN: &str = "[[routes]]\npath = \"/*\"\nrespond = { status = 200 }\n";

#[test]
fn sigterm_and_sigint_finish_open_requests() {
    for (name, workers) in [("TERM", 1), ("INT", 3)] {
        let (server, release) = slow();
        let mut proxy = proxy_for(&server, &format!("workers = {workers}"));
        let mut idle = Client::connect(proxy.addr());
        release.send(()).unwrap();
        assert_eq!(idle.get("/", &[]).status(), 200);
        let mut silent = Client::connect(proxy.addr());
        let mut busy = unanswered(&proxy, &server);
        let mut other = unanswered(&proxy, &server);
        proxy.signal(name);
        proxy.wait_log(&format!("SIG{name}: draining"));
        idle.expect_close();
        silent.expect_close();
        eventually("the listener is closed", || is_closed(proxy.addr()));
        assert!(proxy.is_running());
        release.send(()).unwrap();
        release.send(()).unwrap();
        for client in [&mut busy, &mut other] {
            let response = client.read();
            assert_eq!((&*response.start, response.text()), ("HTTP/1.1 200 OK", "late"));
            assert_eq!(response.header("connection"), Some("close"));
            client.expect_close();
        }
        assert_eq!(proxy.wait().code(), Some(0));
        proxy.wait_log("drained");
    }
}

/// There are more connections than a worker accepts at a time.
#[test]
fn sigterm_answers_requests_in_the_accept_backlog() {
    let mut proxy = Tidegate::start(&format!("workers = 1\n{OWN}"));
    proxy.signal("STOP");
    let mut clients: Vec<Client> = (0..400).map(|_| Client::connect(proxy.addr())).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    proxy.signal("TERM");
    proxy.signal("CONT");
    for client in &mut clients {
        assert_eq!(client.read().status(), 200);
    }
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn a_request_that_crosses_sigterm_is_answered() {
    let mut proxy = Tidegate::start(&format!("workers = 1\n{OWN}"));
    let mut kept = Client::connect(proxy.addr());
    assert_eq!(kept.get("/", &[]).status(), 200);
    let mut fresh = Client::connect(proxy.addr());
    proxy.signal("TERM");
    proxy.wait_log("draining");
    for client in [&mut kept, &mut fresh] {
        assert_eq!(client.get("/", &[]).status(), 200);
    }
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn a_request_head_split_around_sigterm_is_answered() {
    let mut proxy = Tidegate::start(&format!("workers = 1\n{OWN}"));
    let mut clients = [(); 3].map(|()| Client::connect(proxy.addr()));
    let (first, second) = ("GET / HTTP/1.1\r\nHost: a\r\n", "\r\n");
    let [before, after, fresh] = &mut clients;
    for client in [&mut *before, &mut *after] {
        assert_eq!(client.get("/", &[]).status(), 200);
    }
    before.send(first);
    fresh.send(first);
    proxy.wait_read();
    proxy.signal("TERM");
    proxy.wait_log("draining");
    after.send(first);
    eventually("the listener is closed", || is_closed(proxy.addr()));
    for client in &mut clients {
        client.send(second);
        assert_eq!(client.read().status(), 200);
        client.expect_close();
    }
    assert_eq!(proxy.wait().code(), Some(0));
}

/// The end of a response waits in the proxy for its client: for some of these lengths, since it is unknown how much the
/// kernel buffers.
#[test]
fn an_unread_response_is_not_idle_during_a_drain() {
    const STEP: usize = 48 * 1024;
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            let length = request.start.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            let _ = caller.try_send([head.as_bytes(), &vec![b'x'; length]].concat());
        }
    });
    let mut proxy = Tidegate::forwarding_to(&server.url());
    let (mut clients, mut multiplexed) = (Vec::new(), Vec::new());
    for length in (1..100).map(|number| number * STEP) {
        let mut client = Client::connect(proxy.addr());
        client.send(format!("GET /{length} HTTP/1.1\r\nHost: a\r\n\r\n"));
        clients.push((length, client));
        let mut client = Frames::connect(proxy.addr(), &[(4, 1 << 30)]);
        client.send(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
        client.get(1, &format!("/{length}"));
        multiplexed.push((length, client));
        eventually("the server has both requests", || server.received() == clients.len() + multiplexed.len());
    }
    proxy.signal("TERM");
    proxy.wait_log("draining");
    eventually("the listener is closed", || is_closed(proxy.addr()));
    // Real time is tested: idle connections are closed half a second after that, or a second for HTTP/2.
    std::thread::sleep(Duration::from_millis(1_700));
    for (length, client) in &mut clients {
        assert_eq!(client.read().body.len(), *length);
    }
    for (length, client) in &mut multiplexed {
        let (mut received, mut is_complete) = (0, false);
        while !is_complete {
            let part = client.find(DATA).unwrap();
            received += part.payload.len();
            is_complete = part.flags & END_STREAM != 0;
        }
        assert_eq!(received, *length);
    }
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn a_started_response_is_finished_after_sigterm() {
    let (release, wait): (Sender<()>, Receiver<()>) = channel();
    let wait = Mutex::new(wait);
    let server = Upstream::scripted(move |caller| {
        let _ = caller.request();
        let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
        let _ = wait.lock().unwrap().recv_timeout(patience());
        let _ = caller.try_send("more");
        let _ = caller.request();
    });
    let mut proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.read_head().unwrap().unwrap();
    assert_eq!(client.take(4).unwrap(), b"half");
    proxy.signal("TERM");
    proxy.wait_log("draining");
    eventually("the listener is closed", || is_closed(proxy.addr()));
    release.send(()).unwrap();
    assert_eq!(client.take(4).unwrap(), b"more");
    client.expect_close();
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn sigterm_without_connections_exits_at_once() {
    let proxy = Tidegate::start(OWN);
    let (status, time) = timed(|| proxy.stop());
    assert_eq!(status.code(), Some(0));
    assert!(time < scaled(Duration::from_secs(3)), "{time:?}");
}

#[test]
fn shutdown_grace_bounds_a_drain() {
    let (server, _release) = slow();
    let mut proxy = proxy_for(&server, "shutdown_grace = \"700ms\"");
    let mut client = unanswered(&proxy, &server);
    let (status, time) = timed(|| {
        proxy.signal("TERM");
        proxy.wait()
    });
    assert_eq!(status.code(), Some(0));
    assert!(is_between(time, 600, 5000), "{time:?}");
    proxy.wait_log("connections were still open after 700ms");
    client.expect_close();
}

/// A load balancer sees the failing readiness before connections are refused.
#[test]
fn shutdown_delay_fails_readiness_before_listeners_close() {
    for (delay, is_cut_short) in [("200ms", false), ("60s", true)] {
        let mut proxy = Tidegate::start(&format!(
            "listen = \"127.0.0.1:0\"\nshutdown_delay = \"{delay}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{OWN}"
        ));
        let admin = proxy.admin();
        assert_eq!(get(admin, "/ready", &[]).status(), 200);
        proxy.signal("TERM");
        proxy.wait_log(&format!("SIGTERM: no longer ready, draining in {delay}"));
        if is_cut_short {
            eventually("the proxy is not ready", || {
                let response = get(admin, "/ready", &[]);
                response.status() == 503 && response.text().starts_with("leaving\n")
            });
            // New connections are served, and kept alive.
            let mut client = Client::connect(proxy.addr());
            let response = client.get("/", &[]);
            assert_eq!((response.status(), response.header("connection")), (200, None));
            assert_eq!(client.get("/", &[]).status(), 200);
            proxy.signal("INT");
        }
        proxy.wait_log("SIGTERM: draining");
        assert_eq!(proxy.wait().code(), Some(0));
        proxy.wait_log("drained");
    }
}

#[test]
fn sigint_ends_a_drain_and_a_second_sigterm_does_not() {
    let (server, release) = slow();
    let mut proxy = proxy_for(&server, "shutdown_grace = \"60s\"");
    let client = unanswered(&proxy, &server);
    let other = unanswered(&proxy, &server);
    proxy.signal("TERM");
    proxy.wait_log("SIGTERM: draining");
    proxy.signal("TERM");
    release.send(()).unwrap();
    // The release is for either of them.
    let responses = || {
        [&client, &other].into_iter().filter(|client| {
            client.stream().set_nonblocking(true).unwrap();
            client.stream().peek(&mut [0]).is_ok()
        })
    };
    eventually("a request is answered", || responses().count() > 0);
    assert_eq!(responses().count(), 1);
    assert!(proxy.is_running());
    proxy.signal("INT");
    assert_eq!(proxy.wait().code(), Some(0));
    proxy.wait_log("SIGINT: not waiting for open connections");
}
