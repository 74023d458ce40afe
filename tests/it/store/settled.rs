//! Costs that responses settle in Redis.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use tidegate::limit::{Charge, Policy, PolicyId, Quota};
use tidegate::limiter::{Delivery, Limiter, Limits, OnStoreFailure, Reservation, SharedState};
use tidegate::store::{Memory, Redis, RedisSpec, Servers, Store, StoreError};
use tidegate::time::{Clock, Micros};
use tokio::task::{JoinSet, LocalSet};

use super::topologies::{bucket, charge, run, spec};
use crate::support::{RedisServer, eventually_async, patience, scaled};

/// A limit of 100 units, of which one comes back in a day; a response costs 1,000 at most.
fn settling(name: &str) -> Policy {
    bucket(name, 100).with_charge_on([200].into()).with_settlement(1_000)
}

fn limits(policies: &[Policy], on_failure: OnStoreFailure) -> Limits {
    let all = policies.iter().map(|policy| (policy.clone(), on_failure)).collect();
    Limits::new(all, NonZeroU64::MIN)
}

/// A limiter without background work over a connection, and what its process shares.
async fn connected(server: &RedisServer) -> (Redis, Limiter, SharedState) {
    let timeout = scaled(Duration::from_secs(1));
    let redis = Redis::connect(&RedisSpec { timeout, ..spec(&server.url()) });
    redis.wait_connected(patience()).await.unwrap();
    let shared = SharedState::new(Arc::new(Memory::new(100, Clock::System)), NonZeroU64::MIN);
    let store = Servers::one(Store::Redis(redis.clone()));
    (redis, Limiter::new(&store, &Servers::one(shared.clone())), shared)
}

/// Reserves this number of units of each limit.
async fn reserve(limiter: &Limiter, limits: &Limits, units: u64) -> Option<Box<Reservation>> {
    let count = u32::try_from(limits.policies.len()).unwrap();
    let charges: Vec<Charge> = (0..count).map(|policy| Charge { cost: units, ..charge(policy, 1) }).collect();
    let mut held = limiter.decide(limits, &charges).await.reservation?;
    *held.delivery_mut() = Delivery::Answered;
    Some(held)
}

/// What remains of each limit.
async fn remaining(redis: &Redis, limits: &Limits) -> Vec<u64> {
    let count = u32::try_from(limits.policies.len()).unwrap();
    let peeks: Vec<Charge> = (0..count).map(|policy| charge(policy, 1).peek()).collect();
    let decisions = redis.take(&limits.policies, &peeks).await.unwrap();
    decisions.iter().map(|decision| decision.remaining).collect()
}

async fn until_remaining(redis: &Redis, limits: &Limits, expected: &[u64]) {
    let settled = async || remaining(redis, limits).await == expected;
    eventually_async("the units are settled", settled).await;
}

/// The call that settles several limits releases the slot of the request as well.
#[test]
fn a_request_is_settled_in_one_call() {
    let server = RedisServer::start();
    run(LocalSet::new().run_until(async {
        let (redis, limiter, _) = connected(&server).await;
        let slots = Policy::new("slots", Quota::concurrency(5, Micros(60_000_000)).unwrap());
        let limits = limits(&[settling("a"), settling("b"), settling("c"), slots], OnStoreFailure::Local);
        let mut maintenance = JoinSet::new();
        limiter.spawn_maintenance(&mut maintenance);
        let charges: Vec<Charge> = (0..4)
            .map(|policy| Charge { cost: if policy < 3 { 10 } else { 1 }, ..charge(policy, 1) })
            .collect();
        let admission = limiter.decide(&limits, &charges).await;
        let (permit, held) = (admission.verdict.unwrap(), admission.reservation.unwrap());
        assert_eq!(remaining(&redis, &limits).await, [90, 90, 90, 4]);
        let monitor = server.monitor();
        let settled = held.settle(|limit| Some([4, 10, 27][limit.0 as usize]));
        drop(permit);
        assert_eq!(settled.len(), 3);
        let mut reads = 0;
        eventually_async("all is settled", async || {
            reads += 1;
            remaining(&redis, &limits).await == [96, 90, 73, 5]
        })
        .await;
        server.cli(&["echo", "done"]);
        let is_of_slots = |line: &&String| line.contains("EVALSHA") && line.contains("slots");
        let lines = monitor.until("done");
        let calls = lines.iter().filter(is_of_slots).count();
        // The first read may have been sent with it.
        assert!(calls <= reads + 1, "{reads} reads: {lines:#?}");
        maintenance.abort_all();
    }));
}

/// What is charged beyond the reservation is owed while Redis is away, whatever the limit does then, and may exceed the limit.
#[test]
fn an_extra_charge_in_an_outage_is_paid_after_it() {
    for on_failure in [OnStoreFailure::Local, OnStoreFailure::Allow, OnStoreFailure::Deny] {
        let mut server = RedisServer::start();
        run(LocalSet::new().run_until(async {
            let (redis, limiter, shared) = connected(&server).await;
            let limits = limits(&[settling("a")], on_failure);
            let held = reserve(&limiter, &limits, 10).await.unwrap();
            server.kill();
            eventually_async("calls are not sent", async || {
                let failed = redis.take(&limits.policies, &[charge(0, 2)]).await;
                matches!(failed, Err(StoreError::NotConnected(_)))
            })
            .await;
            assert_eq!(held.settle(|_| Some(500))[0].charged, 500);
            eventually_async("the units are owed", async || shared.ledger.units()[0] == 490).await;
            server.restart();
            // An attempt just before the restart may still be refused.
            eventually_async("the connection is back", async || {
                redis.wait_connected(patience()).await.is_ok()
            })
            .await;
            eventually_async("the debt is paid", async || {
                limiter.release_slots().await;
                shared.ledger.is_empty()
            })
            .await;
            let decision = redis.take(&limits.policies, &[charge(0, 1)]).await.unwrap()[0];
            // The server has lost what was reserved.
            let wait = decision.retry_after.unwrap().0.div_ceil(86_400_000_000);
            assert_eq!((decision.allowed, wait), (false, 391), "{on_failure:?}");
        }));
    }
}

/// A denial is remembered for a moment, and not beyond a refund of this process.
#[test]
fn a_refund_ends_a_remembered_denial() {
    let server = RedisServer::start();
    run(LocalSet::new().run_until(async {
        let (redis, limiter, _) = connected(&server).await;
        let limits = limits(&[settling("a")], OnStoreFailure::Local);
        let held = reserve(&limiter, &limits, 90).await.unwrap();
        assert!(reserve(&limiter, &limits, 20).await.is_none());
        let (statuses, _) = held.respond(400, &[]).await;
        assert_eq!(statuses[0].decision.remaining, 100);
        let more = reserve(&limiter, &limits, 20).await.unwrap();
        let (statuses, rest) = more.respond(200, &[(PolicyId(0), 150)]).await;
        assert_eq!((statuses[0].decision.remaining, rest.is_none()), (0, true));
        let decision = redis.take(&limits.policies, &[charge(0, 1)]).await.unwrap()[0];
        assert_eq!(decision.retry_after.map(|wait| wait.0.div_ceil(86_400_000_000)), Some(51));
    }));
}

/// More units are taken through Redis, from all limits or from none.
#[test]
fn more_units_are_taken_while_a_response_is_sent() {
    let server = RedisServer::start();
    run(LocalSet::new().run_until(async {
        let (redis, limiter, _) = connected(&server).await;
        let limits = limits(&[settling("a"), bucket("b", 60).with_settlement(1_000)], OnStoreFailure::Local);
        let mut held = reserve(&limiter, &limits, 10).await.unwrap();
        let both = |units| [(PolicyId(0), units), (PolicyId(1), units)];
        assert!(limiter.take_more(&mut held, &both(40)).await);
        assert!(!limiter.take_more(&mut held, &both(11)).await);
        assert_eq!(remaining(&redis, &limits).await, [50, 10]);
        assert_eq!(
            held.settle(|_| Some(45)).iter().map(|units| units.reserved).collect::<Vec<_>>(),
            [50, 50]
        );
        until_remaining(&redis, &limits, &[55, 15]).await;
    }));
}
