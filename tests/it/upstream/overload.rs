//! Upstreams with `overload`: the limit of requests in flight, classes, fairness, and what refused requests are charged.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::setup::{OK, PLAIN, metric};
use crate::consumers::setup::ConsumersFile;
use crate::support::{Client, RedisServer, Tidegate, Upstream, eventually, get, over_both_stores};

const HEAVY: &str = "127.0.0.2";
const LIGHT: &str = "127.0.0.3";

/// A file with an upstream `u` that has these lines, and a route with others.
fn file(server: &Upstream, upstream: &str, route: &str) -> String {
    format!(
        "[admin]\nlisten = \"127.0.0.1:0\"\n[log]\naccess = \"json\"\n\
         [upstreams.u]\nservers = [\"{}\"]\n{upstream}\n\
         [[routes]]\nname = \"vital\"\npath = \"/vital\"\nupstream = \"u\"\npriority = \"critical\"\n\
         [[routes]]\nname = \"all\"\npath = \"/*\"\nupstream = \"u\"\n{route}\n",
        server.url()
    )
}

/// A request that is in flight at this server, which responds when it is released.
fn in_flight(proxy: &Tidegate, server: &Upstream) -> Client {
    let before = server.received();
    let mut client = Client::connect(proxy.addr());
    client.send(PLAIN);
    eventually("the server has the request", || server.received() == before + 1);
    client
}

/// A server that serves so many requests at a time, each for a few milliseconds.
fn with_slots(count: usize) -> Upstream {
    let free = Arc::new(AtomicUsize::new(count));
    Upstream::scripted(move |caller| {
        while let Ok(Some(_)) = caller.request() {
            let take = |free: usize| free.checked_sub(1);
            eventually("a slot is free", || {
                free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok()
            });
            thread::sleep(Duration::from_millis(3));
            free.fetch_add(1, Ordering::SeqCst);
            if caller.try_send(OK).is_err() {
                return;
            }
        }
    })
}

/// A client at this address that sends requests one after the other; returns how many were served.
fn client(proxy: &Tidegate, from: &'static str, target: &'static str, count: usize) -> JoinHandle<usize> {
    let address = proxy.addr();
    thread::spawn(move || {
        let statuses = (0..count).map(|_| Client::connect_from(from, address).get(target, &[]).status());
        statuses.filter(|status| *status == 200).count()
    })
}

fn served(clients: Vec<JoinHandle<usize>>) -> usize {
    clients.into_iter().map(|client| client.join().unwrap()).sum()
}

fn refusals(proxy: &Tidegate, class: &str) -> usize {
    metric(proxy, "refusals_total", &format!(",class=\"{class}\""))
}

/// The number in a field of a line of the access log.
#[track_caller]
fn field(line: &str, name: &str) -> u64 {
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    line[name].as_u64().unwrap_or_else(|| panic!("no {name}: {line}"))
}

fn release(release: &Sender<()>, client: &mut Client) {
    release.send(()).unwrap();
    assert_eq!(client.read().status(), 200);
}

#[test]
fn a_request_beyond_the_limit_is_refused_and_logged_with_its_class() {
    let (server, releases) = Upstream::gated(OK);
    let proxy = Tidegate::start(&file(&server, "overload = { limit = 1 }", "priority = \"low\""));
    assert_eq!(metric(&proxy, "concurrency_limit", ""), 1);
    let mut first = in_flight(&proxy, &server);
    assert_eq!(metric(&proxy, "requests_in_flight", ""), 1);
    let refused = get(proxy.addr(), "/", &[]);
    assert_eq!((refused.status(), refused.header("cache-control")), (503, Some("no-store")));
    assert!(refused.text().contains("the upstream is overloaded"), "{}", refused.text());
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=3).contains(&wait), "{wait}");
    assert_eq!((refusals(&proxy, "low"), refusals(&proxy, "critical"), server.received()), (1, 0, 1));
    assert_eq!(metric(&proxy, "queue_duration_seconds_count", ",class=\"low\""), 1);
    let line = proxy.accesses(1).remove(0);
    let fields = ["error\":\"overloaded\"", "class\":\"low\"", "upstream\":\"u\"", "route\":\"all\""];
    for field in fields {
        assert!(line.contains(&format!(",\"{field}")), "{line}");
    }
    // It has waited, until it was refused.
    assert!(field(&line, "queue_us") > 0 && field(&line, "queue_us") <= field(&line, "took_us"), "{line}");
    release(&releases, &mut first);
    let mut second = in_flight(&proxy, &server);
    release(&releases, &mut second);
    eventually("no request is in flight", || metric(&proxy, "requests_in_flight", "") == 0);
    let line = &proxy.accesses(3)[1];
    assert!(line.contains("\"status\":200,") && !line.contains("queue_us"), "{line}");
}

#[test]
fn a_waiting_request_is_sent_when_a_place_is_free() {
    let server = with_slots(2);
    let settings = "overload = { limit = 2 }\npending_timeout = \"9s\"";
    let proxy = Tidegate::start(&file(&server, settings, ""));
    // Two requests beyond the limit at most, so that the queue does not stand for long.
    let clients = (0..3).map(|_| client(&proxy, LIGHT, "/", 40)).collect();
    let answered = served(clients);
    assert_eq!(answered + refusals(&proxy, "normal"), 120);
    assert!(answered > 60, "{answered}");
    let lines = proxy.accesses(120);
    let waited =
        lines.iter().filter(|line| line.contains("\"status\":200,") && line.contains("\"queue_us\":"));
    assert!(waited.count() > 0, "{lines:?}");
    assert!(metric(&proxy, "queue_duration_seconds_count", ",class=\"normal\"") > 0);
}

#[test]
fn a_reserved_share_is_left_to_critical_requests() {
    let (server, releases) = Upstream::gated(OK);
    let settings = "overload = { limit = 4, reserved_share = { critical = 0.25 } }";
    let proxy = Tidegate::start(&file(&server, settings, ""));
    let mut held: Vec<Client> = (0..3).map(|_| in_flight(&proxy, &server)).collect();
    assert_eq!((get(proxy.addr(), "/", &[]).status(), server.received()), (503, 3));
    let mut vital = Client::connect(proxy.addr());
    vital.send("GET /vital HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("the critical request is sent", || server.received() == 4);
    drop(releases);
    held.push(vital);
    for client in &mut held {
        assert_eq!(client.read().status(), 200);
    }
}

#[test]
fn critical_requests_pass_while_others_are_refused() {
    let server = with_slots(4);
    let settings = "overload = { limit = 4, reserved_share = { critical = 0.25 } }\nmax_pending = 4";
    let proxy = Tidegate::start(&file(&server, settings, ""));
    let others = (0..12).map(|_| client(&proxy, HEAVY, "/", 40)).collect();
    let vital = client(&proxy, LIGHT, "/vital", 40);
    assert_eq!(vital.join().unwrap(), 40);
    let answered = served(others);
    assert_eq!(answered + refusals(&proxy, "normal"), 480);
    assert!(answered < 480, "no request was refused");
    assert_eq!(refusals(&proxy, "critical"), 0);
}

#[test]
fn a_client_with_many_requests_leaves_others_their_turns() {
    let server = with_slots(1);
    let proxy = Tidegate::start(&file(&server, "overload = { limit = 1 }\nmax_pending = 4", ""));
    let is_over = Arc::new(AtomicBool::new(false));
    let heavy: Vec<_> = (0..10)
        .map(|_| {
            let (address, is_over) = (proxy.addr(), Arc::clone(&is_over));
            thread::spawn(move || {
                while !is_over.load(Ordering::SeqCst) {
                    let _ = Client::connect_from(HEAVY, address).get("/", &[]);
                }
            })
        })
        .collect();
    eventually("requests are refused", || refusals(&proxy, "normal") > 20);
    let light = client(&proxy, LIGHT, "/", 40).join().unwrap();
    is_over.store(true, Ordering::SeqCst);
    for client in heavy {
        client.join().unwrap();
    }
    // One after the other: in a common queue it would get a tenth of the places. On a busy machine some wait for too long.
    assert!(light > 12, "{light} of 40");
}

#[test]
fn in_shadow_mode_no_request_is_refused() {
    let (server, releases) = Upstream::gated(OK);
    let settings = "overload = { mode = \"shadow\", limit = 1 }";
    let proxy = Tidegate::start(&file(&server, settings, ""));
    let mut held: Vec<Client> = (0..3).map(|_| in_flight(&proxy, &server)).collect();
    assert_eq!(metric(&proxy, "above_limit_total", ",class=\"normal\""), 2);
    assert_eq!(metric(&proxy, "requests_in_flight", ""), 3);
    drop(releases);
    for client in &mut held {
        assert_eq!(client.read().status(), 200);
    }
    assert_eq!(refusals(&proxy, "normal"), 0);
    // Those above the limit are logged, and none has waited.
    let lines = proxy.accesses(3);
    let above = lines.iter().filter(|line| line.contains(",\"shadow_refused_by\":[\"u\"]"));
    assert_eq!(above.count(), 2, "{lines:?}");
    assert!(lines.iter().all(|line| !line.contains("queue_us") && !line.contains("\"error\"")), "{lines:?}");
    assert!(!get(proxy.admin(), "/metrics", &[]).text().contains("upstream_queue_duration_seconds_count"));
}

#[test]
fn a_request_that_is_refused_at_once_makes_no_call_and_is_not_charged() {
    let (server, releases) = Upstream::gated(OK);
    let limit = "[answers]\nrate_headers = \"draft-11\"\n[limits.l]\nrate = \"1000/day\"\nkey = \"global\"\n";
    let settings = "overload = { limit = 1 }\nmax_pending = 0";
    let config = limit.to_owned() + &file(&server, settings, "limits = [\"l\"]");
    let redis = RedisServer::start();
    let proxy = Tidegate::start_with(&redis, &config);
    let mut first = in_flight(&proxy, &server);
    let before = redis.calls("evalsha");
    for _ in 0..3 {
        let refused = get(proxy.addr(), "/", &[]);
        assert_eq!((refused.status(), refused.header("ratelimit")), (503, None));
    }
    assert_eq!(redis.calls("evalsha"), before);
    release(&releases, &mut first);
    assert_eq!((proxy.decisions("l", "allowed"), refusals(&proxy, "normal")), (1, 3));
}

#[test]
fn a_request_that_is_refused_after_it_has_waited_gets_its_charges_back() {
    let (server, releases) = Upstream::gated(OK);
    let limits = "[answers]\nrate_headers = \"draft-11\"\n\
                  [limits.bucket]\nrate = \"1000/day\"\nkey = \"global\"\n\
                  [limits.window]\nalgorithm = \"fixed_window\"\nrate = \"1000/day\"\nkey = \"global\"\n";
    let route = "limits = [\"bucket\", \"window\"]";
    let config = limits.to_owned() + &file(&server, "overload = { limit = 1 }", route);
    over_both_stores(&config, |proxy| {
        let mut first = in_flight(proxy, &server);
        assert_eq!(get(proxy.addr(), "/", &[]).status(), 503);
        release(&releases, &mut first);
        let mut second = Client::connect(proxy.addr());
        second.send(PLAIN);
        releases.send(()).unwrap();
        let response = second.read();
        let limits = response.header("ratelimit").unwrap();
        assert_eq!(limits.matches("r=998").count(), 2, "{limits}");
    });
}

#[test]
fn a_reload_keeps_the_requests_in_flight() {
    let (server, releases) = Upstream::gated(OK);
    let settings = "overload = { limit = 1 }";
    let proxy = Tidegate::start(&file(&server, settings, ""));
    let mut first = in_flight(&proxy, &server);
    proxy.reload(&file(&server, &format!("{settings}\nretries = 0"), ""));
    assert_eq!((get(proxy.addr(), "/", &[]).status(), server.received()), (503, 1));
    // A larger limit lets the next request pass, while the first one is still served.
    proxy.reload(&file(&server, "overload = { limit = 2 }", ""));
    assert_eq!(metric(&proxy, "concurrency_limit", ""), 2);
    let mut second = in_flight(&proxy, &server);
    drop(releases);
    assert_eq!((first.read().status(), second.read().status()), (200, 200));
}

#[test]
fn the_class_comes_from_route_trusted_proxy_and_tier() {
    let server = Upstream::echo();
    let consumers = ConsumersFile::new(
        "[gold]\ncredentials = [\"k-gold\"]\ntier = \"gold\"\n\
                     [free]\ncredentials = [\"k-free\"]\ntier = \"free\"\n",
    );
    let route = "priority_from = \"header:x-priority\"";
    let config = format!(
        "[client_ip]\ntrusted_proxies = [\"127.0.0.9\"]\n\
         {}{}",
        consumers.table("unknown = \"anonymous\"\npriorities = { gold = \"high\", free = \"low\" }"),
        file(&server, "overload = true", route)
    );
    let proxy = Tidegate::start(&config);
    let class = |from: &str, headers: &[&str], count: usize| {
        let mut client = Client::connect_from(from, proxy.addr());
        assert_eq!(client.get("/", headers).status(), 200);
        let line = proxy.accesses(count).remove(count - 1);
        let (_, rest) = line.split_once("\"class\":\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    };
    assert_eq!(class("127.0.0.1", &[], 1), "normal");
    assert_eq!(class("127.0.0.1", &["X-Priority: critical"], 2), "normal");
    assert_eq!(class("127.0.0.9", &["X-Priority: critical"], 3), "critical");
    assert_eq!(class("127.0.0.9", &["X-Priority: urgent"], 4), "normal");
    assert_eq!(class("127.0.0.1", &["X-Api-Key: k-gold"], 5), "high");
    assert_eq!(class("127.0.0.1", &["X-Api-Key: k-free"], 6), "normal");
    assert_eq!(class("127.0.0.9", &["X-Priority: low", "X-Api-Key: k-free"], 7), "low");
}
