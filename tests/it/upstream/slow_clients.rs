//! Slow clients: those that send their requests or read their responses a byte at a time must not keep the connections
//! to a server from other clients.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::{Client, Frames, Tidegate, Upstream, connect_from, eventually, frames, get};

/// The address of the slow clients.
const SLOW: &str = "127.0.0.2";
/// Connections that the proxy may have to the server.
const CONNECTIONS: usize = 8;
/// Requests of another client meanwhile.
const ATTEMPTS: usize = 15;
/// Longer than an upload or download may be slow before it has to yield. The tests wait for real time, since only the
/// measured rate decides.
const SLOW_DELAY: Duration = Duration::from_millis(2300);
/// How long a body may be slower than the minimum rate.
const RATE_GRACE: Duration = Duration::from_secs(10);
/// More than the buffers of sockets hold.
const LARGE: usize = 24 << 20;

/// A server with a large file.
fn server() -> Upstream {
    Upstream::scripted(|caller| {
        caller.stream().set_read_timeout(None).unwrap();
        while let Ok(Some(request)) = caller.request() {
            let sent = if request.start.contains("/drops") {
                // A chunk for each byte.
                let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                let mut sent = caller.try_send(head);
                while sent.is_ok() {
                    sent = caller.try_send("1\r\nx\r\n");
                    // Real time is tested: a response with a low rate.
                    std::thread::sleep(Duration::from_millis(100));
                }
                sent
            } else if request.start.contains("/large") {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n");
                caller.try_send(head).and_then(|()| caller.try_send(vec![b'x'; LARGE]))
            } else {
                caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            };
            if sent.is_err() {
                return;
            }
        }
    })
}

fn proxy_for(server: &Upstream, listener: &str, upstream: &str) -> Tidegate {
    Tidegate::start(&format!(
        "workers = 2\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\n{listener}\n\
         [upstreams.few]\nservers = [\"{}\"]\nmax_connections = {CONNECTIONS}\npending_timeout = \"5s\"\n{upstream}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"few\"\n",
        server.url()
    ))
}

/// The behaviour of a slow client.
#[derive(Clone, Copy, Debug)]
enum Slow {
    /// Sends a body with a Content-Length.
    Announced,
    /// Sends a body of unknown length.
    Streaming,
    /// The same over HTTP/2 with the content type of gRPC, which an HTTP/1.1 server does not support.
    Call,
    /// Reads a large response.
    Reading,
}

impl Slow {
    /// The head of its request over HTTP/2.
    fn fields(self) -> Vec<(&'static str, &'static str)> {
        let (method, path) = if matches!(self, Self::Reading) { ("GET", "/large") } else { ("POST", "/") };
        let mut fields = vec![(":method", method), (":scheme", "http"), (":authority", "a"), (":path", path)];
        if matches!(self, Self::Announced) {
            fields.push(("content-length", "1000"));
        }
        if matches!(self, Self::Call) {
            fields.push(("content-type", "application/grpc"));
        }
        fields
    }

    /// The head of its request over HTTP/1.1.
    fn head(self) -> &'static str {
        match self {
            Self::Announced => "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n",
            Self::Streaming | Self::Call => {
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
            }
            Self::Reading => "GET /large HTTP/1.1\r\nHost: a\r\n\r\n",
        }
    }
}

/// Connections of HTTP/2 with many slow requests each.
struct Http2Swarm(Vec<Frames>, Slow);

impl Http2Swarm {
    const STREAMS: u32 = 50;

    fn start(proxy: &Tidegate, slow: Slow) -> Self {
        let connection = |_| {
            // A window of one byte for each response.
            let stream = connect_from(SLOW, proxy.addr()).unwrap();
            let mut connection = Frames::over(stream).begin(&[(4, 1)]);
            let flags = match slow {
                Slow::Reading => frames::END_HEADERS | frames::END_STREAM,
                Slow::Announced | Slow::Streaming | Slow::Call => frames::END_HEADERS,
            };
            for stream in Self::streams() {
                connection.send(frames::HEADERS, flags, stream, &frames::block(&slow.fields()));
            }
            connection
        };
        let mut swarm = Self((0..3).map(connection).collect(), slow);
        swarm.drip();
        for connection in &mut swarm.0 {
            // The acknowledgement shows that the proxy has read everything before the ping.
            connection.send(frames::PING, 0, 0, &[0; 8]);
            connection.find(frames::PING).unwrap();
        }
        swarm
    }

    fn streams() -> impl Iterator<Item = u32> {
        (0..Self::STREAMS).map(|number| 2 * number + 1)
    }

    /// Sends or reads a byte of each request.
    fn drip(&mut self) {
        for connection in &mut self.0 {
            for stream in Self::streams() {
                // The proxy may have closed the connection.
                let _ = match self.1 {
                    Slow::Reading => connection.try_send(frames::WINDOW_UPDATE, 0, stream, &[0, 0, 0, 1]),
                    Slow::Announced | Slow::Streaming | Slow::Call => {
                        connection.try_send(frames::DATA, 0, stream, b"x")
                    }
                };
            }
        }
    }
}

/// Slow requests over HTTP/1.1.
fn http1_swarm(proxy: &Tidegate, slow: Slow) -> Vec<TcpStream> {
    let connection = |_| {
        let mut stream = connect_from(SLOW, proxy.addr()).unwrap();
        stream.write_all(slow.head().as_bytes()).unwrap();
        let first = match slow {
            Slow::Announced => "x",
            Slow::Streaming | Slow::Call => "1\r\nx\r\n",
            Slow::Reading => "",
        };
        stream.write_all(first.as_bytes()).unwrap();
        stream
    };
    (0..3 * CONNECTIONS).map(connection).collect()
}

/// The status codes that another client gets.
fn statuses(proxy: &Tidegate, mut meanwhile: impl FnMut()) -> Vec<u16> {
    let attempt = |_| {
        meanwhile();
        get(proxy.addr(), "/", &[]).status()
    };
    (0..ATTEMPTS).map(attempt).collect()
}

#[test]
fn slow_small_bodies_use_no_upstream_connection() {
    let server = server();
    let proxy = proxy_for(&server, "", "");
    let mut http2 = Http2Swarm::start(&proxy, Slow::Announced);
    let mut http1 = http1_swarm(&proxy, Slow::Announced);
    let statuses = statuses(&proxy, || {
        http2.drip();
        for stream in &mut http1 {
            stream.write_all(b"x").unwrap();
        }
    });
    assert_eq!(statuses, [200; ATTEMPTS]);
    let forwarded = server.requests().iter().filter(|request| request.start.starts_with("POST")).count();
    assert_eq!(forwarded, 0);
    assert!(server.connections() <= 3, "{} connections", server.connections());
}

#[test]
fn a_small_body_is_buffered_before_it_is_forwarded() {
    let server = Upstream::echo();
    let proxy = Tidegate::forwarding_to(&server.url());
    let body: String = ('a'..='z').cycle().take(1000).collect();
    let mut client = Client::connect(proxy.addr());
    client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()));
    for piece in body.as_bytes().chunks(300) {
        // Nothing is forwarded before the body is complete.
        assert_eq!(server.connections(), 0);
        client.send(piece);
        proxy.wait_read();
    }
    assert_eq!(client.read().echoed().text(), body);
    let received = &server.requests()[0];
    assert_eq!(
        (received.header("content-length"), received.header("transfer-encoding")),
        (Some("1000"), None)
    );
}

#[test]
fn slow_uploads_yield_to_requests_of_other_clients() {
    for (over_http2, slow) in [(true, Slow::Streaming), (true, Slow::Call), (false, Slow::Streaming)] {
        let server = server();
        let proxy = proxy_for(&server, "", "");
        let (mut http2, mut http1) = (None, Vec::new());
        if over_http2 {
            http2 = Some(Http2Swarm::start(&proxy, slow));
        } else {
            http1 = http1_swarm(&proxy, Slow::Streaming);
        }
        eventually("all connections are in use", || server.open() == CONNECTIONS);
        std::thread::sleep(SLOW_DELAY);
        let statuses = statuses(&proxy, || {
            http2.iter_mut().for_each(Http2Swarm::drip);
            for stream in &mut http1 {
                // The proxy may have closed the connection.
                let _ = stream.write_all(b"1\r\nx\r\n");
            }
        });
        assert_eq!(statuses, [200; ATTEMPTS], "over HTTP/2: {over_http2}, {slow:?}");
    }
}

#[test]
fn slow_readers_yield_to_requests_of_other_clients() {
    for over_http2 in [true, false] {
        let server = server();
        let proxy = proxy_for(&server, "", "");
        let (mut http2, mut http1) = (None, Vec::new());
        if over_http2 {
            http2 = Some(Http2Swarm::start(&proxy, Slow::Reading));
        } else {
            http1 = http1_swarm(&proxy, Slow::Reading);
        }
        eventually("all connections are in use", || server.open() == CONNECTIONS);
        std::thread::sleep(SLOW_DELAY);
        let statuses = statuses(&proxy, || http2.iter_mut().for_each(Http2Swarm::drip));
        assert_eq!(statuses, [200; ATTEMPTS], "over HTTP/2: {over_http2}");
        http1.clear();
    }
}

#[test]
fn a_single_client_may_use_all_connections() {
    let server = server();
    let proxy = proxy_for(&server, "", "");
    let mut slow = http1_swarm(&proxy, Slow::Streaming);
    eventually("all connections are in use", || server.open() == CONNECTIONS);
    std::thread::sleep(SLOW_DELAY);
    // The waiting requests are of the same client, so no upload has to yield.
    for stream in &mut slow {
        stream.write_all(b"0\r\n\r\n").unwrap();
    }
    for stream in slow {
        let mut client = crate::support::Wire::over(stream);
        assert_eq!(client.read_response("POST").unwrap().status(), 200);
    }
}

#[test]
fn bodies_have_a_minimum_rate() {
    let server = server();
    let proxy = proxy_for(&server, "", "");
    let unbounded = proxy_for(&server, "min_body_rate = 0", "");
    let started = Instant::now();
    let mut slow: Vec<Client> =
        [(&proxy, Slow::Announced), (&proxy, Slow::Streaming), (&unbounded, Slow::Streaming)]
            .into_iter()
            .map(|(proxy, slow)| {
                let mut client = Client::connect(proxy.addr());
                client.send(slow.head());
                client
            })
            .collect();
    let mut http2 = Frames::connect(proxy.addr(), &[]);
    http2.send(frames::HEADERS, frames::END_HEADERS, 1, &frames::block(&Slow::Streaming.fields()));
    let mut reading = Frames::connect(proxy.addr(), &[(4, 1)]);
    reading.get(1, "/drops");
    while started.elapsed() < RATE_GRACE + Duration::from_secs(1) {
        for (client, drip) in slow.iter_mut().zip(["x", "1\r\nx\r\n", "1\r\nx\r\n"]) {
            let _ = client.try_send(drip);
        }
        let _ = http2.try_send(frames::DATA, 0, 1, b"x");
        let _ = reading.try_send(frames::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]);
        // Real time is tested: a rate far below the minimum.
        std::thread::sleep(Duration::from_millis(500));
    }
    for client in &mut slow[..2] {
        assert_eq!(client.read().status(), 408);
    }
    assert_eq!(http2.status(1), Some(Ok(408)));
    // The stream of a response that is read too slowly is reset.
    assert!(reading.find(frames::RST_STREAM).is_some());
    // Without a minimum rate only the pauses are bounded.
    slow[2].stream().set_nonblocking(true).unwrap();
    assert_eq!(slow[2].read_response("POST").unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn max_requests_per_client_applies_per_upstream() {
    let server = server();
    let proxy = proxy_for(&server, "", "max_requests_per_client = 2\n");
    let mut held: Vec<Client> = (0..2).map(|_| Client::connect_from(SLOW, proxy.addr())).collect();
    for client in &mut held {
        client.send(Slow::Streaming.head().to_owned() + "1\r\nx\r\n");
    }
    eventually("the server has both requests", || server.open() == 2);
    for _ in 0..5 {
        let denied = Client::connect_from(SLOW, proxy.addr()).get("/", &[]);
        assert_eq!((denied.status(), denied.header("retry-after")), (429, Some("1")));
    }
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    held[0].send("0\r\n\r\n");
    assert_eq!(held[0].read().status(), 200);
    eventually("the client may send another request", || {
        Client::connect_from(SLOW, proxy.addr()).get("/", &[]).status() == 200
    });
}
