//! Configurations, servers and requests that several files use.

use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Uri};
use socket2::SockRef;
use tidegate::config::{self, Loaded};
use tidegate::gate::{Charges, Gate};
use tidegate::http1::RequestHead;

use crate::support::{Client, Message, Tidegate, Upstream, eventually};

/// The only trusted proxy of these tests.
pub const PROXY: &str = "127.0.0.9";

/// Routes with these paths and limits that respond with 200.
pub fn routes(routes: &[(&str, &[&str])]) -> String {
    let route = |(path, limits): &(&str, &[&str])| {
        format!("[[routes]]\npath = \"{path}\"\nlimits = {limits:?}\nrespond = {{ status = 200 }}\n")
    };
    routes.iter().map(route).collect()
}

/// A file whose only route has one limit with these lines.
pub fn limited(limit: &str) -> String {
    format!(
        "[client_ip]\ntrusted_proxies = [\"{PROXY}\"]\n[limits.one]\n{limit}\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"one\"]\nrespond = {{ status = 200 }}\n"
    )
}

/// The response to a request from the trusted proxy. Without a forwarding header, the proxy itself is the client.
pub fn by_proxy(address: SocketAddr, headers: &[&str]) -> Message {
    Client::connect_from(PROXY, address).get("/", headers)
}

pub fn number(response: &Message, header: &str) -> u64 {
    response.header(header).unwrap().parse().unwrap()
}

/// The quota in a response, which shows the numbers that apply to the request.
pub fn quota(response: &Message) -> u64 {
    number(response, "x-ratelimit-limit")
}

pub fn loaded(limit: &str) -> Loaded {
    let text = format!("listen = \"127.0.0.1:0\"\n{}", limited(limit));
    config::parse(&text, "tidegate.toml", &|_| None).unwrap_or_else(|report| panic!("{report}"))
}

pub fn head(headers: &[(&str, &str)]) -> RequestHead {
    let fields = [("host", "a")].iter().chain(headers).copied().collect();
    RequestHead { fields, ..RequestHead::new(Method::GET, Uri::from_static("/")) }
}

pub fn charges(gate: &Gate, headers: &[(&str, &str)]) -> Charges {
    let peer: IpAddr = PROXY.parse().unwrap();
    gate.plan(peer.into(), &head(headers), None).unwrap().charges
}

/// Two requests an hour, and a response of the proxy.
pub const TWO_AN_HOUR: &str = r#"
[limits.few]
rate = "2/hour"
[[routes]]
path = "/*"
limits = ["few"]
respond = { status = 200, body = "ok\n" }
"#;

/// A proxy with one limit and one route, and these lines of `[answers]`.
pub fn answering(answers: &str) -> Tidegate {
    Tidegate::start(&format!("{TWO_AN_HOUR}[answers]\n{answers}\n"))
}

/// A server that begins each response at once; each message that is sent ends one. It closes its connections when the sender is
/// dropped.
pub fn held_back() -> (Upstream, Sender<()>) {
    let (release, wait) = channel();
    let wait = Arc::new(Mutex::new(wait));
    let upstream = Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            let _ = caller.try_send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhe");
            if wait.lock().unwrap().recv().is_err() || caller.try_send("ld").is_err() {
                return;
            }
        }
    });
    (upstream, release)
}

/// A client with the head of its response, or nothing if the request was denied. Its connection is reset when it is dropped.
pub fn in_flight(proxy: SocketAddr) -> Option<Client> {
    let mut client = Client::connect(proxy);
    SockRef::from(client.stream()).set_linger(Some(Duration::ZERO)).unwrap();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    (client.read_head().unwrap().unwrap().status() == 200).then_some(client)
}

/// Waits until a slot is free, and sends a request that takes it.
#[track_caller]
pub fn wait_in_flight(proxy: SocketAddr) -> Client {
    let mut client = None;
    eventually("a slot is free", || {
        client = in_flight(proxy);
        client.is_some()
    });
    client.unwrap()
}
