//! Slots of clients that disconnect: the server continues to work, so the slot is held.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use http::Response;
use socket2::SockRef;

use crate::limits::setup::{held_back, wait_in_flight};
use crate::support::frames::RST_STREAM;
use crate::support::{
    Caller, Client, Frames, Http2Server, Tidegate, Upstream, eventually, get, over_both_stores, patience,
    scaled,
};

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// Two requests in flight to this server, whose upstream has these settings.
fn two_slots(url: &str, settings: &str) -> String {
    format!(
        "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [limits.flight]\nalgorithm = \"concurrency\"\nmax_in_flight = 2\nkey = \"global\"\n\
         [upstreams.server]\nservers = [\"{url}\"]\n{settings}\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"flight\"]\nupstream = \"server\"\n"
    )
}

/// A server that works on each request until the test releases it, and counts the requests.
#[derive(Clone, Default)]
struct Work {
    running: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    begun: Arc<AtomicUsize>,
    released: Arc<AtomicUsize>,
}

impl Work {
    fn begin(&self) -> usize {
        self.most.fetch_max(self.running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst)
    }

    fn is_released(&self, number: usize) -> bool {
        self.released.load(Ordering::SeqCst) > number
    }

    fn end(&self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
    }

    /// Lets the server respond to all its requests.
    fn release(&self) {
        self.released.store(self.begun.load(Ordering::SeqCst), Ordering::SeqCst);
        eventually("the server has finished", || self.running.load(Ordering::SeqCst) == 0);
    }

    fn wait_begun(&self, count: usize) {
        eventually("the server works on it", || self.begun.load(Ordering::SeqCst) == count);
    }

    fn over_http_1(&self) -> Upstream {
        let work = self.clone();
        Upstream::scripted(move |caller| {
            while let Ok(Some(_)) = caller.request() {
                let number = work.begin();
                while !work.is_released(number) {
                    // A pause between two checks.
                    std::thread::sleep(Duration::from_millis(2));
                }
                work.end();
                if caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                    return;
                }
            }
        })
    }

    fn over_http_2(&self) -> Http2Server {
        let work = self.clone();
        Http2Server::start(h2::server::Builder::new(), None, move |(_, mut respond)| {
            let work = work.clone();
            async move {
                let number = work.begin();
                while !work.is_released(number) {
                    // A pause between two checks.
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                work.end();
                let _ = respond.send_response(Response::new(()), true);
            }
        })
    }
}

/// Sends a request over a connection that is reset when the client is dropped.
fn send_request(proxy: SocketAddr) -> Client {
    let mut client = Client::connect(proxy);
    SockRef::from(client.stream()).set_linger(Some(Duration::ZERO)).unwrap();
    client.send(REQUEST);
    client
}

/// The status of a denied request; none if the server works on the request.
fn denial(client: &mut Client) -> Option<u16> {
    client.stream().set_read_timeout(Some(scaled(Duration::from_millis(300)))).unwrap();
    match client.read_head() {
        Ok(head) => Some(head.unwrap().status()),
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            None
        }
    }
}

/// Sends requests and resets their connections at once; no more are allowed than there are slots.
fn reset_many(proxy: SocketAddr, work: &Work) {
    let before = work.begun.load(Ordering::SeqCst);
    for count in 1..=2 {
        let client = send_request(proxy);
        work.wait_begun(before + count);
        drop(client);
    }
    for _ in 0..60 {
        assert_eq!(denial(&mut send_request(proxy)), Some(429));
    }
    assert_eq!(work.begun.load(Ordering::SeqCst), before + 2);
}

/// Waits until a slot is free, takes it with a request, and lets the server respond.
fn wait_free(proxy: SocketAddr, work: &Work) {
    let mut client = None;
    eventually("the slot is free", || {
        let mut next = send_request(proxy);
        let is_in = denial(&mut next).is_none();
        client = is_in.then_some(next);
        is_in
    });
    work.release();
    let mut client = client.unwrap();
    client.stream().set_read_timeout(Some(patience())).unwrap();
    assert_eq!(client.read_head().unwrap().unwrap().status(), 200);
}

#[test]
fn a_client_that_resets_keeps_its_slot_while_the_server_works() {
    let work = Work::default();
    let server = work.over_http_1();
    over_both_stores(&two_slots(&server.url(), ""), |proxy| {
        for _ in 0..2 {
            reset_many(proxy.addr(), &work);
            work.release();
            wait_free(proxy.addr(), &work);
        }
    });
    assert_eq!(work.most.load(Ordering::SeqCst), 2);
}

#[test]
fn a_client_that_resets_keeps_its_slot_with_an_http_2_server() {
    let work = Work::default();
    let server = work.over_http_2();
    let proxy = Tidegate::start(&two_slots(&server.url(), "protocol = \"h2\""));
    reset_many(proxy.addr(), &work);
    work.release();
    wait_free(proxy.addr(), &work);
    assert_eq!(work.most.load(Ordering::SeqCst), 2);
}

#[test]
fn a_stream_that_is_reset_keeps_its_slot_while_the_server_works() {
    let work = Work::default();
    let server = work.over_http_1();
    let proxy = Tidegate::start(&two_slots(&server.url(), ""));
    let mut client = Frames::connect(proxy.addr(), &[]);
    for stream in [1, 3] {
        client.get(stream, "/");
        work.wait_begun(stream as usize / 2 + 1);
        client.send(RST_STREAM, 0, stream, &8_u32.to_be_bytes());
    }
    for _ in 0..60 {
        assert_eq!(denial(&mut send_request(proxy.addr())), Some(429));
    }
    assert_eq!(work.begun.load(Ordering::SeqCst), 2);
    work.release();
    eventually("the slots are free", || {
        let mut next = send_request(proxy.addr());
        denial(&mut next).is_none()
    });
}

#[test]
fn a_slot_is_held_until_the_response_body_ends() {
    let (server, release) = held_back();
    let proxy = Tidegate::start(&two_slots(&server.url(), "").replace("in_flight = 2", "in_flight = 1"));
    for _ in 0..2 {
        drop(wait_in_flight(proxy.addr()));
        for _ in 0..60 {
            assert_eq!(get(proxy.addr(), "/", &[]).status(), 429);
        }
        release.send(()).unwrap();
    }
}

#[test]
fn a_slot_is_released_when_the_server_closes_the_connection() {
    let (close, wait) = channel::<()>();
    let wait = Arc::new(std::sync::Mutex::new(wait));
    let server = Upstream::scripted(move |caller| {
        if let Ok(Some(_)) = caller.request() {
            let _ = wait.lock().unwrap().recv();
        }
    });
    let proxy = Tidegate::start(&two_slots(&server.url(), "").replace("in_flight = 2", "in_flight = 1"));
    let client = send_request(proxy.addr());
    eventually("the server works on it", || server.requests().len() == 1);
    drop(client);
    for _ in 0..60 {
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 429);
    }
    close.send(()).unwrap();
    eventually("the slot is free", || denial(&mut send_request(proxy.addr())).is_none());
}

/// The proxy does not complete the body of a client that disconnects, in whichever way.
#[test]
fn incomplete_request_bodies_are_not_completed() {
    let server = Upstream::echo();
    let proxy = Tidegate::start(&two_slots(&server.url(), ""));
    for end in ["", "4\r\nmore\r\n", "0\r\n", "reset"] {
        let mut client = Client::connect(proxy.addr());
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n");
        eventually("the server has the head", || server.open() == 1);
        if end == "reset" {
            SockRef::from(client.stream()).set_linger(Some(Duration::ZERO)).unwrap();
        } else {
            client.send(end);
        }
        drop(client);
        eventually("the connection is closed", || server.open() == 0);
        assert_eq!(server.requests().len(), 0, "after {end:?}");
    }
}

/// Responds at once, with a body that takes longer than any test.
fn dripping(caller: &mut Caller) {
    let _ = caller.request();
    let mut sent = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
    while sent.is_ok() {
        // The slow sending is what is tested.
        std::thread::sleep(Duration::from_millis(10));
        sent = caller.try_send("x");
    }
}

#[test]
fn an_exchange_without_its_client_ends_after_the_response_timeout() {
    let silent = Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.request();
    });
    let dripping = Upstream::scripted(dripping);
    for server in [&silent, &dripping] {
        let config = two_slots(&server.url(), "response_timeout = \"700ms\"");
        let proxy = Tidegate::start(&config.replace("in_flight = 2", "in_flight = 1"));
        let began = Instant::now();
        let client = send_request(proxy.addr());
        eventually("the server works on it", || server.requests().len() == 1);
        drop(client);
        eventually("the connection is closed", || server.open() == 0);
        assert!(began.elapsed() >= Duration::from_millis(650), "{:?}", began.elapsed());
        eventually("the slot is free", || denial(&mut send_request(proxy.addr())) != Some(429));
    }
}

#[test]
fn a_pending_request_of_a_disconnected_client_is_dropped() {
    let work = Work::default();
    let server = work.over_http_1();
    let settings = "max_connections = 1\npending_timeout = \"9s\"";
    let proxy = Tidegate::start(&two_slots(&server.url(), settings));
    let first = send_request(proxy.addr());
    work.wait_begun(1);
    let pending = || proxy.metric("tidegate_upstream_pending_requests{upstream=\"server\"}");
    for _ in 0..3 {
        let waiting = send_request(proxy.addr());
        eventually("the request waits for a connection", || pending() == 1);
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 429);
        drop(waiting);
        eventually("the request is withdrawn", || pending() == 0);
    }
    work.release();
    drop(first);
    wait_free(proxy.addr(), &work);
    assert_eq!(work.begun.load(Ordering::SeqCst), 2);
}

/// An event stream has no end of its own: it ends when its client disconnects.
#[test]
fn an_event_stream_ends_when_its_client_disconnects() {
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(_)) = caller.request() {
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n");
        }
    });
    let config = two_slots(&server.url(), "").replace("in_flight = 2", "in_flight = 1");
    let proxy = Tidegate::start(&config);
    for _ in 0..3 {
        let _client = wait_in_flight(proxy.addr());
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 429);
    }
}

#[test]
fn a_shutdown_does_not_wait_for_exchanges_without_a_client() {
    let work = Work::default();
    let server = work.over_http_1();
    let config = two_slots(&server.url(), "").replace("in_flight = 2", "in_flight = 1");
    let proxy = Tidegate::start(&format!("shutdown_grace = \"1h\"\n{config}"));
    let client = send_request(proxy.addr());
    work.wait_begun(1);
    drop(client);
    assert_eq!(get(proxy.addr(), "/nothing", &[]).status(), 429);
    assert_eq!(proxy.stop().code(), Some(0));
    work.release();
}
