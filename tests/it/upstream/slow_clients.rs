//! Slow clients: those that send their requests or read their responses a byte at a time must not keep the connections
//! to a server from other clients.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::support::{Client, Frames, Tidegate, Upstream, connect_from, eventually, frames, get};

/// The address of the slow clients.
const SLOW: &str = "127.0.0.2";
/// Connections to the server.
const CONNECTIONS: usize = 8;
/// Requests of another client while the slow clients are at work.
const ATTEMPTS: usize = 15;
/// Longer than an upload or download may be slow before it has to give way to the requests of others.
const UNTIL_IT_IS_SLOW: Duration = Duration::from_millis(2300);
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
                // Each drop is a part of its own, of which the next comes when the one before is taken.
                let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
                let mut sent = caller.try_send(head);
                while sent.is_ok() {
                    sent = caller.try_send("1\r\nx\r\n");
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

fn before(server: &Upstream, listener: &str, upstream: &str) -> Tidegate {
    Tidegate::start(&format!(
        "workers = 2\n[admin]\nlisten = \"127.0.0.1:0\"\n\
         [[listeners]]\naddress = \"127.0.0.1:0\"\n{listener}\n\
         [upstreams.few]\nservers = [\"{}\"]\nmax_connections = {CONNECTIONS}\npending_timeout = \"5s\"\n{upstream}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"few\"\n",
        server.url()
    ))
}

/// What a slow client does.
#[derive(Clone, Copy, Debug)]
enum Slow {
    /// Sends a body whose length it has announced.
    Announced,
    /// Sends a body of unknown length.
    Streaming,
    /// The same over HTTP/2, and says that it is a gRPC call, for which a server over HTTP/1.1 has no use.
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
            // It has an answer when everything before it has been read.
            connection.send(frames::PING, 0, 0, &[0; 8]);
            connection.find(frames::PING).unwrap();
        }
        swarm
    }

    fn streams() -> impl Iterator<Item = u32> {
        (0..Self::STREAMS).map(|number| 2 * number + 1)
    }

    /// Each request goes on by a byte.
    fn drip(&mut self) {
        for connection in &mut self.0 {
            for stream in Self::streams() {
                // Those that have been ended may be closed.
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
        let begun = match slow {
            Slow::Announced => "x",
            Slow::Streaming | Slow::Call => "1\r\nx\r\n",
            Slow::Reading => "",
        };
        stream.write_all(begun.as_bytes()).unwrap();
        stream
    };
    (0..3 * CONNECTIONS).map(connection).collect()
}

/// The statuses of the good client's responses.
fn statuses(proxy: &Tidegate, mut meanwhile: impl FnMut()) -> Vec<u16> {
    let attempt = |_| {
        meanwhile();
        get(proxy.addr(), "/", &[]).status()
    };
    (0..ATTEMPTS).map(attempt).collect()
}

#[test]
fn slow_small_bodies_take_no_connection_to_the_server() {
    let server = server();
    let proxy = before(&server, "", "");
    let mut http2 = Http2Swarm::start(&proxy, Slow::Announced);
    let mut http1 = http1_swarm(&proxy, Slow::Announced);
    let statuses = statuses(&proxy, || {
        http2.drip();
        for stream in &mut http1 {
            stream.write_all(b"x").unwrap();
        }
    });
    assert_eq!(statuses, [200; ATTEMPTS]);
    let asked = server.requests().iter().filter(|request| request.start.starts_with("POST")).count();
    assert_eq!(asked, 0);
    assert!(server.connections() <= 3, "{} connections", server.connections());
}

#[test]
fn a_small_body_reaches_the_server_whole_whatever_its_pieces() {
    let server = Upstream::echo();
    let proxy = before(&server, "", "");
    let body: String = ('a'..='z').cycle().take(1000).collect();
    let mut client = Client::connect(proxy.addr());
    client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()));
    for piece in body.as_bytes().chunks(300) {
        // Nothing goes on while there is more to come.
        assert_eq!(server.connections(), 0);
        client.send(piece);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(client.read().echoed().text(), body);
    let received = &server.requests()[0];
    assert_eq!(
        (received.header("content-length"), received.header("transfer-encoding")),
        (Some("1000"), None)
    );
}

#[test]
fn slow_uploads_give_way_to_requests_of_others() {
    for (over_http2, slow) in [(true, Slow::Streaming), (true, Slow::Call), (false, Slow::Streaming)] {
        let server = server();
        let proxy = before(&server, "", "");
        let (mut http2, mut http1) = (None, Vec::new());
        if over_http2 {
            http2 = Some(Http2Swarm::start(&proxy, slow));
        } else {
            http1 = http1_swarm(&proxy, Slow::Streaming);
        }
        eventually("all connections are in use", || server.open() == CONNECTIONS);
        std::thread::sleep(UNTIL_IT_IS_SLOW);
        let statuses = statuses(&proxy, || {
            http2.iter_mut().for_each(Http2Swarm::drip);
            for stream in &mut http1 {
                // Those that have been ended may be closed.
                let _ = stream.write_all(b"1\r\nx\r\n");
            }
        });
        assert_eq!(statuses, [200; ATTEMPTS], "over HTTP/2: {over_http2}, {slow:?}");
    }
}

#[test]
fn slow_readers_give_way_to_requests_of_others() {
    for over_http2 in [true, false] {
        let server = server();
        let proxy = before(&server, "", "");
        let (mut http2, mut http1) = (None, Vec::new());
        if over_http2 {
            http2 = Some(Http2Swarm::start(&proxy, Slow::Reading));
        } else {
            http1 = http1_swarm(&proxy, Slow::Reading);
        }
        eventually("all connections are in use", || server.open() == CONNECTIONS);
        std::thread::sleep(UNTIL_IT_IS_SLOW);
        let statuses = statuses(&proxy, || http2.iter_mut().for_each(Http2Swarm::drip));
        assert_eq!(statuses, [200; ATTEMPTS], "over HTTP/2: {over_http2}");
        http1.clear();
    }
}

#[test]
fn a_single_client_may_use_all_connections() {
    let server = server();
    let proxy = before(&server, "", "");
    let mut slow = http1_swarm(&proxy, Slow::Streaming);
    eventually("all connections are in use", || server.open() == CONNECTIONS);
    std::thread::sleep(UNTIL_IT_IS_SLOW);
    // Those that wait are of the same address, so that none of them is refused or has to give way.
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
    let proxy = before(&server, "", "");
    let unbounded = before(&server, "min_body_rate = 0", "");
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
        std::thread::sleep(Duration::from_millis(500));
    }
    for client in &mut slow[..2] {
        assert_eq!(client.read().status(), 408);
    }
    assert_eq!(http2.status(1), Some(Ok(408)));
    // A response that is read too slowly ends with its stream.
    assert!(reading.find(frames::RST_STREAM).is_some());
    // Without a minimum rate each byte only has to be there in time.
    slow[2].stream().set_nonblocking(true).unwrap();
    assert_eq!(slow[2].read_response("POST").unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_client_has_so_many_requests_at_an_upstream() {
    let server = server();
    let proxy = before(&server, "", "max_requests_per_client = 2\n");
    let mut held: Vec<Client> = (0..2).map(|_| Client::connect_from(SLOW, proxy.addr())).collect();
    for client in &mut held {
        client.send(Slow::Streaming.head().to_owned() + "1\r\nx\r\n");
    }
    eventually("both are there", || server.open() == 2);
    for _ in 0..5 {
        let refused = Client::connect_from(SLOW, proxy.addr()).get("/", &[]);
        assert_eq!((refused.status(), refused.header("retry-after")), (429, Some("1")));
    }
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    held[0].send("0\r\n\r\n");
    assert_eq!(held[0].read().status(), 200);
    eventually("it may ask again", || Client::connect_from(SLOW, proxy.addr()).get("/", &[]).status() == 200);
}
