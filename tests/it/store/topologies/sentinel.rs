//! Through Sentinel.

use std::time::{Duration, Instant};

use tidegate::store::redis::RedisAddress;
use tidegate::store::{Redis, RedisSpec};

use super::{admit, bucket, charge, documented, recovered, run, spec};
use crate::support::{RedisServer, Watched, patience};

fn watched_spec(sentinels: &str) -> RedisSpec {
    let mut spec = spec(&format!("redis-sentinel://tidegate:SECRET@{sentinels}/?service=gate"));
    if let RedisAddress::Sentinel { username, password, .. } = &mut spec.target.address {
        (*username, *password) = (Some("watcher".to_owned()), Some("SECRET".to_owned()));
    }
    spec
}

#[test]
fn a_failover_is_followed_and_counts_are_exact_again() {
    let mut service = Watched::start("hush");
    for redis in [&service.master, &service.replica] {
        admit(redis, "hush", "tidegate", &documented("tidegate", "+role"));
    }
    admit(&service.sentinel, "watch-hush", "watcher", &documented("watcher", ""));
    let absent = RedisServer::absent();
    let mut spec = watched_spec(&format!("{},{}", absent.addr(), service.sentinel.addr()));
    // A short timeout, as in a proxy: calls fail during the failover.
    spec.timeout = Duration::from_millis(200);
    let policies = std::sync::Arc::from([bucket("a", 1_000)]);
    run(async {
        let redis = Redis::connect(&spec);
        redis.wait_connected(patience()).await.unwrap();
        for left in (990..1_000).rev() {
            assert_eq!(redis.take(&policies, &[charge(0, 1)]).await.unwrap()[0].remaining, left);
        }
        service.master.cli(&["-a", "hush", "wait", "1", "1000"]);
        service.master.kill();
        let start = Instant::now();
        let first = recovered(&redis, &policies, 1).await;
        println!("recovered in {:?}, {first} left", start.elapsed());
        assert!((980..990).contains(&first), "{first}");
        for left in (first - 10..first).rev() {
            assert_eq!(redis.take(&policies, &[charge(0, 1)]).await.unwrap()[0].remaining, left);
        }
    });
    assert!(service.replica.cli(&["-a", "hush", "role"]).starts_with("master"));
}
