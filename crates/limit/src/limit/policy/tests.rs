//! Tests of bans and checks, and of which policies share counts.

use std::num::NonZeroU64;

use super::*;
use crate::limit::{Ahead, Align, Decision, Key, Rate, ShareUpdate, StoreView};

const TWO: NonZeroU64 = NonZeroU64::new(2).unwrap();

fn policy() -> Policy {
    let rate = Rate::new(1, Micros::SECOND).unwrap();
    let ban = Ban { after: 2, within: Micros::SECOND, length: Micros(5_000_000) };
    Policy { ban: Some(ban), ..Policy::new("a", Quota::token_bucket(rate, 1).unwrap()) }
}

fn charge(cost: u64, kind: ChargeKind) -> Charge {
    Charge::take(PolicyId(0), Key([0; 16]), cost).with_kind(kind)
}

#[test]
fn the_last_denial_of_the_threshold_starts_the_ban() {
    let policy = policy();
    let taken = policy.decide(None, Timestamp(0), &charge(1, ChargeKind::Take)).next.unwrap();
    let once = policy.decide(Some(&taken), Timestamp(0), &charge(1, ChargeKind::Take));
    assert_eq!((once.decision.reason, once.decision.retry_after), (DenyReason::Quota, Some(Micros::SECOND)));
    let record = once.next.unwrap();
    let twice = policy.decide(Some(&record), Timestamp(1), &charge(1, ChargeKind::Take));
    assert_eq!(
        (twice.decision.reason, twice.decision.retry_after),
        (DenyReason::Ban, Some(Micros(5_000_000)))
    );
    let record = twice.next.unwrap();
    assert_eq!(policy.lifetime(&record, Timestamp(1)), Micros(5_000_000));
    // A peek is denied as well, and denied requests do not extend the ban.
    let peek = policy.decide(Some(&record), Timestamp(5_000_000), &charge(0, ChargeKind::Take));
    assert_eq!((peek.decision.allowed, peek.decision.retry_after, peek.next), (false, Some(Micros(1)), None));
    assert!(
        policy.decide(Some(&record), Timestamp(5_000_001), &charge(1, ChargeKind::Take)).decision.allowed
    );
}

/// A denial that is counted, at a time when the debt has drained, does not begin another debt: a clock that is a little behind
/// still refunds units of the first.
#[test]
fn a_counted_denial_begins_no_debt() {
    let rate = Rate::new(97, Micros(60_000_000)).unwrap();
    let ban = Ban { after: 3, within: Micros(1), length: Micros(1) };
    let quota = Quota::interval_bucket(rate, 3).unwrap();
    let policy = Policy { ban: Some(ban), ..Policy::new("a", quota).with_settlement(1) };
    let taken = policy.decide(None, Timestamp(0), &charge(3, ChargeKind::Take)).next.unwrap();
    let denied = policy.decide(Some(&taken), Timestamp(60_000_999), &charge(4, ChargeKind::Take));
    let record = denied.next.unwrap();
    assert_eq!((denied.decision.allowed, record.penalty.unwrap().denials), (false, 1));
    let refund = charge(1, ChargeKind::Take).refund(Timestamp(0));
    assert_eq!(policy.decide(Some(&record), Timestamp(59_999_999), &refund).decision.remaining, 1);
}

#[test]
fn a_check_decides_and_takes_nothing() {
    let policy = policy();
    let peek = policy.decide(None, Timestamp(0), &charge(1, ChargeKind::Check));
    assert_eq!((peek.decision.allowed, peek.decision.remaining, peek.next), (true, 1, None));
    let taken = policy.decide(None, Timestamp(0), &charge(1, ChargeKind::Take)).next.unwrap();
    assert!(!policy.decide(Some(&taken), Timestamp(0), &charge(1, ChargeKind::Check)).decision.allowed);
}

#[test]
fn tiers_and_algorithms_are_counted_separately() {
    let rate = Rate::new(1, Micros::SECOND).unwrap();
    let quota = Quota::token_bucket(rate, 1).unwrap();
    let base = Policy::new("a", quota.clone());
    assert_ne!(base.salt(), Policy::tier("a", "pro", quota.clone()).salt());
    assert_eq!(base.salt(), Policy::new("a", quota).salt());
    assert!(base.salts().any(|salt| salt == base.salt()));
    let salts: std::collections::HashSet<u128> = base.salts().collect();
    assert_eq!(salts.len(), Policy::LETTERS.len());
}

/// The units of a window that starts with the first request stay counted if that request is refunded.
#[test]
fn granted_units_outlast_a_refund_of_the_request_that_has_opened_their_window() {
    let rate = Rate::new(100, Micros(60_000_000)).unwrap();
    let ahead = Ahead { span: Micros(10_000_000), share: std::num::NonZeroU64::MIN };
    let quota = Quota::fixed_window(rate, Align::FirstRequest).unwrap();
    let policy = Policy::new("a", quota).with_ahead(ahead);
    let at = |seconds: u64| Timestamp(1_000_000_000 + seconds * 1_000_000);
    let peek = |record: &Record, now| policy.decide(Some(record), now, &charge(0, ChargeKind::Take)).decision;
    let taken = policy.decide(None, at(0), &charge(1, ChargeKind::Take));
    let decided = taken.decision;
    let (granted, grant) = policy.grant(taken.next.as_ref(), at(0), 50, &decided).unwrap();
    assert_eq!(grant.units, 50);
    let refund = charge(1, ChargeKind::Take).refund(at(0));
    let record = policy.decide(granted.next.as_ref(), at(1), &refund).next.unwrap();
    assert_eq!(peek(&record, at(1)).remaining, 50);
    // The grant has ended, and the window may have not.
    assert_eq!(peek(&record, at(11)).remaining, 50);
    assert_eq!(peek(&record, at(60)).remaining, 100);
}

/// A process knows by the store that others have started the grid again; its own units must not refill by an earlier grid.
#[test]
fn a_share_refills_by_the_later_of_two_grids() {
    let rate = Rate::new(100, Micros(1_000_000)).unwrap();
    let share = Policy::new("a", Quota::interval_bucket(rate, 100).unwrap()).shared_by(TWO);
    let view = |remaining, reset_after| Decision {
        at: Timestamp(10_000_000),
        ..Decision::allowed(100, remaining, Micros(reset_after))
    };
    let known = StoreView { own: Some(view(0, 300_000)), ..StoreView::of(view(60, 900_000)) };
    let update = ShareUpdate { view: Some((known, Micros(0))), taken: 0 };
    let record = share.updated_share(None, &update, TWO, Timestamp(10_000_000));
    let peek = |at| share.decide(Some(&record), Timestamp(at), &charge(0, ChargeKind::Take)).decision;
    assert_eq!((peek(10_000_000).remaining, peek(10_400_000).remaining), (0, 0));
    assert_eq!(peek(10_000_000).reset_after, Micros(900_000));
}
