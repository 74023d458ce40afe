//! Outages in virtual time: several proxies over one store, each with a clock that the test moves.

mod ahead;
mod by_status;
mod recovery;
mod settled;

use std::num::NonZeroU64;
use std::sync::Arc;

use proptest::prelude::*;

use crate::limit::{
    Align, Ban, Charge, ChargeKind, DecidedCharge, Decision, DenyReason, Key, Policy, PolicyId, Quota, Rate,
};
use crate::limiter::pending_admission::PendingAdmission;
use crate::limiter::server_limiter::ServerLimiter;
use crate::limiter::store_client::payments;
use crate::limiter::{LimitStatuses, Limits, OnStoreFailure, Reservation, SharedState};
use crate::store::{Memory, Store, StoreError};
use crate::time::{Clock, Micros, Timestamp};

const START: u64 = 1_790_000_000_000_000;

/// A store with outages, a reference store without them, and the proxies that share the store.
struct World {
    limits: Limits,
    store: Memory,
    /// Is charged for every admitted request at its time.
    reference: Memory,
    proxies: Vec<ServerLimiter>,
    /// How far the store's clock is ahead of the proxies'.
    ahead: u64,
}

/// A request: the time since the previous one in thousandths of the period, the proxy, and the cost.
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
            ServerLimiter::new(Store::Memory(Arc::clone(&fallback)), SharedState::new(fallback, instances))
        };
        let proxies = (0..proxies).map(proxy).collect();
        let world = Self { limits, store: memory(), reference: memory(), proxies, ahead };
        world.set_clock(START);
        world
    }

    fn of(quota: &Quota, proxies: u64, ahead: u64) -> Self {
        Self::new(Policy::new("a", quota.clone()), proxies, ahead)
    }

    fn set_clock(&self, now: u64) {
        self.store.clock().set(Timestamp(now + self.ahead));
        self.reference.clock().set(Timestamp(now));
        self.proxies.iter().for_each(|proxy| proxy.client.fallback.memory.clock().set(Timestamp(now)));
    }

    /// Takes `cost` units through a proxy while the store is available.
    fn take(&self, proxy: usize, cost: u64) -> Decision {
        let decisions = self.store.take(&self.limits.policies, &[charge(cost)]);
        self.proxies[proxy]
            .client
            .fallback
            .seed(&self.limits, &DecidedCharge::join(&[charge(cost)], &decisions));
        decisions[0]
    }

    /// Takes `cost` units through a proxy while the store is unavailable; returns whether the request passes.
    fn take_locally(&self, proxy: usize, cost: u64) -> bool {
        PendingAdmission::new(&self.proxies[proxy], &self.limits, None)
            .fail(&[charge(cost)], None)
            .verdict
            .is_ok()
    }

    /// The units that a store has available now.
    fn peek(&self, store: &Memory) -> Decision {
        store.take(&self.limits.policies, &[charge(0)])[0]
    }

    /// Pays all debts of a proxy.
    fn pay_debts(&self, proxy: usize) {
        let proxy = &self.proxies[proxy];
        let (debts, _guard) = proxy.client.fallback.ledger.take(100);
        let now = proxy.client.fallback.memory.clock().now();
        for payment in payments(debts, false, now) {
            // Sent as an age, which is the same by every clock.
            let by_store = |charge: &Charge| charge.late(charge.taken.after(Micros(self.ahead)));
            let charges: Vec<Charge> = payment.charges.iter().map(by_store).collect();
            let decisions = self.store.apply(&payment.policies, &charges);
            if let [debt] = &payment.debts[..] {
                debt.seed_share(&proxy.client.fallback.memory, decisions.last().unwrap());
            }
        }
        assert!(proxy.client.fallback.ledger.is_empty());
    }
}

/// How many proxies can be compared with the reference: only one if windows start with their first request, since each proxy
/// opens its own.
fn comparable(quota: &Quota, proxies: u64) -> u64 {
    match quota {
        Quota::FixedWindow(it) if *it.align() == Align::FirstRequest => 1,
        _ => proxies,
    }
}

fn rate(units: u64, period: u64) -> Rate {
    Rate::new(units, Micros(period)).unwrap()
}

/// Quotas whose shares are exact for up to four proxies.
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

/// Arrivals, most of them close together.
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

/// Whether the quota counts on a grid of the clock, so that stores with different clocks differ.
fn follows_a_grid(quota: &Quota) -> bool {
    match quota {
        Quota::FixedWindow(it) => *it.align() != Align::FirstRequest,
        Quota::SlidingWindow(_) => true,
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// While the store is unavailable, proxies that know all that was spent admit no more than the store would have; and
    /// after the debts are paid, all of it is charged.
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
            if world.take(proxy(number), cost).allowed {
                prop_assert!(world.reference.take(&world.limits.policies, &[charge(cost)])[0].allowed);
            }
        }
        // Seeds every proxy.
        for number in 0..world.proxies.len() {
            let _ = world.take(number, 0);
        }
        for (step, number, cost) in during {
            now += step * thousandth;
            world.set_clock(now);
            let cost = cost.min(most);
            if world.take_locally(proxy(number), cost) {
                prop_assert!(world.reference.take(&world.limits.policies, &[charge(cost)])[0].allowed);
            }
        }
        (0..world.proxies.len()).for_each(|number| world.pay_debts(number));
        for (step, _, cost) in after {
            let (left, reference) = (world.peek(&world.store), world.peek(&world.reference));
            prop_assert!(left.remaining <= reference.remaining, "{} of {}", left.remaining, reference.remaining);
            // One proxy knows all of it, so it also charges no more. Algorithms with steps count some units too long.
            let exact = proxies == 1 && !matches!(quota, Quota::SlidingLog(_) | Quota::SlidingWindow(_));
            prop_assert!(!exact || left.remaining + 1 >= reference.remaining, "{left:?} {reference:?}");
            now += step * thousandth;
            world.set_clock(now);
            if world.take(0, cost).allowed {
                prop_assert!(world.reference.take(&world.limits.policies, &[charge(cost)])[0].allowed);
            }
        }
    }

    /// Proxies that do not know a key admit no more than its limit and the refill in total; or one unit each, if there are
    /// more proxies than units.
    #[test]
    fn an_unknown_key_gets_one_limit_from_all_proxies_together(
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
            if world.take_locally(number % world.proxies.len(), cost) {
                admitted += cost;
            }
        }
        // With a refill at intervals each proxy may be just before its tick.
        let ticks = if refills { units * proxies } else { 0 };
        let back = (now - START) * units / 1_000_000 + ticks;
        prop_assert!(admitted <= limit.max(proxies) + back, "{admitted} of {limit} and {back}");
    }

    /// All that proxies have admitted for a key that they did not know is charged, up to the limit; also requests that cost
    /// more than a share.
    #[test]
    fn all_units_admitted_for_an_unknown_key_are_charged(
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
            // A unit in a part that has nearly expired counts as a fraction, so it does not exhaust the limit.
            let is_whole = !matches!(quota, Quota::SlidingWindow(_));
            let most = if is_whole { quota.limit() } else { world.limits.shares[0].quota.limit() };
            let cost = if cost == 3 { most } else { cost.min(most) };
            if world.take_locally(number % world.proxies.len(), cost) {
                // A late charge, since the reference must not deny it.
                let late = charge(cost).late(Timestamp(now));
                let _ = world.reference.apply(&world.limits.policies, &[late]);
            }
        }
        (0..world.proxies.len()).for_each(|number| world.pay_debts(number));
        let (left, reference) = (world.peek(&world.store), world.peek(&world.reference));
        prop_assert!(left.remaining <= reference.remaining, "{} of {}", left.remaining, reference.remaining);
    }
}

fn per_second(units: u64) -> Quota {
    Quota::token_bucket(rate(units, 1_000_000), units).unwrap()
}

#[test]
fn a_key_that_is_known_to_be_used_up_is_denied_and_an_unknown_one_is_not() {
    let world = World::of(&per_second(4), 2, 0);
    assert_eq!(world.take(0, 4).remaining, 0);
    assert!(!world.take_locally(0, 1));
    // The other proxy does not know the key.
    assert!(world.take_locally(1, 2) && !world.take_locally(1, 1));
    // The share of the refill.
    world.set_clock(START + 500_000);
    assert!(world.take_locally(0, 1) && !world.take_locally(0, 1));
}

#[test]
fn a_reply_of_the_store_before_the_payment_does_not_refill_the_share() {
    let world = World::of(&per_second(4), 1, 0);
    assert!(world.take_locally(0, 4));
    // Another worker uses the store already, which does not know of the charge.
    assert_eq!(world.take(0, 0).remaining, 4);
    assert!(!world.take_locally(0, 1));
    world.pay_debts(0);
    assert_eq!(world.take(0, 0).remaining, 0);
    assert!(!world.take_locally(0, 1));
}

#[test]
fn a_charge_whose_reply_was_lost_is_counted_and_not_owed() {
    let world = World::of(&per_second(4), 1, 0);
    let passes = |error| {
        PendingAdmission::new(&world.proxies[0], &world.limits, None)
            .fail(&[charge(1)], Some(&error))
            .verdict
            .is_ok()
    };
    assert!(passes(StoreError::Deadline) && passes(StoreError::Lost));
    assert!(world.proxies[0].client.fallback.ledger.is_empty());
    assert!(passes(StoreError::QueueFull) && passes(StoreError::ErrorReply(String::new())));
    assert!(!passes(StoreError::QueueFull));
    world.pay_debts(0);
    assert_eq!(world.take(0, 0).remaining, 2);
}

/// Units that the store may have charged drain first, as if they had been in the bucket before.
#[test]
fn a_charge_whose_reply_was_lost_drains_before_the_debt() {
    let world = World::of(&per_second(4), 1, 0);
    let passes = |error| {
        PendingAdmission::new(&world.proxies[0], &world.limits, None)
            .fail(&[charge(2)], Some(&error))
            .verdict
            .is_ok()
    };
    assert!(passes(StoreError::QueueFull) && passes(StoreError::Deadline));
    // The store has made the charge whose reply was lost, and it has drained.
    let _ = world.store.take(&world.limits.policies, &[charge(2)]);
    world.set_clock(START + 500_000);
    world.pay_debts(0);
    assert_eq!(world.take(0, 0).remaining, 2);
}

#[test]
fn a_ban_continues_while_the_store_is_unavailable() {
    let mut policy = Policy::new("a", per_second(1));
    policy.ban = Some(Ban { after: 1, within: Micros::SECOND, length: Micros(5_000_000) });
    let world = World::new(policy, 1, 0);
    assert!(world.take(0, 1).allowed);
    assert_eq!(world.take(0, 1).reason, DenyReason::Ban);
    world.set_clock(START + 4_999_999);
    assert!(!world.take_locally(0, 1));
    world.set_clock(START + 5_000_000);
    assert!(world.take_locally(0, 1));
}

/// A charge is not owed if another limit denies the request. A charge of a limit in shadow mode is, if that limit allows it.
#[test]
fn only_what_was_admitted_is_owed() {
    let mut shadow = Policy::new("c", per_second(1));
    shadow.shadow = true;
    let policies = [Policy::new("a", per_second(4)), Policy::new("b", per_second(2)), shadow];
    let local = policies.into_iter().map(|policy| (policy, OnStoreFailure::Local)).collect();
    let limits = Limits::new(local, NonZeroU64::MIN);
    let world = World::of(&per_second(1), 1, 0);
    let charges: Vec<Charge> =
        (0..3).map(|policy| Charge { policy: PolicyId(policy), ..charge(1) }).collect();
    let passes = (0..5).filter(|_| {
        PendingAdmission::new(&world.proxies[0], &limits, None).fail(&charges, None).verdict.is_ok()
    });
    assert_eq!(passes.count(), 2);
    let mut owed: Vec<(u32, u64)> = world.proxies[0]
        .client
        .fallback
        .ledger
        .take(9)
        .0
        .iter()
        .map(|debt| (debt.policy.0, debt.units()))
        .collect();
    owed.sort_unstable();
    assert_eq!(owed, [(0, 2), (1, 2), (2, 1)]);
}

/// The proxy of a request, so that each gets its weight of them.
fn pick(weights: [u64; 4], turn: u64) -> usize {
    let mut rest = turn * 7 % weights.iter().sum::<u64>().max(1);
    for (index, weight) in weights.iter().enumerate() {
        if rest < *weight {
            return index;
        }
        rest -= weight;
    }
    0
}
