//! Tests of how debts are recorded, taken, restored and dropped.

use super::*;
use crate::limit::{Quota, Rate};
use crate::limiter::OnStoreFailure;
use crate::time::Micros;

const NOW: Timestamp = Timestamp(1_790_000_000_000_000);

fn limits() -> Limits {
    let quota = Quota::token_bucket(Rate::new(1, Micros(86_400_000_000)).unwrap(), 100).unwrap();
    Limits::new(vec![(Policy::new("a", quota), OnStoreFailure::Local)], NonZeroU64::MIN)
}

fn charge(number: u32, cost: u64) -> Charge {
    let mut key = [0; 16];
    key[..4].copy_from_slice(&number.to_le_bytes());
    Charge::take(PolicyId(0), Key(key), cost)
}

/// Records a charge that is owed in full.
fn record(ledger: &OutageLedger, limits: &Limits, charge: Charge, decision: Decision) {
    ledger.record(limits, &DecidedCharge { charge, decision }, charge.cost);
}

fn add(ledger: &OutageLedger, number: u32, cost: u64) {
    let decision = Decision::allowed(100, 100 - cost, Micros(cost * 86_400_000_000));
    record(ledger, &limits(), charge(number, cost), Decision { at: NOW, ..decision });
}

#[test]
fn the_number_of_keys_is_bounded_and_the_smallest_debts_are_dropped() {
    let ledger = OutageLedger::new(800);
    let large: Vec<u32> = (0..50).map(|number| number * 97).collect();
    for number in 0..10_000 {
        add(&ledger, number, if large.contains(&number) { 90 } else { 1 });
        assert!(ledger.len() <= 800);
    }
    let [owed, _, _, dropped] = ledger.units();
    assert_eq!((owed, dropped), (10_000 + 50 * 89, 10_000 - u64::try_from(ledger.len()).unwrap()));
    assert!(large.iter().all(|number| ledger.has_debt(&limits().policies[0], charge(*number, 1).key)));
}

#[test]
fn a_restored_debt_is_merged_with_later_charges() {
    let ledger = OutageLedger::default();
    add(&ledger, 1, 3);
    let (taken, _) = ledger.take(10);
    assert!(ledger.is_empty());
    add(&ledger, 1, 4);
    for debt in taken {
        ledger.restore(debt);
    }
    let charges: Vec<Charge> = ledger.take(10).0.iter().flat_map(|debt| debt.charges(NOW)).collect();
    assert_eq!(charges, [charge(1, 7).late(NOW)]);
    assert!(ledger.take(10).0.is_empty());
}

fn per(period: u64) -> Limits {
    let quota = Quota::token_bucket(Rate::new(1, Micros(period)).unwrap(), 100).unwrap();
    Limits::new(vec![(Policy::new("a", quota), OnStoreFailure::Local)], NonZeroU64::MIN)
}

/// The debt after two charges, the second under other numbers.
fn owed_after_change(first: u64, second: u64) -> u64 {
    let ledger = OutageLedger::default();
    for (period, spent) in [(first, 3), (second, 7)] {
        let decision = Decision::allowed(100, 100 - spent, Micros(spent * period));
        let charge = charge(1, if spent == 3 { 3 } else { 4 });
        record(&ledger, &per(period), charge, Decision { at: NOW, ..decision });
    }
    let charges: Vec<Charge> = ledger.take(10).0.iter().flat_map(|debt| debt.charges(NOW)).collect();
    assert_eq!(charges.len(), 1);
    charges[0].cost
}

#[test]
fn debts_survive_a_change_of_the_numbers() {
    assert_eq!(owed_after_change(60_000_000, 1_000_000), 7);
    assert_eq!(owed_after_change(1_000_000, 60_000_000), 7);
}

#[test]
fn a_restored_debt_has_drained_meanwhile() {
    let (ledger, limits) = (OutageLedger::default(), per(1_000_000));
    let decision = |spent: u64| Decision::allowed(100, 100 - spent, Micros(spent * 1_000_000));
    record(&ledger, &limits, charge(1, 50), Decision { at: NOW, ..decision(50) });
    let (taken, _) = ledger.take(10);
    let later = NOW.after(Micros(40_000_000));
    record(&ledger, &limits, charge(1, 1), Decision { at: later, ..decision(11) });
    for debt in taken {
        ledger.restore(debt);
    }
    let units: Vec<u64> =
        ledger.take(10).0.iter().flat_map(|it| it.charges(later)).map(|it| it.cost).collect();
    assert_eq!(units, [11]);
}

/// However often payments fail, the memory of a key is bounded.
#[test]
fn restored_debts_stay_in_their_steps() {
    let quota = Quota::sliding_log(&[Rate::new(1_000, Micros(86_400_000_000)).unwrap()]).unwrap();
    let limits = Limits::new(vec![(Policy::new("a", quota), OnStoreFailure::Local)], NonZeroU64::MIN);
    let ledger = OutageLedger::default();
    let decision = Decision::allowed(1_000, 999, Micros(86_400_000_000));
    record(&ledger, &limits, charge(1, 1), Decision { at: NOW, ..decision });
    for _ in 0..300 {
        let (taken, _) = ledger.take(10);
        record(&ledger, &limits, charge(1, 1), Decision { at: NOW, ..decision });
        for debt in taken {
            ledger.restore(debt);
        }
    }
    let charges: Vec<Charge> = ledger.take(10).0.iter().flat_map(|debt| debt.charges(NOW)).collect();
    assert_eq!(charges, [charge(1, 301).late(NOW)]);
}

/// Requests in flight under the earlier configuration record and restore debts after its ledger was replaced.
#[test]
fn debts_that_are_recorded_after_a_reload_are_owed_to_the_next_servers() {
    let ledger = OutageLedger::default();
    (0..50).for_each(|number| add(&ledger, number, 2));
    let (paid, _guard) = ledger.take(10);
    let (mut paid, unpaid) = (paid.into_iter(), &charge(60, 1));
    let next = ["a", "b"].map(|name| (name.to_owned(), Arc::<OutageLedger>::default()));
    let next = Servers::named(next.into()).unwrap();
    ledger.move_to(next.clone());
    (50..100).for_each(|number| add(&ledger, number, 2));
    ledger.count(ChargeBack::Paid, paid.next().unwrap().units());
    paid.for_each(|debt| ledger.restore(debt));
    assert!(ledger.is_empty() && ledger.has_debt(&limits().policies[0], unpaid.key));
    assert_eq!(next.iter().map(|next| next.len()).sum::<usize>(), 99);
    assert!((50..100).all(|number| {
        let key = charge(number, 1).key;
        next.of(key).has_debt(&limits().policies[0], key)
    }));
    let units = next.iter().map(|next| next.units());
    let units = units.fold([0; 4], |sum, units| std::array::from_fn(|each| sum[each] + units[each]));
    assert_eq!((units, ledger.units()), ([200, 2, 0, 0], [0; 4]));
}
