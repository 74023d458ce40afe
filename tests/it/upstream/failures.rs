//! Responses to requests whose upstream failed: 502 and 504.

use std::net::TcpStream;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::setup::{PLAIN, among, metric, silent, started};
use crate::support::{
    Client, Message, Tidegate, Upstream, assert_problem, eventually, free_address, get, is_between, timed,
};

/// A proxy with one upstream and a limit.
fn proxy_for(upstream: &str, settings: &str) -> Tidegate {
    Tidegate::start(&format!(
        "[limits.some]\nrate = \"9/hour\"\n[upstreams.one]\nservers = [\"{upstream}\"]\n{settings}\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"some\"]\nupstream = \"one\"\n"
    ))
}

#[track_caller]
fn assert_reveals_nothing(response: &Message, address: std::net::SocketAddr) {
    let text = format!("{response:?} {}", response.text());
    for secret in [address.to_string(), address.port().to_string(), "os error".into(), "hyper".into()] {
        assert!(!text.contains(&secret), "{secret} in {text}");
    }
}

#[test]
fn a_refused_connection_is_502() {
    let address = free_address();
    let proxy = proxy_for(&format!("http://{address}"), "");
    let mut client = Client::connect(proxy.addr());
    for remaining in ["8", "7"] {
        let response = client.get("/", &[]);
        assert_problem(&response, 502, "Bad Gateway", "the upstream can't be reached");
        assert_eq!(response.header("x-ratelimit-remaining"), Some(remaining));
        assert_eq!(response.header("retry-after"), None);
        assert_reveals_nothing(&response, address);
    }
}

#[test]
fn an_invalid_response_is_502() {
    for said in [
        "",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "\u{16}\u{3}\u{1}\u{2}\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Len",
        "HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
        "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nabcde",
        "HTTP/9.9 200 OK\r\n\r\n",
    ] {
        let server = Upstream::scripted(move |caller| {
            let _ = caller.request();
            let _ = caller.try_send(said);
        });
        let proxy = proxy_for(&server.url(), "");
        let response = get(proxy.addr(), "/", &[]);
        assert_problem(&response, 502, "Bad Gateway", "the upstream sent no valid response");
        assert_reveals_nothing(&response, server.addr());
        assert_eq!(server.requests().len(), 1, "after {said:?}");
    }
}

#[test]
fn a_silent_upstream_is_504() {
    let server = Upstream::scripted(|caller| {
        let _ = caller.request();
        // Until the proxy closes the connection.
        let _ = caller.request();
    });
    let proxy = proxy_for(&server.url(), "response_timeout = \"300ms\"");
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    ] {
        let (response, time) = timed(|| Client::connect(proxy.addr()).ask(request));
        assert_problem(&response, 504, "Gateway Timeout", "the upstream did not respond in time");
        assert_reveals_nothing(&response, server.addr());
        assert!(is_between(time, 300, 5000), "{request:?}: {time:?}");
    }
    eventually("the connection is closed", || server.open() == 0);
}

/// A listener whose accept queue is full, so that the kernel drops every SYN.
fn full_queue() -> (Socket, Vec<TcpStream>) {
    // A backlog of zero holds one connection.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut queued = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        queued.push(stream);
        assert!(queued.len() < 50, "the queue is never full");
    }
    (socket, queued)
}

/// Whether the kernel has sent a SYN to this address that is not answered.
fn is_syn_sent(address: std::net::SocketAddr) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap();
    // The remote address, and the state SYN_SENT (proc(5)).
    let sent = format!(":{:04X} 02 ", address.port());
    sockets.lines().any(|line| line.contains(&sent))
}

/// The kernel repeats a lost SYN after a second, which the default timeout allows for.
#[test]
fn connect_timeout_allows_for_a_lost_syn() {
    let (socket, queued) = full_queue();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let proxy = proxy_for(&format!("http://{address}"), "");
    let mut client = Client::connect(proxy.addr());
    let began = std::time::Instant::now();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    // The queue accepts connections only after the first SYN is lost.
    eventually("the SYN is sent", || is_syn_sent(address));
    let server = Upstream::listening(socket.into(), |caller| {
        while let Ok(Some(_)) = caller.request() {
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    assert_eq!(client.read().status(), 200);
    assert!(began.elapsed() >= Duration::from_millis(900), "no SYN was lost: {:?}", began.elapsed());
    drop((queued, server));
}

#[test]
fn a_connect_timeout_is_504() {
    let (socket, _queued) = full_queue();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let proxy = proxy_for(&format!("http://{address}"), "connect_timeout = \"300ms\"");
    let (response, time) = timed(|| get(proxy.addr(), "/", &[]));
    assert_problem(&response, 504, "Gateway Timeout", "the upstream could not be reached in time");
    assert_reveals_nothing(&response, address);
    assert!(is_between(time, 300, 5000), "{time:?}");
}

#[test]
fn a_truncated_response_is_never_complete() {
    for (said, kind) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "length"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", "chunks"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n", "a bad chunk"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n", "no end of trailers"),
    ] {
        let server = Upstream::scripted(move |caller| {
            let _ = caller.request();
            let _ = caller.try_send(said);
        });
        let proxy = proxy_for(&server.url(), "");
        let mut client = Client::connect(proxy.addr());
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let end = client.read_response("GET");
        assert!(end.is_err(), "{kind}: {end:?}");
        assert_eq!(server.requests().len(), 1, "{kind}");
    }
}

#[test]
fn a_stalled_response_is_cut_off_after_stall_timeout() {
    let server = Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
        let _ = caller.request();
    });
    let proxy = proxy_for(&server.url(), "stall_timeout = \"300ms\"");
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let (end, time) = timed(|| client.read_response("GET"));
    let kind = end.unwrap_err().kind();
    assert!(
        matches!(kind, std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset),
        "{kind}"
    );
    assert!(is_between(time, 250, 5000), "{time:?}");
}

#[test]
fn total_timeout_bounds_a_request() {
    let dripping = Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n");
        for _ in 0..3_000 {
            // Real time is tested: no pause is long, but the whole response is.
            std::thread::sleep(Duration::from_millis(10));
            if caller.try_send("x").is_err() {
                return;
            }
        }
    });
    // Long enough for the head to arrive on a busy machine.
    let proxy = among(&[&dripping], "total_timeout = \"2s\"");
    let mut client = Client::connect(proxy.addr());
    client.send(PLAIN);
    assert!(client.read_response("GET").is_err());
    eventually("the upstream connection is closed", || dripping.open() == 0);
    let silent = silent();
    let proxy = among(&[&silent], "total_timeout = \"600ms\"\nretries = 5");
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 504);
    assert_eq!(silent.requests().len(), 1);
    // After the timeout no other server is tried, nor counted as unreachable. These servers send no TLS handshake.
    let other = self::silent();
    let urls = [&silent, &other].map(|server| server.url().replace("http", "https"));
    let proxy =
        started(&format!("\"{}\", \"{}\"", urls[0], urls[1]), "total_timeout = \"600ms\"\nretries = 5");
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 504);
    let unreachable =
        |url| metric(&proxy, "requests_total", &format!(",server=\"{url}\",outcome=\"unreachable\""));
    assert_eq!(unreachable(&urls[0]) + unreachable(&urls[1]), 1);
    // Each request of a connection has its own timeout.
    let quick = Upstream::echo();
    let proxy = among(&[&quick], "total_timeout = \"5s\"");
    let mut client = Client::connect(proxy.addr());
    assert_eq!([(); 3].map(|()| client.get("/", &[]).status()), [200; 3]);
    assert_eq!(quick.connections(), 1);
}
