//! Signals, and how the process drains its connections before it ends.

use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use crate::support::frames::{DATA, END_STREAM, Frames, WINDOW_UPDATE};
use crate::support::{Client, PATIENCE, Tidegate, Upstream, eventually, get, timed};

/// A server that answers each request when it is told to.
pub fn slow() -> (Upstream, Sender<()>) {
    let (release, wait): (Sender<()>, Receiver<()>) = channel();
    let wait = Mutex::new(wait);
    let server = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate");
        }
    });
    (server, release)
}

pub fn before(server: &Upstream, settings: &str) -> Tidegate {
    Tidegate::start(&format!("{settings}\n[[routes]]\npath = \"/*\"\nupstream = \"{}\"\n", server.url()))
}

/// Sends a request that the server has, but does not answer yet.
pub fn unanswered(proxy: &Tidegate, server: &Upstream) -> Client {
    let mut client = Client::connect(proxy.addr());
    let count = server.requests().len();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the server has the request", || server.requests().len() > count);
    client
}

pub fn is_closed(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, PATIENCE).is_err()
}

pub const OWN: &str = "[[routes]]\npath = \"/*\"\nrespond = { status = 200 }\n";

#[test]
fn sigterm_lets_what_has_begun_come_to_its_end() {
    for (name, workers) in [("TERM", 1), ("INT", 3)] {
        let (server, release) = slow();
        let mut proxy = before(&server, &format!("workers = {workers}"));
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
        eventually("nobody listens any more", || is_closed(proxy.addr()));
        assert!(proxy.is_running());
        release.send(()).unwrap();
        release.send(()).unwrap();
        for client in [&mut busy, &mut other] {
            let answer = client.read();
            assert_eq!((&*answer.start, answer.text()), ("HTTP/1.1 200 OK", "late"));
            assert_eq!(answer.header("connection"), Some("close"));
            client.expect_close();
        }
        assert_eq!(proxy.wait().code(), Some(0));
        proxy.wait_log("drained");
    }
}

/// More connections than a worker takes in one turn, each with its request on its way, while the proxy does
/// nothing: all of them are answered after SIGTERM.
#[test]
fn sigterm_answers_what_waits_in_the_backlog() {
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
fn a_request_sent_just_before_sigterm_was_seen_is_answered() {
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
fn a_head_that_comes_in_parts_around_sigterm_is_answered() {
    let mut proxy = Tidegate::start(&format!("workers = 1\n{OWN}"));
    let mut clients = [(); 3].map(|()| Client::connect(proxy.addr()));
    let (first, second) = ("GET / HTTP/1.1\r\nHost: a\r\n", "\r\n");
    let [begun, begins, fresh] = &mut clients;
    for client in [&mut *begun, &mut *begins] {
        assert_eq!(client.get("/", &[]).status(), 200);
    }
    begun.send(first);
    fresh.send(first);
    // Answered by the same worker, which has read what came before.
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    proxy.signal("TERM");
    proxy.wait_log("draining");
    begins.send(first);
    eventually("nobody listens any more", || is_closed(proxy.addr()));
    for client in &mut clients {
        client.send(second);
        assert_eq!(client.read().status(), 200);
        client.expect_close();
    }
    assert_eq!(proxy.wait().code(), Some(0));
}

/// The last of an answer waits in the proxy while its client is slow: for some of these lengths, since nobody can say
/// how much the kernel takes.
#[test]
fn the_end_of_an_answer_that_waits_to_be_read_is_no_idle_time() {
    const STEP: usize = 48 * 1024;
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(request)) = caller.request() {
            let length = request.start.split(['/', ' ']).nth(2).unwrap().parse().unwrap();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            let _ = caller.try_send([head.as_bytes(), &vec![b'x'; length]].concat());
        }
    });
    let mut proxy = before(&server, "");
    let (mut clients, mut multiplexed) = (Vec::new(), Vec::new());
    for length in (1..100).map(|number| number * STEP) {
        let mut client = Client::connect(proxy.addr());
        client.send(format!("GET /{length} HTTP/1.1\r\nHost: a\r\n\r\n"));
        clients.push((length, client));
        let mut client = Frames::connect(proxy.addr(), &[(4, 1 << 30)]);
        client.send(WINDOW_UPDATE, 0, 0, &(1_u32 << 30).to_be_bytes());
        client.get(1, &format!("/{length}"));
        multiplexed.push((length, client));
    }
    eventually("the server has all requests", || {
        server.requests().len() == clients.len() + multiplexed.len()
    });
    proxy.signal("TERM");
    proxy.wait_log("draining");
    eventually("nobody listens any more", || is_closed(proxy.addr()));
    // Idle connections are closed half a second after that, and a second where they speak HTTP/2: a matter of time
    // alone.
    std::thread::sleep(Duration::from_millis(1_700));
    for (length, client) in &mut clients {
        assert_eq!(client.read().body.len(), *length);
    }
    for (length, client) in &mut multiplexed {
        let (mut came, mut is_whole) = (0, false);
        while !is_whole {
            let part = client.find(DATA).unwrap();
            came += part.payload.len();
            is_whole = part.flags & END_STREAM != 0;
        }
        assert_eq!(came, *length);
    }
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn a_body_on_its_way_is_finished_after_sigterm() {
    let (release, wait): (Sender<()>, Receiver<()>) = channel();
    let wait = Mutex::new(wait);
    let server = Upstream::scripted(move |caller| {
        let _ = caller.request();
        let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf");
        let _ = wait.lock().unwrap().recv_timeout(PATIENCE);
        let _ = caller.try_send("more");
        let _ = caller.request();
    });
    let mut proxy = before(&server, "");
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.read_head().unwrap().unwrap();
    assert_eq!(client.take(4).unwrap(), b"half");
    proxy.signal("TERM");
    proxy.wait_log("draining");
    eventually("nobody listens any more", || is_closed(proxy.addr()));
    release.send(()).unwrap();
    assert_eq!(client.take(4).unwrap(), b"more");
    client.expect_close();
    assert_eq!(proxy.wait().code(), Some(0));
}

#[test]
fn without_connections_sigterm_ends_it_at_once() {
    let proxy = Tidegate::start(OWN);
    let (status, time) = timed(|| proxy.stop());
    assert_eq!(status.code(), Some(0));
    assert!(time < Duration::from_secs(3), "{time:?}");
}

#[test]
fn grace_has_an_end() {
    let (server, _release) = slow();
    let mut proxy = before(&server, "shutdown_grace = \"700ms\"");
    let mut client = unanswered(&proxy, &server);
    proxy.signal("TERM");
    let (status, time) = timed(|| proxy.wait());
    assert_eq!(status.code(), Some(0));
    assert!((600..5000).contains(&time.as_millis()), "{time:?}");
    proxy.wait_log("connections were still open after 700ms");
    client.expect_close();
}

/// What balances the load can learn of the end before anybody is refused.
#[test]
fn readiness_goes_first_and_listeners_stay_for_the_delay() {
    for (delay, hurries) in [("200ms", false), ("60s", true)] {
        let mut proxy = Tidegate::start(&format!(
            "listen = \"127.0.0.1:0\"\nshutdown_delay = \"{delay}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{OWN}"
        ));
        let admin = proxy.admin();
        assert_eq!(get(admin, "/ready", &[]).status(), 200);
        proxy.signal("TERM");
        proxy.wait_log(&format!("SIGTERM: no longer ready, draining in {delay}"));
        if hurries {
            eventually("it says that it leaves", || {
                let answer = get(admin, "/ready", &[]);
                answer.status() == 503 && answer.text().starts_with("leaving\n")
            });
            // Who comes is served as ever, and the connection stays.
            let mut client = Client::connect(proxy.addr());
            let answer = client.get("/", &[]);
            assert_eq!((answer.status(), answer.header("connection")), (200, None));
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
    let mut proxy = before(&server, "shutdown_grace = \"60s\"");
    let mut client = unanswered(&proxy, &server);
    let mut other = unanswered(&proxy, &server);
    proxy.signal("TERM");
    proxy.wait_log("SIGTERM: draining");
    proxy.signal("TERM");
    release.send(()).unwrap();
    let first = [&mut client, &mut other].map(|client| {
        // One of them has an answer at once, and which does not matter.
        client.stream().set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        client.read_response("GET").is_ok()
    });
    assert_eq!(first.iter().filter(|is_answered| **is_answered).count(), 1);
    assert!(proxy.is_running());
    proxy.signal("INT");
    assert_eq!(proxy.wait().code(), Some(0));
    proxy.wait_log("SIGINT: not waiting for open connections");
}
