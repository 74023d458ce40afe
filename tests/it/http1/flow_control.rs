//! Large bodies, backpressure and disconnects.

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::messages::MIB;
use crate::support::{Client, Tidegate, Upstream, Wire, eventually, patience, settled};

/// A piece of a large body, in which each byte depends on its position. Its length is a multiple of its period, so that
/// such pieces follow each other seamlessly.
fn pattern() -> Vec<u8> {
    (0..251).cycle().take(251 * 251).collect()
}

/// Sends `total` bytes of the pattern.
fn send_pattern(wire: &mut Wire, total: usize) {
    let piece = pattern();
    let mut left = total;
    while left > 0 {
        let now = left.min(piece.len());
        wire.send(&piece[..now]);
        left -= now;
    }
}

/// Reads `total` bytes, and asserts that they are the pattern.
fn check_pattern(wire: &mut Wire, total: usize) {
    let piece = pattern();
    let mut left = total;
    while left > 0 {
        let now = left.min(piece.len());
        let got = wire.take(now).unwrap();
        assert!(got == piece[..now], "bytes have changed, {left} before the end");
        left -= now;
    }
}

#[test]
fn large_bodies_stream_in_constant_memory() {
    const SIZE: usize = 64 * MIB;
    let server = Upstream::scripted(|caller| {
        while let Ok(Some(head)) = caller.read_head() {
            if head.start.starts_with("POST") {
                assert_eq!(head.header("content-length"), Some(&*SIZE.to_string()));
                check_pattern(caller, SIZE);
                caller.send("HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nall here");
            } else {
                caller.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n"));
                send_pattern(caller, SIZE);
            }
        }
    });
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    let before = proxy.memory();
    client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {SIZE}\r\n\r\n"));
    send_pattern(&mut client, SIZE);
    assert_eq!(client.read().text(), "all here");
    let between = proxy.memory();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let head = client.read_head().unwrap().unwrap();
    assert_eq!(head.header("content-length"), Some(&*SIZE.to_string()));
    check_pattern(&mut client, SIZE);
    let after = proxy.memory();
    for memory in [between, after] {
        assert!(memory < before + 32 * 1024, "{before} KiB, then {between}, then {after}");
    }
    // The upstream connection is reused after both.
    assert_eq!(server.connections(), 1);
}

/// Sends until the connection is closed, and counts the bytes.
fn pour(wire: &mut Wire, sent: &AtomicUsize) {
    wire.stream().set_write_timeout(Some(Duration::from_mins(1))).unwrap();
    let piece = vec![b'x'; 64 * 1024];
    while wire.try_send(&piece).is_ok() {
        sent.fetch_add(piece.len(), Ordering::SeqCst);
    }
}

/// A connection with small buffers, so that the kernel stores little of a test's bytes.
fn small_client(address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    socket.connect(&address.into()).unwrap();
    let stream: TcpStream = socket.into();
    stream.set_read_timeout(Some(patience())).unwrap();
    stream
}

#[test]
fn a_client_that_does_not_read_slows_the_server() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let server = Upstream::scripted(move |caller| {
        let _ = caller.request();
        let _ = caller.try_send("HTTP/1.1 200 OK\r\n\r\n");
        pour(caller, &counter);
    });
    let proxy = Tidegate::forwarding_to(&server.url());
    let memory = proxy.memory();
    let mut stream = small_client(proxy.addr());
    std::io::Write::write_all(&mut stream, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    // The kernel's buffers hold a few megabytes each.
    let stopped = settled(&sent);
    assert!(stopped < 24 * MIB, "{stopped} bytes");
    assert!(proxy.memory() < memory + 16 * 1024, "{memory} KiB, then {}", proxy.memory());
    // The server continues as soon as the client reads.
    let mut bytes = vec![0; 64 * 1024];
    eventually("more is sent", || {
        assert!(stream.read(&mut bytes).unwrap() > 0);
        sent.load(Ordering::SeqCst) > stopped + MIB
    });
    drop(stream);
    eventually("the upstream connection is closed with the client's", || server.open() == 0);
}

#[test]
fn a_server_that_does_not_read_slows_the_client() {
    let may_read = Arc::new(AtomicBool::new(false));
    let waits = Arc::clone(&may_read);
    let server = Upstream::scripted(move |caller| {
        let _ = caller.read_head();
        eventually("the test is done", || waits.load(Ordering::SeqCst));
        caller.read_to_close();
    });
    let proxy = Tidegate::forwarding_to(&server.url());
    let memory = proxy.memory();
    let sent = AtomicUsize::new(0);
    let client = Client::connect(proxy.addr());
    let handle = client.stream().try_clone().unwrap();
    std::thread::scope(|scope| {
        let (sent, mut client) = (&sent, client);
        scope.spawn(move || {
            client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n");
            pour(&mut client, sent);
        });
        let stopped = settled(sent);
        let grown = proxy.memory().saturating_sub(memory);
        handle.shutdown(std::net::Shutdown::Both).unwrap();
        may_read.store(true, Ordering::SeqCst);
        assert!(stopped < 24 * MIB, "{stopped} bytes");
        assert!(grown < 16 * 1024, "{grown} KiB more");
    });
    drop(handle);
    eventually("the upstream connection is closed with the client's", || server.open() == 0);
}

#[test]
fn a_client_disconnect_closes_the_upstream_connection() {
    // During the response body.
    let server = Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nsome");
        let _ = caller.request();
    });
    let proxy = Tidegate::forwarding_to(&server.url());
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.read_head().unwrap().unwrap();
    assert_eq!(client.take(4).unwrap(), b"some");
    assert_eq!(server.open(), 1);
    drop(client);
    eventually("the connection is closed", || server.open() == 0);
    // Before the response.
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the server has the request", || server.requests().len() == 2);
    drop(client);
    eventually("the connection is closed", || server.open() == 0);
    // During the request body.
    let mut client = Client::connect(proxy.addr());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nsome");
    eventually("the server has the request", || server.open() == 1);
    drop(client);
    eventually("the connection is closed", || server.open() == 0);
    assert_eq!(server.requests().len(), 2, "the last request is incomplete");
}
