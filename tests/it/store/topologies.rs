//! Every way in which a Redis is reached: TLS, as an ACL user, through Sentinel, as a cluster.

mod cluster;
mod sentinel;
mod tls_and_acl;

use std::time::Duration;

use tidegate::limit::{Charge, Key, Policy, PolicyId, Quota, Rate};
use tidegate::store::redis::Target;
use tidegate::store::{Redis, RedisSpec};
use tidegate::time::Micros;

use crate::support::{PATIENCE, RedisServer};

/// A store at a URL.
fn spec(url: &str) -> RedisSpec {
    RedisSpec {
        target: Target::parse(url).unwrap(),
        timeout: PATIENCE,
        prefix: "tidegate".into(),
        client_clock: false,
    }
}

/// A rule of docs/redis.md for a user, and what it says to add.
fn documented(user: &str, more: &str) -> Vec<&'static str> {
    let text = include_str!("../../../docs/redis.md");
    let rule = text.lines().find_map(|line| line.strip_prefix(&format!("user {user} "))).unwrap();
    assert!(more.is_empty() || text.contains(&format!("`{more}`")), "{more} is not in docs/redis.md");
    let more = text.find(more).map_or("", |at| &text[at..at + more.len()]);
    rule.split(' ').chain(more.split(' ').filter(|word| !word.is_empty())).collect()
}

/// Lets a user in who has these rights.
fn admit(redis: &RedisServer, password: &str, user: &str, rights: &[&str]) {
    let auth: &[&str] = if password.is_empty() { &[] } else { &["-a", password] };
    assert_eq!(redis.cli(&[auth, &["acl", "setuser", user], rights].concat()), "OK");
}

/// A bucket that does not refill while a test runs.
fn bucket(name: &str, burst: u64) -> Policy {
    let rate = Rate::new(1, Micros(86_400_000_000)).unwrap();
    Policy::new(name, Quota::token_bucket(rate, burst).unwrap())
}

fn charge(policy: u32, key: u8) -> Charge {
    Charge::take(PolicyId(policy), Key([key; 16]), 1)
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Takes one unit of `key` after the other until one is answered again; what is left then. What fails may have been
/// charged.
async fn recovered(redis: &Redis, policies: &std::sync::Arc<[Policy]>, key: u8) -> u64 {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match redis.take(policies, &[charge(0, key)]).await {
            Ok(decisions) => return decisions[0].remaining,
            Err(error) => assert!(tokio::time::Instant::now() < deadline, "{error}"),
        }
        // Light steady traffic.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
