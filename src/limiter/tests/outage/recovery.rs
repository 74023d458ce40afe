//! The end of an outage: other workers and proxies have not paid yet, or know less.

use proptest::prelude::*;

use super::*;
use crate::store::Decisions;

impl World {
    /// A request after an outage, before it is known that all proxies have paid; whether it passes.
    pub(super) fn ask_on_trial(&self, proxy: usize, cost: u64) -> bool {
        let limiter = &self.proxies[proxy];
        let Ok(shares) = limiter.client.fallback.take_shares(&self.limits, &[charge(cost)]) else {
            return false;
        };
        let said = self.store.take(&self.limits.policies, &[charge(cost)]);
        if !said[0].allowed {
            limiter.client.fallback.refund_shares(&self.limits, &shares);
        }
        limiter.client.fallback.seed(&self.limits, &[charge(cost)], &said);
        said[0].allowed
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Proxies do not notice at once that the store is back: until the last one has paid, the others take nothing that it
    /// owes.
    #[test]
    fn an_outage_that_ends_for_one_proxy_after_the_other_admits_no_more_either(
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
            if world.ask(proxy(number), cost).allowed {
                prop_assert!(world.whole.take(&world.limits.policies, &[charge(cost)])[0].allowed);
            }
        }
        for (number, limiter) in world.proxies.iter().enumerate() {
            let _ = world.ask(number, 0);
            limiter.client.fallback.breaker.open(&StoreError::Lost);
        }
        for (place, (step, number, cost)) in during.into_iter().enumerate() {
            now += step * thousandth;
            world.set_clock(now);
            for number in (0..world.proxies.len()).filter(|number| recovered[*number] == place) {
                world.pay(number);
                world.proxies[number].client.fallback.breaker.close();
            }
            let (number, cost) = (proxy(number), cost.min(most));
            let passes = if world.proxies[number].client.fallback.breaker.is_open() {
                world.ask_alone(number, cost)
            } else {
                world.ask_on_trial(number, cost)
            };
            if passes {
                prop_assert!(world.whole.take(&world.limits.policies, &[charge(cost)])[0].allowed);
            }
        }
    }

    /// What a proxy has not heard of, because others took it since its last answer, it admits a share of.
    #[test]
    fn an_outage_admits_a_share_of_what_a_proxy_has_not_heard_of(
        quota in any_quota(),
        proxies in 1..5_u64,
        (before, during) in (any_arrivals(60), any_arrivals(120)),
    ) {
        let world = World::of(&quota, comparable(&quota, proxies), 0);
        let most = world.limits.shares[0].quota.limit();
        let proxy = |number: usize| number % world.proxies.len();
        let mut unheard = vec![0; world.proxies.len()];
        for (_, number, cost) in before {
            let taken = if world.ask(proxy(number), cost).allowed { cost } else { 0 };
            for units in &mut unheard {
                *units += taken;
            }
            unheard[proxy(number)] = 0;
        }
        let left = world.left(&world.store).remaining;
        let mut admitted = 0;
        for (_, number, cost) in during {
            let cost = cost.min(most);
            if world.ask_alone(proxy(number), cost) {
                admitted += cost;
            }
        }
        let shares = unheard.iter().sum::<u64>() / world.limits.instances;
        prop_assert!(admitted <= left + shares, "{admitted} of {left} and {shares}");
    }
}

/// One worker has admitted something alone; another, which the store answers, does not take the same units there, neither
/// before they are paid nor while they are.
#[test]
fn what_one_worker_owes_another_does_not_take_from_the_store() {
    let world = World::of(&per_second(4), 1, 0);
    assert!(world.ask(0, 1).allowed && world.ask_alone(0, 2));
    assert!(!world.proxies[0].client.fallback.is_settled(&world.limits, &[charge(1)]));
    assert_eq!(world.left(&world.store).remaining, 3);
    assert!(world.ask_on_trial(0, 1) && !world.ask_on_trial(0, 1));
    let (debtors, paying) = world.proxies[0].client.fallback.ledger.take(1);
    assert!(
        !world.proxies[0].client.fallback.is_settled(&world.limits, &[charge(1)])
            && !world.ask_on_trial(0, 1)
    );
    world.proxies[0].client.fallback.ledger.restore(debtors.into_iter().next().unwrap());
    drop(paying);
    world.pay(0);
    assert!(world.proxies[0].client.fallback.is_settled(&world.limits, &[charge(1)]));
    assert_eq!(world.left(&world.store).remaining, 0);
}

/// What the store refuses, as for another limit's sake, is not taken from the share.
#[test]
fn shares_of_a_request_that_the_store_refuses_are_given_back() {
    let world = World::of(&per_second(4), 1, 0);
    let proxy = &world.proxies[0];
    for _ in 0..9 {
        let shares = proxy.client.fallback.take_shares(&world.limits, &[charge(4)]).unwrap();
        assert!(proxy.client.fallback.take_shares(&world.limits, &[charge(1)]).is_err());
        proxy.client.fallback.refund_shares(&world.limits, &shares);
    }
}

/// Two workers admit a unit each and write them down in the other order: both are owed in full.
#[test]
fn units_that_are_written_down_late_are_owed_all_the_same() {
    let world = World::of(&Quota::token_bucket(rate(1, 86_400_000_000), 50).unwrap(), 1, 0);
    let proxy = &world.proxies[0];
    let said: Vec<Decisions> =
        (0..50).map(|_| proxy.client.fallback.memory.take(&world.limits.shares, &[charge(1)])).collect();
    for place in (0..50).map(|place| place ^ 1) {
        proxy.client.fallback.record_debt(&world.limits, &charge(1), &said[place][0], true);
    }
    world.set_clock(START + 500_000);
    world.pay(0);
    world.set_clock(START + 2_000_000);
    assert_eq!(world.left(&world.store).remaining, 0);
    assert!(!world.ask(0, 1).allowed);
}
