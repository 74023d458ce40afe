//! Tests of counts, bans and blocks when the wall clock is set.

use super::*;
use crate::limit::{Align, Ban, Calendar, CalendarUnit, DenyReason, Holder, Quota, Rate};

/// 2026-03-10 12:00:00 in UTC.
const NOON: Timestamp = Timestamp(1_773_144_000_000_000);
const HOUR: u64 = 3_600_000_000;

fn memory() -> Memory {
    Memory::new(1_000, Clock::manual(NOON))
}

fn charge(policy: usize, holder: u64) -> Charge {
    let policy = PolicyId(u32::try_from(policy).unwrap());
    Charge { holder: Holder(holder), ..Charge::take(policy, Key([7; 16]), 1) }
}

fn set_wall(memory: &Memory, to: u64) {
    memory.clock().set_wall(Timestamp(to));
}

/// A limit of one unit of each algorithm that does not follow the calendar.
fn monotonic() -> Vec<Policy> {
    let rate = || Rate::new(1, Micros(10 * 60_000_000)).unwrap();
    let quotas = [
        Quota::token_bucket(rate(), 1),
        Quota::interval_bucket(rate(), 1),
        Quota::gcra(rate(), 0),
        Quota::leaky_bucket(rate(), 0),
        Quota::fixed_window(rate(), Align::Clock),
        Quota::fixed_window(rate(), Align::FirstRequest),
        Quota::sliding_log(&[rate()]),
        Quota::sliding_window(rate(), 10),
        Quota::concurrency(1, Micros(60_000_000)),
    ];
    quotas.into_iter().enumerate().map(|(n, quota)| Policy::new(&n.to_string(), quota.unwrap())).collect()
}

fn daily(ban: Option<Ban>) -> Vec<Policy> {
    let rate = Rate::new(1, Micros(24 * HOUR)).unwrap();
    let calendar = Align::Calendar(Calendar::new(CalendarUnit::Day, "UTC").unwrap());
    let mut policy = Policy::new("daily", Quota::fixed_window(rate, calendar).unwrap());
    policy.ban = ban;
    vec![policy]
}

#[test]
fn setting_the_wall_clock_refills_no_limit() {
    let (memory, policies) = (memory(), monotonic());
    for policy in 0..policies.len() {
        assert!(memory.take(&policies, &[charge(policy, 1)])[0].allowed);
    }
    let wait = |policy| memory.take(&policies, &[charge(policy, 2)])[0].retry_after;
    let waits: Vec<_> = (0..policies.len()).map(wait).collect();
    for step in [NOON.0 + HOUR, NOON.0 - HOUR, NOON.0 + 24 * HOUR] {
        set_wall(&memory, step);
        memory.sweep(0, 1);
        let now: Vec<_> = (0..policies.len()).map(wait).collect();
        assert_eq!(now, waits);
        assert!(now.iter().all(Option::is_some));
    }
}

#[test]
fn setting_the_wall_clock_lifts_no_ban_and_no_block() {
    let ban = Ban { after: 1, within: Micros::SECOND, length: Micros(HOUR) };
    // Of a limit that follows the calendar as well.
    for mut policies in [monotonic(), daily(None)] {
        policies[0].ban = Some(ban);
        let memory = memory();
        let blocked = [(PolicyId(0), Key([8; 16]))];
        let _ = memory.change(&policies, &blocked, StateChange::Block(Micros(HOUR)));
        for _ in 0..2 {
            let _ = memory.take(&policies, &[charge(0, 1)]);
        }
        let take = |key| {
            let decision = memory.take(&policies, &[Charge { key: Key([key; 16]), ..charge(0, 1) }])[0];
            (decision.allowed, decision.reason)
        };
        for step in [NOON.0 + 2 * HOUR, NOON.0 - 2 * HOUR, NOON.0 + 48 * HOUR] {
            set_wall(&memory, step);
            memory.sweep(0, 1);
            assert_eq!([take(7), take(8)], [(false, DenyReason::Ban), (false, DenyReason::Block)]);
        }
        memory.clock().set(Timestamp(NOON.0 + HOUR));
        set_wall(&memory, NOON.0 + 48 * HOUR);
        assert_ne!(take(7).1, DenyReason::Ban);
        assert_ne!(take(8).1, DenyReason::Block);
    }
}

#[test]
fn a_calendar_window_follows_the_wall_clock() {
    let (memory, policies) = (memory(), daily(None));
    let take = || memory.take(&policies, &[charge(0, 1)])[0];
    assert!(take().allowed);
    assert_eq!(take().retry_after, Some(Micros(12 * HOUR)));
    // Set back: the same day is longer, and its count is not forgotten while it lasts.
    set_wall(&memory, NOON.0 - HOUR);
    assert_eq!(take().retry_after, Some(Micros(13 * HOUR)));
    memory.clock().set(Timestamp(NOON.0 + 12 * HOUR + HOUR / 2));
    set_wall(&memory, NOON.0 + 11 * HOUR + HOUR / 2);
    memory.sweep(0, 1);
    assert_eq!(take().retry_after, Some(Micros(HOUR / 2)));
    // Set forward, into the next day.
    set_wall(&memory, NOON.0 + 13 * HOUR);
    assert!(take().allowed);
    assert!(!take().allowed);
}

#[test]
fn units_are_refunded_only_in_their_calendar_window() {
    let (memory, policies) = (memory(), daily(None));
    set_wall(&memory, NOON.0 + 12 * HOUR - 1_000_000);
    let taken = charge(0, 1);
    let decision = memory.take(&policies, &[taken])[0];
    assert_eq!((decision.allowed, decision.at), (true, memory.clock().now()));
    let refund = taken.refund(decision.at);
    let _ = memory.apply(&policies, &[refund]);
    assert!(memory.take(&policies, &[taken])[0].allowed);
    // In the next window nothing of the last one is refunded.
    memory.clock().set(Timestamp(NOON.0 + 2_000_000));
    set_wall(&memory, NOON.0 + 12 * HOUR + 1_000_000);
    assert!(memory.take(&policies, &[taken])[0].allowed);
    let _ = memory.apply(&policies, &[refund]);
    assert!(!memory.take(&policies, &[taken])[0].allowed);
}
