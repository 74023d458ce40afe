//! The end of an outage: other workers and proxies have not paid yet, or have older seeds.

use crate::limit::DecidedCharge;
use proptest::prelude::*;

use super::*;
use crate::store::Decisions;

impl World {
    /// Takes `cost` units after an outage, while other proxies may not have paid; returns whether the request passes.
    pub(super) fn take_on_trial(&self, proxy: usize, cost: u64) -> bool {
        let limiter = &self.proxies[proxy];
        let Ok(shares) = limiter.client.fallback.take_shares(&self.limits, &[charge(cost)]) else {
            return false;
        };
        let decisions = self.store.take(&self.limits.policies, &[charge(cost)]);
        if !decisions[0].allowed {
            limiter.client.fallback.refund_shares(&self.limits, &shares);
        }
        limiter.client.fallback.seed(&self.limits, &DecidedCharge::join(&[charge(cost)], &decisions));
        decisions[0].allowed
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Proxies do not notice at the same time that the store is available: until the last one has paid, the others do not
    /// take the units that it owes.
    #[test]
    fn an_outage_that_ends_at_different_times_for_proxies_admits_no_more(
        quota in any_quota(),
        proxies in 2..5_u64,
        (before, during) in (any_arrivals(40), any_arrivals(160)),
        recovered in prop::collection::vec(0..160_usize, 4),
    ) {
        let world = World::of(&quota, comparable(&quota, proxies), 0);
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
        for (number, limiter) in world.proxies.iter().enumerate() {
            let _ = world.take(number, 0);
            limiter.client.fallback.breaker.open(&StoreError::Lost);
        }
        for (index, (step, number, cost)) in during.into_iter().enumerate() {
            now += step * thousandth;
            world.set_clock(now);
            for number in (0..world.proxies.len()).filter(|number| recovered[*number] == index) {
                world.pay_debts(number);
                world.proxies[number].client.fallback.breaker.close();
            }
            let (number, cost) = (proxy(number), cost.min(most));
            let passes = if world.proxies[number].client.fallback.breaker.is_open() {
                world.take_locally(number, cost)
            } else {
                world.take_on_trial(number, cost)
            };
            if passes {
                prop_assert!(world.reference.take(&world.limits.policies, &[charge(cost)])[0].allowed);
            }
        }
    }

    /// A proxy admits a share of the units that others took since its last reply, which it does not know of.
    #[test]
    fn an_outage_admits_a_share_of_the_units_that_a_proxy_does_not_know_of(
        quota in any_quota(),
        proxies in 1..5_u64,
        (before, during) in (any_arrivals(60), any_arrivals(120)),
    ) {
        let world = World::of(&quota, comparable(&quota, proxies), 0);
        let most = world.limits.shares[0].quota.limit();
        let proxy = |number: usize| number % world.proxies.len();
        let mut unknown = vec![0; world.proxies.len()];
        for (_, number, cost) in before {
            let taken = if world.take(proxy(number), cost).allowed { cost } else { 0 };
            for units in &mut unknown {
                *units += taken;
            }
            unknown[proxy(number)] = 0;
        }
        let left = world.peek(&world.store).remaining;
        let mut admitted = 0;
        for (_, number, cost) in during {
            let cost = cost.min(most);
            if world.take_locally(proxy(number), cost) {
                admitted += cost;
            }
        }
        let shares = unknown.iter().sum::<u64>() / world.limits.instances;
        prop_assert!(admitted <= left + shares, "{admitted} of {left} and {shares}");
    }
}

/// While one worker owes units that it has admitted locally, another worker does not take the same units from the store:
/// neither before the payment nor during it.
#[test]
fn a_worker_does_not_take_units_that_another_owes() {
    let world = World::of(&per_second(4), 1, 0);
    assert!(world.take(0, 1).allowed && world.take_locally(0, 2));
    assert!(!world.proxies[0].client.fallback.is_settled(&world.limits, &[charge(1)]));
    assert_eq!(world.peek(&world.store).remaining, 3);
    assert!(world.take_on_trial(0, 1) && !world.take_on_trial(0, 1));
    let (debts, guard) = world.proxies[0].client.fallback.ledger.take(1);
    assert!(
        !world.proxies[0].client.fallback.is_settled(&world.limits, &[charge(1)])
            && !world.take_on_trial(0, 1)
    );
    world.proxies[0].client.fallback.ledger.restore(debts.into_iter().next().unwrap());
    drop(guard);
    world.pay_debts(0);
    assert!(world.proxies[0].client.fallback.is_settled(&world.limits, &[charge(1)]));
    assert_eq!(world.peek(&world.store).remaining, 0);
}

/// If the store denies a request, as because of another limit, its units are refunded to the share.
#[test]
fn shares_of_a_request_that_the_store_denies_are_refunded() {
    let world = World::of(&per_second(4), 1, 0);
    let proxy = &world.proxies[0];
    for _ in 0..9 {
        let shares = proxy.client.fallback.take_shares(&world.limits, &[charge(4)]).unwrap();
        assert!(proxy.client.fallback.take_shares(&world.limits, &[charge(1)]).is_err());
        proxy.client.fallback.refund_shares(&world.limits, &shares);
    }
}

/// Two workers admit a unit each and record them in the other order: both are owed in full.
#[test]
fn units_that_are_recorded_late_are_owed_in_full() {
    let world = World::of(&Quota::token_bucket(rate(1, 86_400_000_000), 50).unwrap(), 1, 0);
    let proxy = &world.proxies[0];
    let decisions: Vec<Decisions> =
        (0..50).map(|_| proxy.client.fallback.memory.take(&world.limits.shares, &[charge(1)])).collect();
    for index in (0..50).map(|index| index ^ 1) {
        proxy.client.fallback.record_debt(
            &world.limits,
            &DecidedCharge { charge: charge(1), decision: decisions[index][0] },
            1,
            true,
        );
    }
    world.set_clock(START + 500_000);
    world.pay_debts(0);
    world.set_clock(START + 2_000_000);
    assert_eq!(world.peek(&world.store).remaining, 0);
    assert!(!world.take(0, 1).allowed);
}
