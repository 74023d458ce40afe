//! Concurrency: tasks over several connections, and processes over one Redis.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use tidegate::limit::{CalendarUnit, ChargeKind, Policy};
use tidegate::store::{Memory, Redis, Store};
use tidegate::time::Clock;
use tokio::runtime::Runtime;

use super::kit::{self, Numbers};
use super::rules::Pace;
use crate::store::both_stores::spec_of;
use crate::support::{RedisServer, Tidegate, get, patience};

/// The units of each limit of this test, before any refill.
const LIMIT: u64 = 50;
const HOUR: u64 = 3_600_000_000;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Every algorithm, with a rate so low that nothing refills while the test runs.
fn limits() -> Vec<Numbers> {
    let slow = Pace { units: 1, period: 1_000 * HOUR };
    let long = Pace { units: LIMIT, period: 100_000 * HOUR };
    let year = Pace { units: LIMIT, period: 365 * 24 * HOUR };
    vec![
        Numbers::Token(slow, LIMIT),
        Numbers::Interval(slow, LIMIT),
        Numbers::Gcra(slow, LIMIT - 1),
        Numbers::Leaky(slow, LIMIT - 1),
        Numbers::Fixed(long),
        Numbers::First(long),
        Numbers::Calendar(LIMIT, CalendarUnit::Year, "Europe/Berlin"),
        Numbers::Log(vec![year]),
        Numbers::Sliding(year, 1),
        Numbers::Slots(LIMIT, HOUR),
    ]
}

async fn connections(server: &RedisServer) -> Vec<Store> {
    let mut all = Vec::new();
    for client_clock in [false, false, true] {
        let redis = Redis::connect(&spec_of(server, "crowd", client_clock));
        redis.wait_connected(patience()).await.unwrap();
        all.push(Store::Redis(redis));
    }
    all
}

/// Takes from every store in concurrent tasks; returns how many were allowed.
async fn admitted(stores: &[Store], policy: &Policy) -> u64 {
    let mut tasks = Vec::new();
    for task in 0..24_u64 {
        let (store, policies) =
            (stores[usize::try_from(task).unwrap() % stores.len()].clone(), [policy.clone()].into());
        tasks.push(tokio::spawn(async move {
            let mut admitted = 0;
            for round in 0..6 {
                let charge = kit::held(0, 1, 1, task * 100 + round, ChargeKind::Take);
                admitted += u64::from(store.take(&policies, &[charge]).await.unwrap()[0].allowed);
            }
            admitted
        }));
    }
    let mut sum = 0;
    for task in tasks {
        sum += task.await.unwrap();
    }
    sum
}

/// Exactly the limit is allowed, with every algorithm, in both stores, by the clock of the server and by that of the proxies.
#[test]
fn concurrent_tasks_get_exactly_the_limit() {
    let server = RedisServer::start();
    runtime().block_on(async {
        let redis = connections(&server).await;
        for (place, numbers) in limits().iter().enumerate() {
            let policy = numbers.policy(&format!("n{place}"));
            assert_eq!(admitted(&redis, &policy).await, LIMIT, "{numbers:?} in Redis");
            let memory = Store::Memory(Arc::new(Memory::new(1_000, Clock::System)));
            assert_eq!(admitted(&[memory], &policy).await, LIMIT, "{numbers:?} in this process");
        }
    });
}

/// While tasks acquire and release slots at full speed, no more are held than there are; in the end none is held.
#[test]
fn concurrent_tasks_never_exceed_the_slots() {
    let server = RedisServer::start();
    runtime().block_on(async {
        let redis = connections(&server).await;
        let memory = vec![Store::Memory(Arc::new(Memory::new(1_000, Clock::System)))];
        for stores in [redis, memory] {
            let policies = Arc::<[Policy]>::from([Numbers::Slots(7, HOUR).policy("slots")]);
            let (flying, highest) = (Arc::new(AtomicI64::new(0)), Arc::new(AtomicI64::new(0)));
            let taken = Arc::new(AtomicU64::new(0));
            let mut tasks = Vec::new();
            for task in 0..24_u64 {
                let store = stores[usize::try_from(task).unwrap() % stores.len()].clone();
                let (policies, flying, highest) =
                    (Arc::clone(&policies), Arc::clone(&flying), Arc::clone(&highest));
                let taken = Arc::clone(&taken);
                tasks.push(tokio::spawn(async move {
                    for round in 0..15 {
                        let charge = kit::held(0, 1, 1, task * 1_000 + round, ChargeKind::Take);
                        if !store.take(&policies, &[charge]).await.unwrap()[0].allowed {
                            tokio::task::yield_now().await;
                            continue;
                        }
                        taken.fetch_add(1, Ordering::SeqCst);
                        highest.fetch_max(flying.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        store.apply(&policies, &[charge.with_kind(ChargeKind::Renew)]).await.unwrap();
                        flying.fetch_sub(1, Ordering::SeqCst);
                        store.apply(&policies, &[charge.with_kind(ChargeKind::Release)]).await.unwrap();
                    }
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
            assert!((1..=7).contains(&highest.load(Ordering::SeqCst)), "{highest:?}");
            assert!(taken.load(Ordering::SeqCst) > 7);
            let left = stores[0].take(&policies, &[kit::charge(0, 1, 0)]).await.unwrap()[0].remaining;
            assert_eq!(left, 7);
        }
    });
}

/// Two processes with one Redis: exactly the limit of the requests is allowed.
#[test]
fn two_processes_allow_exactly_the_limit() {
    let server = RedisServer::start();
    let limits = [
        ("bucket", "algorithm = \"token_bucket\"\nrate = \"1/hour\"\nburst = 50"),
        ("ticks", "algorithm = \"token_bucket\"\nrate = \"1/hour\"\nburst = 50\nrefill = \"interval\""),
        ("spaced", "algorithm = \"gcra\"\nrate = \"1/hour\"\nburst = 49"),
        ("weeks", "algorithm = \"fixed_window\"\nrate = \"50/5000 weeks\""),
        ("first", "algorithm = \"fixed_window\"\nrate = \"50/week\"\nalign = \"first_request\""),
        ("year", "algorithm = \"fixed_window\"\nrate = \"50/year\"\ntimezone = \"Europe/Berlin\""),
        ("log", "algorithm = \"sliding_log\"\nrate = \"50/week\""),
        ("parts", "algorithm = \"sliding_window\"\nrate = \"50/week\"\nbuckets = 7"),
    ];
    let tables = limits.map(|(name, limit)| {
        format!(
            "[limits.{name}]\n{limit}\nkey = \"header:x-key\"\n\
             [[routes]]\npath = \"/{name}\"\nlimits = [\"{name}\"]\nrespond = {{ status = 200 }}\n"
        )
    });
    let config = tables.concat();
    let proxies = [Tidegate::start_with(&server, &config), Tidegate::start_with(&server, &config)];
    for (name, _) in limits {
        let passed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let (address, passed) = (proxies[thread % 2].addr(), &passed);
                scope.spawn(move || {
                    for _ in 0..10 {
                        let status = get(address, &format!("/{name}"), &["X-Key: one"]).status();
                        assert!(matches!(status, 200 | 429), "{status}");
                        passed.fetch_add(u64::from(status == 200), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(passed.into_inner(), LIMIT, "{name}");
    }
}
