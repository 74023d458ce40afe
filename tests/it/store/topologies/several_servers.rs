//! Several servers without a Cluster (`urls`): each key is on one of them.

use std::num::NonZeroU64;
use std::sync::Arc;

use serde_json::Value;
use tidegate::limit::{Charge, Key, Policy, Quota, Rate};
use tidegate::limiter::{Delivery, Limiter, Limits, OnStoreFailure, SharedState};
use tidegate::store::{Memory, RedisSpec, Servers, Store, StoreSpec};
use tidegate::telemetry::{Counts, StoreCounts};
use tidegate::time::{Clock, Micros};
use tokio::task::{JoinSet, LocalSet};

use super::{bucket, run, spec};
use crate::cli::keys::{json, keys};
use crate::limits::setup::routes;
use crate::support::{Client, RedisServer, Tidegate, eventually, eventually_async, get, patience};

const ADMIN: &str = "[admin]\nlisten = \"127.0.0.1:0\"\n";

/// The table of a store with these servers.
fn store(servers: &[RedisServer]) -> String {
    let urls: Vec<String> = servers.iter().map(RedisServer::url).collect();
    format!("[store]\nurls = {urls:?}\ntimeout = \"5s\"\n")
}

fn start_servers<const N: usize>() -> [RedisServer; N] {
    std::array::from_fn(|_| RedisServer::start())
}

/// The values of `header` whose keys each server has, by the stored keys of a limit.
fn values_by_server(
    proxy: &Tidegate,
    servers: &[RedisServer],
    (path, header): (&str, &str),
) -> Vec<Vec<String>> {
    let count = |server: &RedisServer| server.keys().iter().filter(|key| !key.contains('+')).count();
    let mut values = vec![Vec::new(); servers.len()];
    for number in 0..1_000 {
        let value = number.to_string();
        let before: Vec<usize> = servers.iter().map(count).collect();
        assert_eq!(get(proxy.addr(), path, &[&format!("{header}: {value}")]).status(), 200);
        let index = (0..servers.len()).find(|index| count(&servers[*index]) > before[*index]).unwrap();
        values[index].push(value);
        if values.iter().all(|of_server| of_server.len() >= 3) {
            break;
        }
    }
    values
}

#[test]
fn limits_on_several_servers_are_not_exceeded() {
    const KEYS: usize = 24;
    const EACH: u64 = 12;
    const ALL: u64 = 250;
    let config = format!(
        "workers = 2\n[limits.each]\nrate = \"1/day\"\nburst = {EACH}\nkey = \"header:x-key\"\n\
         [limits.all]\nrate = \"1/day\"\nburst = {ALL}\nkey = \"global\"\n{}",
        routes(&[("/", &["each", "all"])])
    );
    let servers: [RedisServer; 3] = start_servers();
    let start = || Tidegate::start(&format!("{config}{}", store(&servers)));
    let proxies = [start(), start()];
    let send = |proxy: &Tidegate, rounds: usize| {
        let (mut client, mut admitted) = (Client::connect(proxy.addr()), [0; KEYS]);
        for key in (0..rounds * KEYS).map(|number| number % KEYS) {
            match client.get("/", &[&format!("X-Key: {key}")]).status() {
                200 => admitted[key] += 1,
                429 => {}
                status => panic!("{status}"),
            }
        }
        admitted
    };
    let mut admitted = [0; KEYS];
    let mut add = |some: [u64; KEYS]| {
        admitted.iter_mut().zip(some).for_each(|(all, some)| *all += some);
        assert!(admitted.iter().all(|units| *units <= EACH), "{admitted:?}");
        let sum = admitted.iter().sum::<u64>();
        assert!(sum <= ALL, "{admitted:?}");
        sum
    };
    std::thread::scope(|scope| {
        let clients: Vec<_> =
            proxies.iter().chain(&proxies).map(|proxy| scope.spawn(|| send(proxy, 8))).collect();
        for client in clients {
            add(client.join().unwrap());
        }
    });
    // A competing request may have been denied, and what it gives back returns a moment later.
    eventually("all units are admitted", || add(send(&proxies[0], 1)) == ALL);
    assert_eq!(send(&proxies[1], 1), [0; KEYS]);
    let with_limits = |server: &&RedisServer| server.keys().iter().any(|key| key.contains(":each:"));
    assert!(servers.iter().filter(with_limits).count() > 1, "the keys are on several servers");
}

#[test]
fn a_stopped_server_affects_its_keys_alone() {
    let mut servers: [RedisServer; 2] = start_servers();
    let limits = "[limits.strict]\nrate = \"1000/day\"\nkey = \"header:x-key\"\non_store_failure = \"deny\"\n\
                  [limits.lenient]\nrate = \"1000/day\"\nkey = \"header:x-other\"\non_store_failure = \"allow\"\n";
    let routes =
        routes(&[("/strict", &["strict"]), ("/lenient", &["lenient"]), ("/both", &["strict", "lenient"])]);
    let proxy = Tidegate::start(&format!("{limits}{routes}{ADMIN}{}", store(&servers)));
    let strict = values_by_server(&proxy, &servers, ("/strict", "X-Key"));
    let lenient = values_by_server(&proxy, &servers, ("/lenient", "X-Other"));
    servers[1].kill();
    // From the first request on: those for keys of the other server do not need this one.
    let status = |key: &str| get(proxy.addr(), "/strict", &[&format!("X-Key: {key}")]).status();
    for _ in 0..5 {
        assert!(strict[0].iter().all(|key| status(key) == 200));
        assert!(strict[1].iter().all(|key| status(key) == 503));
    }
    let line = proxy.wait_log(&format!("the store at {} is unavailable: ", servers[1].url()));
    assert!(line.contains("for its keys each limit follows its on_store_failure"), "{line}");
    assert_eq!(proxy.metric("tidegate_store_up"), 0);
    let is_up = |server: &RedisServer| {
        proxy.metric(&format!("tidegate_store_server_up{{server=\"{}\"}}", server.url()))
    };
    assert_eq!((is_up(&servers[0]), is_up(&servers[1])), (1, 0));
    assert!(get(proxy.admin(), "/ready", &[]).text().contains("store: 1 of 2 servers unreachable\n"));
    // A request with limits on both: each limit by itself.
    let both = |key: &str, other: &str| {
        get(proxy.addr(), "/both", &[&format!("X-Key: {key}"), &format!("X-Other: {other}")])
    };
    let remaining = || {
        let shown = get(proxy.addr(), "/strict", &[&format!("X-Key: {}", strict[0][0])]);
        shown.header("x-ratelimit-remaining").unwrap().parse::<u64>().unwrap()
    };
    let before = remaining();
    for _ in 0..3 {
        assert_eq!(both(&strict[0][0], &lenient[1][0]).status(), 200);
    }
    assert_eq!(remaining(), before - 4, "the limit of the available server is charged");
    assert_eq!(both(&strict[1][0], &lenient[0][0]).status(), 503);
    servers[1].restart();
    proxy.wait_log(&format!("the store at {} is available again", servers[1].url()));
    assert!(strict.iter().flatten().all(|key| status(key) == 200));
    assert_eq!(both(&strict[1][0], &lenient[0][0]).status(), 200);
    assert_eq!(proxy.logged(&format!("the store at {}", servers[0].url())), 0);
}

#[test]
fn what_was_admitted_without_a_server_is_charged_to_it() {
    let mut servers: [RedisServer; 2] = start_servers();
    let limit = "[limits.each]\nrate = \"100/day\"\nkey = \"header:x-key\"\n";
    let config = format!("{limit}{}{ADMIN}{}", routes(&[("/", &["each"])]), store(&servers));
    let proxy = Tidegate::start(&config);
    let values = values_by_server(&proxy, &servers, ("/", "X-Key"));
    let remaining = |key: &str| {
        let response = get(proxy.addr(), "/", &[&format!("X-Key: {key}")]);
        response.header("x-ratelimit-remaining").unwrap().parse::<u64>().unwrap()
    };
    servers[0].kill();
    proxy.wait_log(" is unavailable: ");
    for _ in 0..10 {
        remaining(&values[0][0]);
    }
    servers[0].restart();
    proxy.wait_log(" is available again");
    eventually("the debt is paid", || proxy.metric("tidegate_owed_keys") == 0);
    // The server has lost its data; the first requests may have been lost with the connection.
    let left = remaining(&values[0][0]);
    assert!((89..=91).contains(&left), "{left}");
    assert_eq!(remaining(&values[1][0]), 98);
}

#[test]
fn operators_reach_the_keys_of_all_servers() {
    let servers: [RedisServer; 2] = start_servers();
    let limit = "[limits.each]\nrate = \"100/day\"\nkey = \"header:x-key\"\n";
    let proxy = Tidegate::start(&format!("{limit}{}{ADMIN}{}", routes(&[("/", &["each"])]), store(&servers)));
    let values = values_by_server(&proxy, &servers, ("/", "X-Key"));
    let all: Vec<&String> = values.iter().flatten().collect();
    let listed = || json(&proxy, &["list"])["keys"].as_array().unwrap().len();
    assert_eq!(listed(), all.len());
    let peek = |value: &str| json(&proxy, &["peek", "each", value])["keys"][0].clone();
    for of_server in &values {
        let value = &*of_server[0];
        assert_eq!(peek(value)["remaining"], 99);
        keys(&proxy, &["raise", "each", value, "--by", "2x", "--for", "1h"]);
        eventually("the raise applies", || {
            let response = get(proxy.addr(), "/", &[&format!("X-Key: {value}")]);
            response.header("x-ratelimit-limit") == Some("200")
        });
    }
    assert_eq!(json(&proxy, &["raises"])["raises"].as_array().unwrap().len(), 2);
    for of_server in &values {
        let value = &*of_server[0];
        keys(&proxy, &["raise", "each", value, "--end"]);
        keys(&proxy, &["block", "each", value, "--for", "1h"]);
        assert_eq!(get(proxy.addr(), "/", &[&format!("X-Key: {value}")]).status(), 403);
        keys(&proxy, &["unblock", "each", value]);
        keys(&proxy, &["reset", "each", value]);
        assert_eq!(peek(value)["remaining"], 100);
    }
    assert_eq!(json(&proxy, &["raises"])["raises"], Value::Array(Vec::new()));
    // A server may still have keys that have moved to another one: they are not listed.
    let before = listed();
    let moved = servers[0].keys().into_iter().find(|key| key.contains(":each:")).unwrap();
    servers[1].cli(&["set", &moved, "x"]);
    assert_eq!(listed(), before);
    for [from, to] in [[&servers[0], &servers[1]], [&servers[1], &servers[0]]] {
        for key in from.keys().iter().filter(|key| key.contains(":each:")) {
            to.cli(&["set", key, "x"]);
        }
    }
    for max in 1..=before + 1 {
        let list = json(&proxy, &["list", "--max", &max.to_string()]);
        let is_whole = list["keys"].as_array().unwrap().len() == before;
        assert!(is_whole || list["more"] == true, "at most {max}: {list}");
    }
    assert_eq!(json(&proxy, &["list"])["more"], false);
}

#[test]
fn a_server_can_be_added_while_requests_are_served() {
    let servers: [RedisServer; 3] = start_servers();
    let limit = "[limits.each]\nrate = \"100/day\"\nkey = \"header:x-key\"\n";
    let config = |count| {
        format!(
            "listen = \"127.0.0.1:0\"\n{limit}{}{ADMIN}{}",
            routes(&[("/", &["each"])]),
            store(&servers[..count])
        )
    };
    let proxy = Tidegate::start(&config(2));
    let values = values_by_server(&proxy, &servers[..2], ("/", "X-Key"));
    let all: Vec<&String> = values.iter().flatten().collect();
    proxy.reload(&config(3));
    proxy.wait_log(&servers[2].url());
    let remaining = |value: &str| {
        let response = get(proxy.addr(), "/", &[&format!("X-Key: {value}")]);
        response.header("x-ratelimit-remaining").unwrap().parse::<u64>().unwrap()
    };
    let moved = all.iter().filter(|value| remaining(value) == 99).count();
    let stayed = all.iter().filter(|value| remaining(value) == 97).count();
    // Those that have moved start anew, and the others have spent one unit more than these.
    assert_eq!(moved + stayed, all.len());
    let added = servers[2].keys().iter().filter(|key| key.contains(":each:")).count();
    assert_eq!(added, moved);
    proxy.reload(&config(2));
    for value in &all {
        keys(&proxy, &["raise", "each", value, "--by", "2x", "--for", "1h"]);
    }
    proxy.reload(&config(3));
    let raised = || json(&proxy, &["raises"])["raises"].as_array().unwrap().len();
    eventually("the raises of keys that have moved are not listed", || raised() == stayed);
}

/// A limiter of its own process over these servers, and a key of each of them.
async fn limiter(servers: &[RedisServer]) -> (Limiter, Vec<Key>) {
    let named = |server: &RedisServer| {
        let spec: RedisSpec = spec(&server.url());
        (spec.target.name(), spec)
    };
    let specs = Servers::named(servers.iter().map(named).collect()).unwrap();
    let key =
        |index| (0..=255).map(|number| Key([number; 16])).find(|key| specs.index(*key) == index).unwrap();
    let keys = (0..servers.len()).map(key).collect();
    let (spec, memory) = (StoreSpec::Redis(Box::new(specs)), Arc::new(Memory::new(100, Clock::System)));
    let stores = Store::open(&spec, &memory, &StoreCounts::default());
    for store in stores.iter() {
        store.wait_connected(patience()).await.unwrap();
    }
    let shared = SharedState::of_servers(&spec, &memory, NonZeroU64::MIN);
    (Limiter::new(&stores, &shared), keys)
}

fn limits(policies: Vec<Policy>) -> Limits {
    let all = policies.into_iter().map(|policy| (policy, OnStoreFailure::Deny)).collect();
    Limits::new(all, NonZeroU64::MIN)
}

/// The charge of one unit.
fn charge(policy: u32, key: Key) -> Charge {
    Charge::take(tidegate::limit::PolicyId(policy), key, 1)
}

async fn remaining(limiter: &Limiter, limits: &Limits, charges: &[Charge]) -> Vec<u64> {
    let shown = limiter.peek(limits, charges).await;
    assert!(shown.verdict.is_ok());
    shown.statuses.iter().map(|status| status.decision.remaining).collect()
}

#[test]
fn a_denied_request_is_charged_on_no_server() {
    let servers: [RedisServer; 3] = start_servers();
    run(LocalSet::new().run_until(async {
        let (limiter, keys) = limiter(&servers).await;
        let slots = Policy::new("slots", Quota::concurrency(5, Micros(60_000_000)).unwrap());
        let limits = limits(vec![bucket("a", 10), bucket("b", 2), slots]);
        let mut maintenance = JoinSet::new();
        limiter.spawn_maintenance(&mut maintenance);
        for (a, b, c) in [(0, 1, 2), (1, 2, 0), (2, 0, 1)] {
            let charges = [charge(0, keys[a]), charge(1, keys[b]), charge(2, keys[c])];
            let mut held = Vec::new();
            for _ in 0..4 {
                held.push(limiter.decide(&limits, &charges).await);
            }
            let passed: Vec<bool> = held.iter().map(|admission| admission.verdict.is_ok()).collect();
            assert_eq!(passed, [true, true, false, false]);
            let order: Vec<u32> = held[0].statuses.iter().map(|status| status.policy.0).collect();
            assert_eq!(order, [0, 1, 2], "the decisions are in the order of the charges");
            assert_eq!(remaining(&limiter, &limits, &charges).await, [8, 0, 3]);
            drop(held);
            eventually_async("the slots are released", async || {
                remaining(&limiter, &limits, &charges).await == [8, 0, 5]
            })
            .await;
        }
    }));
}

/// A position in the queue of a leaky bucket can't be given back, so the other server is asked first.
#[test]
fn a_denied_request_takes_no_position_in_the_queue_of_an_unavailable_server() {
    let mut servers: [RedisServer; 2] = start_servers();
    servers.sort_by_key(RedisServer::url);
    run(LocalSet::new().run_until(async {
        let ((own, keys), (other, _)) = (limiter(&servers).await, limiter(&servers).await);
        let queue = Quota::leaky_bucket(Rate::new(1, Micros(86_400_000_000)).unwrap(), 0).unwrap();
        let all = vec![
            (bucket("a", 1), OnStoreFailure::Deny),
            (Policy::new("queue", queue), OnStoreFailure::Local),
            (bucket("probe", 1), OnStoreFailure::Deny),
        ];
        let limits = Limits::new(all, NonZeroU64::MIN);
        let mut maintenance = JoinSet::new();
        own.spawn_maintenance(&mut maintenance);
        assert!(other.decide(&limits, &[charge(0, keys[0])]).await.verdict.is_ok());
        servers[1].kill();
        let probe = [charge(2, keys[1])];
        eventually_async("the breaker is open", async || {
            own.decide(&limits, &probe).await.verdict.is_err() && own.known_denial(&limits, &probe).is_some()
        })
        .await;
        let queued = charge(1, keys[1]);
        assert!(own.decide(&limits, &[charge(0, keys[0]), queued]).await.verdict.is_err());
        assert!(own.decide(&limits, &[queued]).await.verdict.is_ok(), "the queue is empty");
    }));
}

/// Requests at the same time, of which the last unit of each limit admits one, hold no part of it when they are denied.
#[test]
fn what_competing_requests_have_taken_is_given_back() {
    let servers: [RedisServer; 3] = start_servers();
    run(LocalSet::new().run_until(async {
        let (limiter, keys) = limiter(&servers).await;
        let limits = limits(vec![bucket("a", 50), bucket("b", 20), bucket("c", 10)]);
        let charges = [charge(0, keys[0]), charge(1, keys[1]), charge(2, keys[2])];
        let requests = (0..60).map(|_| limiter.decide(&limits, &charges));
        let admitted = futures_util::future::join_all(requests).await;
        let admitted = admitted.iter().filter(|admission| admission.verdict.is_ok()).count() as u64;
        assert!((1..=10).contains(&admitted), "{admitted}");
        eventually_async("all else is given back", async || {
            remaining(&limiter, &limits, &charges).await == [50 - admitted, 20 - admitted, 10 - admitted]
        })
        .await;
    }));
}

#[test]
fn a_client_that_disconnects_before_its_request_is_decided_gets_back_what_was_charged() {
    let servers: [RedisServer; 3] = start_servers();
    run(LocalSet::new().run_until(async {
        let (limiter, keys) = limiter(&servers).await;
        // Limits in shadow mode are not checked, and charged last.
        let mut shadow = bucket("c", 10);
        shadow.shadow = true;
        let limits = limits(vec![bucket("a", 10), bucket("b", 10), shadow]);
        let charges = [charge(0, keys[0]), charge(1, keys[1]), charge(2, keys[2])];
        let last = servers.iter().max_by_key(|server| spec(&server.url()).target.name()).unwrap();
        last.pause();
        {
            let mut deciding = std::pin::pin!(limiter.decide(&limits, &charges));
            eventually_async("the other servers have charged", async || {
                // The reply to a charge comes before that to the peek which shows it.
                tokio::select! {
                    biased;
                    _ = &mut deciding => panic!("the last server is paused"),
                    left = remaining(&limiter, &limits, &charges[..2]) => left == [9, 9],
                }
            })
            .await;
        }
        eventually_async("it is given back", async || {
            remaining(&limiter, &limits, &charges[..2]).await == [10, 10]
        })
        .await;
        last.resume();
    }));
}

#[test]
fn requests_are_gathered_for_each_server() {
    let servers: [RedisServer; 2] = start_servers();
    run(LocalSet::new().run_until(async {
        let (limiter, _) = limiter(&servers).await;
        let limits = limits(vec![bucket("a", 10)]);
        let requests = (0..200).map(async |number| {
            limiter.decide(&limits, &[charge(0, Key([number; 16]))]).await.verdict.is_ok()
        });
        assert!(futures_util::future::join_all(requests).await.into_iter().all(|passes| passes));
        for server in &servers {
            let keys = server.keys().iter().filter(|key| key.contains(":a:")).count();
            let calls = server.calls("evalsha");
            assert!(keys > 50 && calls <= 5, "{keys} keys in {calls} calls");
        }
    }));
}

#[test]
fn with_grants_of_one_limit_a_request_needs_the_server_of_the_other_one_alone() {
    const REQUESTS: u64 = 200;
    let servers: [RedisServer; 2] = start_servers();
    let config = format!(
        "[limits.each]\nrate = \"1/day\"\nburst = 1000\nkey = \"header:x-key\"\n\
         [limits.all]\nrate = \"1/day\"\nburst = 100_000\nkey = \"global\"\nahead = \"10s\"\n{}",
        routes(&[("/", &["each", "all"])])
    );
    let proxy = Tidegate::start(&format!("{config}{}", store(&servers)));
    let calls = || servers.iter().map(|server| server.calls("evalsha")).sum::<u64>();
    let mut client = Client::connect(proxy.addr());
    let mut send = |requests: u64| {
        for number in 0..requests {
            assert_eq!(client.get("/", &[&format!("X-Key: {}", number % 8)]).status(), 200);
        }
    };
    send(50);
    let before = calls();
    send(REQUESTS);
    let made = calls() - before;
    // One for each, and those for grants; without these, four for each key that is not on the server of the other limit.
    assert!((REQUESTS..REQUESTS * 5 / 4).contains(&made), "{made} calls for {REQUESTS} requests");
}

#[test]
fn a_response_settles_its_limits_on_all_servers() {
    let servers: [RedisServer; 2] = start_servers();
    run(LocalSet::new().run_until(async {
        let (limiter, keys) = limiter(&servers).await;
        let limiter = limiter.with_counts(&Arc::new(Counts::default()));
        let settling = |name| bucket(name, 100).with_charge_on([200].into()).with_settlement(1_000);
        let limits = limits(vec![settling("a"), settling("b")]);
        let charges = [charge(0, keys[0]), charge(1, keys[1])].map(|charge| Charge { cost: 10, ..charge });
        let decide = async || limiter.decide(&limits, &charges).await.reservation.unwrap();
        let mut held = decide().await;
        *held.delivery_mut() = Delivery::Answered;
        assert_eq!(held.reserved().count(), 2);
        let more: Vec<_> = held.reserved().map(|(policy, _)| (policy, 5)).collect();
        assert!(limiter.take_more(&mut held, &more).await);
        assert_eq!(remaining(&limiter, &limits, &charges).await, [85, 85]);
        let settled = held.settle(|policy| Some([4, 27][policy.0 as usize]));
        assert_eq!(settled.len(), 2);
        eventually_async("the units are settled", async || {
            remaining(&limiter, &limits, &charges).await == [96, 73]
        })
        .await;
        let mut refused = decide().await;
        *refused.delivery_mut() = Delivery::Answered;
        let statuses = refused.finish(500).await;
        assert_eq!(statuses.len(), 2);
        assert_eq!(remaining(&limiter, &limits, &charges).await, [96, 73]);
    }));
}
