//! The table of grants in virtual time.

use super::*;
use crate::limit::{Ahead, Decision, Grant, Quota, Rate};
use crate::limiter::grants::grant_requests::count_returned;
use crate::limiter::grants::held_grant::GrantCall;
use crate::limiter::grants::held_grants::TakeResult;
use crate::telemetry::GrantEvent;
use crate::time::Timestamp;

const NOW: BootTime = BootTime(9_000_000);

fn policy(name: &str, units: u64) -> Policy {
    let quota = Quota::token_bucket(Rate::new(units, Micros::SECOND).unwrap(), units).unwrap();
    Policy::new(name, quota).with_ahead(Ahead { span: Micros::SECOND, share: Ahead::DEFAULT_SHARE })
}

fn charge(key: u64) -> Charge {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&key.to_le_bytes());
    Charge::take(PolicyId(0), Key(bytes), 1)
}

fn add(table: &GrantTable, policies: &Arc<[Policy]>, key: u64, units: u64) {
    let grant = Grant { units, opened: Timestamp(1), duration: Micros::SECOND, first: None };
    let call = GrantCall { sent: NOW, received: NOW, decided: Timestamp(1) };
    // A key for which there is no room gets no grant.
    let _ = table.with_key(policies, &charge(key), NOW, |held| held.add(table.next_serial(), &grant, call));
    table.sweep_within(Micros::SECOND);
}

fn take(table: &GrantTable, policies: &Arc<[Policy]>, key: u64) -> bool {
    let result = table.with_key(policies, &charge(key), NOW, |held| held.take(1, NOW)).unwrap();
    matches!(result, TakeResult::Taken { .. })
}

fn returned(table: &GrantTable) -> u64 {
    table.take_returned().iter().map(|grant| grant.report.returned).sum()
}

#[test]
fn keys_that_are_not_used_are_evicted_and_return_their_grants() {
    let (table, policies) = (GrantTable::default(), Arc::from([policy("a", 100)]));
    let keys = u64::try_from(MAX_KEYS).unwrap();
    for key in 0..4 * keys {
        if key % 1_000 == 0 {
            add(&table, &policies, key, 5);
        } else {
            table.with_key(&policies, &charge(key), NOW, |held| held.record_demand(1, NOW));
        }
    }
    let known: usize = table.keys.lock_each().map(|shard| shard.len()).sum();
    assert!(known <= MAX_KEYS, "{known}");
    let held = table.values()["a"].held;
    assert!(held < 4 * keys / 1_000 * 5 / 2, "{held}");
    assert_eq!(held + returned(&table), table.values()["a"].events[GrantEvent::Granted as usize]);
}

#[test]
fn a_reload_returns_the_grants_of_limits_that_have_changed() {
    let table = GrantTable::default();
    let before: Arc<[Policy]> = Arc::from([policy("a", 100)]);
    add(&table, &before, 1, 5);
    let same: Arc<[Policy]> = Arc::from([policy("b", 100), policy("a", 100)]);
    table.adopt(&same);
    let charge_of_second = Charge { policy: PolicyId(1), ..charge(1) };
    let result = table.with_key(&same, &charge_of_second, NOW, |held| held.take(1, NOW));
    assert!(matches!(result, Some(TakeResult::Taken { .. })));
    assert_eq!(returned(&table), 0);
    table.adopt(&Arc::from([policy("a", 200)]));
    assert_eq!(returned(&table), 4);
    add(&table, &before, 1, 5);
    table.adopt(&Arc::from([policy("b", 100)]));
    assert_eq!(returned(&table), 5);
    assert!(!table.values().contains_key("a"));
}

#[test]
fn other_numbers_of_a_key_return_its_grants() {
    let table = GrantTable::default();
    let (before, raised): (Arc<[Policy]>, Arc<[Policy]>) =
        (Arc::from([policy("a", 100)]), Arc::from([policy("a", 200)]));
    add(&table, &before, 1, 5);
    assert!(take(&table, &before, 1));
    assert!(!take(&table, &raised, 1));
    assert_eq!(returned(&table), 4);
}

#[test]
fn grants_of_a_changed_key_are_dropped() {
    let (table, policies): (_, Arc<[Policy]>) = (GrantTable::default(), Arc::from([policy("a", 100)]));
    add(&table, &policies, 1, 5);
    add(&table, &policies, 2, 5);
    table.drop_keys(&policies, &[(PolicyId(0), charge(1).key)]);
    assert_eq!([1, 2].map(|key| take(&table, &policies, key)), [false, true]);
    assert_eq!((returned(&table), table.drops()), (0, 1));
    assert_eq!(table.values()["a"].events[GrantEvent::Lapsed as usize], 5);
}

#[test]
fn grants_are_swept_four_times_in_their_span_while_there_are_some() {
    let (table, policies): (_, Arc<[Policy]>) = (GrantTable::default(), Arc::from([policy("a", 100)]));
    assert!(!table.is_sweep_due(NOW));
    add(&table, &policies, 1, 5);
    let at = |micros| NOW.after(Micros(micros));
    assert!(table.is_sweep_due(NOW));
    table.sweep(NOW);
    assert!(!table.is_sweep_due(at(249_999)));
    assert!(table.is_sweep_due(at(250_000)) && !table.is_sweep_due(at(250_000)));
    assert_eq!(table.next_sweep().0, Micros(250_000));
    table.sweep(at(500_000));
    assert_eq!((returned(&table), table.next_sweep().0), (5, Micros(u64::MAX)));
}

#[test]
fn all_grants_are_returned_at_the_end() {
    let (table, policies): (_, Arc<[Policy]>) = (GrantTable::default(), Arc::from([policy("a", 100)]));
    (0..100).for_each(|key| add(&table, &policies, key, 5));
    table.queue_all();
    assert_eq!((returned(&table), table.values()["a"].held), (500, 0));
}

/// A slow call may reach the store when the grant has ended and its units have been charged.
#[test]
fn units_whose_report_came_too_late_have_lapsed() {
    let table = GrantTable::default();
    let policies: Arc<[Policy]> = Arc::from([policy("a", 100)]);
    let granted = Grant { units: 5, opened: Timestamp(1), duration: Micros::SECOND, first: None };
    let end = Timestamp(1).after(granted.duration);
    for (decided, expected) in [(Some(end), [0, 5]), (None, [0, 10]), (Some(Timestamp(2)), [5, 10])] {
        add(&table, &policies, 1, granted.units);
        table.queue_all();
        let grants = table.take_returned();
        let decisions = decided.map(|at| Decision { at, ..Decision::allowed(100, 100, Micros::ZERO) });
        count_returned(&grants, decisions.as_slice());
        let events = table.values()["a"].events;
        let counted = [GrantEvent::Returned, GrantEvent::Lapsed].map(|event| events[event as usize]);
        assert_eq!(counted, expected, "{decided:?}");
    }
}
