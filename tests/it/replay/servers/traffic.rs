//! The requests that every server gets, one after the other, so that the order of their lines is known.

use std::net::{IpAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tidegate::time::{Micros, Timestamp};

use crate::support::{Upstream, WebServer, Wire, eventually, patience};

/// A request, and what a log has of it.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub client: &'static str,
    pub method: &'static str,
    /// The target before its query, in absolute form if it has a host.
    pub target: &'static str,
    pub absolute_host: Option<&'static str>,
    pub host: Option<&'static str>,
    pub protocol: &'static str,
    pub user_agent: Option<&'static [u8]>,
    pub referer: Option<&'static str>,
    /// The name of the user in its credentials.
    pub user: Option<&'static str>,
    pub status: u16,
}

/// A request that was sent, and when.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub request: Request,
    /// Before it was sent.
    pub since: Timestamp,
    /// After its line was in all logs.
    pub logged: Timestamp,
    /// How long the upstream server has held it at least.
    pub held: Micros,
}

/// Bytes of a client that are no request, and how many lines a server logs about them.
pub type NoRequest = (&'static [u8], usize);

/// Sends requests, and waits for the line of each.
pub struct Traffic<'s> {
    server: &'s WebServer,
    upstream: &'s SlowUpstream,
    /// The logs of the server, each of which gets a line for each request.
    logs: Vec<PathBuf>,
    sent: Vec<Sent>,
    lines: usize,
}

/// An upstream server that holds responses to requests for [`SLOW`] back.
pub struct SlowUpstream {
    server: Upstream,
    release: Sender<()>,
}

const PLAIN: Request = Request {
    client: "127.0.0.1",
    method: "GET",
    target: "/ready",
    absolute_host: None,
    host: Some("api.example.com"),
    protocol: "HTTP/1.1",
    user_agent: Some(b"curl/8.5.0"),
    referer: None,
    user: None,
    status: 200,
};

/// The request that finds out whether a server is ready; it is the first in the log.
pub const READY: Request = PLAIN;

const REQUESTS: [Request; 13] = [
    Request {
        target: "/search?q=%22a%20b%22&page=2",
        user_agent: Some(br#"Mozilla/5.0 (X11; Linux x86_64) "quoted" \back \x41"#),
        referer: Some(r#"https://example.com/?q="x""#),
        ..PLAIN
    },
    Request { target: "/caf%C3%A9/%ff", user_agent: Some(b"caf\xc3\xa9 \xff\ttab"), ..PLAIN },
    Request { method: "POST", target: "/orders", user: Some("john \"[doe]\" \\ x"), ..PLAIN },
    Request { method: "PUT", target: "/orders/7?dry-run", user_agent: None, ..PLAIN },
    Request { method: "PATCH", target: "/orders/7", user_agent: None, ..PLAIN },
    Request { method: "DELETE", target: "/orders/7?", user_agent: Some(b"[x] {y} | z"), ..PLAIN },
    Request { method: "HEAD", target: "/orders/7", ..PLAIN },
    Request { method: "OPTIONS", target: "/orders", ..PLAIN },
    Request { target: r#"/q"uote\x41|{}<>"#, ..PLAIN },
    Request { target: "/missing", status: 404, ..PLAIN },
    Request { target: "/old", protocol: "HTTP/1.0", host: None, ..PLAIN },
    Request { client: "::1", target: "/", referer: Some("http://[::1]/"), ..PLAIN },
    Request {
        target: "/absolute?x=1",
        absolute_host: Some("other.example.com:8080"),
        host: Some("other.example.com:8080"),
        ..PLAIN
    },
];

/// A request to which the response comes only after that to [`FAST`], which is sent in a later second.
pub const SLOW: Request = Request { target: "/slow", ..PLAIN };
const FAST: Request = Request { target: "/fast", ..PLAIN };

/// A request line without a protocol.
pub const NO_PROTOCOL: &[u8] = b"GET /no version\r\nHost: api.example.com\r\n\r\n";
/// The beginning of a TLS handshake.
pub const HANDSHAKE: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n";
/// A request whose sender disconnects within its line.
pub const CUT: &[u8] = b"GET /cut HT";
/// A connection without any bytes.
pub const NOTHING: &[u8] = b"";

impl Request {
    /// Its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let authority = self.absolute_host.map_or(String::new(), |host| format!("http://{host}"));
        let mut bytes =
            format!("{} {authority}{} {}\r\n", self.method, self.target, self.protocol).into_bytes();
        let mut header = |name: &str, value: Option<&[u8]>| {
            if let Some(value) = value {
                bytes.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
            }
        };
        header("Host", self.host.map(str::as_bytes));
        header("User-Agent", self.user_agent);
        header("Referer", self.referer.map(str::as_bytes));
        let credentials =
            self.user.map(|user| format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:secret"))));
        header("Authorization", credentials.as_ref().map(String::as_bytes));
        let has_body = matches!(self.method, "POST" | "PUT" | "PATCH");
        header("Content-Length", has_body.then_some(b"2"));
        header("Connection", Some(b"close"));
        bytes.extend_from_slice(if has_body { b"\r\n{}" } else { b"\r\n" });
        bytes
    }
}

impl SlowUpstream {
    pub fn start() -> Self {
        let (release, released) = channel();
        let released = Mutex::new(released);
        let server = Upstream::scripted(move |caller| {
            while let Ok(Some(request)) = caller.request() {
                if request.start.contains("/slow") {
                    let _ = released.lock().unwrap().recv_timeout(patience());
                }
                let status = if request.start.contains("/missing") { "404 Not Found" } else { "200 OK" };
                let body = if request.start.starts_with("HEAD ") { "" } else { "hello\n" };
                let response = format!("HTTP/1.1 {status}\r\nContent-Length: 6\r\n\r\n{body}");
                if caller.try_send(response).is_err() {
                    return;
                }
            }
        });
        Self { server, release }
    }

    /// Its address and port.
    pub fn authority(&self) -> String {
        self.server.addr().to_string()
    }

    /// The number of slow requests that it has received.
    fn slow_requests(&self) -> usize {
        self.server.requests().iter().filter(|request| request.start.contains(SLOW.target)).count()
    }
}

impl<'s> Traffic<'s> {
    /// Waits for the line of the request that has found out, since this time, that the server is ready.
    pub fn begin(server: &'s WebServer, upstream: &'s SlowUpstream, logs: &[&str], since: Timestamp) -> Self {
        let logs = logs.iter().map(|log| server.path(log)).collect();
        let mut traffic = Self { server, upstream, logs, sent: Vec::new(), lines: 0 };
        traffic.add(READY, since, Micros::ZERO);
        traffic
    }

    /// Sends requests that the upstream server responds to at once.
    pub fn send_requests(&mut self) {
        for request in REQUESTS {
            self.send(request);
        }
    }

    /// Sends these and the slow one, and what is no request.
    pub fn send_all(&mut self, invalid: &[NoRequest]) {
        self.send_requests();
        for (bytes, lines) in invalid {
            let mut wire = self.connect(PLAIN);
            wire.send(bytes);
            wire.finish();
            wire.read_to_close();
            self.wait_lines(*lines);
        }
        self.send_slow_and_fast();
    }

    /// Sends a request, and waits for the response and the lines.
    pub fn send(&mut self, request: Request) {
        let since = now();
        let mut wire = self.connect(request);
        wire.send(request.bytes());
        let response = wire.read_response(request.method).unwrap();
        assert_eq!(response.status(), request.status, "{request:?}");
        // nginx logs a request with a body when its client has closed the connection.
        drop(wire);
        self.add(request, since, Micros::ZERO);
    }

    /// What was sent, in the order of arrival.
    pub fn sent(self) -> Vec<Sent> {
        let mut sent = self.sent;
        sent.sort_by_key(|sent| sent.since);
        sent
    }

    fn send_slow_and_fast(&mut self) {
        let (since, before) = (now(), self.upstream.slow_requests());
        let mut wire = self.connect(SLOW);
        wire.send(SLOW.bytes());
        eventually("the slow request is held", || self.upstream.slow_requests() > before);
        let received = now();
        wait_next_second();
        self.send(FAST);
        let held = now().since(received);
        self.upstream.release.send(()).unwrap();
        assert_eq!(wire.read_response("GET").unwrap().status(), 200);
        self.add(SLOW, since, held);
    }

    /// Waits for the lines of a request.
    fn add(&mut self, request: Request, since: Timestamp, held: Micros) {
        self.wait_lines(1);
        self.sent.push(Sent { request, since, logged: now(), held });
    }

    /// Waits until each log has further lines.
    fn wait_lines(&mut self, further: usize) {
        self.lines += further;
        for log in &self.logs {
            let condition = format!("{} has {} lines", log.display(), self.lines);
            eventually(&condition, || {
                let text = std::fs::read(log).unwrap_or_default();
                text.split(|byte| *byte == b'\n').count() > self.lines
            });
        }
    }

    fn connect(&self, request: Request) -> Wire {
        let client: IpAddr = request.client.parse().unwrap();
        Wire::over(TcpStream::connect_timeout(&self.server.addr(client), patience()).unwrap())
    }
}

/// The present time.
pub fn now() -> Timestamp {
    Timestamp(Micros::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap()).0)
}

/// Waits until the clock shows another second.
pub fn wait_next_second() {
    let second = now().0 / Micros::SECOND.0;
    eventually("the next second has begun", || now().0 / Micros::SECOND.0 > second);
}
