//! Every way in which a Redis is reached: TLS, as an ACL user, through Sentinel, as a cluster.

mod clustered;
mod secured;
mod watched;

use std::time::Duration;

use tidegate::limit::{Charge, Key, Policy, PolicyId, Quota, Rate};
use tidegate::store::redis::Target;
use tidegate::store::{Redis, RedisSpec};
use tidegate::time::Micros;

use crate::support::PATIENCE;

/// A store at a URL.
fn spec(url: &str) -> RedisSpec {
    RedisSpec {
        target: Target::parse(url).unwrap(),
        timeout: PATIENCE,
        prefix: "tidegate".into(),
        client_clock: false,
    }
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
async fn recovered(redis: &Redis, policies: &[Policy], key: u8) -> u64 {
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
