//! `reserved_share`: slots that only requests of higher classes may take.

use std::net::SocketAddr;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use socket2::SockRef;
use tidegate::config;
use tidegate::limit::PolicyId;

use crate::limits::setup::{PROXY, held_back};
use crate::support::{Client, Message, RedisServer, Tidegate, Upstream, eventually, get, over_both_stores};

/// A limit of ten slots, two of which are left to `critical` and one to `high`.
fn fleet(upstream: &Upstream) -> String {
    let url = upstream.url();
    format!(
        r#"
        [admin]
        listen = "127.0.0.1:0"
        [client_ip]
        trusted_proxies = ["{PROXY}"]
        [limits.fleet]
        algorithm = "concurrency"
        max_in_flight = 10
        lease = "3s"
        key = "global"
        reserved_share = {{ critical = 0.2, high = 0.1 }}
        deny_status = 503
        [[routes]]
        path = "/vital"
        limits = ["fleet"]
        upstream = "{url}"
        priority = "critical"
        [[routes]]
        path = "/high"
        limits = ["fleet"]
        upstream = "{url}"
        priority = "high"
        [[routes]]
        path = "/*"
        limits = ["fleet"]
        upstream = "{url}"
        priority_from = "header:x-priority"
        "#
    )
}

/// A request that is in flight, or its denial. Its connection is reset when the client is dropped.
fn send(from: &str, proxy: SocketAddr, request: &str) -> Result<Client, Message> {
    let mut client = Client::connect_from(from, proxy);
    SockRef::from(client.stream()).set_linger(Some(Duration::ZERO)).unwrap();
    client.send(format!("GET {request}\r\nHost: a\r\n\r\n"));
    let head = client.read_head().unwrap().unwrap();
    if head.status() == 200 { Ok(client) } else { Err(head) }
}

/// A request of the class of a path.
fn ask(proxy: &Tidegate, path: &str) -> Result<Client, Message> {
    send("127.0.0.1", proxy.addr(), &format!("{path} HTTP/1.1"))
}

fn admitted(proxy: &Tidegate, path: &str, count: usize) -> Vec<Client> {
    (0..count).map(|_| ask(proxy, path).unwrap_or_else(|denial| panic!("{denial:?}"))).collect()
}

fn is_denied(proxy: &Tidegate, path: &str) -> bool {
    ask(proxy, path).is_err()
}

fn finish(clients: Vec<Client>, release: &Sender<()>) {
    for _ in &clients {
        release.send(()).unwrap();
    }
    for mut client in clients {
        assert_eq!(client.take(4).unwrap(), b"held");
    }
}

#[test]
fn reserved_slots_are_left_to_higher_classes() {
    let (upstream, release) = held_back();
    over_both_stores(&fleet(&upstream), |proxy| {
        let mut clients = admitted(proxy, "/", 7);
        let Err(denial) = ask(proxy, "/") else { panic!("the eighth slot is reserved") };
        assert_eq!((denial.status(), denial.header("retry-after")), (503, Some("1")));
        let shown = ["x-ratelimit-limit", "x-ratelimit-remaining"].map(|name| denial.header(name));
        assert_eq!(shown, [Some("10"), Some("0")]);
        clients.extend(admitted(proxy, "/high", 1));
        assert!(is_denied(proxy, "/high") && is_denied(proxy, "/"));
        clients.extend(admitted(proxy, "/vital", 2));
        assert!(is_denied(proxy, "/vital"));
        assert_eq!(proxy.decisions("fleet", "denied"), 4);
        finish(clients, &release);
        // In Redis slots are released after the responses. All of them are for the highest class.
        let mut clients = Vec::new();
        eventually("all slots are used", || {
            clients.extend(ask(proxy, "/vital"));
            clients.len() == 10
        });
        assert!(is_denied(proxy, "/vital"));
        finish(clients, &release);
    });
}

#[test]
fn a_trusted_proxy_names_the_class() {
    let (upstream, release) = held_back();
    let proxy = Tidegate::start(&fleet(&upstream));
    let clients = admitted(&proxy, "/", 7);
    let named = |from| send(from, proxy.addr(), "/ HTTP/1.1\r\nX-Priority: critical");
    assert!(named("127.0.0.1").is_err());
    let critical = named(PROXY).unwrap_or_else(|denial| panic!("{denial:?}"));
    finish(clients.into_iter().chain([critical]).collect(), &release);
}

#[test]
fn proxies_share_the_reserved_slots_and_renew_their_leases() {
    let redis = RedisServer::start();
    let (upstream, _release) = held_back();
    let file = fleet(&upstream);
    let (holding, other) = (Tidegate::start_with(&redis, &file), Tidegate::start_with(&redis, &file));
    let _clients = admitted(&holding, "/", 7);
    // Longer than a lease, by the clock of a real Redis: only renewed leases are still valid then.
    let until = Instant::now() + Duration::from_millis(4_500);
    while Instant::now() < until {
        assert!(is_denied(&other, "/"));
        std::thread::sleep(Duration::from_millis(100));
    }
    let _critical = admitted(&other, "/vital", 3);
    assert!(is_denied(&other, "/vital") && is_denied(&holding, "/vital"));
    holding.signal("KILL");
    // The leases expire, and seven slots are free, of which three are left to higher classes.
    eventually("the leases expire", || ask(&other, "/").is_ok());
}

#[test]
fn the_share_of_a_proxy_reserves_slots_while_redis_is_unavailable() {
    let mut redis = RedisServer::start();
    let (upstream, release) = held_back();
    let proxy = Tidegate::start_with(&redis, &fleet(&upstream));
    redis.kill();
    let mut clients = admitted(&proxy, "/", 7);
    assert!(is_denied(&proxy, "/"));
    clients.extend(admitted(&proxy, "/vital", 3));
    assert!(is_denied(&proxy, "/vital"));
    finish(clients, &release);
}

#[test]
fn classes_keep_no_slots_and_tiers_reserve_their_own() {
    let file = "listen = \"127.0.0.1:0\"\n[store]\nurl = \"redis://127.0.0.1:1\"\ninstances = 2\n\
        [limits.fleet]\nalgorithm = \"concurrency\"\nmax_in_flight = 100\nahead = \"auto\"\n\
        reserved_share = { critical = 0.2, normal = 0.3 }\n\
        tiers = { by = \"method\", POST = { max_in_flight = 10 } }\n\
        [[routes]]\npath = \"/*\"\nlimits = [\"fleet\"]\nrespond = {}\npriority = \"low\"\n";
    let loaded = config::parse(file, "tidegate.toml", &|_| None).unwrap_or_else(|report| panic!("{report}"));
    let gate = &loaded.config.snapshot.gate;
    let policies = gate.limits.policies.iter().zip(&*gate.limits.shares);
    let found: Vec<_> = policies
        .map(|(policy, share)| (policy.quota.usable(), share.quota.usable(), policy.keeps_slots))
        .collect();
    let of_classes = [(80, 40, false), (50, 25, false), (8, 4, false), (5, 3, false)];
    assert_eq!(found, [&[(100, 50, false), (10, 5, false)][..], &of_classes].concat());
    // They count in the same states, for which commands show one limit.
    let salts: Vec<u128> = gate.limits.policies.iter().map(tidegate::limit::Policy::salt).collect();
    assert_eq!(salts[2..], [salts[0], salts[0], salts[1], salts[1]]);
    assert!((0..6).all(|id| gate.limit_of(PolicyId(id)) == PolicyId(0)));
    assert!(gate.limits.policies.iter().all(|policy| [100, 10].contains(&policy.quota.limit())));
}

#[test]
fn a_route_without_an_upstream_has_a_class() {
    let file = "[limits.fleet]\nalgorithm = \"concurrency\"\nmax_in_flight = 10\ncost = 4\nkey = \"global\"\n\
        reserved_share = { critical = 0.5 }\n\
        [[routes]]\npath = \"/vital\"\nlimits = [\"fleet\"]\nrespond = {}\npriority = \"critical\"\n\
        [[routes]]\npath = \"/*\"\nlimits = [\"fleet\"]\nrespond = {}\n";
    let proxy = Tidegate::start(file);
    let remaining = |path| {
        let response = get(proxy.addr(), path, &[]);
        ["x-ratelimit-limit", "x-ratelimit-remaining"].map(|name| response.header(name).unwrap().to_owned())
    };
    assert_eq!(remaining("/vital"), ["10", "6"]);
    // A slot may be released after the response.
    eventually("the slot is released", || remaining("/") == ["10", "1"]);
}
