//! On a cluster.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidegate::limit::{Align, Charge, ChargeKind, Decision, Factor, Key, Policy, PolicyId, Quota, Rate};
use tidegate::limiter::{Limiter, Limits, OnStoreFailure, SharedState};
use tidegate::store::{
    Memory, Raise, RaiseChange, RaiseError, RaiseList, Redis, RedisSpec, Servers, StateChange, Store,
};
use tidegate::time::{Clock, Micros};

use super::{admit, bucket, charge, documented, recovered, run, spec};
use crate::support::{Cluster, eventually, eventually_async, patience, scaled};

/// A key on each master.
fn key_of_each_master(cluster: &Cluster) -> [u8; 3] {
    let on = |master| (0..u8::MAX).find(|key| cluster.locate(&tag(*key)).0 == master).unwrap();
    [on(0), on(1), on(2)]
}

fn tag(key: u8) -> String {
    format!("{{{}}}", Key([key; 16]))
}

fn shadowed(mut policy: Policy) -> Policy {
    policy.shadow = true;
    policy
}

async fn connect(spec: &RedisSpec) -> Redis {
    let redis = Redis::connect(spec);
    redis.wait_connected(patience()).await.unwrap();
    redis
}

async fn remaining_units(redis: &Redis, policies: &Arc<[Policy]>, charge: Charge) -> u64 {
    redis.take(policies, &[charge.peek()]).await.unwrap()[0].remaining
}

/// Every kind of call to a cluster whose slots are not migrated.
#[test]
fn limits_on_several_nodes_are_taken_all_or_none() {
    let cluster = Cluster::start();
    let keys = key_of_each_master(&cluster);
    let rate = Rate::new(1, Micros(86_400_000_000)).unwrap();
    let policies = Arc::<[Policy]>::from(vec![
        bucket("wide", 50),
        Policy::new("log", Quota::sliding_log(&[Rate::new(20, Micros(86_400_000_000)).unwrap()]).unwrap()),
        Policy::new("queue", Quota::leaky_bucket(rate, 99).unwrap()),
        shadowed(bucket("shadow", 5)),
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
            let decisions = redis.take(&policies, &request).await.unwrap();
            assert!(decisions[..3].iter().all(|decision| decision.allowed), "{decisions:?}");
            assert_eq!((decisions[1].remaining, decisions[2].remaining), (50 - number, 20 - number));
            assert_eq!(decisions[3].allowed, number <= 5, "{number}");
        }
        let key = Key([keys[0]; 16]);
        let raise = Raise {
            limit: "wide".into(),
            key,
            factor: Factor::parse("2x").unwrap(),
            rest: Micros(3_600_000_000),
            by: "user 0".into(),
        };
        let started = redis.change_raises(&RaiseChange::Start(raise.clone())).await.unwrap().unwrap();
        assert_eq!(started.raises, [raise]);
        let read = redis.raises(0).await.unwrap().unwrap();
        assert_eq!((read.version, read.raises.len()), (started.version, 1));
        assert_eq!(redis.raises(read.version).await.unwrap(), None);
        let end = RaiseChange::End { limit: "wide".into(), key };
        assert_eq!(redis.change_raises(&end).await.unwrap(), Ok(RaiseList::default()));
        assert_eq!(redis.change_raises(&end).await.unwrap(), Err(RaiseError::NotRaised));
        let decisions = redis.take(&policies, &request).await.unwrap();
        assert_eq!((decisions[1].allowed, decisions[1].remaining), (true, 30));
        assert!(!decisions[2].allowed && decisions[2].retry_after.is_some_and(|wait| wait > Micros::ZERO));
        for (number, remaining) in [(0, 80), (1, 30), (2, 0)] {
            assert_eq!(remaining_units(&redis, &policies, request[number]).await, remaining);
        }
        // Slots, which are held and released one by one, and the listing of keys.
        let slots: Vec<Charge> = keys
            .iter()
            .map(|key| Charge { holder: tidegate::limit::Holder(u64::from(*key)), ..charge(4, *key) })
            .collect();
        assert!(redis.take(&policies, &slots).await.unwrap().iter().all(|decision| decision.remaining == 39));
        let back: Vec<Charge> = slots.iter().map(|slot| slot.with_kind(ChargeKind::Release)).collect();
        assert!(redis.apply(&policies, &back).await.unwrap().iter().all(|decision| decision.remaining == 40));
        let _ = redis.take(&policies, &[charge(0, keys[0]), charge(0, keys[2])]).await.unwrap();
        let mut known = redis.keys(&policies[0], 10).await.unwrap();
        known.sort_by_key(|key| key.0);
        let mut wanted = keys.map(|key| Key([key; 16]));
        wanted.sort_by_key(|key| key.0);
        assert_eq!(known, wanted);
    });
    racing(&spec, keys);
    batching(&cluster, &spec, keys);
}

/// Units stay charged if their node fails to refund them; the other nodes refund theirs.
#[test]
fn a_refund_that_fails_on_one_node_succeeds_on_the_others() {
    let cluster = Cluster::start();
    let keys = key_of_each_master(&cluster);
    let policy = bucket("due", 50).with_charge_on([401].into());
    let limits = Limits::new(vec![(policy, OnStoreFailure::Local)], NonZeroU64::MIN);
    run(async {
        let redis = connect(&spec(&cluster.url())).await;
        let shared = SharedState::new(Arc::new(Memory::new(100, Clock::System)), NonZeroU64::MIN);
        let store = Servers::one(Store::Redis(redis.clone()));
        let limiter = Limiter::new(&store, &Servers::one(shared.clone()));
        let charges = [keys[1], keys[0], keys[2]].map(|key| charge(0, key));
        // Other requests have units too, so that a refund has something left to write.
        let _ = redis.take(&limits.policies, &charges).await.unwrap();
        let held = limiter.decide(&limits, &charges).await.reservation.unwrap();
        cluster.masters[0].cli(&["config", "set", "maxmemory", "1"]);
        let refunded = held.finish(200).await;
        assert_eq!(refunded.len(), 2);
        assert!(refunded.iter().all(|status| status.decision.remaining == 49));
        cluster.masters[0].cli(&["config", "set", "maxmemory", "0"]);
        let mut remaining = Vec::new();
        for key in keys {
            remaining.push(remaining_units(&redis, &limits.policies, charge(0, key)).await);
        }
        remaining.sort_unstable();
        assert_eq!(remaining, [48, 49, 49]);
    });
}

#[test]
fn a_refund_after_a_reset_changes_no_node() {
    let cluster = Cluster::start();
    let keys = key_of_each_master(&cluster);
    let year = Rate::new(50, Micros(365 * 86_400_000_000)).unwrap();
    let window = Policy::new("window", Quota::fixed_window(year, Align::Clock).unwrap());
    let policies: Arc<[Policy]> =
        [bucket("bucket", 50), window].map(|policy| policy.with_charge_on([401].into())).into();
    run(async {
        let redis = connect(&spec(&cluster.url())).await;
        for policy in 0..2 {
            let charges = keys.map(|key| charge(policy, key));
            let earlier = redis.take(&policies, &charges).await.unwrap();
            let names = keys.map(|key| (PolicyId(policy), Key([key; 16])));
            assert_eq!(redis.change(&policies, &names, StateChange::Reset).await.unwrap(), 3);
            let later = redis.take(&policies, &charges).await.unwrap();
            let refunds = |decisions: &[Decision]| -> Vec<Charge> {
                charges.iter().zip(decisions).map(|(charge, decision)| charge.refund(decision.at)).collect()
            };
            for (decisions, remaining) in [(&earlier, 49), (&later, 50)] {
                let refunded = redis.apply(&policies, &refunds(decisions)).await.unwrap();
                let remain: Vec<u64> = refunded.iter().map(|decision| decision.remaining).collect();
                assert_eq!(remain, [remaining; 3], "{}", policies[PolicyId(policy)].name);
            }
        }
    });
}

/// Requests for one tag wait for one call, and no tag waits for a call to another node that hangs.
fn batching(cluster: &Cluster, spec: &RedisSpec, keys: [u8; 3]) {
    let policies = Arc::<[Policy]>::from(vec![bucket("gathered", 1_000)]);
    let calls = || cluster.masters.iter().map(|node| node.calls("evalsha")).sum::<u64>();
    run(async {
        let redis = connect(spec).await;
        // From here on each node knows the script.
        for key in keys {
            let _ = remaining_units(&redis, &policies, charge(0, key)).await;
        }
        let before = calls();
        let calls_at_once =
            (0..600).map(async |number| redis.take(&policies, &[charge(0, keys[number % 3])]).await);
        let decisions = futures_util::future::join_all(calls_at_once).await;
        let mut remaining: Vec<u64> =
            decisions.into_iter().map(|decision| decision.unwrap()[0].remaining).collect();
        remaining.sort_unstable();
        assert!(remaining.chunks(3).zip(800..).all(|(three, left)| three == [left; 3]), "{remaining:?}");
        let made = calls() - before;
        assert!(made <= 60, "{made} calls for 600 requests");
        // The second call returns before the first is given up, except on a machine that is busy with other tests.
        let deadline = Instant::now() + patience();
        let (hanging, working) = ([charge(0, keys[0])], [charge(0, keys[1])]);
        loop {
            cluster.masters[0].cli(&["client", "pause", "60000", "write"]);
            let is_first = tokio::select! {
                biased;
                _ = redis.take(&policies, &hanging) => false,
                result = redis.take(&policies, &working) => result.is_ok(),
            };
            cluster.masters[0].cli(&["client", "unpause"]);
            if is_first {
                break;
            }
            assert!(Instant::now() < deadline, "the call waits for a node that has none of its keys");
        }
    });
}

/// Concurrent requests over several nodes: exactly as many pass as the strictest limit allows, and no unit of the others is
/// lost.
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
            // Some charge the first and the second limit, some the first and the third, and some all three.
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
                        let decisions = redis.take(&policies, &charges).await.unwrap();
                        if decisions.iter().all(|decision| decision.allowed) {
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
        for (index, policy) in policies.iter().enumerate() {
            let charge = charge(u32::try_from(index).unwrap(), keys[index]);
            let remaining = remaining_units(&redis, &policies, charge).await;
            // Refunded units are available again, and those of allowed requests are spent.
            assert_eq!(policy.quota.limit() - remaining, sum[index], "{}", policy.name);
        }
        sum
    });
    assert_eq!(passed[1], 60);
    assert!(passed[0] > 60 && passed[2] <= 100, "{passed:?}");
}

/// A slot under migration: the key of one limit has been migrated, and that of another has not, so a request that needs both
/// gets TRYAGAIN.
struct Migration<'a> {
    cluster: &'a Cluster,
    slot: String,
    from: usize,
    to: usize,
}

impl<'a> Migration<'a> {
    /// Begins to migrate the slot of `key`, with the stored keys of this limit.
    #[track_caller]
    fn begin(cluster: &'a Cluster, key: u8, limit: &str) -> Self {
        let (from, slot) = cluster.locate(&tag(key));
        let migration = Self { cluster, slot, from, to: (from + 1) % 3 };
        migration.set(migration.to, &["importing", &cluster.id(from)]);
        migration.set(from, &["migrating", &cluster.id(migration.to)]);
        migration.migrate(key, limit);
        migration
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
        let reply = self.cluster.masters[self.from].cli(&["migrate", "127.0.0.1", &port, &name, "0", "1000"]);
        assert_eq!(reply, "OK");
    }

    /// Migrates the keys of the other limit, and ends the migration.
    #[track_caller]
    fn end(&self, key: u8, limit: &str) {
        self.migrate(key, limit);
        let id = self.cluster.id(self.to);
        for node in [self.to, self.from, (self.to + 1) % 3] {
            self.set(node, &["node", &id]);
        }
    }

    /// How often the node that exports the slot has replied TRYAGAIN.
    #[track_caller]
    fn tries(&self) -> u64 {
        self.cluster.masters[self.from].errors("TRYAGAIN")
    }
}

/// A request for both parts of a slot under migration is retried with growing pauses until its deadline. If the deadline
/// passes, nothing was charged, and the breaker counts no failure.
#[test]
fn requests_for_a_slot_under_migration_are_retried() {
    let cluster = Cluster::start();
    let key = key_of_each_master(&cluster)[0];
    let limits = Limits::new(
        vec![(bucket("a", 50), OnStoreFailure::Local), (bucket("b", 50), OnStoreFailure::Local)],
        NonZeroU64::MIN,
    );
    let request = [charge(0, key), charge(1, key)];
    run(async {
        let redis = connect(&spec(&cluster.url())).await;
        let decisions = redis.take(&limits.policies, &request).await.unwrap();
        assert!(decisions.iter().all(|decision| decision.remaining == 49), "{decisions:?}");
        let migration = Migration::begin(&cluster, key, "a");

        // Many requests, each of which is given up.
        let timeout = scaled(Duration::from_millis(60));
        let impatient = RedisSpec { timeout, ..spec(&cluster.url()) };
        let shared = SharedState::new(Arc::new(Memory::new(100, Clock::System)), NonZeroU64::MIN);
        let store = Servers::one(Store::Redis(connect(&impatient).await));
        let limiter = Limiter::new(&store, &Servers::one(shared.clone()));
        let start = Instant::now();
        for number in 1..=15 {
            let begun = Instant::now();
            let admission = limiter.decide(&limits, &request).await;
            assert!(begun.elapsed() >= timeout * 2 / 3, "{:?} of {timeout:?}", begun.elapsed());
            // The local share has not seen the first call.
            assert_eq!(admission.statuses[1].decision.remaining, 50 - number);
        }
        assert!(start.elapsed() > timeout * 10);
        assert_eq!((shared.breakers.openings(), shared.breakers.open()), (0, 0));
        // Each is owed, except one whose last reply is late on a busy machine: that one may have been charged.
        let owed = shared.ledger.units()[0];
        assert!((10..=30).contains(&owed) && owed.is_multiple_of(2), "{owed}");

        // A request with a longer deadline.
        let (before, start) = (migration.tries(), Instant::now());
        let waiting = redis.take(&limits.policies, &request);
        let moves = async {
            // The pauses between tries grow with the time that passes.
            tokio::time::sleep(Duration::from_millis(500)).await;
            eventually_async("it is tried again", async || migration.tries() - before >= 3).await;
            let (tries, elapsed) = (migration.tries() - before, start.elapsed());
            // A pause of 100 ms is the longest; on a slow machine more of them pass until the tries are counted.
            let most = 14 + (elapsed.saturating_sub(Duration::from_millis(500)).as_millis() / 50);
            assert!(u128::from(tries) <= most, "{tries} tries in {elapsed:?}");
            migration.end(key, "b");
        };
        let (decisions, ()) = tokio::join!(waiting, moves);
        // Units admitted without the store are not charged yet: the limiter's maintenance task does not run.
        assert!(decisions.unwrap().iter().all(|decision| decision.remaining == 48));
        limiter.release_slots().await;
        assert!(shared.ledger.is_empty());
        for number in 0..2 {
            assert_eq!(remaining_units(&redis, &limits.policies, charge(number, key)).await, 48 - owed / 2);
        }
    });
}

/// The slot of a key is migrated while requests charge the key: no unit is charged twice, and none is lost.
#[test]
fn counts_survive_a_migration_and_a_failover() {
    let mut cluster = Cluster::start();
    let keys = key_of_each_master(&cluster);
    let policies = Arc::<[Policy]>::from(vec![bucket("a", 100_000)]);
    let spec = RedisSpec { timeout: Duration::from_millis(500), ..spec(&cluster.url()) };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let redis = connect(&spec).await;
        let (stop, taken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let traffic = tokio::spawn({
            let (redis, policies) = (redis.clone(), Arc::clone(&policies));
            let (stop, taken) = (Arc::clone(&stop), Arc::clone(&taken));
            async move {
                let mut last = 100_000;
                while !stop.load(Ordering::Relaxed) {
                    let decision = redis.take(&policies, &[charge(0, keys[1])]).await.unwrap()[0];
                    assert_eq!(decision.remaining, last - 1);
                    last = decision.remaining;
                    taken.fetch_add(1, Ordering::Relaxed);
                    // Light traffic at a steady rate.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                last
            }
        });
        let wait_taken = || {
            let before = taken.load(Ordering::Relaxed);
            eventually("more units are taken", || taken.load(Ordering::Relaxed) >= before + 40);
        };
        let (owner, slot) = cluster.locate(&tag(keys[1]));
        assert_eq!(owner, 1);
        let (from, to) = (cluster.id(1), cluster.id(2));
        wait_taken();
        cluster.masters[2].cli(&["cluster", "setslot", &slot, "importing", &from]);
        cluster.masters[1].cli(&["cluster", "setslot", &slot, "migrating", &to]);
        let port = cluster.masters[2].addr().port().to_string();
        let name = format!("tidegate:{}:a:b", tag(keys[1]));
        assert_eq!(cluster.masters[1].cli(&["migrate", "127.0.0.1", &port, &name, "0", "1000"]), "OK");
        // Each request is redirected with ASK meanwhile.
        wait_taken();
        assert!(cluster.masters[1].errors("ASK") >= 40);
        for master in [2, 1, 0] {
            cluster.masters[master].cli(&["cluster", "setslot", &slot, "node", &to]);
        }
        wait_taken();
        stop.store(true, Ordering::Relaxed);
        let last = traffic.await.unwrap();

        // The first master fails. Calls to the others fail too until the failover is over; then all counts are exact again.
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
