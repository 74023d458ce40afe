//! A state that has expired makes no difference to decisions, and Redis gets its exact expiry.

use proptest::prelude::*;
use tidegate::limit::{Ban, ChargeKind, PolicyId, Record};
use tidegate::store::{Redis, StateChange};
use tidegate::time::{Micros, Timestamp};

use super::kit::{self, Course, Numbers, SECOND, START, any_cost, any_move, any_numbers, any_timed, for_all};
use super::rules::Pace;
use crate::store::both_stores::{Stores, spec_of};
use crate::support::{Monitor, RedisServer, patience};

/// A store with one key, which it removes when the key expires or never.
#[derive(Default)]
struct Kept {
    record: Option<Record>,
    until: Option<u64>,
}

fn any_ban() -> impl Strategy<Value = Option<Ban>> {
    let ban = (1..5_u64, 1..3_000_000_u64, 1..3_000_000_u64);
    prop::option::of(ban.prop_map(|(after, within, length)| Ban {
        after,
        within: Micros(within),
        length: Micros(length),
    }))
}

/// Two stores, one of which removes the state exactly when it expires, decide equally. So they do if three proxies have clocks
/// within a second, and the state is kept for a second longer.
#[test]
fn expired_states_change_no_decision() {
    let ahead = prop_oneof![Just(vec![0; 3]), prop::collection::vec(0..=SECOND, 3)];
    let what = prop_oneof![6 => Just(ChargeKind::Take), 1 => Just(ChargeKind::Check),
        1 => Just(ChargeKind::Release), 1 => Just(ChargeKind::Renew), 1 => Just(ChargeKind::Late),
        1 => Just(ChargeKind::Extra)];
    let arrival = (any_move(), 0..3_usize, what, 0..5_u64, any_cost());
    let arrivals = prop::collection::vec(arrival, 1..80);
    let limits = (any_numbers(), any_ban(), kit::any_settlement());
    for_all(1_000, &(limits, ahead, arrivals), |((numbers, ban, settled), ahead, arrivals)| {
        let policy = kit::with_settlement(kit::with(numbers.policy("a"), ban, false), settled);
        let longer = if ahead.iter().all(|ahead| *ahead == 0) { 0 } else { SECOND };
        let (mut keeps, mut forgets) = (Kept::default(), Kept::default());
        let (mut course, mut last) = (Course::behind(0), None);
        for (step, proxy, kind, holder, cost) in arrivals {
            let time = course.go(step, numbers.period(), last.as_ref());
            let now = Timestamp(time + ahead[proxy]);
            if forgets.until.is_some_and(|until| until <= time) {
                forgets = Kept::default();
            }
            let charge = kit::held(0, 1, cost.min(1_000), holder, kind);
            let said = [&mut keeps, &mut forgets].map(|kept| {
                let outcome = policy.decide(kept.record.as_ref(), now, &charge);
                if let Some(record) = outcome.next {
                    kept.until = Some(time + policy.lifetime(&record, now).0 + longer);
                    kept.record = Some(record);
                }
                outcome.decision
            });
            prop_assert_eq!(said[0], said[1], "{:?} at {:?}", charge, now);
            last = Some(said[0]);
        }
        Ok(())
    });
}

/// Sweeps of the in-memory store change no decision.
#[test]
fn sweeps_change_no_decision() {
    let arrival = (any_move(), 0..3_u8, any_cost(), prop::bool::weighted(0.3));
    for_all(
        200,
        &(any_timed(), any_ban(), prop::collection::vec(arrival, 1..60)),
        |(numbers, ban, arrivals)| {
            let (kept, swept) = (kit::memory(), kit::memory());
            let policies = [kit::with(numbers.policy("a"), ban, false)];
            let (mut course, mut last) = (Course::behind(0), None);
            for (step, key, cost, sweeps) in arrivals {
                let now = course.go(step, numbers.period(), last.as_ref());
                let said = [&kept, &swept].map(|memory| {
                    memory.clock().set(Timestamp(now));
                    memory.take(&policies, &[kit::charge(0, key, cost)])[0]
                });
                prop_assert_eq!(said[0], said[1]);
                if sweeps {
                    swept.sweep(0, 1);
                }
                last = Some(said[0]);
            }
            Ok(())
        },
    );
}

/// The lifetimes that Redis was given up to this mark, in order; `None` where a key was deleted.
fn written(server: &RedisServer, monitor: &Monitor) -> Vec<Option<u64>> {
    server.cli(&["echo", "that-was-all"]);
    let lines = monitor.until("that-was-all");
    let ttl = |line: &String| {
        let mut words = line.rsplit('"');
        let (_, last, _, option) = (words.next(), words.next()?, words.next()?, words.next()?);
        if line.contains("lua] \"SET\"") {
            assert_eq!(option, "PX");
            return Some(Some(last.parse::<u64>().unwrap()));
        }
        line.contains("lua] \"DEL\"").then_some(None)
    };
    lines.iter().filter_map(ttl).collect()
}

/// Microseconds as milliseconds, rounded up.
fn millis(lifetime: u64) -> u64 {
    lifetime.div_ceil(1_000) + 1
}

/// When Redis expires a state.
#[derive(Default)]
struct Expiry(Option<u64>);

impl Expiry {
    /// The lifetime that Redis is given with a state that is needed until `until`; none if it is overwritten in place: a debt
    /// that is kept for long enough, or a window that was opened before.
    fn written(&mut self, numbers: &Numbers, now: u64, until: u64) -> Option<u64> {
        let (is_debt, is_window) = match numbers {
            Numbers::Token(..) | Numbers::Gcra(..) => (true, false),
            Numbers::Fixed(..) | Numbers::First(..) => (false, true),
            _ => (false, false),
        };
        if (is_debt || is_window) && self.0.is_some_and(|known| until <= known) {
            return None;
        }
        let lifetime = until - now;
        let longer = if is_debt && self.0.is_some() { SECOND + lifetime.min(60 * SECOND) } else { 0 };
        self.0 = Some(until + longer);
        Some(lifetime + longer)
    }
}

/// On a clock of the test's own: the lifetime of the model, rounded up, and an hour longer; only what is charged
/// is written. The debt of a key that is in use is kept for longer.
#[test]
fn redis_expires_each_state() {
    let server = RedisServer::start();
    let monitor = server.monitor();
    let stores = Stores::new(&server);
    let arrivals = prop::collection::vec((any_move(), any_cost()), 1..30);
    let number = std::cell::Cell::new(0_u32);
    for_all(120, &(any_timed(), arrivals), |(numbers, arrivals)| {
        number.set(number.get() + 1);
        let (policies, mut model) = ([numbers.policy(&format!("n{}", number.get()))], numbers.model());
        let (mut course, mut last, mut expected) = (Course::behind(SECOND), None, Vec::new());
        let mut expiry = Expiry::default();
        for (step, cost) in arrivals {
            let now = course.go(step, numbers.period(), last.as_ref());
            stores.set_clock(now);
            let said = stores.take(&policies, &[kit::charge(0, 1, cost)])[0];
            prop_assert_eq!(said, model.take(now, cost));
            if said.allowed && cost > 0 {
                let written = expiry.written(&numbers, now, model.forgotten(now));
                expected.extend(written.map(|lifetime| Some(millis(lifetime) + 3_600_000)));
            }
            last = Some(said);
        }
        prop_assert_eq!(written(&server, &monitor), expected);
        Ok(())
    });
}

/// By the clock of Redis nothing is added, by that of a proxy a second; bans and blocks extend the lifetime as well.
#[test]
fn redis_keeps_a_state_as_long_as_its_clock_needs() {
    let server = RedisServer::start();
    let monitor = server.monitor();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let pace = Pace { units: 7, period: 999_983 };
    let all = [
        Numbers::Token(pace, 5),
        Numbers::Interval(pace, 5),
        Numbers::Gcra(pace, 5),
        Numbers::Leaky(pace, 5),
        Numbers::First(pace),
        Numbers::Log(vec![pace]),
        Numbers::Sliding(pace, 1),
        Numbers::Slots(5, 30_000_000),
    ];
    let ban = Ban { after: 1, within: Micros(5), length: Micros(77_777_777) };
    for (client_clock, longer) in [(false, 0), (true, 1_000)] {
        for (place, numbers) in all.iter().enumerate() {
            let name = format!("n{place}-{client_clock}");
            let policies = std::sync::Arc::from([kit::with(numbers.policy(&name), Some(ban), false)]);
            let (expected, banned) = runtime.block_on(async {
                let redis = Redis::connect(&spec_of(&server, "ttl", client_clock));
                redis.wait_connected(patience()).await.unwrap();
                let charge = kit::held(0, 1, 2, 9, ChargeKind::Take);
                let said = redis.take(&policies, &[charge]).await.unwrap()[0];
                let lifetime =
                    if let Numbers::Slots(_, lease) = numbers { *lease } else { said.reset_after.0 };
                // The first denial bans.
                let banned =
                    redis.take(&policies, &[kit::held(0, 1, 99, 9, ChargeKind::Take)]).await.unwrap()[0];
                (millis(lifetime) + longer, banned)
            });
            assert!(!banned.allowed);
            let both = vec![Some(expected), Some(millis(77_777_777) + longer)];
            assert_eq!(written(&server, &monitor), both, "{numbers:?}");
        }
    }
}

/// Slots: until the latest lease expires. A key without held slots is deleted.
#[test]
fn redis_keeps_slots_until_the_latest_lease_ends() {
    let server = RedisServer::start();
    let monitor = server.monitor();
    let stores = Stores::new(&server);
    let policies = [Numbers::Slots(5, 30_000_000).policy("c")];
    let act = |now: u64, holder: u64, kind: ChargeKind| {
        stores.set_clock(START + now);
        let _ = stores.take(&policies, &[kit::held(0, 1, 1, holder, kind)]);
    };
    act(0, 1, ChargeKind::Take);
    act(10_000_000, 2, ChargeKind::Take);
    act(20_000_000, 1, ChargeKind::Renew);
    act(25_000_000, 2, ChargeKind::Release);
    act(26_000_000, 1, ChargeKind::Release);
    act(26_000_000, 1, ChargeKind::Release);
    let hour = |lifetime| Some(millis(lifetime) + 3_600_000);
    let expected = vec![hour(30_000_000), hour(30_000_000), hour(30_000_000), hour(25_000_000), None];
    assert_eq!(written(&server, &monitor), expected);
}

/// A block outlives the state beneath it, and the state the block.
#[test]
fn a_block_is_kept_until_its_end() {
    let server = RedisServer::start();
    let monitor = server.monitor();
    let stores = Stores::new(&server);
    let policies = [Numbers::Token(Pace { units: 1, period: 1_000_000 }, 100).policy("b")];
    let _ = stores.take(&policies, &[kit::charge(0, 1, 10)]);
    assert_eq!(written(&server, &monitor), [Some(millis(10_000_000) + 3_600_000)]);
    stores.change(&policies, &[(PolicyId(0), kit::key(1))], StateChange::Block(Micros(60_000_000)));
    let all = written(&server, &monitor);
    assert_eq!(all, vec![Some(millis(60_000_000) + 3_600_000); all.len()]);
    stores.set_clock(START + 60_000_000 - 1);
    assert!(!stores.take(&policies, &[kit::charge(0, 1, 1)])[0].allowed);
    stores.set_clock(START + 60_000_000);
    assert!(stores.take(&policies, &[kit::charge(0, 1, 100)])[0].allowed);
}
