//! Values of other programs under the keys of limits: none causes an error or a permanent denial.

mod grants;

use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::test_runner::{TestRng, TestRunner};
use tidegate::limit::{ChargeKind, Decision, DenyReason, Key, Policy, PolicyId};
use tidegate::store::StateChange;
use tidegate::store::redis::stored_key;
use tidegate::time::{Micros, Timestamp};

use super::kit::{self, Numbers, START};
use super::rules::Pace;
use crate::store::both_stores::Stores;
use crate::support::RedisServer;

const HOUR: u64 = 3_600_000_000;

/// One limit for each algorithm, and one more for the windows that follow a calendar and those that a request opens; some of
/// them again with the time of creation in their records, and with settled costs.
fn limits() -> Vec<Policy> {
    let pace = Pace { units: 7, period: 1_000_000 };
    let all = [
        Numbers::Token(pace, 5),
        Numbers::Interval(pace, 5),
        Numbers::Gcra(pace, 5),
        Numbers::Leaky(pace, 5),
        Numbers::Fixed(pace),
        Numbers::First(pace),
        Numbers::Calendar(7, tidegate::limit::CalendarUnit::Day, "Europe/Berlin"),
        Numbers::Log(vec![pace]),
        Numbers::Log(vec![pace, Pace { units: 5, period: 333_333 }]),
        Numbers::Sliding(pace, 1),
        Numbers::Sliding(pace, 10),
        Numbers::Slots(5, 30_000_000),
    ];
    let again = [0, 4, 9].map(|place: usize| (&all[place], true, None));
    let settled = [0, 1, 4, 5, 8, 10].map(|place: usize| (&all[place], false, Some(5)));
    let all = all.iter().map(|numbers| (numbers, false, None)).chain(again).chain(settled);
    let policy = |(place, (numbers, refunds, settled)): (usize, (&Numbers, bool, Option<u64>))| {
        let policy = kit::with_refunds(numbers.policy(&format!("g{place}")), refunds);
        kit::with_settlement(policy, settled)
    };
    all.enumerate().map(policy).collect()
}

fn numbered(number: u32) -> Key {
    let mut key = [7; 16];
    key[..4].copy_from_slice(&number.to_be_bytes());
    Key(key)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Writes strings to keys, some with an end and some without, all in one call.
fn write(server: &RedisServer, keys: &[(Vec<u8>, Vec<u8>)]) {
    let script = "for i = 1, #ARGV do \
        local bytes = string.gsub(ARGV[i], '..', function(hex) return string.char(tonumber(hex, 16)) end) \
        redis.call('SET', KEYS[i], bytes) end";
    for some in keys.chunks(500) {
        let names = some.iter().map(|(name, _)| String::from_utf8(name.clone()).unwrap());
        let values: Vec<String> = some.iter().map(|(_, value)| hex(value)).collect();
        let mut arguments = vec!["eval".to_owned(), script.to_owned(), some.len().to_string()];
        arguments.extend(names.chain(values));
        server.cli(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

/// Reads a string.
fn dump(server: &RedisServer, name: &str) -> Vec<u8> {
    let script = "return (string.gsub(redis.call('GET', KEYS[1]), '.', function(c) \
        return string.format('%02x', c:byte()) end))";
    let text = server.cli(&["eval", script, "1", name]);
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Makes every kind of call for a key with the value `written`; every decision must be plausible, and the key must be usable
/// again in the end.
fn prod(stores: &Stores, policies: &[Policy], policy: u32, key: Key, written: &[u8]) {
    let name = &policies[policy as usize].name;
    let send = |cost, holder, kind| {
        // Late charges are late by half a period.
        let taken = Timestamp(stores.clock() - 500_000);
        let charge = tidegate::limit::Charge { key, taken, ..kit::held(policy, 0, cost, holder, kind) };
        let said = match kind {
            ChargeKind::Take | ChargeKind::Check => stores.redis_take(policies, &[charge])[0],
            _ => stores.redis_apply(policies, &[charge])[0],
        };
        sane(&said).unwrap_or_else(|| panic!("{said:?} of {name} for {charge:?} on {written:02x?}"));
        said
    };
    stores.set_clock(START);
    send(0, 1, ChargeKind::Check);
    let first = send(1, 1, ChargeKind::Take);
    grants::prod(stores, policies, policy, key, written);
    send(1, 7, ChargeKind::Late);
    send(1, 7, ChargeKind::Extra);
    send(2, 2, ChargeKind::Take);
    send(2, 3, ChargeKind::Check);
    send(9, 3, ChargeKind::Take);
    // Two days are longer than any of these limits remembers, and the latest time that is written here is two days ahead.
    let mut later = START + 97 * HOUR;
    let is_held = matches!(first.reason, DenyReason::Ban | DenyReason::Block);
    if is_held {
        // A ban or a block that is plausible in all its numbers is one, and ends when it says.
        later += first.retry_after.unwrap().0;
    }
    stores.set_clock(later);
    if is_held || policies[policy as usize].ahead.is_some() {
        // The state behind a ban is read now for the first time, which moves entries of the future to the present; and the
        // units of all grants that have ended are charged now.
        send(1, 4, ChargeKind::Take);
        later += HOUR * 97;
        stores.set_clock(later);
    }
    let again = send(1, 4, ChargeKind::Take);
    assert!(again.allowed, "{name} for ever: {again:?} on {written:02x?}, first {first:?}");
    send(3, 5, ChargeKind::Late);
    send(3, 5, ChargeKind::Extra);
    send(1, 4, ChargeKind::Release);
    send(1, 6, ChargeKind::Renew);
    send(2, 7, ChargeKind::Late);
}

/// Changes by operators must work with such a value as well.
fn change(server: &RedisServer, stores: &Stores, policies: &[Policy], policy: u32, key: Key, written: &[u8]) {
    let it = &policies[policy as usize];
    let send = |cost| {
        let charge = tidegate::limit::Charge { key, ..kit::charge(policy, 0, cost) };
        stores.redis_take(policies, &[charge])[0]
    };
    stores.set_clock(START);
    for done in [
        StateChange::Block(Micros(1_000)),
        StateChange::Unblock,
        StateChange::Block(Micros(1_000)),
        StateChange::Reset,
    ] {
        let name = stored_key(stores.prefix(), it, key, it.letter());
        write(server, &[(name, written.to_vec())]);
        stores.redis_change(policies, &[(PolicyId(policy), key)], done);
        let said = send(1);
        match done {
            StateChange::Block(_) => assert_eq!((said.allowed, said.reason), (false, DenyReason::Block)),
            StateChange::Reset if said.reason != DenyReason::Block => {
                assert!(said.allowed, "{said:?} on {written:02x?}");
            }
            _ => {}
        }
    }
}

/// Whether a decision is plausible.
fn sane(said: &Decision) -> Option<()> {
    let longest = 2_u64.pow(53);
    let is_held = said.reason != DenyReason::Quota;
    // With an implausible list the wait may be implausible too.
    let waits = !said.allowed || said.retry_after == Some(Micros::ZERO);
    let short = is_held || (said.reset_after.0 <= 2 * 86_400_000_000 && said.delay.0 <= HOUR);
    let bounded = said.reset_after.0 <= longest && said.retry_after.is_none_or(|wait| wait.0 <= longest);
    (said.remaining <= said.limit && waits && short && bounded).then_some(())
}

fn prod_all(server: &RedisServer, stores: &Stores, policies: &[Policy], values: &[Vec<u8>], from: u32) {
    let mut keys = Vec::new();
    for policy in policies {
        for (number, value) in (from..).zip(values) {
            let name = stored_key(stores.prefix(), policy, numbered(number), policy.letter());
            keys.push((name, value.clone()));
        }
    }
    write(server, &keys);
    for policy in 0..policies.len() {
        for (number, value) in (from..).zip(values) {
            prod(stores, policies, u32::try_from(policy).unwrap(), numbered(number), value);
            if number % 20 == 0 {
                change(server, stores, policies, u32::try_from(policy).unwrap(), numbered(number), value);
            }
        }
    }
}

fn rng() -> TestRng {
    TestRunner::new(ProptestConfig::default()).rng().clone()
}

/// Random bytes of all lengths from 0 to 200.
#[test]
fn random_bytes_deny_no_key_forever() {
    let server = RedisServer::start();
    let (stores, policies, mut rng) = (Stores::new(&server), limits(), rng());
    for round in 0..kit::cases(1) {
        let values: Vec<Vec<u8>> = (0..=200_usize)
            .map(|length| {
                let mut bytes = vec![0; length];
                rng.fill_bytes(&mut bytes);
                // Some pass for records with a hold.
                if length % 8 == 1 && rng.random_bool(0.7) {
                    bytes[length - 1] = b'h';
                }
                bytes
            })
            .collect();
        prod_all(&server, &stores, &policies, &values, round * 1_000);
    }
}

/// A number that is valid in a state, or absurd.
fn any_double(rng: &mut TestRng) -> f64 {
    const START: f64 = 1_790_000_000_000_000.0;
    let odd = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -1.0,
        -0.0,
        0.0,
        0.5,
        1.0,
        3.0,
        7.0,
        142_857.0,
        1e6,
        1e12,
        1e300,
        -1e300,
        1e-300,
        START,
        START - 1e5,
        START + 5e5,
        START + 1e6,
        START + 1e12,
        -START,
        9_007_199_254_740_992.0,
        9_007_199_254_740_994.0,
        1e18,
        f64::from_bits(1),
    ];
    odd[rng.random_range(0..odd.len())]
}

/// Strings of doubles, each of which is odd, or fits.
#[test]
fn absurd_numbers_deny_no_key_forever() {
    let server = RedisServer::start();
    let (stores, policies, mut rng) = (Stores::new(&server), limits(), rng());
    for round in 0..kit::cases(1) {
        let values: Vec<Vec<u8>> = (0..150_usize)
            .map(|place| {
                let mut bytes: Vec<u8> =
                    (0..place % 12).flat_map(|_| any_double(&mut rng).to_le_bytes()).collect();
                if rng.random_bool(0.2) {
                    (0..5).for_each(|_| bytes.extend(any_double(&mut rng).to_le_bytes()));
                    bytes.push(b'h');
                }
                bytes
            })
            .collect();
        prod_all(&server, &stores, &policies, &values, round * 1_000);
    }
}

/// Entries of the future behind a ban are read only when it has ended.
#[test]
fn entries_of_the_future_behind_a_ban_deny_no_key_forever() {
    const START: f64 = 1_790_000_000_000_000.0;
    let server = RedisServer::start();
    let (stores, policies) = (Stores::new(&server), limits());
    let state = [
        -1.0,
        f64::NEG_INFINITY,
        f64::INFINITY,
        START + 1e12,
        3.0,
        1.0,
        1e300,
        0.5,
        1.0,
        9_007_199_254_740_992.0,
    ];
    let behind = [START + 1e12, -0.0, START + 5e5, -0.0, START + 5e5, 0.0];
    let mut bytes: Vec<u8> = state.iter().chain(&behind).flat_map(|number| number.to_le_bytes()).collect();
    bytes.push(b'h');
    prod_all(&server, &stores, &policies, &[bytes], 0);
}

/// Valid states with one number replaced.
#[test]
fn states_with_one_wrong_number_deny_no_key_forever() {
    let server = RedisServer::start();
    let (stores, policies, mut rng) = (Stores::new(&server), limits(), rng());
    for place in 0..u32::try_from(policies.len()).unwrap() {
        let policy = &policies[place as usize];
        let name = stored_key(stores.prefix(), policy, numbered(0), policy.letter());
        let name = String::from_utf8(name).unwrap();
        stores.set_clock(START);
        let take = |cost, holder| {
            let charge = tidegate::limit::Charge {
                key: numbered(0),
                ..kit::held(place, 0, cost, holder, ChargeKind::Take)
            };
            assert!(stores.redis_take(&policies, &[charge])[0].allowed);
        };
        take(1, 8);
        take(2, 9);
        let state = dump(&server, &name);
        for number in 1..=30 * kit::cases(1) {
            let mut wrong = state.clone();
            let at = 8 * rng.random_range(0..wrong.len() / 8);
            match number % 4 {
                0 => wrong.truncate(at),
                1 => wrong = [&wrong[at..], &wrong[..]].concat(),
                _ => wrong[at..at + 8].copy_from_slice(&any_double(&mut rng).to_le_bytes()),
            }
            let key = numbered(number);
            let name = stored_key(stores.prefix(), policy, key, policy.letter());
            write(&server, &[(name, wrong.clone())]);
            prod(&stores, &policies, place, key, &wrong);
        }
    }
}

/// The states of all algorithms under the names of all others.
#[test]
fn states_of_other_algorithms_deny_no_key_forever() {
    let server = RedisServer::start();
    let (stores, policies) = (Stores::new(&server), limits());
    stores.set_clock(START);
    let states: Vec<Vec<u8>> = (0..policies.len())
        .map(|place| {
            let place = u32::try_from(place).unwrap();
            for holder in 0..3 {
                let charge = kit::held(place, 0, 1, holder, ChargeKind::Take);
                stores.redis_take(&policies, &[charge]);
            }
            let policy = &policies[place as usize];
            let name = stored_key(stores.prefix(), policy, kit::key(0), policy.letter());
            dump(&server, &String::from_utf8(name).unwrap())
        })
        .collect();
    prod_all(&server, &stores, &policies, &states, 0);
}

/// Values of other types than strings, and changes by operators.
#[test]
fn values_of_other_types_deny_no_key_forever() {
    let server = RedisServer::start();
    let (stores, policies) = (Stores::new(&server), limits());
    let types: [&[&str]; 7] = [
        &["rpush", "a", "b"],
        &["sadd", "a"],
        &["hset", "a", "b"],
        &["zadd", "1", "a"],
        &["xadd", "*", "a", "b"],
        &["pfadd", "a"],
        &["setbit", "77", "1"],
    ];
    for (place, policy) in policies.iter().enumerate() {
        for (number, with) in (0..).zip(types) {
            let policy_at = u32::try_from(place).unwrap();
            for (offset, change) in [
                None,
                Some(StateChange::Block(Micros(5))),
                Some(StateChange::Unblock),
                Some(StateChange::Reset),
            ]
            .iter()
            .enumerate()
            {
                let key = numbered(number * 10 + u32::try_from(offset).unwrap());
                for letter in Policy::LETTERS {
                    let name = String::from_utf8(stored_key(stores.prefix(), policy, key, letter)).unwrap();
                    let rest: Vec<&str> = [&[with[0], &name], &with[1..]].concat();
                    if letter == policy.letter() {
                        server.cli(&rest);
                    }
                }
                stores.set_clock(START);
                if let Some(change) = change {
                    stores.redis_change(&policies, &[(PolicyId(policy_at), key)], *change);
                }
                if !matches!(change, Some(StateChange::Block(_))) {
                    prod(&stores, &policies, policy_at, key, with[0].as_bytes());
                }
            }
        }
    }
}

/// A holder's lease with more units than all holders have: its replacement must not make the sum negative.
#[test]
fn a_lease_with_more_units_than_are_held_gives_no_units() {
    #[expect(clippy::cast_precision_loss, reason = "the timestamp is below 2^53")]
    let start = START as f64;
    let server = RedisServer::start();
    let (stores, policies) = (Stores::new(&server), limits());
    let (policy, key) = (u32::try_from(policies.len()).unwrap() - 1, numbered(0));
    let numbers = [1e12, 0.0, start + 1e6, 1e12, f64::from_bits(1), 1e-300, 1e12];
    let state: Vec<u8> = numbers.iter().flat_map(|number: &f64| number.to_le_bytes()).collect();
    let its = &policies[policy as usize];
    let name = stored_key(stores.prefix(), its, key, its.letter());
    write(&server, &[(name, state.clone())]);
    prod(&stores, &policies, policy, key, &state);
}
