//! The grants of one key in virtual time.

use super::*;
use crate::limit::{Quota, Rate};

const SPAN: u64 = 1_000_000;

fn policy() -> Policy {
    let quota = Quota::token_bucket(Rate::new(1_000, Micros::SECOND).unwrap(), 1_000).unwrap();
    Policy::new("a", quota).with_ahead(Ahead { span: Micros(SPAN), share: Ahead::DEFAULT_SHARE })
}

fn owner(policy: Policy) -> GrantOwner {
    GrantOwner { policies: Arc::from([policy]), policy: PolicyId(0), key: Key([1; 16]) }
}

/// A key of `policy()` whose requests need this many units in the span of a grant, up to now.
fn held(units: u64, now: u64) -> HeldGrants {
    let mut held = HeldGrants::new(owner(policy()), Arc::default(), BootTime(0));
    demand(&mut held, units, now);
    held
}

fn demand(held: &mut HeldGrants, units: u64, now: u64) {
    let interval = SPAN / units;
    let first = now.saturating_sub(5 * SPAN);
    (first..=now)
        .step_by(usize::try_from(interval).unwrap())
        .for_each(|at| held.record_demand(1, BootTime(at)));
}

/// A grant that the store has made at `now`.
fn add(held: &mut HeldGrants, serial: u64, units: u64, now: u64) -> Option<ReturnedGrant> {
    let grant = Grant { units, opened: Timestamp(now), duration: Micros(SPAN), first: None };
    held.add(serial, &grant, call(now))
}

fn call(now: u64) -> GrantCall {
    GrantCall { sent: BootTime(now), received: BootTime(now), decided: Timestamp(now) }
}

/// The grant that the units were taken from.
fn taken(result: TakeResult) -> u64 {
    match result {
        TakeResult::Taken { serial, .. } => serial,
        other => panic!("{other:?}"),
    }
}

fn events(held: &mut HeldGrants) -> [u64; GrantEvent::COUNT] {
    held.count_spent();
    held.counts.values()
}

#[test]
fn units_come_from_the_oldest_grant_that_has_enough() {
    let mut held = held(100, SPAN);
    let now = BootTime(SPAN);
    add(&mut held, 1, 4, SPAN);
    add(&mut held, 2, 40, SPAN);
    assert_eq!([3, 3, 1, 1].map(|cost| taken(held.take(cost, now))), [1, 2, 1, 2]);
    assert_eq!(held.take(37, now), TakeResult::Missing);
    assert_eq!(held.units(), 36);
}

#[test]
fn a_grant_can_be_spent_until_its_end() {
    let mut held = held(100, SPAN);
    add(&mut held, 1, 10, SPAN);
    let end = SPAN + SPAN / 1_000 * 999;
    assert_eq!(taken(held.take(4, BootTime(end - 1))), 1);
    held.spend(1, 4);
    assert_eq!(held.take(1, BootTime(end)), TakeResult::Missing);
    assert_eq!((held.has_grants(), events(&mut held)), (false, [10, 4, 0, 6]));
    // The store counts them as spent: nothing is reported.
    assert_eq!(held.request_grant(1, u64::MAX, BootTime(end)).report, None);
}

#[test]
fn a_call_reports_the_oldest_grant_and_returns_too_few_units() {
    let mut held = held(100, SPAN);
    let now = BootTime(SPAN);
    add(&mut held, 1, 5, SPAN);
    taken(held.take(3, now));
    held.spend(1, 3);
    let GrantRequest { report, wanted } = held.request_grant(3, u64::MAX, now);
    let report = report.unwrap();
    assert_eq!((report.opened, report.until), (Timestamp(SPAN), Timestamp(2 * SPAN)));
    assert_eq!((report.spent, report.returned), (3, 2));
    assert!((80..=102).contains(&wanted), "{wanted}");
    assert!(!held.has_grants());
    // The returned units are counted when the store has replied.
    assert_eq!(events(&mut held), [5, 3, 0, 0]);
}

#[test]
fn one_call_at_a_time_requests_a_grant() {
    let mut held = held(100, SPAN);
    let now = BootTime(SPAN);
    assert_eq!(held.request_grant(1, 0, now).wanted, 0);
    assert!(held.request_grant(1, u64::MAX, now).wanted > 0);
    assert_eq!(held.request_grant(1, u64::MAX, now).wanted, 0);
    held.end_request();
    assert!(held.request_grant(1, u64::MAX, now).wanted > 0);
}

#[test]
fn no_grant_is_requested_for_a_key_with_little_demand() {
    assert_eq!(held(5, SPAN).request_grant(1, u64::MAX, BootTime(SPAN)).wanted, 0);
}

#[test]
fn the_next_grant_is_requested_when_a_quarter_remains() {
    let mut held = held(100, SPAN);
    let now = BootTime(SPAN);
    add(&mut held, 1, 40, SPAN);
    let is_low = |result| matches!(result, TakeResult::Taken { is_low: true, .. });
    assert!((0..30).all(|_| !is_low(held.take(1, now))));
    assert!(is_low(held.take(1, now)));
    held.spend(1, 31);
    // No request waits for the call, so the held units are not returned.
    let request = held.request_grant(0, u64::MAX, now);
    assert_eq!(request.report.map(|report| (report.spent, report.returned)), Some((31, 0)));
    assert!(!is_low(held.take(1, now)), "a call is in flight");
    held.end_request();
    add(&mut held, 2, 40, SPAN);
    assert_eq!(held.units(), 48);
}

#[test]
fn the_next_grant_is_requested_before_the_last_one_ends() {
    let mut held = held(100, SPAN);
    add(&mut held, 1, 40, SPAN);
    let mut is_low =
        |micros: u64| matches!(held.take(1, BootTime(SPAN + micros)), TakeResult::Taken { is_low: true, .. });
    assert!(!is_low(SPAN * 49 / 100));
    assert!(is_low(SPAN / 2));
    held.record_refusal(BootTime(SPAN + SPAN / 2));
    let mut is_low =
        |micros: u64| matches!(held.take(1, BootTime(SPAN + micros)), TakeResult::Taken { is_low: true, .. });
    assert!(!is_low(SPAN * 5 / 8 - 1));
    assert!(is_low(SPAN * 5 / 8));
}

#[test]
fn a_grant_that_ends_with_its_window_is_used_up_before_the_next_one_is_requested() {
    let mut held = held(100, SPAN);
    let grant = Grant { units: 40, opened: Timestamp(SPAN), duration: Micros(SPAN / 4), first: None };
    held.add(1, &grant, call(SPAN));
    let mut is_low =
        |micros: u64| matches!(held.take(1, BootTime(SPAN + micros)), TakeResult::Taken { is_low: true, .. });
    assert!((0..30).all(|step| !is_low(step * SPAN / 200)));
    assert!(is_low(SPAN / 5));
}

#[test]
fn the_last_units_make_room_for_the_next_grant() {
    let mut held = held(100, SPAN);
    let now = BootTime(SPAN);
    add(&mut held, 1, 40, SPAN);
    add(&mut held, 2, 40, SPAN);
    taken(held.take(39, now));
    taken(held.take(38, now));
    let request = held.request_grant(0, u64::MAX, now);
    assert_eq!(request.report.map(|report| (report.spent, report.returned)), Some((0, 1)));
    assert!(request.wanted > 0);
    assert!(add(&mut held, 3, 40, SPAN).is_none());
    assert_eq!(add(&mut held, 4, 40, SPAN).map(|grant| grant.report.returned), Some(40));
}

#[test]
fn units_of_a_denied_request_are_put_back() {
    let mut held = held(100, SPAN);
    let now = BootTime(SPAN);
    add(&mut held, 1, 10, SPAN);
    let serial = taken(held.take(4, now));
    // Units of a request that is not decided yet are not reported.
    assert_eq!(held.request_grant(0, u64::MAX, now).report, None);
    assert!(held.put_back(serial, 4, now));
    assert_eq!(held.units(), 10);
    taken(held.take(4, now));
    assert!(!held.put_back(serial, 4, BootTime(3 * SPAN)));
    assert!(!held.put_back(7, 1, now));
}

#[test]
fn idle_and_ending_grants_are_returned() {
    let mut held = held(100, SPAN);
    add(&mut held, 1, 40, SPAN);
    taken(held.take(29, BootTime(SPAN)));
    held.spend(1, 29);
    let at = |micros: u64| BootTime(SPAN + micros);
    assert!(held.sweep(at(SPAN / 2 - 1)).is_empty());
    let returned = held.sweep(at(SPAN / 2));
    assert_eq!(returned.iter().map(|grant| grant.report.returned).collect::<Vec<_>>(), [11]);
    assert_eq!(returned[0].report.spent, 29);
    // In use, but it ends soon.
    add(&mut held, 2, 40, SPAN);
    held.record_demand(1, at(SPAN * 5 / 8));
    assert_eq!(held.sweep(at(SPAN * 5 / 8 - SPAN / 1_000 - 1)).len(), 0);
    assert_eq!(held.sweep(at(SPAN * 5 / 8)).len(), 1);
    // A quarter or less is not worth a call.
    add(&mut held, 3, 40, SPAN);
    taken(held.take(30, at(0)));
    assert!(held.sweep(at(SPAN * 9 / 10)).is_empty());
}

#[test]
fn a_paced_grant_denies_until_its_next_unit() {
    let mut held = held(3_000, SPAN);
    let grant = Grant { units: 10, opened: Timestamp(1), duration: Micros(SPAN), first: Some(Micros(2_000)) };
    held.record_decision(Decision::allowed(1_000, 0, Micros::SECOND), BootTime(SPAN));
    held.add(1, &grant, call(SPAN));
    let at = |micros: u64| BootTime(SPAN + micros);
    let TakeResult::Denied(denial) = held.take(1, at(1_000)) else { panic!() };
    assert!(!denial.allowed);
    assert_eq!((denial.retry_after, denial.remaining), (Some(Micros(1_002)), 0));
    assert_eq!(denial.reset_after, Micros(999_000));
    assert_eq!(taken(held.take(1, at(2_002))), 1);
    let TakeResult::Denied(denial) = held.take(1, at(2_002)) else { panic!() };
    assert_eq!(denial.retry_after, Some(Micros(1_001)));
    assert_eq!(held.take(10, at(2_002)), TakeResult::Missing);
}

#[test]
fn a_limit_with_a_ban_counts_each_denial_in_the_store() {
    let ban = crate::limit::Ban { after: 2, within: Micros::SECOND, length: Micros::SECOND };
    let mut policy = policy();
    policy.ban = Some(ban);
    let mut held = HeldGrants::new(owner(policy), Arc::default(), BootTime(0));
    let grant = Grant { units: 10, opened: Timestamp(1), duration: Micros(SPAN), first: Some(Micros(2_000)) };
    held.add(1, &grant, call(SPAN));
    assert_eq!(held.take(1, BootTime(SPAN)), TakeResult::Missing);
}

#[test]
fn a_decision_shows_what_remains_in_the_store_and_here() {
    let mut held = held(100, SPAN);
    let decided = Decision { at: Timestamp(77), ..Decision::allowed(1_000, 700, Micros(300_000)) };
    held.record_decision(decided, BootTime(SPAN));
    add(&mut held, 1, 100, SPAN);
    taken(held.take(1, BootTime(SPAN)));
    let decision = held.decision(BootTime(SPAN + 100_000));
    assert_eq!((decision.limit, decision.remaining), (1_000, 799));
    assert_eq!((decision.reset_after, decision.at), (Micros(200_000), Timestamp(100_077)));
    held.record_decision(Decision::allowed(1_000, 950, Micros(50_000)), BootTime(SPAN));
    assert_eq!(held.decision(BootTime(SPAN)).remaining, 1_000, "never more than the limit");
}

#[test]
fn grants_of_other_numbers_are_returned() {
    let mut held = held(100, SPAN);
    add(&mut held, 1, 40, SPAN);
    assert!(held.adopt(owner(policy())).is_empty());
    assert_eq!(held.units(), 40);
    let mut other = policy();
    other.quota = Quota::token_bucket(Rate::new(2_000, Micros::SECOND).unwrap(), 1_000).unwrap();
    let returned = held.adopt(owner(other));
    assert_eq!((returned.len(), held.units()), (1, 0));
    // By the numbers that they were granted by.
    assert_eq!(returned[0].owner.policy().quota, policy().quota);
}

#[test]
fn dropped_grants_count_as_spent() {
    let mut held = held(100, SPAN);
    add(&mut held, 1, 40, SPAN);
    taken(held.take(10, BootTime(SPAN)));
    held.spend(1, 10);
    held.drop_all();
    assert_eq!((held.take(1, BootTime(SPAN)), events(&mut held)), (TakeResult::Missing, [40, 10, 0, 30]));
}
