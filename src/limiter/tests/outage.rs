//! Outages in virtual time: several proxies over one store, each with a clock that the test moves.

mod by_status;
mod recovery;

use std::num::NonZeroU64;
use std::sync::Arc;

use proptest::prelude::*;

use crate::limit::{Align, Ban, Charge, Decision, DenyReason, Key, Policy, PolicyId, Quota, Rate};
use crate::limiter::debt_payment::payments;
use crate::limiter::{LimitStatuses, Limiter, Limits, OnStoreFailure, Reservation, SharedState};
use crate::store::{Memory, Store, StoreError};
use crate::time::{Clock, Micros, Timestamp};

const START: u64 = 1_790_000_000_000_000;

/// A store, what it would be if it had never been away, and the proxies that share it.
struct World {
    limits: Limits,
    store: Memory,
    /// Sees everything in its time.
    whole: Memory,
    proxies: Vec<Limiter>,
    /// How far the store's clock is ahead of the proxies'.
    ahead: u64,
}

/// What comes to which proxy, after how many microseconds, at which cost.
type Arrival = (u64, usize, u64);

fn memory() -> Memory {
    Memory::new(1_000, Clock::manual(Timestamp(START)))
}

fn charge(cost: u64) -> Charge {
    Charge::take(PolicyId(0), Key([1; 16]), cost)
}

impl World {
    fn new(policy: Policy, proxies: u64, ahead: u64) -> Self {
        let instances = NonZeroU64::new(proxies).unwrap();
        let limits = Limits::new(vec![(policy, OnStoreFailure::Local)], instances);
        let proxy = |_| {
            let fallback = Arc::new(memory());
            Limiter::new(Store::Memory(Arc::clone(&fallback)), SharedState::new(fallback, instances))
        };
        let proxies = (0..proxies).map(proxy).collect();
        let world = Self { limits, store: memory(), whole: memory(), proxies, ahead };
        world.set_clock(START);
        world
    }

    fn of(quota: &Quota, proxies: u64, ahead: u64) -> Self {
        Self::new(Policy::new("a", quota.clone()), proxies, ahead)
    }

    fn set_clock(&self, now: u64) {
        self.store.clock().set(Timestamp(now + self.ahead));
        self.whole.clock().set(Timestamp(now));
        self.proxies.iter().for_each(|proxy| proxy.client.fallback.memory.clock().set(Timestamp(now)));
    }

    /// A request while the store is there.
    fn ask(&self, proxy: usize, cost: u64) -> Decision {
        let said = self.store.take(&self.limits.policies, &[charge(cost)]);
        self.proxies[proxy].client.fallback.seed(&self.limits, &[charge(cost)], &said);
        said[0]
    }

    /// A request while it is not; whether it passes.
    fn ask_alone(&self, proxy: usize, cost: u64) -> bool {
        self.proxies[proxy].decide_alone(&self.limits, &[charge(cost)], None).verdict.is_ok()
    }

    /// What a store says now to a look.
    fn left(&self, store: &Memory) -> Decision {
        store.take(&self.limits.policies, &[charge(0)])[0]
    }

    /// One proxy pays all that it owes.
    fn pay(&self, proxy: usize) {
        let proxy = &self.proxies[proxy];
        let (debtors, _paying) = proxy.client.fallback.ledger.take(100);
        let now = proxy.client.fallback.memory.clock().now();
        for payment in payments(debtors, false, now) {
            // An age goes over the wire, and is the same by every clock.
            let by_store = |charge: &Charge| charge.late(charge.taken.after(Micros(self.ahead)));
            let charges: Vec<Charge> = payment.charges.iter().map(by_store).collect();
            let said = self.store.apply(&payment.policies, &charges);
            if let [debtor] = &payment.debts[..] {
                debtor.seed_share(&proxy.client.fallback.memory, said.last().unwrap());
            }
        }
        assert!(proxy.client.fallback.ledger.is_empty());
    }
}

/// How many proxies are compared with one store: each opens windows of its own where a request opens them.
fn comparable(quota: &Quota, proxies: u64) -> u64 {
    match quota {
        Quota::FixedWindow(it) if *it.align() == Align::FirstRequest => 1,
        _ => proxies,
    }
}

fn rate(units: u64, period: u64) -> Rate {
    Rate::new(units, Micros(period)).unwrap()
}

/// Quotas that are exact for as many proxies as there are units.
fn any_quota() -> impl Strategy<Value = Quota> {
    let period = prop_oneof![Just(1_000_000_u64), Just(999_983), Just(60_000_000), 1_000..100_000_u64];
    (0..8_u8, 4..60_u64, period, 4..60_u64).prop_map(|(which, units, period, limit)| {
        let rate = rate(units, period);
        match which {
            0 => Quota::token_bucket(rate, limit),
            1 => Quota::gcra(rate, limit),
            2 => Quota::leaky_bucket(rate, limit),
            3 => Quota::fixed_window(rate, Align::Clock),
            4 => Quota::fixed_window(rate, Align::FirstRequest),
            5 => Quota::sliding_log(&[rate]),
            6 => Quota::sliding_window(rate, 1),
            _ => Quota::sliding_window(self::rate(units, period / 10 * 10), 10),
        }
        .unwrap()
    })
}

/// Arrivals in tenths of a percent of `period`, most of them close together.
fn any_arrivals(most: usize) -> impl Strategy<Value = Vec<Arrival>> {
    let step = prop_oneof![5 => Just(0_u64), 3 => 0..30_u64, 1 => 0..900_u64];
    prop::collection::vec((step, 0..4_usize, prop_oneof![4 => Just(1_u64), 1 => 2..4_u64]), 0..most)
}

fn period(quota: &Quota) -> u64 {
    match quota {
        Quota::TokenBucket(it) | Quota::Gcra(it) | Quota::LeakyBucket(it) => it.rate().period().0,
        Quota::IntervalBucket(it) => it.rate().period().0,
        Quota::FixedWindow(it) => it.rate().period().0,
        Quota::SlidingLog(it) => it.numbers()[1],
        Quota::SlidingWindow(it) => it.numbers()[1] * it.numbers()[2],
        Quota::Concurrency(_) => 0,
    }
}

/// Whether a look may say that less is left than there is: its clock is another one, or rounding cost something.
fn follows_a_grid(quota: &Quota) -> bool {
    match quota {
        Quota::FixedWindow(it) => *it.align() != Align::FirstRequest,
        Quota::SlidingWindow(_) => true,
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// What proxies that know what was spent admit while the store is away, it would have admitted too if it had seen it
    /// all; and when it is back and paid, nothing of that was free.
    #[test]
    fn an_outage_admits_no_more_than_the_store_would_have(
        quota in any_quota(),
        proxies in 1..5_u64,
        ahead in prop_oneof![Just(0_u64), 0..5_000_000_000_u64],
        (before, during, after) in (any_arrivals(40), any_arrivals(120), any_arrivals(10)),
    ) {
        let (proxies, ahead) = (comparable(&quota, proxies), if follows_a_grid(&quota) { 0 } else { ahead });
        let world = World::of(&quota, proxies, ahead);
        let thousandth = period(&quota) / 1_000;
        let most = world.limits.shares[0].quota.limit();
        let proxy = |number: usize| number % world.proxies.len();
        let mut now = START;
        for (step, number, cost) in before {
            now += step * thousandth;
            world.set_clock(now);
            if world.ask(proxy(number), cost).allowed {
                prop_assert!(world.whole.take(&world.limits.policies, &[charge(cost)])[0].allowed);
            }
        }
        // Now all proxies know.
        for number in 0..world.proxies.len() {
            let _ = world.ask(number, 0);
        }
        for (step, number, cost) in during {
            now += step * thousandth;
            world.set_clock(now);
            let cost = cost.min(most);
            if world.ask_alone(proxy(number), cost) {
                prop_assert!(world.whole.take(&world.limits.policies, &[charge(cost)])[0].allowed);
            }
        }
        (0..world.proxies.len()).for_each(|number| world.pay(number));
        for (step, _, cost) in after {
            let (left, whole) = (world.left(&world.store), world.left(&world.whole));
            prop_assert!(left.remaining <= whole.remaining, "{} of {}", left.remaining, whole.remaining);
            // One who knows all of it charges no more than that either; what is late by a step is out later.
            let exact = proxies == 1 && !matches!(quota, Quota::SlidingLog(_) | Quota::SlidingWindow(_));
            prop_assert!(!exact || left.remaining + 1 >= whole.remaining, "{left:?} {whole:?}");
            now += step * thousandth;
            world.set_clock(now);
            if world.ask(0, cost).allowed {
                prop_assert!(world.whole.take(&world.limits.policies, &[charge(cost)])[0].allowed);
            }
        }
    }

    /// Proxies that know nothing of a key admit no more than its limit and what comes back meanwhile; one unit each,
    /// where there are more proxies than units.
    #[test]
    fn a_stranger_gets_one_limit_of_all_proxies_together(
        (units, limit) in (1..30_u64, 1..30_u64),
        proxies in 1..9_u64,
        refills in any::<bool>(),
        during in any_arrivals(200),
    ) {
        let rate = rate(units, 1_000_000);
        let quota = if refills { Quota::interval_bucket(rate, limit) } else { Quota::token_bucket(rate, limit) };
        let quota = quota.unwrap();
        let world = World::of(&quota, proxies, 0);
        let (mut now, mut admitted) = (START, 0);
        for (step, number, cost) in during {
            now += step * 1_000;
            world.set_clock(now);
            let cost = cost.min(world.limits.shares[0].quota.limit());
            if world.ask_alone(number % world.proxies.len(), cost) {
                admitted += cost;
            }
        }
        // At intervals, what comes back comes at once, and each proxy may be just before that.
        let ticks = if refills { units * proxies } else { 0 };
        let back = (now - START) * units / 1_000_000 + ticks;
        prop_assert!(admitted <= limit.max(proxies) + back, "{admitted} of {limit} and {back}");
    }

    /// However much was admitted, by however many who knew nothing, all of it is charged as far as the limit goes; also
    /// what cost more than a share has.
    #[test]
    fn nothing_that_strangers_got_was_free(
        quota in any_quota(),
        proxies in 1..5_u64,
        during in any_arrivals(80),
    ) {
        let world = World::of(&quota, comparable(&quota, proxies), 0);
        let thousandth = period(&quota) / 1_000;
        let mut now = START;
        for (step, number, cost) in during {
            now += step * thousandth;
            world.set_clock(now);
            // Of a part that is nearly out a unit is a fraction, and fills no limit to the brim.
            let is_whole = !matches!(quota, Quota::SlidingWindow(_));
            let most = if is_whole { quota.limit() } else { world.limits.shares[0].quota.limit() };
            let cost = if cost == 3 { most } else { cost.min(most) };
            if world.ask_alone(number % world.proxies.len(), cost) {
                // It has no right to say no.
                let late = charge(cost).late(Timestamp(now));
                let _ = world.whole.apply(&world.limits.policies, &[late]);
            }
        }
        (0..world.proxies.len()).for_each(|number| world.pay(number));
        let (left, whole) = (world.left(&world.store), world.left(&world.whole));
        prop_assert!(left.remaining <= whole.remaining, "{} of {}", left.remaining, whole.remaining);
    }
}

fn per_second(units: u64) -> Quota {
    Quota::token_bucket(rate(units, 1_000_000), units).unwrap()
}

#[test]
fn a_key_that_is_known_to_be_spent_is_refused_and_another_is_not() {
    let world = World::of(&per_second(4), 2, 0);
    assert_eq!(world.ask(0, 4).remaining, 0);
    assert!(!world.ask_alone(0, 1));
    // The other proxy has not heard of it.
    assert!(world.ask_alone(1, 2) && !world.ask_alone(1, 1));
    // Its share of what has come back.
    world.set_clock(START + 500_000);
    assert!(world.ask_alone(0, 1) && !world.ask_alone(0, 1));
}

#[test]
fn what_was_admitted_is_not_forgotten_for_what_the_store_says_before_it_is_paid() {
    let world = World::of(&per_second(4), 1, 0);
    assert!(world.ask_alone(0, 4));
    // Another worker has the store already, which knows of nothing.
    assert_eq!(world.ask(0, 0).remaining, 4);
    assert!(!world.ask_alone(0, 1));
    world.pay(0);
    assert_eq!(world.ask(0, 0).remaining, 0);
    assert!(!world.ask_alone(0, 1));
}

#[test]
fn a_lost_answer_counts_as_made_and_is_not_owed() {
    let world = World::of(&per_second(4), 1, 0);
    let ask =
        |error| world.proxies[0].decide_alone(&world.limits, &[charge(1)], Some(&error)).verdict.is_ok();
    assert!(ask(StoreError::Deadline) && ask(StoreError::Lost));
    assert!(world.proxies[0].client.fallback.ledger.is_empty());
    assert!(ask(StoreError::QueueFull) && ask(StoreError::ErrorReply(String::new())));
    assert!(!ask(StoreError::QueueFull));
    world.pay(0);
    assert_eq!(world.ask(0, 0).remaining, 2);
}

/// What the store may have comes back first: it was there before what is owed.
#[test]
fn a_lost_answer_in_between_drains_before_what_is_owed() {
    let world = World::of(&per_second(4), 1, 0);
    let ask =
        |error| world.proxies[0].decide_alone(&world.limits, &[charge(2)], Some(&error)).verdict.is_ok();
    assert!(ask(StoreError::QueueFull) && ask(StoreError::Deadline));
    // The store got what was lost, and it has drained.
    let _ = world.store.take(&world.limits.policies, &[charge(2)]);
    world.set_clock(START + 500_000);
    world.pay(0);
    assert_eq!(world.ask(0, 0).remaining, 2);
}

#[test]
fn a_ban_that_the_store_told_of_goes_on() {
    let mut policy = Policy::new("a", per_second(1));
    policy.ban = Some(Ban { after: 1, within: Micros::SECOND, length: Micros(5_000_000) });
    let world = World::new(policy, 1, 0);
    assert!(world.ask(0, 1).allowed);
    assert_eq!(world.ask(0, 1).reason, DenyReason::Ban);
    world.set_clock(START + 4_999_999);
    assert!(!world.ask_alone(0, 1));
    world.set_clock(START + 5_000_000);
    assert!(world.ask_alone(0, 1));
}

/// All or nothing: what another limit refuses is not owed; what only watches is, as far as it would have let pass.
#[test]
fn only_what_was_admitted_is_owed() {
    let mut watching = Policy::new("c", per_second(1));
    watching.shadow = true;
    let policies = [Policy::new("a", per_second(4)), Policy::new("b", per_second(2)), watching];
    let local = policies.into_iter().map(|policy| (policy, OnStoreFailure::Local)).collect();
    let limits = Limits::new(local, NonZeroU64::MIN);
    let world = World::of(&per_second(1), 1, 0);
    let charges: Vec<Charge> =
        (0..3).map(|policy| Charge { policy: PolicyId(policy), ..charge(1) }).collect();
    let passes = (0..5).filter(|_| world.proxies[0].decide_alone(&limits, &charges, None).verdict.is_ok());
    assert_eq!(passes.count(), 2);
    let mut owed: Vec<(u32, u64)> = world.proxies[0]
        .client
        .fallback
        .ledger
        .take(9)
        .0
        .iter()
        .map(|debtor| (debtor.policy.0, debtor.units()))
        .collect();
    owed.sort_unstable();
    assert_eq!(owed, [(0, 2), (1, 2), (2, 1)]);
}
