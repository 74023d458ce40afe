//! Each algorithm against its model: every field of every decision.

pub mod calendar;

use std::collections::HashMap;

use proptest::prelude::*;
use tidegate::limit::{Charge, ChargeKind, Decision, DenyReason, Key, Policy};
use tidegate::time::{Micros, Timestamp};

use super::kit::{self, Course, Numbers, SECOND, any_cost, any_jump, any_timed, for_all, memory};
use super::model::Model;

/// Every field of every decision, for one key.
#[test]
fn every_algorithm_matches_its_model() {
    let kind = prop_oneof![8 => Just(ChargeKind::Take), 1 => Just(ChargeKind::Check)];
    let arrivals = prop::collection::vec((any_jump(), kind, any_cost()), 1..50);
    for_all(1_000, &(any_timed(), arrivals), |(numbers, arrivals)| {
        let (memory, policies, mut model) = (memory(), [numbers.policy("a")], numbers.model());
        let (mut course, mut last) = (Course::any(), None);
        for (step, kind, cost) in arrivals {
            let now = course.go(step, numbers.period(), last.as_ref());
            memory.clock().set(Timestamp(now));
            let actual = memory.take(&policies, &[kit::held(0, 1, cost, 0, kind)])[0];
            let expected = match kind {
                ChargeKind::Check => model.look(now, cost),
                _ => model.take(now, cost),
            };
            prop_assert_eq!(actual, expected, "{:?} {} units at {}", kind, cost, now);
            last = Some(actual);
        }
        Ok(())
    });
}

/// The expected decisions of a store with several limits.
#[derive(Clone, Default)]
struct Stack(HashMap<(u128, Key), Model>);

impl Stack {
    fn decide(&mut self, limits: &[(Numbers, Policy)], charge: &Charge, now: u64, cost: u64) -> Decision {
        let (numbers, policy) = &limits[charge.policy.0 as usize];
        self.0.entry((policy.salt(), charge.key)).or_insert_with(|| numbers.model()).take(now, cost)
    }

    /// All or none: the enforced limits in their order, each of which sees the charges of the previous ones; then each limit in
    /// shadow mode as if it were enforced.
    fn take(&mut self, limits: &[(Numbers, Policy)], charges: &[Charge], now: u64) -> Vec<Decision> {
        let watches = |charge: &Charge| limits[charge.policy.0 as usize].1.shadow;
        let mut tried = self.clone();
        let mut said: Vec<Option<Decision>> = charges
            .iter()
            .map(|charge| (!watches(charge)).then(|| tried.decide(limits, charge, now, charge.cost)))
            .collect();
        let passes = said.iter().flatten().all(|decision| decision.allowed);
        if passes {
            *self = tried;
        }
        for (charge, said) in charges.iter().zip(&mut said) {
            match said {
                // The charge would have been allowed, so the units are shown without it.
                Some(decision) if !passes && decision.allowed => *decision = self.look(limits, charge, now),
                Some(_) => {}
                None => {
                    let mut with = self.clone();
                    *said = Some(with.decide(limits, charge, now, charge.cost));
                    if passes {
                        *self = with;
                    }
                }
            }
        }
        said.into_iter().flatten().collect()
    }

    fn look(&mut self, limits: &[(Numbers, Policy)], charge: &Charge, now: u64) -> Decision {
        self.decide(limits, charge, now, 0)
    }
}

/// Several limits on one request, some of them in shadow mode, some of them twice: all or none.
#[test]
fn several_limits_are_taken_all_or_none() {
    let limits = prop::collection::vec((any_timed(), prop::bool::weighted(0.25)), 4);
    let asked = prop::collection::vec((0..4_u32, 0..2_u8, any_cost()), 1..4);
    // No clock is set back: the effect of a denial on several limits is not stored.
    let arrivals = prop::collection::vec((kit::any_move(), asked), 1..25);
    for_all(400, &(limits, arrivals), |(limits, arrivals)| {
        let named = |(place, (numbers, shadow)): (usize, (Numbers, bool))| {
            let policy = kit::with(numbers.policy(&place.to_string()), None, shadow);
            (numbers, policy)
        };
        let limits: Vec<(Numbers, Policy)> = limits.into_iter().enumerate().map(named).collect();
        let policies: Vec<Policy> = limits.iter().map(|(_, policy)| policy.clone()).collect();
        let (memory, mut stack) = (memory(), Stack::default());
        let (mut course, mut last) = (Course::behind(SECOND), None);
        for (step, asked) in arrivals {
            let now = course.go(step, limits[0].0.period().min(60_000_000), last.as_ref());
            memory.clock().set(Timestamp(now));
            let charges: Vec<Charge> =
                asked.into_iter().map(|(p, k, cost)| kit::charge(p, k, cost)).collect();
            let (actual, expected) = (memory.take(&policies, &charges), stack.take(&limits, &charges, now));
            prop_assert_eq!(actual.as_slice(), expected.as_slice(), "{:?} at {}", charges, now);
            last = actual.first().copied();
        }
        Ok(())
    });
}

/// Slots that were acquired and not released, until their leases expire.
#[test]
fn slots_match_their_model() {
    let what = prop_oneof![
        4 => Just(ChargeKind::Take),
        1 => Just(ChargeKind::Check),
        2 => Just(ChargeKind::Release),
        2 => Just(ChargeKind::Renew)
    ];
    let arrival = (kit::any_move(), what, 0..12_u64, 0..4_u64);
    let numbers = (1..8_u64, prop_oneof![Just(30_000_000_u64), Just(SECOND), Just(1_000), 1..5_000_000_u64]);
    for_all(500, &(numbers, prop::collection::vec(arrival, 1..60)), |((limit, lease), arrivals)| {
        let (memory, policy) = (memory(), Numbers::Slots(limit, lease).policy("a"));
        // The holder, the end of its lease, and its slots.
        let mut holders: HashMap<u64, (u64, u64)> = HashMap::new();
        let (mut course, mut latest, mut last) = (Course::behind(SECOND), 0, None);
        for (step, kind, holder, cost) in arrivals {
            let now = course.go(step, lease, last.as_ref());
            let at = now.max(latest);
            let before = holders.clone();
            holders.retain(|_, (end, _)| *end > at);
            let used = holders.values().map(|(_, units)| units).sum::<u64>();
            let left = limit.saturating_sub(used);
            let mut allowed = true;
            let wrote = match kind {
                ChargeKind::Release | ChargeKind::Refund => holders.remove(&holder).is_some(),
                ChargeKind::Renew => {
                    // Only a holder renews.
                    let units = cost.max(1);
                    holders.insert(holder, (at + lease, units));
                    true
                }
                ChargeKind::Check | ChargeKind::Take if cost > left => {
                    allowed = false;
                    false
                }
                ChargeKind::Check | ChargeKind::Late | ChargeKind::Extra => false,
                ChargeKind::Take | ChargeKind::Grant => {
                    let units = cost.min(left);
                    if units > 0 {
                        holders.insert(holder, (at + lease, units));
                    }
                    units > 0
                }
            };
            let used = holders.values().map(|(_, units)| units).sum::<u64>();
            if wrote {
                // A key without held slots has no state.
                latest = if holders.is_empty() { 0 } else { at };
            } else {
                holders = before;
            }
            let expected = Decision {
                allowed,
                limit,
                remaining: limit.saturating_sub(used),
                reset_after: if used == 0 { Micros::ZERO } else { Micros::SECOND },
                retry_after: if allowed {
                    Some(Micros::ZERO)
                } else {
                    (cost <= limit).then_some(Micros::SECOND)
                },
                delay: Micros::ZERO,
                reason: DenyReason::Quota,
                at: Timestamp(now),
            };
            memory.clock().set(Timestamp(now));
            let units = if kind == ChargeKind::Renew { cost.max(1) } else { cost };
            let asked = kit::held(0, 1, units, holder, kind);
            let actual = memory.take(std::slice::from_ref(&policy), &[asked])[0];
            prop_assert_eq!(actual, expected, "{:?} at {}", asked, now);
            last = Some(actual);
        }
        Ok(())
    });
}
