//! What the scripts decide without function calls, and in calls of one charge, is what the functions for any call decide: replies,
//! states and lifetimes are equal, byte by byte. Only the deadline behind a debt has no counterpart.

use std::fmt::Write as _;

use proptest::prelude::*;
use tidegate::limit::Quota;
use tidegate::store::redis::TAKE;
use tidegate::time::Timestamp;

use super::kit::{Move, Numbers, START, any_cost, any_jump, any_numbers, for_all};
use super::rules::Pace;
use crate::support::RedisServer;

/// A charge.
#[derive(Clone, Copy, Debug)]
struct TestCharge {
    policy: usize,
    key: u16,
    cost: u64,
    kind: u8,
    /// How long ago its units were taken, in microseconds, if it is a refund or late.
    age: u64,
    grant: TestGrant,
}

/// The report and the grant request of a charge of the kind `GRANT`.
#[derive(Clone, Copy, Debug)]
struct TestGrant {
    /// The call that has opened the generation of the report.
    opened_in: usize,
    spent: u64,
    returned: u64,
    wanted: u64,
}

/// A call: by how much the clock moves before it, and the charges of its requests.
type TestCall = (Move, Vec<Vec<TestCharge>>);

const TAKE_UNITS: u8 = 0;
const CHECK: u8 = 1;
const RELEASE: u8 = 3;
const RENEW: u8 = 4;
const REFUND: u8 = 5;
const LATE: u8 = 6;
const GRANT: u8 = 7;
const EXTRA: u8 = 8;

/// No report, and no grant wanted.
const NOTHING: TestGrant = TestGrant { opened_in: 0, spent: 0, returned: 0, wanted: 0 };

/// The options of a policy: a ban, shadow mode, grants, and settled costs.
const BAN: u8 = 1;
const SHADOW: u8 = 2;
const GRANTS: u8 = 4;
const SETTLES: u8 = 8;

/// The denials that start a ban, their window and the length of the ban, in microseconds.
const DENIALS: [f64; 3] = [2.0, 2_000_000.0, 700_000.0];

/// How long a grant lasts, in microseconds, and its share.
const AHEAD: [f64; 2] = [500_000.0, 2.0];

/// The conditions under which a call of one charge is decided without function calls, and with the functions of one algorithm.
const ONE: [&str; 2] = ["if #ARGV[3] == 17 and #KEYS", "if false and #KEYS"];
const LONE: [&str; 2] = ["if #KEYS == 1 and #ARGV[3] <=", "if false and #ARGV[3] <="];
/// The same of requests.
const SEVERAL: [[&str; 2]; 2] = [
    ["if limit and kind <= 1", "if false and kind <= 1"],
    ["if charges == 1 and first_kind == 0", "if false and first_kind == 0"],
];

/// The script without these fast paths.
fn without(fast_paths: &[[&str; 2]]) -> String {
    fast_paths.iter().fold(TAKE.source.clone(), |source, [fast, slow]| {
        assert_eq!(source.matches(fast).count(), 1, "{fast}");
        source.replace(fast, slow)
    })
}

#[allow(clippy::cast_precision_loss)]
fn double(number: f64) -> [u8; 8] {
    number.to_le_bytes()
}

fn literal(bytes: &[u8]) -> String {
    let escaped = bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "\\{byte:03}").unwrap();
        text
    });
    format!("\"{escaped}\"")
}

#[allow(clippy::cast_precision_loss)]
fn policy((numbers, options): &(Numbers, u8)) -> Vec<u8> {
    let quota = numbers.quota();
    let mut list = Vec::new();
    if options & BAN != 0 {
        list.extend(DENIALS);
    }
    if options & GRANTS != 0 {
        list.extend(AHEAD);
    }
    if options & SETTLES != 0 {
        list.push(2.0 * quota.limit() as f64);
    }
    list.extend(quota.numbers(Timestamp(START)).iter().map(|number| *number as f64));
    let is_upper_case = options & (GRANTS | SETTLES) == GRANTS;
    let letter = if is_upper_case { quota.letter().to_ascii_uppercase() } else { quota.letter() };
    let mut policy = vec![letter, *options, u8::try_from(list.len()).unwrap()];
    policy.extend(list.into_iter().flat_map(double));
    policy
}

/// The requests of a call. Each policy has keys of its own, as its name is part of them. `times` are those of the calls before.
#[allow(clippy::cast_precision_loss)]
fn requests(asked: &[Vec<TestCharge>], policies: &[(Numbers, u8)], times: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for charges in asked {
        bytes.extend(1_u16.to_le_bytes());
        bytes.extend(u16::try_from(charges.len()).unwrap().to_le_bytes());
        for TestCharge { policy, key, cost, kind, age, grant } in charges {
            let key = u16::try_from(*policy).unwrap() * KEYS + key + 1;
            let (numbers, options) = &policies[*policy];
            let kind = if *kind == GRANT && options & GRANTS == 0 { TAKE_UNITS } else { *kind };
            bytes.extend(key.to_le_bytes());
            bytes.extend(u16::try_from(policy + 1).unwrap().to_le_bytes());
            bytes.push(kind);
            bytes.extend(double((*cost).min(1 << 53) as f64));
            if let Numbers::Slots(..) = numbers {
                bytes.extend([7; 8]);
            } else if kind == GRANT {
                let opened = times.len().checked_sub(grant.opened_in).and_then(|index| times.get(index));
                let opened = opened.copied().unwrap_or_default();
                let until = if opened == 0 { 0 } else { opened + 500_000 };
                let report = [opened, until, grant.spent, grant.returned, grant.wanted];
                bytes.extend(report.into_iter().flat_map(|number| double(number as f64)));
            } else if kind == REFUND {
                bytes.extend(double(times.last().map_or(START, |last| last - age) as f64));
            } else if kind == LATE {
                bytes.extend(double(*age as f64));
            }
        }
    }
    bytes
}

/// Keys of each policy.
const KEYS: u16 = 2;

/// The variants of the script that are compared: as it is, and without some of the fast paths.
fn variants() -> [String; 4] {
    [&[][..], &[ONE], &[ONE, LONE], &[ONE, LONE, SEVERAL[0], SEVERAL[1]]].map(without)
}

/// Defines a function that makes one of a script in an argument: the length of a single argument of a program is bounded.
const COMPILE: &str = "local function compiled(source)\n\
    return assert(loadstring('return function(KEYS, ARGV) ' .. source .. '\\nend'))()\n\
  end\n";

/// A script that makes all calls with all variants, and returns the first difference. A state that is overwritten in place
/// keeps its lifetime: longer after the clock of the test has moved, or shorter by the second that it may be set back.
fn comparison(policies: &[(Numbers, u8)], calls: &[TestCall]) -> String {
    let mut script = format!(
        "{COMPILE}local fast, lone, several, slow =\n\
           compiled(ARGV[1]), compiled(ARGV[2]), compiled(ARGV[3]), compiled(ARGV[4])\n\
         local policies = {{ {} }}\n\
         local function keys(of) local all = {{}}; for i = 1, {} do all[i] = of .. i end; return all end\n\
         local function run(script, of, now, requests, has_one_charge)\n\
           if not has_one_charge then return script(keys(of), {{ now, '3600000', requests, unpack(policies) }}) end\n\
           local count, charges, key, index, kind, cost = struct.unpack('<HHHHBd', requests)\n\
           requests = struct.pack('<HHHHBd', count, charges, 1, 1, kind, cost) .. string.sub(requests, 18)\n\
           return script({{ of .. key }}, {{ now, '3600000', requests, policies[index] }})\n\
         end\n\
         local function check(now, requests, one)\n\
           local by_functions = run(slow, KEYS[1] .. 's', now, requests, one)\n\
           for of, variant in pairs({{ f = fast, l = lone, o = several }}) do\n\
             if run(variant, KEYS[1] .. of, now, requests, one) ~= by_functions then return of .. ': reply at ' .. now end\n\
             for i, key in ipairs(keys(KEYS[1] .. of)) do\n\
               local twin = KEYS[1] .. 's' .. i\n\
               local state, expected = redis.call('GET', key), redis.call('GET', twin)\n\
               local in_place = state and #state == 32\n\
               if in_place and expected and #expected == 24 then state = string.sub(state, 1, 24) end\n\
               if state ~= expected then return of .. ': state ' .. i .. ' at ' .. now end\n\
               local longer = redis.call('PTTL', key) - redis.call('PTTL', twin)\n\
               if longer < -1500 or (longer > 500 and not in_place) then\n\
                 return of .. ': lifetime ' .. i .. ' at ' .. now .. ': ' .. longer\n\
               end\n\
             end\n\
           end\n\
         end\n",
        policies.iter().map(|of| literal(&policy(of))).collect::<Vec<_>>().join(", "),
        policies.len() * usize::from(KEYS),
    );
    let (mut now, mut times) = (START, Vec::new());
    for (step, asked) in calls {
        now = step.from(now, policies[0].0.period(), None);
        let has_one_charge = asked.iter().map(Vec::len).sum::<usize>() == 1;
        let requests = literal(&requests(asked, policies, &times));
        times.push(now);
        writeln!(
            script,
            "do local wrong = check('{now}', {requests}, {has_one_charge}); if wrong then return wrong end end"
        )
        .unwrap();
    }
    script.push_str("return 'equal'");
    script
}

fn any_policies() -> impl Strategy<Value = Vec<(Numbers, u8)>> {
    let options = prop_oneof![5 => Just(0), 5 => Just(GRANTS), 1 => Just(SHADOW), 1 => Just(SHADOW | GRANTS)];
    let others = prop_oneof![6 => Just(0), 3 => Just(BAN), 1 => Just(SETTLES)];
    let policy = (any_numbers(), options, others).prop_map(|(numbers, options, others)| {
        // Positions in a queue and slots are neither granted nor settled.
        let can_grant = !matches!(numbers.quota(), Quota::LeakyBucket(_) | Quota::Concurrency(_));
        let options = if can_grant { options | others } else { (options | others) & !(GRANTS | SETTLES) };
        (numbers, options)
    });
    prop::collection::vec(policy, 1..4)
}

fn any_grant() -> impl Strategy<Value = TestGrant> {
    (0..3_usize, 0..20_u64, 0..20_u64, prop_oneof![Just(0_u64), 0..60_u64])
        .prop_map(|(opened_in, spent, returned, wanted)| TestGrant { opened_in, spent, returned, wanted })
}

#[test]
fn requests_are_decided_as_by_the_functions() {
    let server = RedisServer::start();
    let rare = prop::sample::select(&[RELEASE, RENEW, REFUND, LATE, EXTRA]);
    let kind = prop_oneof![12 => Just(TAKE_UNITS), 2 => Just(CHECK), 2 => Just(GRANT), 4 => rare];
    let kind = (kind, prop_oneof![Just(0_u64), 0..3_000_000_u64]);
    let charge = (any::<prop::sample::Index>(), 0..KEYS, any_cost(), kind, any_grant()).boxed();
    let request = prop::collection::vec(charge.clone(), 1..4);
    let requests = prop_oneof![
        1 => prop::collection::vec(request.clone(), 1..4),
        2 => charge.prop_map(|charge| vec![vec![charge]]),
    ];
    let call = (any_jump(), requests);
    let [fast, lone, several, slow] = &variants();
    let number = std::cell::Cell::new(0);
    for_all(120, &(any_policies(), prop::collection::vec(call, 1..12)), |(policies, calls)| {
        number.set(number.get() + 1);
        let at = |(index, key, cost, (kind, age), grant): (prop::sample::Index, _, _, _, _)| TestCharge {
            policy: index.index(policies.len()),
            key,
            cost,
            kind,
            age,
            grant,
        };
        let requests = |requests: Vec<Vec<_>>| {
            requests.into_iter().map(|charges| charges.into_iter().map(at).collect()).collect()
        };
        let calls: Vec<TestCall> = calls.into_iter().map(|(step, asked)| (step, requests(asked))).collect();
        let script = comparison(&policies, &calls);
        let prefix = format!("{{{}}}", number.get());
        let reply = server.cli(&["eval", &script, "1", &prefix, fast, lone, several, slow]);
        prop_assert_eq!(reply.trim(), "equal", "{:?} {:?}", policies, calls);
        Ok(())
    });
}

/// The deadline behind a debt is never later than the end of its key: a state that is overwritten in place would be lost.
#[test]
fn no_debt_has_a_later_deadline_than_its_key() {
    let server = RedisServer::start();
    let policies = [(Numbers::Token(Pace { units: 100, period: 1_000_000 }, 1_000), GRANTS)];
    let take = |cost| TestCharge { policy: 0, key: 0, cost, kind: TAKE_UNITS, age: 0, grant: NOTHING };
    let ask = |grant| TestCharge { policy: 0, key: 0, cost: 0, kind: GRANT, age: 0, grant };
    let calls = [
        // A key in use is kept for longer than its debt, but not while units of it are granted.
        vec![take(1)],
        vec![take(100)],
        vec![ask(TestGrant { wanted: 20, ..NOTHING })],
        vec![ask(TestGrant { opened_in: 1, returned: 20, ..NOTHING })],
        vec![take(1)],
    ];
    let mut script = format!("{COMPILE}local take, lengths = compiled(ARGV[1]), ''\n");
    let mut times = Vec::new();
    for asked in calls {
        let requests = literal(&requests(&[asked], &policies, &times));
        times.push(START);
        writeln!(
            script,
            "take(KEYS, {{ '{START}', '0', {requests}, {} }})\n\
             local state = redis.call('GET', KEYS[1])\n\
             lengths = lengths .. #state .. ' '\n\
             if #state == 32 then\n\
               local _, _, _, deadline = struct.unpack('<dddd', state)\n\
               local left = redis.call('PTTL', KEYS[1]) * 1000\n\
               if deadline - {START} > left then return lengths .. 'deadline later than ' .. left end\n\
             end",
            literal(&policy(&policies[0])),
        )
        .unwrap();
    }
    script.push_str("return lengths");
    let source = without(&[]);
    assert_eq!(server.cli(&["eval", &script, "1", "a", &source]).trim(), "32 32 73 24 32");
}
