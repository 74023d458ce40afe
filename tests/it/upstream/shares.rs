//! A client that holds most of an upstream with tunnels, event streams or requests without a response gives way to others.

use std::io::{ErrorKind, Write as _};
use std::net::TcpStream as Socket;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Response;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tungstenite::handshake::derive_accept_key;

use super::setup::OK;
use crate::support::{Client, Frames, Http2Server, Tidegate, connect_from, eventually, frames, get, scaled};

/// The address of the client that holds the connections.
const HOLDER: &str = "127.0.0.2";
/// Requests of another client meanwhile.
const ATTEMPTS: usize = 15;
const EVENTS: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// What the client holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Tunnel,
    Events,
    Slow,
}

impl Held {
    const ALL: [Self; 3] = [Self::Tunnel, Self::Events, Self::Slow];

    fn path(self) -> &'static str {
        match self {
            Self::Tunnel => "/chat",
            Self::Events => "/events",
            Self::Slow => "/slow",
        }
    }

    /// The head of its request over HTTP/1.1.
    fn head(self) -> String {
        let handshake = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        let fields = if self == Self::Tunnel { handshake } else { "" };
        format!("GET {} HTTP/1.1\r\nHost: a\r\n{fields}\r\n", self.path())
    }

    /// Opens `count` of them over HTTP/1.1.
    fn open(self, proxy: &Tidegate, count: usize) -> Vec<Socket> {
        let open = |_| {
            let mut socket = connect_from(HOLDER, proxy.addr()).unwrap();
            socket.write_all(self.head().as_bytes()).unwrap();
            socket
        };
        (0..count).map(open).collect()
    }

    /// Opens 128 of them over each of so many connections of HTTP/2.
    fn open_streams(self, proxy: &Tidegate, connections: usize) -> Vec<Frames> {
        let method = if self == Self::Tunnel { "CONNECT" } else { "GET" };
        let mut fields =
            vec![(":method", method), (":scheme", "http"), (":authority", "a"), (":path", self.path())];
        let mut flags = frames::END_HEADERS | frames::END_STREAM;
        if self == Self::Tunnel {
            fields.extend([(":protocol", "websocket"), ("sec-websocket-version", "13")]);
            flags = frames::END_HEADERS;
        }
        let block = frames::block(&fields);
        let open = |_| {
            let mut connection = Frames::over(connect_from(HOLDER, proxy.addr()).unwrap()).begin(&[]);
            for number in 0..128 {
                connection.send(frames::HEADERS, flags, 2 * number + 1, &block);
            }
            connection
        };
        (0..connections).map(open).collect()
    }
}

/// A server that holds tunnels, event streams and slow requests without sending anything, and responds to all others.
struct Holding {
    url: String,
    held: Arc<AtomicUsize>,
    _runtime: Runtime,
}

impl Holding {
    fn start() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let held = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&held);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&counted)));
            }
        });
        Self { url, held, _runtime: runtime }
    }

    fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }
}

async fn serve(mut stream: TcpStream, held: Arc<AtomicUsize>) {
    let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        received.extend(&buffer[..count]);
        if !received.ends_with(b"\r\n\r\n") {
            continue;
        }
        let request = String::from_utf8(std::mem::take(&mut received)).unwrap();
        let response = match request.split(' ').nth(1).unwrap() {
            "/chat" => switch(&request),
            "/events" => EVENTS.to_owned(),
            "/slow" => String::new(),
            _ => OK.to_owned(),
        };
        if stream.write_all(response.as_bytes()).await.is_err() {
            return;
        }
        if response != OK {
            held.fetch_add(1, Ordering::SeqCst);
            // Until the proxy closes the connection.
            let _ = stream.read(&mut buffer).await;
            held.fetch_sub(1, Ordering::SeqCst);
            return;
        }
    }
}

/// The response that accepts a WebSocket handshake.
fn switch(request: &str) -> String {
    let key = request.lines().find(|line| line.to_ascii_lowercase().starts_with("sec-websocket-key"));
    let key = key.unwrap().split(": ").nth(1).unwrap();
    let accept = derive_accept_key(key.as_bytes());
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Accept: {accept}\r\n\r\n"
    )
}

fn proxy_for(server: &str, upstream: &str, route: &str) -> Tidegate {
    Tidegate::start(&format!(
        "workers = 2\n[limits.some]\nalgorithm = \"concurrency\"\nmax_in_flight = 100\n[log]\naccess = \"json\"\n\
         [upstreams.u]\nservers = [\"{server}\"]\n{upstream}\n\
         [[routes]]\npath = \"/*\"\nupstream = \"u\"\n{route}\n"
    ))
}

/// Asserts that every request of another client is served, most of them within a second.
#[track_caller]
fn assert_others_are_served(proxy: &Tidegate, attack: &str) {
    let attempt = |_| {
        let begun = Instant::now();
        (get(proxy.addr(), "/", &[]).status(), begun.elapsed())
    };
    let mut attempts: Vec<(u16, Duration)> = (0..ATTEMPTS).map(attempt).collect();
    attempts.sort_by_key(|(_, elapsed)| *elapsed);
    assert!(attempts.iter().all(|(status, _)| *status == 200), "{attack}: {attempts:?}");
    assert!(attempts[ATTEMPTS * 2 / 3].1 < scaled(Duration::from_secs(1)), "{attack}: {attempts:?}");
}

#[test]
fn a_client_that_holds_all_connections_gives_way() {
    for held in Held::ALL {
        let server = Holding::start();
        let proxy = proxy_for(&server.url, "max_connections = 8", "");
        let _sockets = held.open(&proxy, 12);
        eventually("all connections are held", || server.held() == 8);
        assert_others_are_served(&proxy, &format!("{held:?}"));
    }
}

#[test]
fn streams_of_few_connections_can_not_hold_an_upstream_with_defaults() {
    for held in Held::ALL {
        let server = Holding::start();
        let proxy = proxy_for(&server.url, "", "");
        let _connections = held.open_streams(&proxy, 9);
        eventually("all connections are held", || server.held() == 1024);
        assert_others_are_served(&proxy, &format!("{held:?}"));
        assert!(server.held() > 900, "{}", server.held());
    }
}

#[test]
fn a_client_keeps_all_connections_while_no_other_waits() {
    for held in Held::ALL {
        let server = Holding::start();
        let proxy = proxy_for(&server.url, "max_connections = 8\npending_timeout = \"1s\"", "");
        let _sockets = held.open(&proxy, 8);
        eventually("all connections are held", || server.held() == 8);
        // The client itself gets no more.
        assert_eq!(Client::connect_from(HOLDER, proxy.addr()).get("/", &[]).status(), 503);
        assert_eq!(server.held(), 8, "{held:?}");
    }
}

#[test]
fn clients_with_one_connection_each_keep_it() {
    let server = Holding::start();
    let proxy = proxy_for(&server.url, "max_connections = 2\npending_timeout = \"1s\"", "");
    let mut held = Held::Slow.open(&proxy, 1);
    let mut other = connect_from("127.0.0.3", proxy.addr()).unwrap();
    other.write_all(Held::Slow.head().as_bytes()).unwrap();
    held.push(other);
    eventually("all connections are held", || server.held() == 2);
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 503);
    assert_eq!(server.held(), 2);
}

#[test]
fn a_request_that_gives_way_gets_503() {
    let server = Holding::start();
    let proxy = proxy_for(&server.url, "max_connections = 4", "");
    let mut clients = [(); 4].map(|()| Client::connect_from(HOLDER, proxy.addr()));
    for client in &mut clients {
        client.send(Held::Slow.head());
    }
    eventually("all connections are held", || server.held() == 4);
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    eventually("a request has given way", || server.held() == 3);
    let mut ended = clients.iter_mut().filter_map(|client| {
        client.stream().set_read_timeout(Some(scaled(Duration::from_millis(200)))).unwrap();
        match client.read_response("GET") {
            Ok(response) => Some(response),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                None
            }
        }
    });
    let response = ended.next().unwrap();
    assert_eq!((response.status(), response.header("retry-after")), (503, Some("1")));
    assert_eq!(ended.count(), 0);
    let lines = proxy.accesses(2);
    assert!(lines.iter().any(|line| line.contains("\"error\":\"reclaimed\"")), "{lines:?}");
}

/// Its server may have processed it: a password that it has checked is a guess.
#[test]
fn a_request_that_gives_way_stays_charged() {
    let server = Holding::start();
    let proxy = Tidegate::start(&format!(
        "[limits.logins]\nrate = \"9/365d\"\nkey = \"client_ip\"\ncharge_on = [401]\n\
         [upstreams.u]\nservers = [\"{}\"]\nmax_connections = 4\n\
         [[routes]]\npath = \"/*\"\nupstream = \"u\"\nlimits = [\"logins\"]\n",
        server.url
    ));
    let mut sockets = Held::Slow.open(&proxy, 4);
    eventually("all connections are held", || server.held() == 4);
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 200);
    eventually("a request has given way", || server.held() == 3);
    sockets.clear();
    eventually("the others have ended", || server.held() == 0);
    let next = Client::connect_from(HOLDER, proxy.addr()).get("/", &[]);
    assert_eq!((next.status(), next.header("x-ratelimit-remaining")), (200, Some("5")));
}

#[test]
fn a_request_with_a_slot_keeps_it_while_the_server_works() {
    let server = Holding::start();
    let settings = "max_connections = 4\npending_timeout = \"1s\"";
    let proxy = proxy_for(&server.url, settings, "limits = [\"some\"]");
    let _sockets = Held::Slow.open(&proxy, 4);
    eventually("all connections are held", || server.held() == 4);
    assert_eq!(get(proxy.addr(), "/", &[]).status(), 503);
    assert_eq!(server.held(), 4);
}

#[test]
fn a_client_that_holds_all_streams_of_an_http_2_server_gives_way() {
    for held in [Held::Events, Held::Slow] {
        let mut builder = h2::server::Builder::new();
        builder.max_concurrent_streams(32);
        let open = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&open);
        let server = Http2Server::start(builder, None, move |(request, mut respond)| {
            let open = Arc::clone(&counted);
            async move {
                let response =
                    |kind: &str| Response::builder().header("content-type", kind).body(()).unwrap();
                let path = request.uri().path();
                if path == "/" {
                    let mut body = respond.send_response(response("text/plain"), false).unwrap();
                    return body.send_data(Bytes::from_static(b"ok"), true).unwrap();
                }
                open.fetch_add(1, Ordering::SeqCst);
                if path == "/events" {
                    let mut body = respond.send_response(response("text/event-stream"), false).unwrap();
                    let _ = std::future::poll_fn(|cx| body.poll_reset(cx)).await;
                } else {
                    let _ = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
                }
                open.fetch_sub(1, Ordering::SeqCst);
            }
        });
        let proxy = Tidegate::start(&format!(
            "workers = 1\n[upstreams.u]\nservers = [\"{}\"]\nprotocol = \"h2\"\nmax_connections = 2\n\
             [[routes]]\npath = \"/*\"\nupstream = \"u\"\n",
            server.url()
        ));
        let _connections = held.open_streams(&proxy, 1);
        eventually("all streams are held", || open.load(Ordering::SeqCst) == 64);
        assert_others_are_served(&proxy, &format!("{held:?}"));
        assert_eq!(server.connections(), 2);
    }
}
