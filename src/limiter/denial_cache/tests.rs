//! Cached denials agree with the store, and end when they should.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::limit::{Align, Ban, DecidedCharge, Key, PolicyId, Quota, Rate};
use crate::store::Memory;
use crate::time::{Clock, Timestamp, monotonic};

fn policies() -> Vec<Policy> {
    let rate = |units, period| Rate::new(units, Micros(period)).unwrap();
    let ban = Ban { after: 2, within: Micros(3_000_000), length: Micros(2_000_000) };
    let bucket = Quota::token_bucket(rate(3, 1_000_000), 4).unwrap();
    let (mut banning, mut watching) = (Policy::new("e", bucket.clone()), Policy::new("f", bucket.clone()));
    banning.ban = Some(ban);
    watching.shadow = true;
    vec![
        Policy::new("a", bucket),
        Policy::new("b", Quota::sliding_log(&[rate(5, 2_000_000)]).unwrap()),
        Policy::new("c", Quota::fixed_window(rate(6, 700_000), Align::Clock).unwrap()),
        Policy::new("d", Quota::concurrency(2, Micros(3_000_000)).unwrap()),
        banning,
        watching,
        Policy::new("g", Quota::sliding_window(rate(5, 1_200_000), 4).unwrap()),
        Policy::new("h", Quota::leaky_bucket(rate(4, 1_000_000), 2).unwrap()),
    ]
}

proptest! {
    /// No request is denied that the store would have allowed, whatever other proxies spend.
    #[test]
    fn cached_denials_agree_with_the_store(
        events in prop::collection::vec((0..400_000_u64, 0..8_u32, 1..5_u64, any::<bool>(), 0..3_000_u64), 1..80)
    ) {
        let (policies, begin) = (policies(), monotonic());
        let (denials, memory) = (DenialCache::default(), Memory::new(1_000, Clock::manual(Timestamp(0))));
        // The policies on whose key nothing was spent elsewhere since their denial was cached.
        let (mut now, mut quiet) = (0, [false; 8]);
        for (step, policy, cost, elsewhere, travel) in events {
            now += step;
            let charge = Charge::take(PolicyId(policy), Key([1; 16]), cost);
            let instant = begin + Duration::from_micros(now);
            memory.clock().set(Timestamp(1_000_000_000 + now));
            if elsewhere {
                // Another proxy, without these cached denials.
                let _ = memory.take(&policies, &[charge]);
                quiet[policy as usize] = false;
                continue;
            }
            if let Some(denied) = denials.check(&policies, &[charge], instant) {
                let peek = memory.take(&policies, &[charge.with_kind(crate::limit::ChargeKind::Check)])[0];
                prop_assert!(!peek.allowed);
                let known = denied[0].decision.retry_after;
                // Two roundings of the wait for more units may add a microsecond.
                prop_assert!(peek.retry_after.is_none_or(|wait| known <= Some(Micros(wait.0 + 1))));
                // The call took up to 3 ms.
                let is_long = |wait: Micros| known >= Some(Micros(wait.0.saturating_sub(3_000)));
                prop_assert!(!quiet[policy as usize] || peek.retry_after.is_none_or(is_long));
                continue;
            }
            let lookup = denials.lookup(instant);
            now += travel;
            memory.clock().set(Timestamp(1_000_000_000 + now));
            let decisions = memory.take(&policies, &[charge]);
            denials.record(&policies, &DecidedCharge::join(&[charge], &decisions), lookup);
            let cached = denials.check(&policies, &[charge], instant);
            if cached.is_some_and(|known| known[0].decision.retry_after == decisions[0].retry_after) {
                quiet[policy as usize] = true;
            } else if decisions[0].allowed {
                quiet[policy as usize] = false;
            }
        }
    }
}

#[test]
fn waits_count_down_and_expire() {
    let (policies, denials, begin) = (policies(), DenialCache::default(), monotonic());
    let charge = |cost| [Charge::take(PolicyId(0), Key([1; 16]), cost)];
    let denial = Decision {
        allowed: false,
        retry_after: Some(Micros(400_000)),
        ..Decision::allowed(4, 1, Micros(900_000))
    };
    denials.record(&policies, &DecidedCharge::join(&charge(2), &[denial]), denials.lookup(begin));
    let at = |millis| begin + Duration::from_millis(millis);
    assert!(denials.check(&policies, &charge(1), at(100)).is_none());
    let denied = denials.check(&policies, &charge(2), at(100)).unwrap()[0].decision;
    assert_eq!((denied.retry_after, denied.reset_after), (Some(Micros(300_000)), Micros(800_000)));
    // A unit comes each third of a second.
    let denied = denials.check(&policies, &charge(3), at(100)).unwrap()[0].decision;
    assert_eq!((denied.retry_after, denied.reset_after), (Some(Micros(633_334)), Micros(800_000)));
    assert!(denials.check(&policies, &charge(2), at(400)).is_none());
    denials.clear();
    assert!(denials.check(&policies, &charge(3), at(100)).is_none());
}

#[test]
fn only_equal_costs_are_denied_by_limits_that_do_not_refill_constantly() {
    let (policies, begin) = (policies(), monotonic());
    let charge = |policy, cost| [Charge::take(PolicyId(policy), Key([1; 16]), cost)];
    let denial = Decision {
        allowed: false,
        retry_after: Some(Micros(400_000)),
        ..Decision::allowed(5, 1, Micros(900_000))
    };
    for (policy, is_smooth) in [(0, true), (1, false), (2, false), (6, false), (7, true)] {
        let denials = DenialCache::default();
        denials.record(&policies, &DecidedCharge::join(&charge(policy, 2), &[denial]), denials.lookup(begin));
        assert!(denials.check(&policies, &charge(policy, 2), begin).is_some());
        assert_eq!(denials.check(&policies, &charge(policy, 3), begin).is_some(), is_smooth, "{policy}");
    }
}

#[test]
fn denials_show_the_other_limits_of_their_request() {
    let (policies, denials, begin) = (policies(), DenialCache::default(), monotonic());
    let charges = [0, 1, 3].map(|policy| Charge::take(PolicyId(policy), Key([1; 16]), 1));
    let denied = Decision {
        allowed: false,
        retry_after: Some(Micros::SECOND),
        ..Decision::allowed(5, 0, Micros::SECOND)
    };
    let decisions = [Decision::allowed(4, 3, Micros(900_000)), denied, Decision::allowed(2, 2, Micros::ZERO)];
    denials.record(&policies, &DecidedCharge::join(&charges[..1], &decisions[..1]), denials.lookup(begin));
    assert!(denials.repeat(&policies, &charges[..1], begin).is_none(), "an allowed request is not cached");
    denials.record(&policies, &DecidedCharge::join(&charges, &decisions), denials.lookup(begin));
    let shown = denials.check(&policies, &charges, begin + Duration::from_millis(100)).unwrap();
    let shown: Vec<_> =
        shown.iter().map(|it| (it.policy.0, it.decision.allowed, it.decision.remaining)).collect();
    assert_eq!(shown, [(0, true, 3), (1, false, 0), (3, true, 2)]);
    assert!(denials.check(&policies, &charges[..1], begin).is_none());
    let peeks = denials.repeat(&policies, &charges, begin).unwrap();
    assert!(peeks.iter().all(|peek| peek.decision.allowed));
    // Those of a limit in shadow mode are not shown.
    let shadow = Charge::take(PolicyId(5), Key([1; 16]), 1);
    assert!(denials.repeat(&policies, &[charges[0], shadow], begin).is_some());
}

#[test]
fn a_block_that_is_shown_denies_until_its_end() {
    let (policies, denials, begin) = (policies(), DenialCache::default(), monotonic());
    let charges = [Charge::take(PolicyId(0), Key([1; 16]), 1)];
    let blocked = Decision {
        allowed: false,
        reason: DenyReason::Block,
        retry_after: Some(Micros(200_000)),
        ..Decision::allowed(4, 0, Micros(200_000))
    };
    denials.record_shown(&policies, &DecidedCharge::join(&charges, &[blocked]), denials.lookup(begin));
    let at = |millis| begin + Duration::from_millis(millis);
    assert!(denials.check(&policies, &charges, at(199)).is_some());
    assert!(denials.check(&policies, &charges, at(200)).is_none());
    assert!(denials.repeat(&policies, &charges, at(200)).is_none());
}

#[test]
fn decisions_on_calls_before_a_clear_are_not_cached() {
    let (policies, denials, begin) = (policies(), DenialCache::default(), monotonic());
    let charge = [Charge::take(PolicyId(0), Key([1; 16]), 1)];
    let lookup = denials.lookup(begin);
    denials.clear();
    let denial =
        Decision { allowed: false, retry_after: Some(Micros::SECOND), ..Decision::allowed(4, 0, Micros(1)) };
    denials.record(&policies, &DecidedCharge::join(&charge, &[denial]), lookup);
    assert!(denials.check(&policies, &charge, begin).is_none());
}

/// Units that are reserved may come back before `retry_after`: by a refund of this process, which removes the denial, or of another
/// one.
#[test]
fn denials_by_limits_that_reserve_units_are_cached_for_a_moment() {
    let rate = Rate::new(1, Micros(60_000_000)).unwrap();
    let policy = |name| Policy::new(name, Quota::token_bucket(rate, 4).unwrap());
    let policies = [policy("a").with_charge_on([401].into()), policy("b").with_settlement(9), policy("c")];
    let (denials, begin) = (DenialCache::default(), monotonic());
    let denial = Decision {
        allowed: false,
        retry_after: Some(Micros(60_000_000)),
        ..Decision::allowed(4, 0, Micros(1))
    };
    let charges = [0, 1, 2].map(|policy| [Charge::take(PolicyId(policy), Key([1; 16]), 1)]);
    let record = || {
        for charge in &charges {
            denials.record(&policies, &DecidedCharge::join(charge, &[denial]), denials.lookup(begin));
        }
    };
    let denied_at = |millis| {
        let now = begin + Duration::from_millis(millis);
        [0, 1, 2].map(|index: usize| denials.check(&policies, &charges[index], now).is_some())
    };
    record();
    assert_eq!((denied_at(99), denied_at(100)), ([true; 3], [false, false, true]));
    denials.forget(&policies[1], charges[1][0].key);
    assert_eq!(denied_at(0), [true, false, true]);
}
