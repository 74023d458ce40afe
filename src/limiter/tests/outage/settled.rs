//! Costs that responses settle before, during and after outages; from shares, from grants, and with lost replies.

use super::*;
use crate::limit::Ahead;
use crate::limiter::grants;
use crate::limiter::reservation::Origin;
use crate::limiter::settlement::Settlement;
use crate::limiter::{Delivery, SettledUnits};
use crate::time::BootTime;

/// The most that a response can cost.
const MOST: u64 = 100;

/// What becomes of the call that settles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Made,
    Unsent,
    /// The call was made, and its reply was lost.
    LostReply,
    /// The call was lost.
    LostCall,
}

/// A world whose limit of 40 units settles costs; nothing comes back within seconds.
fn settling(on_failure: OnStoreFailure) -> World {
    let quota = Quota::token_bucket(rate(40, 40_000_000), 40).unwrap();
    let policy = Policy::new("a", quota).with_charge_on([200].into()).with_settlement(MOST);
    let mut world = World::new(policy.clone(), 1, 0);
    world.limits = Limits::new(vec![(policy, on_failure)], NonZeroU64::MIN);
    world
}

impl World {
    /// The units that a request has taken in the store.
    fn reserve(&self, cost: u64) -> Box<Reservation> {
        let decided = [DecidedCharge { charge: charge(cost), decision: self.take(0, cost) }];
        let origin = Origin::Store(Vec::new());
        answered(
            Reservation::new(|| self.proxies[0].settlement_context(), &self.limits, &decided, origin)
                .unwrap(),
        )
    }

    /// The units that a request has taken from the share, after `error`.
    fn reserve_locally(&self, cost: u64, error: Option<&StoreError>) -> Option<Box<Reservation>> {
        let pending = PendingAdmission::new(&self.proxies[0], &self.limits, None);
        pending.fail(&[charge(cost)], error).reservation.map(answered)
    }

    /// Sends a settlement, as `StoreClient::settle` does.
    fn deliver(&self, settlement: Settlement, fate: Fate) {
        let fallback = &self.proxies[0].client.fallback;
        for call in settlement.calls {
            if matches!(fate, Fate::Made | Fate::LostReply) {
                let decisions = self.store.apply(&call.limits.policies, &call.charges);
                if fate == Fate::Made {
                    fallback.seed(&call.limits, &DecidedCharge::join(&call.charges, &decisions));
                    continue;
                }
            }
            fallback.record_extra(&call.limits, &call.charges, fate == Fate::Unsent);
        }
    }

    fn settle(&self, mut held: Box<Reservation>, cost: u64, fate: Fate) -> SettledUnits {
        let (units, settlement) = held.settle_all(|_| Some(cost));
        self.deliver(settlement, fate);
        units[0]
    }

    /// How many units the key has spent in the store.
    fn spent(&self) -> u64 {
        let decision = self.peek(&self.store);
        // A unit comes back in a second.
        decision.reset_after.0.div_ceil(1_000_000)
    }

    fn owed(&self) -> u64 {
        self.proxies[0].client.fallback.ledger.units()[0]
    }
}

fn answered(mut held: Box<Reservation>) -> Box<Reservation> {
    *held.delivery_mut() = Delivery::Answered;
    held
}

#[test]
fn an_extra_charge_that_is_not_sent_is_owed_and_a_refund_is_dropped() {
    use OnStoreFailure::{Allow, Deny, Local};
    for on_failure in [Local, Allow, Deny] {
        let world = settling(on_failure);
        let (less, more) = (world.reserve(10), world.reserve(10));
        let _ = world.settle(less, 3, Fate::Unsent);
        assert_eq!((world.owed(), world.spent()), (0, 20), "{on_failure:?}");
        let _ = world.settle(more, 60, Fate::Unsent);
        assert_eq!((world.owed(), world.spent()), (50, 20), "{on_failure:?}");
        world.set_clock(START + 5_000_000);
        world.pay_debts(0);
        // Beyond the limit, and as if it had been charged in time.
        assert_eq!(world.spent(), 65, "{on_failure:?}");
        assert!(!world.take(0, 1).allowed);
    }
}

#[test]
fn a_call_whose_reply_is_lost_counts_as_made() {
    for (fate, spent) in [(Fate::LostReply, 30), (Fate::LostCall, 10)] {
        let world = settling(OnStoreFailure::Local);
        let _ = world.settle(world.reserve(10), 30, fate);
        assert_eq!((world.owed(), world.spent()), (0, spent), "{fate:?}");
        assert!(world.proxies[0].client.fallback.ledger.is_empty());
        // This process counts it.
        assert!(world.take_locally(0, 10) && !world.take_locally(0, 1), "{fate:?}");
    }
}

#[test]
fn units_of_the_share_settle_in_the_share_and_in_what_is_owed() {
    for (cost, owed) in [(0, 0), (4, 4), (10, 10), (25, 25), (70, 70), (MOST + 5, MOST)] {
        let world = settling(OnStoreFailure::Local);
        let held = world.reserve_locally(10, None).unwrap();
        let units = world.settle(held, cost, Fate::Unsent);
        assert_eq!((units.charged, units.is_cut), (owed, cost > MOST));
        let left = 40_u64.saturating_sub(owed);
        assert_eq!(world.take_locally(0, left.max(1)), left > 0, "{cost}");
        assert!(!world.take_locally(0, 1), "{cost}");
        world.pay_debts(0);
        assert_eq!(world.spent(), owed.max(40), "{cost}");
    }
}

/// The units are owed, and the store is available again when the response ends.
#[test]
fn a_reservation_survives_the_end_of_an_outage() {
    for pays_first in [false, true] {
        let world = settling(OnStoreFailure::Local);
        let (less, more) =
            (world.reserve_locally(10, None).unwrap(), world.reserve_locally(10, None).unwrap());
        if pays_first {
            world.pay_debts(0);
            assert!(!world.proxies[0].client.fallback.is_settled(&world.limits, &[charge(1)]));
        }
        let _ = (world.settle(less, 4, Fate::Made), world.settle(more, 30, Fate::Made));
        assert_eq!(world.spent(), 20);
        world.pay_debts(0);
        assert_eq!(world.spent(), 34);
        assert!(world.proxies[0].client.fallback.is_settled(&world.limits, &[charge(1)]));
    }
}

/// The store may have made the take whose reply was lost. It is not owed, but what the response has cost beyond it is charged.
#[test]
fn what_exceeds_a_take_without_a_reply_is_charged() {
    let world = settling(OnStoreFailure::Local);
    let held = world.reserve_locally(10, Some(&StoreError::Deadline)).unwrap();
    let _ = world.settle(held, 25, Fate::Made);
    assert_eq!((world.spent(), world.owed()), (15, 0));
    let held = world.reserve_locally(10, Some(&StoreError::Deadline)).unwrap();
    let _ = world.settle(held, 5, Fate::Made);
    assert_eq!((world.spent(), world.owed()), (15, 0));
}

#[test]
fn a_reservation_that_is_dropped_in_an_outage_is_owed() {
    let world = settling(OnStoreFailure::Local);
    drop(world.reserve_locally(10, None));
    world.pay_debts(0);
    assert_eq!(world.spent(), 10);
}

/// Units that are given back if an overloaded upstream refuses the request.
#[test]
fn units_that_can_be_refunded_are_owed_once() {
    let policy = Policy::new("a", Quota::token_bucket(rate(40, 40_000_000), 40).unwrap());
    let mut world = World::new(policy.clone(), 1, 0);
    world.limits = Limits::new(vec![(policy, OnStoreFailure::Local)], NonZeroU64::MIN).refundable();
    drop(world.reserve_locally(10, None).unwrap());
    assert_eq!(world.owed(), 10);
}

/// More units that are taken from the share belong to a reservation in the store, and the other way round.
#[tokio::test]
async fn a_reservation_has_units_of_the_store_and_of_the_share() {
    for (cost, spent) in [(5, 5), (15, 15), (33, 33)] {
        let world = settling(OnStoreFailure::Local);
        let mut held = world.reserve(10);
        held.join(*world.reserve_locally(10, None).unwrap());
        assert_eq!(held.reserved().collect::<Vec<_>>(), [(PolicyId(0), 20)]);
        let _ = world.settle(held, cost, Fate::Made);
        world.pay_debts(0);
        assert_eq!(world.spent(), spent, "{cost}");
    }
}

#[test]
fn the_settlement_of_several_limits_is_one_call() {
    let policies = ["a", "b", "c"].map(|name| {
        let policy = Policy::new(name, per_second(40)).with_settlement(MOST);
        (policy, OnStoreFailure::Local)
    });
    let limits = Limits::new(policies.to_vec(), NonZeroU64::MIN);
    let world = World { limits, ..settling(OnStoreFailure::Local) };
    let charges: Vec<Charge> =
        (0..3).map(|policy| Charge { policy: PolicyId(policy), ..charge(10) }).collect();
    let decided = DecidedCharge::join(&charges, &world.store.take(&world.limits.policies, &charges));
    let held = Reservation::new(
        || world.proxies[0].settlement_context(),
        &world.limits,
        &decided,
        Origin::Store(Vec::new()),
    );
    let (units, settlement) = held.unwrap().settle_all(|limit| Some([4, 10, 17][limit.0 as usize]));
    assert_eq!(units.iter().map(|units| units.charged).collect::<Vec<_>>(), [4, 10, 17]);
    let [call] = &settlement.calls[..] else { panic!("{settlement:?}") };
    let refund = Charge { cost: 6, ..decided[0].refund() };
    assert_eq!(call.charges[..], [refund, charges[2].extra(7)]);
}

/// A proxy with 40 granted units of a limit that settles costs, and all units of the limit.
fn with_grant(begin: BootTime) -> World {
    let quota = Quota::token_bucket(rate(400, 400_000_000), 400).unwrap();
    let mut policy = Policy::new("a", quota).with_charge_on([200].into()).with_settlement(MOST);
    policy.ahead = Some(Ahead { span: Micros::SECOND, share: Ahead::DEFAULT_SHARE });
    let world = World::new(policy, 1, 0);
    let (table, limits) = (&world.proxies[0].grants, &world.limits);
    for millisecond in 0..200 {
        let at = BootTime(begin.0 - 200_000 + millisecond * 1_000);
        let _ = grants::take_units(table, limits, &[charge(10)], None, at);
    }
    let wanted = [grants::refill_charge(&charge(0))];
    let (charges, requests) = grants::request_grants_at(table, limits, &wanted, true, begin);
    let granted = world.store.take_with_grants(&limits.policies, &charges, &requests.requests);
    assert!(granted.grants[0].units >= 20, "{granted:?}");
    let decided = DecidedCharge::join(&charges, &granted.decisions);
    let _ = requests.receive(limits, &decided, &granted.grants, begin);
    world
}

/// The units that a request has taken from a grant.
fn reserve_ahead(world: &World, cost: u64, now: BootTime) -> Box<Reservation> {
    let proxy = &world.proxies[0];
    let split = grants::take_units(&proxy.grants, &world.limits, &[charge(cost)], None, now);
    assert!(split.missing.is_empty());
    let taken = split.taken.pass(&world.limits).unwrap();
    answered(Reservation::with_taken(None, (proxy.settlement_context(), &world.limits), taken))
}

#[test]
fn granted_units_are_settled_in_the_hand_and_beyond_it_by_a_call() {
    // Later than the clock of the machine, so that the grant has not ended.
    let now = BootTime(1_000_000_000_000_000);
    let world = with_grant(now);
    let held = || world.proxies[0].grants.held_units(&world.limits.policies[0], charge(0).key, now);
    let all = held();
    let (mut less, mut more) = (reserve_ahead(&world, 10, now), reserve_ahead(&world, 10, now));
    assert_eq!(held(), all - 20);
    let (units, settlement) = less.settle_all(|_| Some(3));
    assert_eq!((units[0].charged, settlement.calls.is_empty(), held()), (3, true, all - 13));
    let (units, settlement) = more.settle_all(|_| Some(35));
    assert_eq!((units[0].charged, held()), (35, all - 13));
    assert_eq!(settlement.calls[0].charges[..], [charge(10).extra(25)]);
    // The store decides what is more than the hand has.
    let missing = grants::take_units(&world.proxies[0].grants, &world.limits, &[charge(all + 1)], None, now);
    assert_eq!(missing.missing.len(), 1);
}

#[test]
fn a_refund_of_granted_units_goes_to_the_store_when_the_grant_has_ended() {
    // The grant has ended by the clock of the machine.
    let now = BootTime(1_000_000);
    let world = with_grant(now);
    let mut held = reserve_ahead(&world, 10, now);
    let (units, settlement) = held.settle_all(|_| Some(4));
    assert_eq!(units[0].charged, 4);
    let [call] = &settlement.calls[..] else { panic!("{settlement:?}") };
    assert_eq!((call.charges.len(), call.charges[0].kind, call.charges[0].cost), (1, ChargeKind::Refund, 6));
}
