//! Responses to requests whose upstream failed: 502 and 504.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use super::setup::{PLAIN, among, metric, silent, started};
use crate::support::{Client, Message, Tidegate, Upstream, assert_problem, eventually, get, timed};

/// A proxy with one upstream and a limit.
fn before(upstream: &str, settings: &str) -> Tidegate {
    Tidegate::start(&format!(
        "[limits.some]\nrate = \"9/hour\"\n[upstreams.one]\nservers = [\"{upstream}\"]\n{settings}\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"some\"]\nupstream = \"one\"\n"
    ))
}

#[track_caller]
fn assert_tells_nothing(answer: &Message, address: std::net::SocketAddr) {
    let text = format!("{answer:?} {}", answer.text());
    for secret in [address.to_string(), address.port().to_string(), "os error".into(), "hyper".into()] {
        assert!(!text.contains(&secret), "{secret} in {text}");
    }
}

#[test]
fn an_upstream_that_refuses_is_502() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let proxy = before(&format!("http://{address}"), "");
    let mut client = Client::connect(proxy.addr());
    for remaining in ["8", "7"] {
        let answer = client.get("/", &[]);
        assert_problem(&answer, 502, "Bad Gateway", "the upstream can't be reached");
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(remaining));
        assert_eq!(answer.header("retry-after"), None);
        assert_tells_nothing(&answer, address);
    }
}

#[test]
fn an_upstream_that_says_nothing_sensible_is_502() {
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
        let proxy = before(&server.url(), "");
        let answer = get(proxy.addr(), "/", &[]);
        assert_problem(&answer, 502, "Bad Gateway", "the upstream sent no valid response");
        assert_tells_nothing(&answer, server.addr());
        assert_eq!(server.requests().len(), 1, "after {said:?}");
    }
}

#[test]
fn an_upstream_that_is_silent_is_504() {
    let server = Upstream::scripted(|caller| {
        let _ = caller.request();
        // Longer than the proxy waits; ends with the connection, which the proxy closes.
        let _ = caller.request();
    });
    let proxy = before(&server.url(), "response_timeout = \"300ms\"");
    for request in [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
    ] {
        let (answer, time) = timed(|| Client::connect(proxy.addr()).ask(request));
        assert_problem(&answer, 504, "Gateway Timeout", "the upstream did not respond in time");
        assert_tells_nothing(&answer, server.addr());
        assert!((300..5000).contains(&time.as_millis()), "{time:?}");
    }
    crate::support::eventually("the connection is closed", || server.open() == 0);
}

/// A listener whose queue is full: the kernel drops the SYN of a connection that would be made.
fn full_queue() -> (Socket, Vec<TcpStream>) {
    // A queue of no length takes one connection; others wait for ever.
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    socket.listen(0).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let mut queued = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
        queued.push(stream);
        assert!(queued.len() < 50, "the queue has no end");
    }
    (socket, queued)
}

/// The kernel sends a lost SYN again after a second: by default there is time for that.
#[test]
fn a_lost_syn_is_no_failure() {
    let (socket, queued) = full_queue();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let proxy = before(&format!("http://{address}"), "");
    let mut client = Client::connect(proxy.addr());
    let began = std::time::Instant::now();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    // Time for the first SYN; only then is there room in the queue.
    std::thread::sleep(Duration::from_millis(300));
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
fn an_upstream_that_takes_no_connection_is_504() {
    let (socket, _queued) = full_queue();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let proxy = before(&format!("http://{address}"), "connect_timeout = \"300ms\"");
    let (answer, time) = timed(|| get(proxy.addr(), "/", &[]));
    assert_problem(&answer, 504, "Gateway Timeout", "the upstream could not be reached in time");
    assert_tells_nothing(&answer, address);
    assert!((300..5000).contains(&time.as_millis()), "{time:?}");
}

#[test]
fn a_response_that_breaks_off_is_never_whole() {
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
        let proxy = before(&server.url(), "");
        let mut client = Client::connect(proxy.addr());
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let end = client.read_response("GET");
        assert!(end.is_err(), "{kind}: {end:?}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[test]
fn a_response_that_stalls_is_cut_off() {
    let server = Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
        let _ = caller.request();
    });
    let proxy = before(&server.url(), "stall_timeout = \"300ms\"");
    let mut client = Client::connect(proxy.addr());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let (end, time) = timed(|| client.read_response("GET"));
    let kind = end.unwrap_err().kind();
    assert!(
        matches!(kind, std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::ConnectionReset),
        "{kind}"
    );
    assert!((250..5000).contains(&time.as_millis()), "{time:?}");
}

#[test]
fn the_whole_of_a_request_has_its_time() {
    let dripping = Upstream::scripted(|caller| {
        let _ = caller.request();
        let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 300\r\n\r\n");
        for _ in 0..300 {
            // Steadily: no single wait is too long.
            std::thread::sleep(Duration::from_millis(10));
            if caller.try_send("x").is_err() {
                return;
            }
        }
    });
    let proxy = among(&[&dripping], "total_timeout = \"200ms\"");
    let mut client = Client::connect(proxy.addr());
    client.send(PLAIN);
    assert!(client.read_response("GET").is_err());
    eventually("the connection is given up", || dripping.open() == 0);
    let silent = silent();
    let proxy = among(&[&silent], "total_timeout = \"200ms\"\nretries = 5");
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 504);
    assert_eq!(silent.requests().len(), 1);
    // When it is over no other server is tried, nor thought to be out of reach. These say nothing of TLS.
    let other = self::silent();
    let urls = [&silent, &other].map(|server| server.url().replace("http", "https"));
    let proxy =
        started(&format!("\"{}\", \"{}\"", urls[0], urls[1]), "total_timeout = \"200ms\"\nretries = 5");
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 504);
    let unreachable =
        |url| metric(&proxy, "requests_total", &format!(",server=\"{url}\",outcome=\"unreachable\""));
    assert_eq!(unreachable(&urls[0]) + unreachable(&urls[1]), 1);
    // What is in time is not touched, and the next request has its own.
    let quick = Upstream::echo();
    let proxy = among(&[&quick], "total_timeout = \"5s\"");
    let mut client = Client::connect(proxy.addr());
    assert_eq!([(); 3].map(|()| client.get("/", &[]).status()), [200; 3]);
    assert_eq!(quick.connections(), 1);
}
