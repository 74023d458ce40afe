//! One suite over both stores: the same arrivals must get the same decisions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tidegate::limit::{Ahead, Charge, DenyReason, GrantRequest, Key, Policy, PolicyId, Quota, Rate, Record};
use tidegate::store::redis::{RedisTarget, stored_key};
use tidegate::store::{Decisions, Granted, Memory, Redis, RedisSpec, StateChange, StoreError};
use tidegate::time::{Clock, Micros, Timestamp};
use tokio::runtime::Runtime;

use crate::support::{RedisServer, patience};

/// Somewhere in 2026.
const START: u64 = 1_790_000_000_000_000;

/// Both stores, each with a clock that the test moves.
pub struct Stores {
    runtime: Runtime,
    memory: Arc<Memory>,
    redis: Redis,
    redis_clock: Arc<Clock>,
    prefix: String,
}

fn spec(server: &RedisServer, prefix: &str) -> RedisSpec {
    spec_of(server, prefix, false)
}

/// The spec of a test's Redis.
pub fn spec_of(server: &RedisServer, prefix: &str, client_clock: bool) -> RedisSpec {
    RedisSpec {
        target: RedisTarget::parse(&server.url()).unwrap(),
        // Generous: these tests are about decisions, and other tests may keep the machine busy.
        timeout: patience(),
        prefix: prefix.into(),
        client_clock,
    }
}

impl Stores {
    /// Two empty stores.
    pub fn new(server: &RedisServer) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("t{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let redis_clock = Arc::new(Clock::manual(Timestamp(START)));
        let redis = runtime.block_on(async {
            let redis = Redis::connect_at(&spec(server, &prefix), Arc::clone(&redis_clock));
            redis.wait_connected(patience()).await.unwrap();
            redis
        });
        let memory = Arc::new(Memory::new(10_000, Clock::manual(Timestamp(START))));
        Self { runtime, memory, redis, redis_clock, prefix }
    }

    pub fn set_clock(&self, now: u64) {
        self.memory.clock().set(Timestamp(now));
        self.redis_clock.set(Timestamp(now));
    }

    /// The time of both clocks.
    pub fn clock(&self) -> u64 {
        self.redis_clock.now().0
    }

    /// Takes from both, whose decisions must be the same.
    pub fn take(&self, policies: &[Policy], charges: &[Charge]) -> Decisions {
        let memory = self.memory.take(policies, charges);
        let redis = self.runtime.block_on(self.redis.take(&policies.into(), charges)).unwrap();
        assert_eq!(memory, redis, "memory and Redis differ for {charges:?} under {policies:?}");
        memory
    }

    /// Applies charges in both, whose decisions must be the same.
    pub fn apply(&self, policies: &[Policy], charges: &[Charge]) -> Decisions {
        let memory = self.memory.apply(policies, charges);
        let redis = self.runtime.block_on(self.redis.apply(&policies.into(), charges)).unwrap();
        assert_eq!(memory, redis, "memory and Redis differ for {charges:?} under {policies:?}");
        memory
    }

    /// Takes all charges or none from both stores, with grant requests; asserts that decisions and grants are equal.
    pub fn take_with_grants(
        &self,
        policies: &[Policy],
        charges: &[Charge],
        requests: &[GrantRequest],
    ) -> Granted {
        let memory = self.memory.take_with_grants(policies, charges, requests);
        let shared = policies.into();
        let redis = self.redis.take_with_grants(&shared, charges, requests);
        let redis = self.runtime.block_on(redis).unwrap();
        assert_eq!(memory, redis, "memory and Redis differ for {charges:?}, {requests:?} under {policies:?}");
        memory
    }

    /// Applies each charge in both stores, with grant requests; asserts that decisions and grants are equal.
    pub fn apply_with_grants(
        &self,
        policies: &[Policy],
        charges: &[Charge],
        requests: &[GrantRequest],
    ) -> Granted {
        let memory = self.memory.apply_with_grants(policies, charges, requests);
        let shared = policies.into();
        let redis = self.redis.apply_with_grants(&shared, charges, requests);
        let redis = self.runtime.block_on(redis).unwrap();
        assert_eq!(memory, redis, "memory and Redis differ for {charges:?}, {requests:?} under {policies:?}");
        memory
    }

    /// Changes keys by hand in both.
    pub fn change(&self, policies: &[Policy], keys: &[(PolicyId, Key)], change: StateChange) {
        let _ = self.memory.change(policies, keys, change);
        self.runtime.block_on(self.redis.change(policies, keys, change)).unwrap();
    }

    /// The record of a key in the memory store.
    pub fn memory_record(&self, policy: &Policy, key: Key) -> Option<Record> {
        let mut known = None;
        self.memory.update(policy, key, |record, _| {
            known = record.cloned();
            known.clone().unwrap_or_default()
        });
        known
    }

    /// Takes from Redis alone.
    pub fn redis_take(&self, policies: &[Policy], charges: &[Charge]) -> Decisions {
        self.runtime.block_on(self.redis.take(&policies.into(), charges)).unwrap()
    }

    /// Takes from Redis alone and asks for grants.
    pub fn redis_grant(&self, policies: &[Policy], charge: Charge, request: GrantRequest) -> Granted {
        let (policies, charges, requests) = (policies.into(), [charge], [request]);
        self.runtime.block_on(self.redis.take_with_grants(&policies, &charges, &requests)).unwrap()
    }

    /// Applies charges in Redis alone.
    pub fn redis_apply(&self, policies: &[Policy], charges: &[Charge]) -> Decisions {
        self.runtime.block_on(self.redis.apply(&policies.into(), charges)).unwrap()
    }

    /// Changes keys by hand in Redis alone.
    pub fn redis_change(&self, policies: &[Policy], keys: &[(PolicyId, Key)], change: StateChange) {
        self.runtime.block_on(self.redis.change(policies, keys, change)).unwrap();
    }

    /// The prefix of the keys in Redis.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }
}

fn token_bucket(name: &str, units: u64, period: u64, burst: u64) -> Policy {
    let rate = Rate::new(units, Micros(period)).unwrap();
    Policy::new(name, Quota::token_bucket(rate, burst).unwrap())
}

fn gcra(name: &str, units: u64, period: u64, burst: u64) -> Policy {
    let rate = Rate::new(units, Micros(period)).unwrap();
    Policy::new(name, Quota::gcra(rate, burst).unwrap())
}

fn charge(policy: u32, key: u8, cost: u64) -> Charge {
    Charge::take(PolicyId(policy), Key([key; 16]), cost)
}

#[test]
fn a_bucket_empties_and_refills() {
    let server = RedisServer::start();
    let stores = Stores::new(&server);
    let policies = [token_bucket("b", 10, 1_000_000, 100)];
    let admitted = (0..150).filter(|_| stores.take(&policies, &[charge(0, 1, 1)])[0].allowed).count();
    assert_eq!(admitted, 100);
    let denied = stores.take(&policies, &[charge(0, 1, 1)])[0];
    assert_eq!(denied.retry_after, Some(Micros(100_000)));
    stores.set_clock(START + 99_999);
    assert!(!stores.take(&policies, &[charge(0, 1, 1)])[0].allowed);
    stores.set_clock(START + 100_000);
    assert!(stores.take(&policies, &[charge(0, 1, 1)])[0].allowed);
    stores.set_clock(START + 60_000_000);
    assert_eq!(stores.take(&policies, &[charge(0, 1, 0)])[0].remaining, 100);
}

#[test]
fn charges_of_several_limits_are_all_or_none() {
    let server = RedisServer::start();
    let stores = Stores::new(&server);
    let policies = [token_bucket("wide", 10, 1_000_000, 10), gcra("narrow", 10, 1_000_000, 1)];
    let both = [charge(0, 1, 1), charge(1, 1, 1)];
    for _ in 0..2 {
        assert!(stores.take(&policies, &both).iter().all(|decision| decision.allowed));
    }
    for _ in 0..5 {
        let decisions = stores.take(&policies, &both);
        assert_eq!((decisions[0].allowed, decisions[0].remaining), (true, 8));
        assert!(!decisions[1].allowed);
    }
    let twice = stores.take(&policies, &[charge(0, 2, 6), charge(0, 2, 6)]);
    assert!(twice[0].allowed && !twice[1].allowed);
    assert_eq!(stores.take(&policies, &[charge(0, 2, 0)])[0].remaining, 10);
}

/// Whether a limit grants units ahead changes its stored keys. An operator's change applies to both.
#[test]
fn a_block_applies_when_ahead_is_switched_on_or_off() {
    let server = RedisServer::start();
    let stores = Stores::new(&server);
    let plain = [token_bucket("b", 10, 1_000_000, 100)];
    let ahead = Ahead { span: Ahead::MIN_SPAN, share: Ahead::DEFAULT_SHARE };
    let granting = plain.clone().map(|policy| policy.with_ahead(ahead));
    let key = (PolicyId(0), Key([1; 16]));
    let reason = || {
        let decision = stores.take(&plain, &[charge(0, 1, 1)])[0];
        (!decision.allowed).then_some(decision.reason)
    };
    stores.change(&granting, &[key], StateChange::Block(Micros(1_000_000)));
    assert_eq!(reason(), Some(DenyReason::Block));
    stores.change(&granting, &[key], StateChange::Unblock);
    assert_eq!(reason(), None);
    stores.change(&plain, &[key], StateChange::Block(Micros(1_000_000)));
    for letter in *b"bB" {
        let name = String::from_utf8(stored_key(stores.prefix(), &plain[0], key.1, letter)).unwrap();
        assert!(server.keys().contains(&name), "{name}: {:?}", server.keys());
    }
}

#[test]
fn a_state_in_redis_is_one_small_string_that_expires() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let policies = Arc::<[Policy]>::from([token_bucket("b", 2, 60_000_000, 5), gcra("g", 1, 60_000_000, 0)]);
    runtime.block_on(async {
        let redis = Redis::connect(&spec(&server, "live"));
        redis.wait_connected(patience()).await.unwrap();
        let decisions = redis.take(&policies, &[charge(0, 9, 3), charge(1, 9, 1)]).await.unwrap();
        assert!(decisions.iter().all(|decision| decision.allowed));
    });
    let key = "live:{CQkJCQkJCQkJCQkJCQkJCQ}";
    assert_eq!(server.cli(&["strlen", &format!("{key}:b:b")]).trim(), "32");
    // Three units at one each 30 s, and one unit at one each minute; less than half a minute has passed since.
    for (name, from, to) in [("b:b", 60_001, 90_001), ("g:g", 30_000, 60_001)] {
        let ttl: i64 = server.cli(&["pttl", &format!("{key}:{name}")]).trim().parse().unwrap();
        assert!((from..=to).contains(&ttl), "{name}: {ttl}");
    }
}

#[test]
fn peeks_and_denials_write_nothing() {
    let server = RedisServer::start();
    let stores = Stores::new(&server);
    let policies = [token_bucket("b", 1, 1_000_000, 5)];
    let _ = stores.take(&policies, &[charge(0, 1, 0)]);
    assert_eq!(server.cli(&["dbsize"]).trim(), "0");
    let _ = stores.take(&policies, &[charge(0, 1, 5)]);
    let key = format!("{}:{{AQEBAQEBAQEBAQEBAQEBAQ}}:b:b", stores.prefix);
    let digest = || server.cli(&["eval", "return redis.sha1hex(redis.call('GET', KEYS[1]))", "1", &key]);
    let before = digest();
    server.cli(&["pexpire", &key, "7777777"]);
    assert!(!stores.take(&policies, &[charge(0, 1, 1)])[0].allowed);
    assert_eq!(digest(), before);
    assert!(server.cli(&["pttl", &key]).trim().parse::<u64>().unwrap() > 7_700_000);
}

#[test]
fn values_of_other_programs_cause_no_error() {
    let server = RedisServer::start();
    let stores = Stores::new(&server);
    let policies = [token_bucket("b", 1, 1_000_000, 5)];
    for (number, write) in [["set", "rubbish"], ["lpush", "a"], ["sadd", "b"]].iter().enumerate() {
        let key = u8::try_from(number).unwrap();
        let name = format!("{}:{{{}}}:b:b", stores.prefix, Key([key; 16]));
        server.cli(&[write[0], &name, write[1]]);
        assert!(stores.take(&policies, &[charge(0, key, 5)])[0].allowed);
        assert!(!stores.take(&policies, &[charge(0, key, 1)])[0].allowed);
    }
}

#[test]
fn a_flushed_script_is_sent_again() {
    let server = RedisServer::start();
    let stores = Stores::new(&server);
    let policies = [token_bucket("b", 1, 60_000_000, 3)];
    for left in (0..3).rev() {
        server.cli(&["script", "flush"]);
        assert_eq!(stores.take(&policies, &[charge(0, 1, 1)])[0].remaining, left);
    }
}

/// Requests that arrive while a call is under way are sent together in the next call.
#[test]
fn waiting_requests_share_a_call() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let policies = Arc::<[Policy]>::from([token_bucket("b", 1, 3_600_000_000, 300)]);
    runtime.block_on(async {
        let redis = Redis::connect(&spec(&server, "gathered"));
        redis.wait_connected(patience()).await.unwrap();
        let _ = redis.take(&policies, &[charge(0, 9, 0)]).await.unwrap();
        let calls = || server.calls("evalsha");
        let before = calls();
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..400_u32 {
            let (redis, policies) = (redis.clone(), Arc::clone(&policies));
            let key = u8::from(task % 4 == 0);
            tasks.spawn(async move { redis.take(&policies, &[charge(0, key, 1)]).await.unwrap()[0] });
        }
        let decisions = tasks.join_all().await;
        // 300 on one key are allowed, each with other remaining units; 100 on the other as well.
        assert!(decisions.iter().all(|decision| decision.allowed));
        let mut left: Vec<u64> = decisions.iter().map(|decision| decision.remaining).collect();
        left.sort_unstable();
        let mut expected: Vec<u64> = (0..300).chain(200..300).collect();
        expected.sort_unstable();
        assert_eq!(left, expected);
        let made = calls() - before;
        assert!(made <= 40, "{made} calls for 400 requests");
    });
}

/// A request that is cancelled while it waits in the queue is not sent, and so not charged.
#[test]
fn cancelled_requests_are_not_charged() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let policies = Arc::<[Policy]>::from([token_bucket("b", 1, 3_600_000_000, 100)]);
    runtime.block_on(async {
        let redis = Redis::connect(&spec(&server, "gone"));
        redis.wait_connected(patience()).await.unwrap();
        server.pause();
        let take = |key| {
            let (redis, policies) = (redis.clone(), Arc::clone(&policies));
            async move { redis.take(&policies, &[charge(0, key, 1)]).await }
        };
        let first = tokio::spawn(take(1));
        // The first call is sent; the others wait for its reply.
        tokio::task::yield_now().await;
        let waiting: Vec<_> = (0..50).map(|_| tokio::spawn(take(2))).collect();
        tokio::task::yield_now().await;
        waiting.iter().for_each(tokio::task::JoinHandle::abort);
        server.resume();
        assert!(first.await.unwrap().unwrap()[0].allowed);
        let left = redis.take(&policies, &[charge(0, 2, 0)]).await.unwrap()[0].remaining;
        assert_eq!(left, 100);
    });
}

/// Requests beyond the bound of the queue fail at once; the others are decided.
#[test]
fn the_queue_is_bounded() {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let policies = Arc::<[Policy]>::from([token_bucket("b", 1, 3_600_000_000, 100_000)]);
    runtime.block_on(async {
        let redis = Redis::connect(&spec(&server, "full"));
        redis.wait_connected(patience()).await.unwrap();
        server.pause();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..6_000 {
            let (redis, policies) = (redis.clone(), Arc::clone(&policies));
            tasks.spawn(async move { redis.take(&policies, &[charge(0, 1, 1)]).await });
        }
        // Every task runs once: its request is in the queue, or has failed.
        tokio::task::yield_now().await;
        server.resume();
        let results = tasks.join_all().await;
        let busy = results.iter().filter(|result| matches!(result, Err(StoreError::QueueFull))).count();
        let allowed = results
            .iter()
            .filter(|result| result.as_ref().is_ok_and(|decisions| decisions[0].allowed))
            .count();
        assert_eq!(busy + allowed, 6_000);
        assert!((1_000..=1_904).contains(&busy), "{busy}");
    });
}
