//! Tests of the in-process store: all or nothing, expiry, and eviction.

use super::*;
use crate::limit::{Ban, DenyReason, Holder, Quota, Rate};

fn policies() -> Vec<Policy> {
    let rate = Rate::new(10, Micros::SECOND).unwrap();
    vec![
        Policy::new("wide", Quota::token_bucket(rate, 10).unwrap()),
        Policy::new("narrow", Quota::gcra(rate, 1).unwrap()),
    ]
}

fn charge(policy: u32, key: u8, cost: u64) -> Charge {
    Charge::take(PolicyId(policy), Key([key; 16]), cost)
}

fn memory(max_keys: usize) -> Memory {
    Memory::new(max_keys, Clock::manual(Timestamp(1_000_000)))
}

#[test]
fn all_or_nothing() {
    let (memory, policies) = (memory(1_000), policies());
    let both = [charge(0, 1, 1), charge(1, 1, 1)];
    for left in [9, 8] {
        let decisions = memory.take(&policies, &both);
        assert!(decisions.iter().all(|d| d.allowed));
        assert_eq!(decisions[0].remaining, left);
    }
    for _ in 0..5 {
        let decisions = memory.take(&policies, &both);
        assert_eq!((decisions[0].allowed, decisions[0].remaining), (true, 8));
        assert_eq!((decisions[1].allowed, decisions[1].remaining), (false, 0));
    }
}

#[test]
fn charges_on_one_key_see_each_other() {
    let (memory, policies) = (memory(1_000), policies());
    let twice = [charge(0, 1, 6), charge(0, 1, 6)];
    let decisions = memory.take(&policies, &twice);
    assert!(decisions[0].allowed && !decisions[1].allowed);
    assert_eq!(memory.len(), 0);
    let decisions = memory.take(&policies, &[charge(0, 1, 4), charge(0, 1, 6)]);
    assert!(decisions.iter().all(|d| d.allowed));
    assert_eq!(decisions[1].remaining, 0);
}

#[test]
fn policies_count_apart() {
    let (memory, policies) = (memory(1_000), policies());
    let _ = memory.take(&policies, &[charge(0, 1, 10)]);
    assert!(memory.take(&policies, &[charge(1, 1, 1)])[0].allowed);
    assert!(!memory.take(&policies, &[charge(0, 1, 1)])[0].allowed);
    assert!(memory.take(&policies, &[charge(0, 2, 1)])[0].allowed);
}

#[test]
fn the_bound_on_keys_is_hard_and_a_denied_key_stays_denied() {
    let (memory, policies) = (memory(640), policies());
    let attacker = [Charge::take(PolicyId(0), Key([255; 16]), 10)];
    assert!(memory.take(&policies, &attacker)[0].allowed);
    for number in 0..50_000_u32 {
        let mut key = [0; 16];
        key[..4].copy_from_slice(&number.wrapping_mul(0x9E37_79B1).to_be_bytes());
        let _ = memory.take(&policies, &[Charge::take(PolicyId(0), Key(key), 1)]);
        assert!(number % 1_000 != 0 || memory.len() <= 640);
    }
    assert!(memory.len() <= 640);
    assert!(!memory.take(&policies, &attacker)[0].allowed);
}

#[test]
fn records_that_equal_none_are_swept() {
    let (memory, policies) = (memory(1_000), policies());
    let _ = memory.take(&policies, &[charge(0, 1, 1), charge(0, 2, 5)]);
    assert_eq!(memory.len(), 2);
    memory.clock().set(Timestamp(1_120_000));
    memory.sweep(0, 1);
    assert_eq!(memory.len(), 1);
    memory.clock().set(Timestamp(1_520_000));
    memory.sweep(0, 1);
    assert!(memory.is_empty());
}

#[test]
fn locks_are_taken_in_one_order() {
    let (memory, policies) = (memory(1_000), policies());
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let (memory, policies) = (&memory, &policies);
            scope.spawn(move || {
                for round in 0..2_000_u32 {
                    let a = u8::try_from(round % 251).unwrap();
                    let pair = [charge(0, a, 0), charge(0, a.wrapping_mul(31).wrapping_add(thread), 0)];
                    let _ = memory.take(policies, &pair);
                }
            });
        }
    });
}

/// A limit with each kind of strict state, and another one with longer-lived state that clients can flood.
fn strict_and_flooded() -> Vec<Policy> {
    let quota = |units, period| Quota::token_bucket(Rate::new(units, Micros(period)).unwrap(), 10).unwrap();
    let ban = Ban { after: 1, within: Micros::SECOND, length: Micros(3_600_000_000) };
    let mut banning = Policy::new("banning", quota(10, 60_000_000));
    banning.ban = Some(ban);
    vec![
        Policy::new("strict", quota(10, 60_000_000)),
        banning,
        Policy::new("slots", Quota::concurrency(1, Micros(30_000_000)).unwrap()),
        Policy::new("flooded", quota(1, 86_400_000_000)),
    ]
}

fn numbered(number: u32) -> Key {
    let hash = u128::from(number).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
    Key(hash.to_be_bytes())
}

const DENIED: Key = Key([1; 16]);
const BANNED: Key = Key([2; 16]);
const BLOCKED: Key = Key([3; 16]);
const BUSY: Key = Key([4; 16]);

/// Spends a limit, provokes a ban, blocks a key and takes a slot.
fn restrict_keys(memory: &Memory, policies: &[Policy]) {
    for key in [(0, DENIED), (1, BANNED)] {
        let all = [Charge::take(PolicyId(key.0), key.1, 10)];
        assert!(memory.take(policies, &all)[0].allowed);
        assert!(!memory.take(policies, &all)[0].allowed);
    }
    let _ = memory.change(policies, &[(PolicyId(0), BLOCKED)], StateChange::Block(Micros(3_600_000_000)));
    let slot = Charge { holder: Holder(1), ..Charge::take(PolicyId(2), BUSY, 1) };
    assert!(memory.take(policies, &[slot])[0].allowed);
}

/// Why each of the four keys is denied; `None` if it is allowed.
fn deny_reasons(memory: &Memory, policies: &[Policy]) -> [Option<DenyReason>; 4] {
    let slot = Charge { holder: Holder(2), ..Charge::take(PolicyId(2), BUSY, 1) };
    let take = |policy, key| Charge::take(PolicyId(policy), key, 1);
    [take(0, DENIED), take(1, BANNED), take(0, BLOCKED), slot].map(|charge| {
        let decision = memory.take(policies, &[charge])[0];
        (!decision.allowed).then_some(decision.reason)
    })
}

const ALL_DENIED: [Option<DenyReason>; 4] =
    [Some(DenyReason::Quota), Some(DenyReason::Ban), Some(DenyReason::Block), Some(DenyReason::Quota)];

#[test]
fn a_flood_of_another_limit_evicts_no_strict_state() {
    let (memory, policies) = (memory(10_000), strict_and_flooded());
    restrict_keys(&memory, &policies);
    for number in 0..100_000 {
        let _ = memory.take(&policies, &[Charge::take(PolicyId(3), numbered(number), 1)]);
    }
    assert_eq!(memory.len(), 10_000);
    assert_eq!(deny_reasons(&memory, &policies), ALL_DENIED);
}

/// Also if the state of the flood expires later, and its denials cause bans.
#[test]
fn a_flood_of_its_own_limit_evicts_no_ban_and_no_block() {
    let (memory, policies) = (memory(10_000), strict_and_flooded());
    restrict_keys(&memory, &policies);
    memory.clock().set(Timestamp(11_000_000));
    for number in 0..100_000 {
        let policy = PolicyId(number % 2);
        let _ = memory.take(&policies, &[Charge::take(policy, numbered(number), 10)]);
    }
    assert_eq!(deny_reasons(&memory, &policies)[1..], ALL_DENIED[1..]);
}

#[test]
fn keys_cannot_be_aimed_at_one_shard() {
    let (memory, policies) = (memory(1_000_000), strict_and_flooded());
    restrict_keys(&memory, &policies);
    memory.clock().set(Timestamp(4_000_000));
    // Keys whose ids share the upper half.
    for policy in [0, 1_u32] {
        let salt = policies[policy as usize].salt();
        let target = u128::from_le_bytes(if policy == 0 { DENIED.0 } else { BANNED.0 }) ^ salt;
        for number in 0..30_000_u128 {
            let lower = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) & u128::from(u64::MAX);
            let key = Key((((target >> 64 << 64) | lower) ^ salt).to_le_bytes());
            let _ = memory.take(&policies, &[Charge::take(PolicyId(policy), key, 10)]);
        }
    }
    assert_eq!(deny_reasons(&memory, &policies)[..2], ALL_DENIED[..2]);
}

/// Bans of made-up keys are strict state as well: they must not leave other limits without room.
#[test]
fn a_flood_of_bans_leaves_other_limits_room() {
    let (memory, policies) = (memory(4_000), strict_and_flooded());
    restrict_keys(&memory, &policies);
    for number in 0..400 {
        let _ = memory.take(&policies, &[Charge::take(PolicyId(3), numbered(number), 1)]);
    }
    for number in 0..20_000 {
        let all = [Charge::take(PolicyId(1), numbered(number), 10)];
        let _ = memory.take(&policies, &all);
        assert!(!memory.take(&policies, &all)[0].allowed);
    }
    assert_eq!(memory.len(), 4_000);
    let known = memory.keys(&policies[3], 1_000).len();
    assert_eq!(known, 400);
    // Strict state of other limits stays; of the flooded limit, the entries that expire first are evicted.
    let held = deny_reasons(&memory, &policies);
    assert_eq!((held[0], held[2], held[3]), (ALL_DENIED[0], ALL_DENIED[2], ALL_DENIED[3]));
}

#[test]
fn two_flooded_limits_keep_half_of_the_capacity_each() {
    let (memory, policies) = (memory(4_000), strict_and_flooded());
    for number in 0..40_000 {
        // The first has ten times as many keys.
        let policy = if number % 11 == 0 { 3 } else { 0 };
        let _ = memory.take(&policies, &[Charge::take(PolicyId(policy), numbered(number), 1)]);
    }
    let known = [0, 3].map(|policy: usize| memory.keys(&policies[policy], 10_000).len());
    assert!(known.iter().all(|known| (1_900..=2_100).contains(known)), "{known:?}");
}

#[test]
fn evictions_of_live_state_are_counted() {
    let (memory, policies) = (memory(1_000), strict_and_flooded());
    let take = |number| {
        let _ = memory.take(&policies, &[Charge::take(PolicyId(0), numbered(number), 1)]);
    };
    (0..1_000).for_each(take);
    let evicted = memory.evictions();
    assert_eq!(evicted, 1_000 - u64::try_from(memory.len()).unwrap());
    (1_000..5_000).for_each(take);
    assert_eq!(memory.evictions(), 5_000 - u64::try_from(memory.len()).unwrap());
    // The eviction of an expired entry is not counted: a unit is refilled in six seconds. So few keys find expired entries in
    // each shard.
    let (before, full) = (memory.evictions(), memory.len());
    memory.clock().set(Timestamp(8_000_000));
    (5_000..5_100).for_each(take);
    assert_eq!((memory.evictions(), memory.len()), (before, full));
}

/// A ban that never happens keeps a limit from the fast path, and changes no decision.
#[test]
fn the_fast_path_decides_as_the_general_one() {
    let mut random = fastrand::Rng::with_seed(7);
    let fast = policies();
    let ban = Ban { after: 1_000_000, within: Micros::SECOND, length: Micros::SECOND };
    let mut general = policies();
    for policy in &mut general {
        policy.ban = Some(ban);
    }
    let stores = [(memory(1_000), fast), (memory(1_000), general)];
    let (mut now, mut allowed, mut denied) = (10_000_000_u64, 0, 0);
    for _ in 0..20_000 {
        // Now and then a clock is set back: by less than a second, and by more.
        now = match random.u8(..) {
            0 => now - random.u64(0..3_000_000),
            1..64 => now,
            _ => now + random.u64(0..300_000),
        };
        let charges: Vec<Charge> = (0..random.usize(1..4))
            .map(|_| charge(random.u32(0..2), random.u8(0..3), random.u64(0..4)))
            .collect();
        let decisions = stores.each_ref().map(|(store, policies)| {
            store.clock().set(Timestamp(now));
            store.take(policies, &charges)
        });
        assert_eq!(decisions[0], decisions[1], "{charges:?} at {now}");
        let passes = decisions[0].iter().all(|decision| decision.allowed);
        *(if passes { &mut allowed } else { &mut denied }) += 1;
    }
    assert!(allowed > 1_000 && denied > 1_000, "{allowed} {denied}");
}

#[test]
fn debts_that_have_drained_are_swept_and_other_records_stay() {
    let (memory, policies) = (memory(1_000), policies());
    let _ = memory.take(&policies, &[charge(0, 1, 2)]);
    let _ = memory.take(&policies, &[charge(0, 1, 3), charge(1, 1, 1)]);
    for (after, left) in [(490_000, 1), (600_000, 0)] {
        memory.clock().set(Timestamp(1_000_000 + after));
        memory.sweep(0, 1);
        assert_eq!(memory.len(), left, "after {after}");
    }
    let blocked = (PolicyId(0), Key([1; 16]));
    let _ = memory.change(&policies, &[blocked], StateChange::Block(Micros(5_000_000)));
    for charges in [vec![charge(0, 1, 1)], vec![charge(0, 1, 1), charge(1, 1, 1)]] {
        assert_eq!(memory.take(&policies, &charges)[0].reason, DenyReason::Block);
    }
}
