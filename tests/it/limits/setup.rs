//! Configurations and requests that several files of this folder use.

use std::net::{IpAddr, SocketAddr};

use http::{Method, Uri};
use tidegate::config::{self, Loaded};
use tidegate::gate::{Charges, Gate};
use tidegate::http1::RequestHead;

use crate::support::{Client, Message, Tidegate};

/// The only trusted proxy of these tests.
pub const PROXY: &str = "127.0.0.9";

/// A file whose one route has one limit with these lines.
pub fn limited(limit: &str) -> String {
    format!(
        "[client_ip]\ntrusted_proxies = [\"{PROXY}\"]\n[limits.one]\n{limit}\n\
         [[routes]]\npath = \"/*\"\nlimits = [\"one\"]\nrespond = {{ status = 200 }}\n"
    )
}

/// What a request from the trusted proxy is answered; it speaks for itself, having no forwarding header.
pub fn by_proxy(address: SocketAddr, headers: &[&str]) -> Message {
    Client::connect_from(PROXY, address).get("/", headers)
}

pub fn number(answer: &Message, header: &str) -> u64 {
    answer.header(header).unwrap().parse().unwrap()
}

/// The quota that an answer shows: which numbers the request has met.
pub fn quota(answer: &Message) -> u64 {
    number(answer, "x-ratelimit-limit")
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
    gate.plan(peer.into(), &head(headers)).unwrap().charges
}

/// Two requests an hour, and an own answer.
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
