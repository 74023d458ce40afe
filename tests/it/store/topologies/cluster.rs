//! On a cluster.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::limit::{Charge, ChargeKind, Key, Policy, Quota, Rate};
use tidegate::limiter::{Limiter, Limits, OnStoreFailure, SharedState};
use tidegate::store::{Memory, Redis, RedisSpec, Store};
use tidegate::time::{Clock, Micros};

use super::{admit, bucket, charge, documented, recovered, run, spec};
use crate::support::{Cluster, PATIENCE, RedisServer};

/// Keys of which each lies on another master.
fn apart(cluster: &Cluster) -> [u8; 3] {
    let on = |master| (0..u8::MAX).find(|key| cluster.place(&tag(*key)).0 == master).unwrap();
    [on(0), on(1), on(2)]
}

fn tag(key: u8) -> String {
    format!("{{{}}}", Key([key; 16]))
}

fn watching(mut policy: Policy) -> Policy {
    policy.shadow = true;
    policy
}

async fn connect(spec: &RedisSpec) -> Redis {
    let redis = Redis::connect(spec);
    redis.wait_connected(PATIENCE).await.unwrap();
    redis
}

async fn left(redis: &Redis, policies: &Arc<[Policy]>, charge: Charge) -> u64 {
    redis.take(policies, &[charge.peek()]).await.unwrap()[0].remaining
}

/// All that is asked of a cluster whose nodes stay where they are.
#[test]
fn limits_on_several_nodes_are_taken_all_or_none() {
    let cluster = Cluster::start();
    let keys = apart(&cluster);
    let rate = Rate::new(1, Micros(86_400_000_000)).unwrap();
    let policies = Arc::<[Policy]>::from(vec![
        bucket("wide", 50),
        Policy::new("log", Quota::sliding_log(&[Rate::new(20, Micros(86_400_000_000)).unwrap()]).unwrap()),
        Policy::new("queue", Quota::leaky_bucket(rate, 99).unwrap()),
        watching(bucket("watching", 5)),
        Policy::new("slots", Quota::concurrency(40, Micros(60_000_000)).unwrap()),
    ]);
    let added = "+cluster|slots +cluster|info +cluster|nodes +asking";
    for node in cluster.masters.iter().chain([&cluster.replica]) {
        admit(node, "", "tidegate", &documented("tidegate", added));
    }
    let spec = spec(&cluster.url().replace("://", "://tidegate:SECRET@"));
    run(async {
        let redis = connect(&spec).await;
        let request = [charge(2, keys[0]), charge(0, keys[1]), charge(1, keys[2]), charge(3, keys[0])];
        for number in 1..=20 {
            let said = redis.take(&policies, &request).await.unwrap();
            assert!(said[..3].iter().all(|said| said.allowed), "{said:?}");
            assert_eq!((said[1].remaining, said[2].remaining), (50 - number, 20 - number));
            assert_eq!(said[3].allowed, number <= 5, "{number}");
        }
        let said = redis.take(&policies, &request).await.unwrap();
        assert_eq!((said[1].allowed, said[1].remaining), (true, 30));
        assert!(!said[2].allowed && said[2].retry_after.is_some_and(|wait| wait > Micros::ZERO));
        for (number, remaining) in [(0, 80), (1, 30), (2, 0)] {
            assert_eq!(left(&redis, &policies, request[number]).await, remaining);
        }
        // Slots, which are held and given back one by one, and what operators do.
        let slots: Vec<Charge> = keys
            .iter()
            .map(|key| Charge { holder: tidegate::limit::Holder(u64::from(*key)), ..charge(4, *key) })
            .collect();
        assert!(redis.take(&policies, &slots).await.unwrap().iter().all(|said| said.remaining == 39));
        let back: Vec<Charge> = slots.iter().map(|slot| slot.with_kind(ChargeKind::Release)).collect();
        assert!(redis.apply(&policies, &back).await.unwrap().iter().all(|said| said.remaining == 40));
        let _ = redis.take(&policies, &[charge(0, keys[0]), charge(0, keys[2])]).await.unwrap();
        let mut known = redis.keys(&policies[0], 10).await.unwrap();
        known.sort_by_key(|key| key.0);
        let mut wanted = keys.map(|key| Key([key; 16]));
        wanted.sort_by_key(|key| key.0);
        assert_eq!(known, wanted);
    });
    racing(&spec, keys);
    gathering(&cluster, &spec, keys);
}

/// Units whose node refuses to take them back stay charged; the other nodes take theirs.
#[test]
fn a_node_that_refuses_a_refund_fails_alone() {
    let cluster = Cluster::start();
    let keys = apart(&cluster);
    let mut policy = bucket("due", 50);
    policy.charge_on = [401].into();
    let limits = Limits::new(vec![(policy, OnStoreFailure::Local)], NonZeroU64::MIN);
    run(async {
        let redis = connect(&spec(&cluster.url())).await;
        let shared = SharedState::new(Arc::new(Memory::new(100, Clock::System)), NonZeroU64::MIN);
        let limiter = Limiter::new(Store::Redis(redis.clone()), shared.clone());
        let charges = [keys[1], keys[0], keys[2]].map(|key| charge(0, key));
        // Other requests have units too, so that a refund has something left to write.
        let _ = redis.take(&limits.policies, &charges).await.unwrap();
        let held = limiter.decide(&limits, &charges).await.reservation.unwrap();
        cluster.masters[0].cli(&["config", "set", "maxmemory", "1"]);
        let refunded = held.finish(200).await;
        assert_eq!(refunded.len(), 2);
        assert!(refunded.iter().all(|standing| standing.decision.remaining == 49));
        cluster.masters[0].cli(&["config", "set", "maxmemory", "0"]);
        let mut remaining = Vec::new();
        for key in keys {
            remaining.push(left(&redis, &limits.policies, charge(0, key)).await);
        }
        remaining.sort_unstable();
        assert_eq!(remaining, [48, 49, 49]);
    });
}

/// What waits for a tag goes in one call, and no tag waits for another whose node does not answer.
fn gathering(cluster: &Cluster, spec: &RedisSpec, keys: [u8; 3]) {
    let policies = Arc::<[Policy]>::from(vec![bucket("gathered", 1_000)]);
    let calls = || -> u64 {
        let of = |node: &RedisServer| {
            let stats = node.cli(&["info", "commandstats"]);
            let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:")).unwrap();
            line.split(['=', ',']).nth(1).unwrap().parse::<u64>().unwrap()
        };
        cluster.masters.iter().map(of).sum()
    };
    run(async {
        let redis = connect(spec).await;
        // From here on each node knows the script.
        for key in keys {
            let _ = left(&redis, &policies, charge(0, key)).await;
        }
        let before = calls();
        let asked = (0..600).map(async |number| redis.take(&policies, &[charge(0, keys[number % 3])]).await);
        let said = futures_util::future::join_all(asked).await;
        let mut remaining: Vec<u64> = said.into_iter().map(|said| said.unwrap()[0].remaining).collect();
        remaining.sort_unstable();
        assert!(remaining.chunks(3).zip(800..).all(|(three, left)| three == [left; 3]), "{remaining:?}");
        let made = calls() - before;
        assert!(made <= 60, "{made} calls for 600 requests");
        // The second is answered before the first is given up, unless the machine is busy with something else.
        let deadline = Instant::now() + PATIENCE;
        let (silent, answering) = ([charge(0, keys[0])], [charge(0, keys[1])]);
        loop {
            cluster.masters[0].cli(&["client", "pause", "60000", "write"]);
            let is_first = tokio::select! {
                biased;
                _ = redis.take(&policies, &silent) => false,
                said = redis.take(&policies, &answering) => said.is_ok(),
            };
            cluster.masters[0].cli(&["client", "unpause"]);
            if is_first {
                break;
            }
            assert!(Instant::now() < deadline, "it waits for a node that it has nothing to do with");
        }
    });
}

/// Requests that overtake each other: exactly so many pass as the narrowest limit has, and nothing is lost of the
/// others.
fn racing(spec: &RedisSpec, keys: [u8; 3]) {
    let log = |name: &str, units| {
        Policy::new(name, Quota::sliding_log(&[Rate::new(units, Micros(86_400_000_000)).unwrap()]).unwrap())
    };
    let policies = Arc::<[Policy]>::from(vec![log("first", 300), log("second", 60), log("third", 100)]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let passed = runtime.block_on(async {
        let mut tasks = Vec::new();
        for number in 0..8 {
            let (policies, redis) = (Arc::clone(&policies), connect(spec).await);
            // Some want the first and the second, some the first and the third, and some all of them.
            let charges = match number % 3 {
                0 => vec![charge(0, keys[0]), charge(1, keys[1])],
                1 => vec![charge(0, keys[0]), charge(2, keys[2])],
                _ => vec![charge(2, keys[2]), charge(0, keys[0]), charge(1, keys[1])],
            };
            for _ in 0..4 {
                let (policies, redis, charges) = (Arc::clone(&policies), redis.clone(), charges.clone());
                tasks.push(tokio::spawn(async move {
                    let mut passed = [0_u64; 3];
                    for _ in 0..20 {
                        let said = redis.take(&policies, &charges).await.unwrap();
                        if said.iter().all(|said| said.allowed) {
                            for charge in &charges {
                                passed[charge.policy.0 as usize] += 1;
                            }
                        }
                    }
                    passed
                }));
            }
        }
        let mut sum = [0; 3];
        for task in tasks {
            let passed = task.await.unwrap();
            sum.iter_mut().zip(passed).for_each(|(sum, passed)| *sum += passed);
        }
        let redis = connect(spec).await;
        for (place, policy) in policies.iter().enumerate() {
            let charge = charge(u32::try_from(place).unwrap(), keys[place]);
            let left = left(&redis, &policies, charge).await;
            // What was given back is there again, and what passed is gone.
            assert_eq!(policy.quota.limit() - left, sum[place], "{}", policy.name);
        }
        sum
    });
    assert_eq!(passed[1], 60);
    assert!(passed[0] > 60 && passed[2] <= 100, "{passed:?}");
}

/// A slot that is being moved: the key of the first of these limits has been, and that of the second has not, so a request
/// that needs both gets TRYAGAIN.
struct Moving<'a> {
    cluster: &'a Cluster,
    slot: String,
    from: usize,
    to: usize,
}

impl<'a> Moving<'a> {
    /// Begins to move the slot of `key`, and moves the stored keys of this limit.
    #[track_caller]
    fn begin(cluster: &'a Cluster, key: u8, limit: &str) -> Self {
        let (from, slot) = cluster.place(&tag(key));
        let moving = Self { cluster, slot, from, to: (from + 1) % 3 };
        moving.set(moving.to, &["importing", &cluster.id(from)]);
        moving.set(from, &["migrating", &cluster.id(moving.to)]);
        moving.migrate(key, limit);
        moving
    }

    #[track_caller]
    fn set(&self, node: usize, change: &[&str]) {
        let arguments = [&["cluster", "setslot", &self.slot], change].concat();
        assert_eq!(self.cluster.masters[node].cli(&arguments), "OK");
    }

    #[track_caller]
    fn migrate(&self, key: u8, limit: &str) {
        let port = self.cluster.masters[self.to].addr().port().to_string();
        let name = format!("tidegate:{}:{limit}:b", tag(key));
        let said = self.cluster.masters[self.from].cli(&["migrate", "127.0.0.1", &port, &name, "0", "1000"]);
        assert_eq!(said, "OK");
    }

    /// Moves the rest.
    #[track_caller]
    fn end(&self, key: u8, limit: &str) {
        self.migrate(key, limit);
        let id = self.cluster.id(self.to);
        for node in [self.to, self.from, (self.to + 1) % 3] {
            self.set(node, &["node", &id]);
        }
    }

    /// How often the node that gives the slot away has answered TRYAGAIN.
    #[track_caller]
    fn tries(&self) -> u64 {
        let errors = self.cluster.masters[self.from].cli(&["info", "errorstats"]);
        let line = errors.lines().find_map(|line| line.strip_prefix("errorstat_TRYAGAIN:count="));
        line.map_or(0, |count| count.trim().parse().unwrap())
    }
}

/// A request whose keys lie on both sides of a slot that is being moved waits for it up to its deadline, and asks less and
/// less often. If the deadline passes, nothing was charged, and it is no failure of the store.
#[test]
fn a_request_waits_for_a_slot_that_is_being_moved() {
    let cluster = Cluster::start();
    let key = apart(&cluster)[0];
    let limits = Limits::new(
        vec![(bucket("a", 50), OnStoreFailure::Local), (bucket("b", 50), OnStoreFailure::Local)],
        NonZeroU64::MIN,
    );
    let request = [charge(0, key), charge(1, key)];
    run(async {
        let redis = connect(&spec(&cluster.url())).await;
        let said = redis.take(&limits.policies, &request).await.unwrap();
        assert!(said.iter().all(|said| said.remaining == 49), "{said:?}");
        let moving = Moving::begin(&cluster, key, "a");

        // Many requests, each of which gives up in the end.
        let impatient = RedisSpec { timeout: Duration::from_millis(60), ..spec(&cluster.url()) };
        let shared = SharedState::new(Arc::new(Memory::new(100, Clock::System)), NonZeroU64::MIN);
        let limiter = Limiter::new(Store::Redis(connect(&impatient).await), shared.clone());
        let start = Instant::now();
        for number in 1..=15 {
            let begun = Instant::now();
            let ruling = limiter.decide(&limits, &request).await;
            assert!(begun.elapsed() >= Duration::from_millis(40), "{:?}", begun.elapsed());
            // The share of one proxy knows nothing of the first take.
            assert_eq!(ruling.standings[1].decision.remaining, 50 - number);
        }
        assert!(start.elapsed() > Duration::from_millis(600));
        assert_eq!((shared.breakers.openings(), shared.breakers.open()), (0, 0));
        // All of it is owed, but for a last attempt whose answer comes late on a busy machine: that one may have charged.
        let owed = shared.ledger.units()[0];
        assert!((10..=30).contains(&owed) && owed.is_multiple_of(2), "{owed}");

        // One that waits long enough.
        let before = moving.tries();
        let waiting = redis.take(&limits.policies, &request);
        let moves = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let tries = moving.tries() - before;
            assert!((3..=14).contains(&tries), "{tries} tries in half a second");
            moving.end(key, "b");
        };
        let (said, ()) = tokio::join!(waiting, moves);
        // Units admitted without the store are not charged yet: the limiter's maintenance task does not run.
        assert!(said.unwrap().iter().all(|said| said.remaining == 48));
        limiter.release_slots().await;
        assert!(shared.ledger.is_empty());
        for number in 0..2 {
            assert_eq!(left(&redis, &limits.policies, charge(number, key)).await, 48 - owed / 2);
        }
    });
}

/// The slot of a key moves to another node while the key is asked for, first half of it and then the rest; no unit is
/// charged twice, and none forgotten.
#[test]
fn a_slot_moves_under_traffic_and_a_master_fails() {
    let mut cluster = Cluster::start();
    let keys = apart(&cluster);
    let policies = Arc::<[Policy]>::from(vec![bucket("a", 100_000)]);
    let spec = RedisSpec { timeout: Duration::from_millis(500), ..spec(&cluster.url()) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let redis = connect(&spec).await;
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let traffic = tokio::spawn({
            let (redis, policies, stop) = (redis.clone(), Arc::clone(&policies), Arc::clone(&stop));
            async move {
                let mut last = 100_000;
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let said = redis.take(&policies, &[charge(0, keys[1])]).await.unwrap()[0];
                    assert_eq!(said.remaining, last - 1);
                    last = said.remaining;
                    // Light steady traffic.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                last
            }
        });
        let (owner, slot) = cluster.place(&tag(keys[1]));
        assert_eq!(owner, 1);
        let (from, to) = (cluster.id(1), cluster.id(2));
        tokio::time::sleep(Duration::from_millis(100)).await;
        cluster.masters[2].cli(&["cluster", "setslot", &slot, "importing", &from]);
        cluster.masters[1].cli(&["cluster", "setslot", &slot, "migrating", &to]);
        let port = cluster.masters[2].addr().port().to_string();
        let name = format!("tidegate:{}:a:b", tag(keys[1]));
        assert_eq!(cluster.masters[1].cli(&["migrate", "127.0.0.1", &port, &name, "0", "1000"]), "OK");
        // Meanwhile each request meets ASK.
        tokio::time::sleep(Duration::from_millis(200)).await;
        for master in [2, 1, 0] {
            cluster.masters[master].cli(&["cluster", "setslot", &slot, "node", &to]);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let last = traffic.await.unwrap();
        assert!(last < 99_900, "{last}");

        // The first master fails; the others are away for as long, and then all is exact again.
        for left in (99_990..100_000).rev() {
            assert_eq!(redis.take(&policies, &[charge(0, keys[0])]).await.unwrap()[0].remaining, left);
        }
        cluster.masters[0].cli(&["wait", "1", "1000"]);
        cluster.masters[0].kill();
        let start = Instant::now();
        let first = recovered(&redis, &policies, keys[0]).await;
        println!("recovered in {:?}, {first} left", start.elapsed());
        for left in (first - 10..first).rev() {
            assert_eq!(redis.take(&policies, &[charge(0, keys[0])]).await.unwrap()[0].remaining, left);
        }
        assert_eq!(recovered(&redis, &policies, keys[1]).await, last - 1);
    });
    assert!(cluster.replica.cli(&["role"]).starts_with("master"));
}
