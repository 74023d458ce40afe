//! Clients of the admin interface that send partial requests, guess tokens or request large metrics.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use super::interface::LIMITED;
use crate::support::{Client, Tidegate, connect_from, get, is_between, is_within, timed};

const TOKEN: &str = "Authorization: Bearer s3cret-admin-t0ken";

/// A proxy whose admin interface needs the token.
fn with_token() -> Tidegate {
    let admin =
        "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\ntoken = \"s3cret-admin-t0ken\"\n";
    Tidegate::start(&format!("{admin}{LIMITED}"))
}

/// Connections from each of these addresses of the loopback network that have sent half a head.
fn half_heads(admin: SocketAddr, addresses: usize, each: usize) -> Vec<Client> {
    let sources = (0..addresses).flat_map(|last| std::iter::repeat_n(format!("127.0.1.{}", last + 1), each));
    let connect = |source: String| {
        let mut client = Client::connect_from(&source, admin);
        // The connection may be closed already.
        let _ = client.try_send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Half: ");
        client
    };
    sources.map(connect).collect()
}

#[test]
fn partial_heads_do_not_block_other_clients() {
    let proxy = with_token();
    let admin = proxy.admin();
    // From the client's own address, from one other, and from many.
    let own: Vec<Client> = (0..200)
        .map(|_| {
            let mut client = Client::connect(admin);
            let _ = client.try_send("GET /metrics HT");
            client
        })
        .collect();
    let one = half_heads(admin, 1, 200);
    let many = half_heads(admin, 100, 2);
    assert!(is_within(Duration::from_secs(1), || {
        let (statuses, took) =
            timed(|| [get(admin, "/ready", &[]).status(), get(admin, "/metrics", &[TOKEN]).status()]);
        assert_eq!(statuses, [200, 200]);
        took
    }));
    drop((own, one, many));
}

#[test]
fn a_head_must_arrive_within_two_seconds() {
    let proxy = with_token();
    let mut silent = Client::connect(proxy.admin());
    let mut slow = Client::connect(proxy.admin());
    slow.send("GET /ready HTTP/1.1\r\nHost: local");
    let ((), took) = timed(|| {
        slow.read_to_close();
        silent.read_to_close();
    });
    assert!(is_between(took, 1_000, 6_000), "{took:?}");
}

#[test]
fn authenticated_clients_keep_their_connections() {
    let proxy = with_token();
    let admin = proxy.admin();
    let body = r#"{"limit":"three","key":"127.0.0.1"}"#;
    let mut client = Client::connect(admin);
    client.send(format!(
        "POST /v1/keys/reset HTTP/1.1\r\nHost: localhost\r\n{TOKEN}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{{",
        body.len()
    ));
    // The response shows that the proxy has read the head before it.
    assert_eq!(get(admin, "/ready", &[]).status(), 200);
    let own: Vec<Client> = (0..20).map(|_| Client::connect(admin)).collect();
    let many = half_heads(admin, 100, 2);
    assert_eq!(get(admin, "/ready", &[]).status(), 200);
    client.send(&body[1..]);
    assert_eq!(client.read().status(), 200);
    drop((own, many));
}

#[test]
fn wrong_tokens_are_throttled() {
    let proxy = with_token();
    let admin = proxy.admin();
    let ask =
        |source: &str, path: &str, headers: &[&str]| Client::connect_from(source, admin).get(path, headers);
    let wrong = |number: usize| format!("Authorization: Bearer s3cret-admin-t0ke{number}");
    let responses: Vec<_> = (0..8).map(|number| ask("127.0.0.2", "/v1/limits", &[&wrong(number)])).collect();
    let statuses: Vec<u16> = responses.iter().map(crate::support::Message::status).collect();
    assert_eq!(statuses, [401, 401, 401, 401, 401, 429, 429, 429]);
    let pause: u64 = responses[5].header("retry-after").unwrap().parse().unwrap();
    assert!((1..=10).contains(&pause), "{pause}");
    // During the pause the right token is rejected, too, so that a response reveals nothing.
    assert_eq!(ask("127.0.0.2", "/v1/limits", &[TOKEN]).status(), 429);
    // Requests without a token and other addresses are not affected.
    assert_eq!(ask("127.0.0.2", "/ready", &[]).status(), 200);
    assert_eq!(ask("127.0.0.1", "/v1/limits", &[TOKEN]).status(), 200);
    // A request without a token does not count as a guess.
    let missing: Vec<u16> = (0..8).map(|_| ask("127.0.0.3", "/v1/limits", &[]).status()).collect();
    assert_eq!(missing, [401; 8]);
    assert_eq!(ask("127.0.0.3", "/v1/limits", &[TOKEN]).status(), 200);
    let line = proxy.wait_log("wrong token");
    assert!(line.contains("WARN") && line.contains("127.0.0.2"), "{line}");
}

#[test]
fn wrong_tokens_from_many_addresses_do_not_block_the_right_token() {
    let proxy = with_token();
    let admin = proxy.admin();
    for number in 0..1_500_u32 {
        let source = format!("127.1.{}.{}", number / 250, number % 250 + 1);
        let mut client = Client::connect_from(&source, admin);
        assert_eq!(client.get("/v1/limits", &["Authorization: Bearer wrong"]).status(), 401);
    }
    assert_eq!(get(admin, "/v1/limits", &[TOKEN]).status(), 200);
    assert!(connect_from("127.0.0.2", admin).is_ok());
}

/// So many routes that rendering the metrics takes a while.
const ROUTES: usize = 8_000;

fn many_routes() -> String {
    let mut config = "listen = \"127.0.0.1:0\"\n[admin]\nlisten = \"127.0.0.1:0\"\n".to_owned();
    for number in 0..ROUTES {
        let _ = write!(config, "[[routes]]\npath = \"/{number}\"\nrespond = {{}}\n");
    }
    config
}

#[test]
fn readiness_and_requests_are_served_while_metrics_are_rendered() {
    let proxy = Tidegate::start(&many_routes());
    let admin = proxy.admin();
    // The slowest readiness check or request during a scrape, and the time of the scrape.
    let measure = || {
        let scrape = std::thread::spawn(move || timed(|| get(admin, "/metrics", &[])));
        let mut slowest = Duration::ZERO;
        while !scrape.is_finished() {
            for (address, path) in [(admin, "/ready"), (proxy.addr(), "/7")] {
                let (response, took) = timed(|| get(address, path, &[]));
                assert_eq!(response.status(), 200);
                slowest = slowest.max(took);
            }
        }
        let (metrics, took) = scrape.join().unwrap();
        let last = format!("tidegate_requests_total{{route=\"{ROUTES}\",status=\"5xx\"}} 0\n");
        assert!(metrics.text().contains(&last));
        (slowest, took)
    };
    // A busy machine delays some of the checks.
    let is_responsive = |_| {
        let (slowest, took) = measure();
        println!("the slowest response took {slowest:?} while /metrics took {took:?}");
        slowest < took / 3
    };
    assert!((0..12).any(is_responsive));
}
