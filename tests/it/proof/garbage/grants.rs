//! Garbage under the keys of limits that grant units, whose records have a trailer for the granted units.

use std::num::NonZeroU64;

use proptest::prelude::*;
use proptest::test_runner::TestRng;
use tidegate::limit::{
    Ahead, Charge, ChargeKind, Grant, GrantReport, GrantRequest, Key, Policy, PolicyId, Quota,
};
use tidegate::store::redis::stored_key;
use tidegate::time::{Micros, Timestamp};

use super::{any_double, dump, limits, numbered, prod_all, rng, sane, write};
use crate::proof::kit::{self, START};
use crate::store::both_stores::Stores;
use crate::support::RedisServer;

/// How long grants last.
const SPAN: Micros = Micros(400_000);

/// The limits that can grant units, which do.
fn granting() -> Vec<Policy> {
    let can_grant = |policy: &Policy| !matches!(policy.quota, Quota::LeakyBucket(_) | Quota::Concurrency(_));
    let ahead = Ahead { span: SPAN, share: NonZeroU64::MIN };
    limits().into_iter().filter(can_grant).map(|policy| policy.with_ahead(ahead)).collect()
}

fn charge(policy: u32, key: Key, cost: u64) -> Charge {
    Charge { key, ..kit::charge(policy, 0, cost) }.with_kind(ChargeKind::Grant)
}

/// Asks for grants of a limit that has such, with reports of grants that are unknown, whatever was `written` to the key.
pub fn prod(stores: &Stores, policies: &[Policy], policy: u32, key: Key, written: &[u8]) {
    let its = &policies[policy as usize];
    if its.ahead.is_none() {
        return;
    }
    let opened = |time: u64| GrantReport {
        opened: Timestamp(time),
        until: Timestamp(time + SPAN.0),
        spent: 2,
        returned: 1,
    };
    for (cost, report) in [(1, None), (0, Some(opened(START))), (2, Some(opened(START - 2 * SPAN.0)))] {
        let request = GrantRequest { report, wanted: 20 };
        let granted = stores.redis_grant(policies, charge(policy, key, cost), request);
        let (decision, grant) = (granted.decisions[0], granted.grants[0]);
        let is_sane = sane(&decision).is_some() && grant.units <= decision.limit && grant.duration <= SPAN;
        assert!(is_sane, "{decision:?} and {grant:?} of {} on {written:02x?}", its.name);
    }
}

/// Ends bytes as records with granted units, a penalty, or both end.
fn end_as_record(rng: &mut TestRng, bytes: &mut Vec<u8>, number: impl Fn(&mut TestRng) -> [u8; 8]) {
    let mut trailer = |count: usize, last: u8| {
        (0..count).for_each(|_| bytes.extend(number(rng)));
        bytes.push(last);
        rng.random_bool(0.3)
    };
    if trailer(6, b'r') {
        trailer(5, b'h');
    }
}

#[test]
fn random_bytes_deny_no_key_forever() {
    let server = RedisServer::start();
    let (stores, policies, mut rng) = (Stores::new(&server), granting(), rng());
    for round in 0..kit::cases(1) {
        let values: Vec<Vec<u8>> = (0..=48_usize)
            .step_by(8)
            .flat_map(|length| {
                let mut bytes = vec![0; length];
                rng.fill_bytes(&mut bytes);
                let mut record = bytes.clone();
                end_as_record(&mut rng, &mut record, TestRng::random);
                [bytes, record]
            })
            .collect();
        prod_all(&server, &stores, &policies, &values, round * 1_000);
    }
}

#[test]
fn absurd_numbers_deny_no_key_forever() {
    let server = RedisServer::start();
    let (stores, policies, mut rng) = (Stores::new(&server), granting(), rng());
    for round in 0..kit::cases(1) {
        let values: Vec<Vec<u8>> = (0..32_usize)
            .map(|place| {
                let mut bytes: Vec<u8> =
                    (0..place % 8).flat_map(|_| any_double(&mut rng).to_le_bytes()).collect();
                end_as_record(&mut rng, &mut bytes, |rng| any_double(rng).to_le_bytes());
                bytes
            })
            .collect();
        prod_all(&server, &stores, &policies, &values, round * 1_000);
    }
}

/// The record of each limit with granted units, without and with a penalty.
fn records(server: &RedisServer, stores: &Stores, policies: &[Policy]) -> Vec<Vec<u8>> {
    stores.set_clock(START);
    let record = |(place, policy): (u32, &Policy)| {
        let grant: Grant = {
            let request = GrantRequest { report: None, wanted: 4 };
            stores.redis_grant(policies, charge(place, numbered(0), 1), request).grants[0]
        };
        assert_eq!((grant.units, grant.duration), (4, SPAN), "{policy:?}");
        let name = stored_key(stores.prefix(), policy, numbered(0), policy.letter());
        let bytes = dump(server, &String::from_utf8(name).unwrap());
        assert_eq!(bytes.last(), Some(&b'r'));
        bytes
    };
    (0..).zip(policies).map(record).collect()
}

#[test]
fn records_with_one_wrong_number_deny_no_key_forever() {
    let server = RedisServer::start();
    let (stores, policies, mut rng) = (Stores::new(&server), granting(), rng());
    let records = records(&server, &stores, &policies);
    for ((place, policy), record) in (0..).zip(&policies).zip(records) {
        for number in 1..=12 * kit::cases(1) {
            let mut wrong = record.clone();
            // The numbers of the state, and then those of the trailer.
            let at = 8 * rng.random_range(0..(wrong.len() - 1) / 8);
            match number % 6 {
                0 => wrong.truncate(at),
                1 => wrong = [&wrong[at..], &wrong[..]].concat(),
                _ => wrong[at..at + 8].copy_from_slice(&any_double(&mut rng).to_le_bytes()),
            }
            let name = stored_key(stores.prefix(), policy, numbered(number), policy.letter());
            write(&server, &[(name, wrong.clone())]);
            super::prod(&stores, &policies, place, numbered(number), &wrong);
        }
    }
}

/// The records of all limits under the names of all others, and the states of limits that grant nothing.
#[test]
fn records_of_other_limits_deny_no_key_forever() {
    let server = RedisServer::start();
    let (stores, policies) = (Stores::new(&server), granting());
    let mut values = records(&server, &stores, &policies);
    let plain = limits();
    for (place, policy) in (0..).zip(&plain) {
        let charge = Charge { policy: PolicyId(place), ..kit::charge(place, 1, 1) };
        stores.redis_take(&plain, &[charge]);
        let name = stored_key(stores.prefix(), policy, kit::key(1), policy.letter());
        values.push(dump(&server, &String::from_utf8(name).unwrap()));
    }
    prod_all(&server, &stores, &policies, &values, 1);
}
