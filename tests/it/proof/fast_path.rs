//! The fast paths of the scripts, without function calls, decide as the functions do: replies and states are equal, byte by byte.
//! Only the deadline behind a debt has no counterpart.

use std::fmt::Write as _;

use proptest::prelude::*;
use tidegate::store::redis::{TAKE, TAKE_ONE};
use tidegate::time::Timestamp;

use super::kit::{Move, Numbers, START, any_cost, any_jump, any_numbers, for_all};
use crate::support::RedisServer;

/// A charge: the policy, the key, the cost, and its kind.
type TestCharge = (usize, u16, u64, u8);
/// A call: by how much the clock moves before it, and the charges of its requests.
type TestCall = (Move, Vec<Vec<TestCharge>>);

/// The conditions under which a request is decided without function calls.
const FAST: [&str; 2] = ["local is_plain, passes, c = true, true, 1", "if charges == 1 and kind == TAKE and"];
const SLOW: [&str; 2] = ["local is_plain, passes, c = false, true, 1", "if false and kind == TAKE and"];

/// A script without comments: the length of an argument of a program is bounded.
fn without_comments(source: &str) -> String {
    let lines = source.lines().filter(|line| !line.trim_start().starts_with("--"));
    lines.collect::<Vec<_>>().join("\n")
}

/// The script without its fast paths.
fn slow() -> String {
    FAST.iter().zip(SLOW).fold(without_comments(TAKE.source), |source, (fast, slow)| {
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
    let list = quota.numbers(Timestamp(START));
    let mut policy = vec![quota.letter(), *options, u8::try_from(list.len()).unwrap()];
    policy.extend(list.iter().flat_map(|number| double(*number as f64)));
    policy
}

/// The requests of a call. Each policy has keys of its own, as its name is part of them.
#[allow(clippy::cast_precision_loss)]
fn packed_requests(requests: &[Vec<TestCharge>], policies: &[(Numbers, u8)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for charges in requests {
        bytes.extend(1_u16.to_le_bytes());
        bytes.extend(u16::try_from(charges.len()).unwrap().to_le_bytes());
        for (index, key, cost, kind) in charges {
            let key = u16::try_from(*index).unwrap() * KEYS + key + 1;
            bytes.extend(key.to_le_bytes());
            bytes.extend(u16::try_from(index + 1).unwrap().to_le_bytes());
            bytes.push(*kind);
            bytes.extend(double((*cost).min(1 << 53) as f64));
            if let Numbers::Slots(..) = policies[*index].0 {
                bytes.extend([7; 8]);
            }
        }
    }
    bytes
}

/// Keys of each policy.
const KEYS: u16 = 2;

/// A script that makes all calls with all variants, and returns the first difference. A state that is overwritten in place
/// keeps its lifetime: longer after the clock of the test has moved, or shorter by the second that it may be set back.
fn comparison(policies: &[(Numbers, u8)], calls: &[TestCall]) -> String {
    let mut script = format!(
        "local function fast(KEYS, ARGV)\n{}\nend\nlocal function slow(KEYS, ARGV)\n{}\nend\n\
         local function single(KEYS, ARGV)\n{}\nend\n\
         local policies = {{ {} }}\n\
         local function one(KEYS, ARGV)\n\
           local requests = ARGV[3]\n\
           if #requests ~= 17 then return fast(KEYS, ARGV) end\n\
           local _, _, key, index = struct.unpack('<HHHH', requests)\n\
           local letter, options = string.byte(policies[index], 1, 2)\n\
           if (letter ~= 98 and letter ~= 103) or options % 2 == 1 then return fast(KEYS, ARGV) end\n\
           local reply = single({{ KEYS[key] }}, {{ ARGV[1], ARGV[2], requests, policies[index] }})\n\
           return reply == '' and fast(KEYS, ARGV) or reply\n\
         end\n\
         local function keys(of) local all = {{}}; for i = 1, {} do all[i] = of .. i end; return all end\n\
         local function check(now, requests)\n\
           local function run(script, of) return script(keys(of), {{ now, '3600000', requests, unpack(policies) }}) end\n\
           local by_functions = run(slow, KEYS[1] .. 's')\n\
           for of, variant in pairs({{ f = fast, o = one }}) do\n\
             if run(variant, KEYS[1] .. of) ~= by_functions then return of .. ': reply at ' .. now end\n\
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
        without_comments(TAKE.source),
        slow(),
        without_comments(TAKE_ONE.source),
        policies.iter().map(|of| literal(&policy(of))).collect::<Vec<_>>().join(", "),
        policies.len() * usize::from(KEYS),
    );
    let mut now = START;
    for (step, requests) in calls {
        now = step.from(now, policies[0].0.period(), None);
        let requests = literal(&packed_requests(requests, policies));
        writeln!(script, "do local wrong = check('{now}', {requests}); if wrong then return wrong end end")
            .unwrap();
    }
    script.push_str("return 'equal'");
    script
}

fn any_policies() -> impl Strategy<Value = Vec<(Numbers, u8)>> {
    let timed = any_numbers();
    let options = prop_oneof![6 => Just(0_u8), 1 => Just(2)];
    prop::collection::vec((timed, options), 1..4)
}

#[test]
fn requests_are_decided_as_by_the_functions() {
    let server = RedisServer::start();
    let charge =
        (any::<prop::sample::Index>(), 0..KEYS, any_cost(), prop_oneof![9 => Just(0_u8), 1 => Just(1)])
            .boxed();
    let request = prop::collection::vec(charge.clone(), 1..4);
    let requests = prop_oneof![
        prop::collection::vec(request.clone(), 1..4),
        charge.prop_map(|charge| vec![vec![charge]]),
    ];
    let call = (any_jump(), requests);
    let number = std::cell::Cell::new(0);
    for_all(120, &(any_policies(), prop::collection::vec(call, 1..12)), |(policies, calls)| {
        number.set(number.get() + 1);
        let at = |(index, key, cost, kind): (prop::sample::Index, u16, u64, u8)| {
            (index.index(policies.len()), key, cost, kind)
        };
        let requests = |requests: Vec<Vec<_>>| {
            requests.into_iter().map(|charges| charges.into_iter().map(at).collect()).collect()
        };
        let calls: Vec<TestCall> = calls.into_iter().map(|(step, all)| (step, requests(all))).collect();
        let script = comparison(&policies, &calls);
        let reply = server.cli(&["eval", &script, "1", &format!("{{{}}}", number.get())]);
        prop_assert_eq!(reply.trim(), "equal", "{:?} {:?}", policies, calls);
        Ok(())
    });
}
