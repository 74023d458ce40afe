//! Tests of bans and checks, and of which policies share counts.

use super::*;
use crate::limit::Rate;

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
    assert_eq!(salts.len(), Quota::LETTERS.len());
}
