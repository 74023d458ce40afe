//! The library with Redis: one count with proxies, outages, consumers.

use std::time::{Duration, Instant};

use tidegate::limits::Limiter;

use super::setup::{check, limited, limiter, status, within};
use crate::support::{RedisServer, Tidegate, eventually_async, get, scaled};

pub fn with_redis(redis: &RedisServer, text: &str) -> String {
    format!("{text}[store]\nurl = \"{}\"\ntimeout = \"1s\"\n", redis.url())
}

/// Waits until a limiter is connected: before that, limits follow `on_store_failure`.
pub async fn wait_connected(limiter: &Limiter) {
    eventually_async("the store responds", async || status(&check(limiter, "/ready", &[]).await) == 200)
        .await;
}

pub const READY: &str = "[limits.ready]\nrate = \"1000000/s\"\non_store_failure = \"deny\"\n\
                     [[routes]]\npath = \"/ready\"\nlimits = [\"ready\"]\nrespond = { status = 200 }\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_and_two_limiters_share_one_count() {
    const LIMIT: usize = 60;
    for ahead in ["", "ahead = \"auto\"\n"] {
        let redis = RedisServer::start();
        let limit = format!("[limits.one]\nrate = \"{LIMIT}/day\"\nkey = \"header:x-key\"\n{ahead}");
        let route = "[[routes]]\npath = \"/*\"\nlimits = [\"one\"]\nrespond = { status = 200 }\n";
        let file = with_redis(&redis, &format!("{READY}{limit}{route}"));
        let proxy = Tidegate::start(&file);
        let limiters = [limiter(&file), limiter(&file)];
        for limiter in &limiters {
            wait_connected(limiter).await;
        }
        let address = proxy.addr();
        eventually_async("the proxy is connected", async || {
            tokio::task::spawn_blocking(move || get(address, "/ready", &[]).status()).await.unwrap() == 200
        })
        .await;
        let of_proxy = tokio::task::spawn_blocking(move || {
            (0..LIMIT).filter(|_| get(address, "/", &["X-Key: a"]).status() == 200).count()
        });
        let of_limiters = limiters.map(|limiter| {
            tokio::spawn(async move {
                let mut count = 0;
                for _ in 0..LIMIT {
                    count += usize::from(check(&limiter, "/", &[("x-key", "a")]).await.is_allowed());
                }
                count
            })
        });
        let mut allowed = vec![of_proxy.await.unwrap()];
        for task in of_limiters {
            allowed.push(task.await.unwrap());
        }
        let sum: usize = allowed.iter().sum();
        assert!(sum <= LIMIT, "{allowed:?}");
        // Units that are granted ahead may be held by another process when one is denied.
        assert!(sum == LIMIT || !ahead.is_empty() && sum > LIMIT / 2, "{allowed:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_redis_each_limit_follows_on_store_failure() {
    let mut redis = RedisServer::start();
    let failing = |name: &str, policy: &str| {
        format!(
            "[limits.{name}]\nrate = \"3/day\"\non_store_failure = \"{policy}\"\n\
             [[routes]]\npath = \"/{name}\"\nlimits = [\"{name}\"]\n"
        )
    };
    let limits = ["local", "allow", "deny"].map(|name| failing(name, name)).concat();
    let limiter = limiter(&with_redis(&redis, &format!("{READY}{limits}")));
    wait_connected(&limiter).await;
    for target in ["/local", "/allow", "/deny"] {
        assert_eq!(status(&check(&limiter, target, &[]).await), 200, "{target}");
    }
    redis.kill();
    let start = Instant::now();
    let mut seen = Vec::new();
    for _ in 0..4 {
        for target in ["/local", "/allow", "/deny"] {
            seen.push(status(&check(&limiter, target, &[]).await));
        }
    }
    assert_eq!(seen, [200, 200, 503, 200, 200, 503, 429, 200, 503, 429, 200, 503]);
    assert!(start.elapsed() < scaled(Duration::from_secs(5)), "{:?}", start.elapsed());
    eventually_async("the circuit breaker opens", async || {
        assert_eq!(status(&check(&limiter, "/deny", &[]).await), 503);
        limiter.metrics().contains("tidegate_store_up 0\n")
    })
    .await;
    redis.restart();
    wait_connected(&limiter).await;
    assert_eq!(status(&check(&limiter, "/deny", &[]).await), 200);
    redis.kill();
    within("the thread ends without Redis", limiter.close()).await;
}

#[tokio::test]
async fn a_limiter_starts_without_redis() {
    let redis = RedisServer::absent();
    let limiter = limiter(&with_redis(&redis, &limited("rate = \"1/day\"")));
    assert_eq!(status(&check(&limiter, "/", &[]).await), 200);
    assert_eq!(status(&check(&limiter, "/", &[]).await), 429);
    within("the thread ends", limiter.close()).await;
}

#[tokio::test]
async fn slots_in_redis_are_released_when_the_limiter_is_closed() {
    let redis = RedisServer::start();
    let file = with_redis(
        &redis,
        &limited("algorithm = \"concurrency\"\nmax_in_flight = 1\non_store_failure = \"deny\""),
    );
    let (one, other) = (limiter(&file), limiter(&file));
    let mut held = None;
    eventually_async("the store responds", async || {
        let decision = check(&one, "/", &[]).await;
        let is_allowed = decision.is_allowed();
        held = Some(decision);
        is_allowed
    })
    .await;
    eventually_async("the store responds", async || status(&check(&other, "/", &[]).await) == 429).await;
    drop(held);
    within("the thread ends", one.close()).await;
    assert_eq!(status(&check(&other, "/", &[]).await), 200);
}

#[tokio::test]
async fn consumers_are_read_from_redis() {
    let redis = RedisServer::start();
    let hash = tidegate::consumers::CredentialHash::of(b"k-1");
    redis.cli(&["hset", &format!("tidegate:consumer:{hash}"), "name", "acme", "tier", "pro"]);
    let text = "[consumers]\nredis_cache = \"1s\"\n\
                [limits.each]\nrate = \"2/day\"\nkey = \"consumer\"\n\
                tiers = { by = \"consumer\", pro = { rate = \"5/day\" } }\n\
                [[routes]]\npath = \"/*\"\nlimits = [\"each\"]\n";
    let limiter = limiter(&with_redis(&redis, text));
    let mut limit = None;
    eventually_async("the consumer is found", async || {
        let decision = check(&limiter, "/", &[("x-api-key", "k-1")]).await;
        if let tidegate::limits::Decision::Allowed(allowed) = &decision {
            limit = allowed.limits().next().map(|limit| limit.limit);
        }
        decision.is_allowed()
    })
    .await;
    assert_eq!(limit, Some(5));
    assert_eq!(status(&check(&limiter, "/", &[("x-api-key", "unknown")]).await), 401);
}
