//! Topologies and access of Redis: TLS, ACL users, Sentinel, Cluster, several servers.

mod cluster;
mod sentinel;
mod several_servers;
mod stalled_node;
mod tls_and_acl;

use tidegate::limit::{Charge, Key, Policy, PolicyId, Quota, Rate};
use tidegate::store::redis::RedisTarget;
use tidegate::store::{Redis, RedisSpec};
use tidegate::time::Micros;

use crate::support::{RedisServer, eventually_async, patience};

/// A store at a URL.
pub(super) fn spec(url: &str) -> RedisSpec {
    RedisSpec {
        target: RedisTarget::parse(url).unwrap(),
        timeout: patience(),
        prefix: "tidegate".into(),
        client_clock: false,
    }
}

/// The ACL rules of a user in docs/redis.md, and those that it adds for a topology.
fn documented(user: &str, more: &str) -> Vec<&'static str> {
    let text = include_str!("../../../docs/redis.md");
    let rule = text.lines().find_map(|line| line.strip_prefix(&format!("user {user} "))).unwrap();
    assert!(more.is_empty() || text.contains(&format!("`{more}`")), "{more} is not in docs/redis.md");
    let more = text.find(more).map_or("", |at| &text[at..at + more.len()]);
    rule.split(' ').chain(more.split(' ').filter(|word| !word.is_empty())).collect()
}

/// Creates a user with these ACL rules.
fn admit(redis: &RedisServer, password: &str, user: &str, rights: &[&str]) {
    let auth: &[&str] = if password.is_empty() { &[] } else { &["-a", password] };
    assert_eq!(redis.cli(&[auth, &["acl", "setuser", user], rights].concat()), "OK");
}

/// A bucket that does not refill while a test runs.
pub(super) fn bucket(name: &str, burst: u64) -> Policy {
    let rate = Rate::new(1, Micros(86_400_000_000)).unwrap();
    Policy::new(name, Quota::token_bucket(rate, burst).unwrap())
}

pub(super) fn charge(policy: u32, key: u8) -> Charge {
    Charge::take(PolicyId(policy), Key([key; 16]), 1)
}

pub(super) fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

/// Takes single units of `key` until a call succeeds; the remaining units then. Failed calls may have charged.
async fn recovered(redis: &Redis, policies: &std::sync::Arc<[Policy]>, key: u8) -> u64 {
    let mut remaining = None;
    eventually_async("a call succeeds", async || {
        let decisions = redis.take(policies, &[charge(0, key)]).await;
        remaining = decisions.ok().map(|decisions| decisions[0].remaining);
        remaining.is_some()
    })
    .await;
    remaining.unwrap()
}
