//! The in-memory store and Redis make the same decisions and the same grants for the same histories.

use std::fmt::Write as _;
use std::num::NonZeroU64;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate::limit::{
    Ahead, Align, Charge, ChargeKind, Grant, GrantReport, GrantRequest, Policy, PolicyId, Quota, Rate,
    Record, State,
};
use tidegate::store::StateChange;
use tidegate::store::redis::stored_key;
use tidegate::time::{Micros, Timestamp};

use super::kit::{self, Course, Numbers, any_cost, any_jump, any_timed, for_all};
use crate::store::both_stores::Stores;
use crate::support::RedisServer;

const POLICIES: u32 = 3;

/// A charge: its policy, key, cost and kind; of the kind `Grant` also which earlier grant it reports, the report, and how many
/// units it requests.
type TestCharge = (u32, u8, u64, ChargeKind, usize, Report, u64);

/// The report of an earlier grant.
#[derive(Clone, Copy, Debug)]
enum Report {
    Nothing,
    Spent(u64),
    Returned(u64),
    /// Of a generation that is unknown, which ends at this time from now.
    Unknown(i64),
}

#[derive(Clone, Debug)]
enum Event {
    Take(Vec<TestCharge>),
    Apply(Vec<TestCharge>),
    Change(u32, u8, StateChange),
}

fn any_event() -> impl Strategy<Value = Event> {
    let kind = prop_oneof![
        8 => Just(ChargeKind::Grant),
        2 => Just(ChargeKind::Take),
        1 => Just(ChargeKind::Check),
        1 => Just(ChargeKind::Refund),
        1 => Just(ChargeKind::Late),
        1 => Just(ChargeKind::Extra)
    ];
    let report = prop_oneof![
        3 => Just(Report::Nothing),
        3 => (0..40_u64).prop_map(Report::Spent),
        2 => (0..40_u64).prop_map(Report::Returned),
        1 => (-2_000_000..2_000_000_i64).prop_map(Report::Unknown)
    ];
    let wanted = prop_oneof![2 => Just(0_u64), 6 => 0..60_u64, 1 => any::<u64>()];
    let charge = (0..POLICIES, 0..2_u8, any_cost(), kind, 0..4_usize, report, wanted).boxed();
    let several = prop_oneof![
        3 => prop::collection::vec(charge.clone(), 1),
        1 => prop::collection::vec(charge, 1..4)
    ]
    .boxed();
    let by_operator = prop_oneof![
        2 => (1..5_000_000_u64).prop_map(|length| StateChange::Block(Micros(length))),
        1 => Just(StateChange::Unblock),
        1 => Just(StateChange::Reset)
    ];
    prop_oneof![
        10 => several.clone().prop_map(Event::Take),
        5 => several.prop_map(Event::Apply),
        1 => (0..POLICIES, 0..2_u8, by_operator).prop_map(|(policy, key, change)| Event::Change(policy, key, change))
    ]
}

/// Limits that can grant units: all but leaky buckets and slots, mostly with many units.
fn any_granting() -> impl Strategy<Value = Numbers> {
    any_timed().prop_filter("a position in a queue can't be granted", |numbers| {
        !matches!(numbers, Numbers::Leaky(..)) && numbers.quota().limit() >= 8
    })
}

fn any_policy(name: &'static str) -> impl Strategy<Value = (Numbers, Policy)> {
    let ban = kit::any_ban(0.2);
    let ahead = (prop_oneof![100_000..10_000_000_u64, 1..1_000_000_u64], 1..9_u64);
    let refunds = (prop::bool::weighted(0.3), kit::any_settlement());
    let rest = (ban, prop::bool::weighted(0.15), ahead, prop::bool::weighted(0.9), refunds);
    (any_granting(), rest).prop_map(
        move |(numbers, (ban, shadow, (span, share), grants, (refunds, settled)))| {
            let policy = kit::with_refunds(kit::with(numbers.policy(name), ban, shadow), refunds);
            let policy = kit::with_settlement(policy, settled);
            let share = NonZeroU64::new(share).unwrap();
            (numbers, if grants { policy.with_ahead(Ahead { span: Micros(span), share }) } else { policy })
        },
    )
}

/// The grants of a history, and the next request for one.
#[derive(Default)]
struct History {
    grants: Vec<(PolicyId, u8, Grant, Timestamp)>,
}

impl History {
    fn request(&self, now: Timestamp, (policy, key, _, _, back, report, wanted): TestCharge) -> GrantRequest {
        let own = |(of, number, ..): &&(PolicyId, u8, Grant, Timestamp)| of.0 == policy && *number == key;
        let earlier = self.grants.iter().rev().filter(own).nth(back);
        let report = match (report, earlier) {
            (Report::Unknown(ends), _) => Some(GrantReport {
                opened: Timestamp(now.0.saturating_sub(7)),
                until: Timestamp(now.0.saturating_add_signed(ends)),
                spent: 3,
                returned: 2,
            }),
            (Report::Spent(spent), Some((_, _, grant, until))) => {
                Some(GrantReport { opened: grant.opened, until: *until, spent, returned: 0 })
            }
            (Report::Returned(returned), Some((_, _, grant, until))) => {
                Some(GrantReport { opened: grant.opened, until: *until, spent: grant.units / 2, returned })
            }
            _ => None,
        };
        GrantRequest { report, wanted }
    }

    fn charges(&self, now: Timestamp, charges: &[TestCharge]) -> (Vec<Charge>, Vec<GrantRequest>) {
        let charge = |(policy, key, cost, kind, back, ..): &TestCharge| {
            let taken = Timestamp(now.0.saturating_sub(*back as u64 * 300_000));
            Charge { taken, ..kit::held(*policy, *key, *cost, 0, *kind) }
        };
        let granting = charges.iter().filter(|(_, _, _, kind, ..)| *kind == ChargeKind::Grant);
        (charges.iter().map(charge).collect(), granting.map(|charge| self.request(now, *charge)).collect())
    }

    fn record_grants(&mut self, now: Timestamp, charges: &[TestCharge], grants: &[Grant]) {
        let granting = charges.iter().filter(|(_, _, _, kind, ..)| *kind == ChargeKind::Grant);
        for ((policy, key, ..), grant) in granting.zip(grants).filter(|(_, grant)| grant.units > 0) {
            self.grants.push((PolicyId(*policy), *key, *grant, now.after(grant.duration)));
        }
    }
}

#[allow(clippy::cast_precision_loss)]
fn doubles<const N: usize>(numbers: [u64; N]) -> impl Iterator<Item = u8> {
    numbers.into_iter().flat_map(|number| (number as f64).to_le_bytes())
}

/// A state as in Redis.
fn state_bytes(state: &State) -> Vec<u8> {
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    match state {
        State::Debt(it) => doubles([it.stamp.0, it.ticks, it.unit.get()]).collect(),
        State::Shortfall(it) => doubles([it.stamp.0, it.tick.0, it.tokens]).collect(),
        State::Count(it) => {
            let grid =
                if it.grid < 0 { -double(it.grid.unsigned_abs()) } else { double(it.grid.unsigned_abs()) };
            let start = doubles([it.stamp.0, it.start.0]);
            start.chain(grid.to_le_bytes()).chain(doubles([it.units])).collect()
        }
        State::Log(it) => words(&it.words).into_iter().chain(doubles([it.stamp.0, it.base])).collect(),
        State::Parts(it) => {
            let line = &it.timeline;
            words(&line.words).into_iter().chain(doubles([line.stamp.0, line.base, it.width.get()])).collect()
        }
        State::WithGrants(it) => {
            let inner = it.state.as_ref().map_or_else(Vec::new, state_bytes);
            // Equal to no grants.
            if it.current.units == 0 && it.previous.units == 0 {
                return inner;
            }
            let trailer = [it.current, it.previous]
                .into_iter()
                .flat_map(|generation| doubles([generation.opened.0, generation.units, generation.until.0]));
            inner.into_iter().chain(trailer).chain(*b"r").collect()
        }
        State::Leases(_) => unreachable!("slots are not granted"),
    }
}

#[allow(clippy::cast_precision_loss)]
fn double(number: u64) -> f64 {
    number as f64
}

/// A record as in Redis.
fn record_bytes(record: &Record) -> Vec<u8> {
    let mut bytes = record.state.as_ref().map_or_else(Vec::new, state_bytes);
    if !bytes.is_empty() && record.created > Timestamp(0) {
        bytes = doubles([record.created.0]).chain(bytes).collect();
    }
    if let Some(it) = &record.penalty {
        bytes.extend(doubles([it.stamp.0, it.denials, it.opened.0, it.banned.0, it.blocked.0]));
        bytes.push(b'h');
    }
    bytes
}

/// A record of Redis, in hexadecimal, without the deadline behind its debt, which memory does not need.
fn without_deadline(policy: &Policy, record: &str) -> String {
    let size = record.len() / 2;
    let trailers = match (size % 8, record.ends_with("72")) {
        (0, _) => 0,
        (1, true) => 49,
        (1, false) => 41,
        _ => 49 + 41,
    };
    if matches!(policy.letter(), b'B' | b'G') && size == 32 + trailers {
        return format!("{}{}", &record[..48], &record[64..]);
    }
    record.to_owned()
}

/// The records of all keys are equal, byte by byte, but for the deadlines of debts.
fn equal_records(server: &RedisServer, stores: &Stores, policies: &[Policy]) -> Result<(), TestCaseError> {
    let script = "local all = {}
        for i, key in ipairs(KEYS) do
            local function hex(byte) return string.format('%02x', string.byte(byte)) end
            all[i] = 'x' .. string.gsub(redis.call('GET', key) or '', '.', hex)
        end
        return all";
    let granting: Vec<(&Policy, u8)> = policies
        .iter()
        .filter(|policy| policy.ahead.is_some())
        .flat_map(|policy| [(policy, 0), (policy, 1)])
        .collect();
    let name = |(policy, number): &(&Policy, u8)| {
        String::from_utf8(stored_key(stores.prefix(), policy, kit::key(*number), policy.letter())).unwrap()
    };
    let names: Vec<String> = granting.iter().map(name).collect();
    let count = names.len().to_string();
    let arguments: Vec<&str> =
        ["eval", script, &count].into_iter().chain(names.iter().map(String::as_str)).collect();
    let actual = server.cli(&arguments);
    let records = actual
        .lines()
        .zip(&granting)
        .map(|(line, (policy, _))| without_deadline(policy, line.strip_prefix('x').unwrap_or(line)));
    let expected = granting.iter().map(|(policy, number)| {
        let record = stores.memory_record(policy, kit::key(*number));
        let bytes = record.as_ref().map_or_else(Vec::new, record_bytes);
        bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    });
    prop_assert_eq!(records.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
    Ok(())
}

/// The sum of the granted units and a cost may exceed what a double holds exactly.
#[test]
fn the_largest_limits_are_exact_in_both_stores() {
    let server = RedisServer::start();
    let most = 1 << 53;
    let rate = |units, period| Rate::new(units, Micros(period)).unwrap();
    let ahead = Ahead { span: Ahead::MIN_SPAN, share: NonZeroU64::MIN };
    let quotas = [
        Quota::interval_bucket(rate(most, 1_000_000), most),
        Quota::fixed_window(rate(most, 1_000_000), Align::Clock),
        Quota::token_bucket(rate(1, 1), most - 1_000_000),
    ];
    for quota in quotas.map(Result::unwrap) {
        let stores = Stores::new(&server);
        let held = quota.limit() - 1;
        let policies = [Policy::new("a", quota).with_ahead(ahead)];
        let request = GrantRequest { report: None, wanted: held };
        let granted =
            stores.take_with_grants(&policies, &[kit::held(0, 0, 0, 0, ChargeKind::Grant)], &[request]);
        assert_eq!(granted.grants[0].units, held, "{}", policies[0].letter());
        assert!(!stores.take(&policies, &[kit::held(0, 0, 2, 0, ChargeKind::Take)])[0].allowed);
        assert!(stores.take(&policies, &[kit::held(0, 0, 1, 0, ChargeKind::Take)])[0].allowed);
    }
}

#[test]
fn both_stores_grant_equally() {
    let server = RedisServer::start();
    let policies = (any_policy("a"), any_policy("b"), any_policy("c"));
    let events = prop::collection::vec((any_jump(), any_event()), 1..60);
    for_all(200, &(policies, events), |((a, b, c), events)| {
        let stores = Stores::new(&server);
        let period = a.0.period();
        let policies = [a.1, b.1, c.1];
        let (mut course, mut last, mut history) = (Course::any(), None, History::default());
        for (step, event) in events {
            let now = Timestamp(course.go(step, period, last.as_ref()));
            stores.set_clock(now.0);
            match event {
                Event::Take(parts) => {
                    let (charges, requests) = history.charges(now, &parts);
                    let granted = stores.take_with_grants(&policies, &charges, &requests);
                    history.record_grants(now, &parts, &granted.grants);
                    last = granted.decisions.first().copied();
                }
                Event::Apply(parts) => {
                    let (charges, requests) = history.charges(now, &parts);
                    let granted = stores.apply_with_grants(&policies, &charges, &requests);
                    history.record_grants(now, &parts, &granted.grants);
                    last = granted.decisions.first().copied();
                }
                Event::Change(policy, key, change) => {
                    stores.change(&policies, &[(PolicyId(policy), kit::key(key))], change);
                }
            }
        }
        equal_records(&server, &stores, &policies)
    });
}
