//! What goes to the script and what comes back; the layout is written down in `lua/take.lua`.

use bytes::Bytes;
use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::limit::{Charge, ChargeKind, Decision, DenyReason, Key, MAX_TICKS, Policy, PolicyId, Quota};
use crate::store::{Decisions, StoreError};
use crate::time::{Clock, Micros, Timestamp};

/// Bytes of one decision in a reply.
const DECISION: usize = 1 + 3 * size_of::<f64>();
/// About as many bytes as a stored key's name has.
const NAME: usize = 48;
/// Bytes of a request of one charge, without what only some charges have.
const REQUEST: usize = 2 + 2 + 2 + 2 + 1 + size_of::<f64>();

/// One call: its keys, policies and requests.
#[derive(Debug, Default)]
pub(super) struct Call {
    /// The names of stored keys, each once, one behind the other.
    names: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<usize>,
    /// Policies, each once.
    policies: SmallVec<[Bytes; 4]>,
    /// Requests with their charges.
    requests: Vec<u8>,
    /// The policies that it has, in their order.
    named: SmallVec<[PolicyId; 4]>,
    /// The places of its keys, by key and policy's salt: numbers that differ count under one key.
    places: HashMap<u128, u16>,
    /// The last request, if others could be the same on the keys behind.
    run: Option<Run>,
}

/// Requests of one charge that differ in nothing but their keys, which stand one behind the other.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Where it stands in the requests.
    at: usize,
    count: u16,
    /// The place of the next key.
    next: u16,
    charge: Charge,
}

impl Call {
    /// One that has room for so many charges.
    pub fn of(charges: usize) -> Self {
        Self {
            names: Vec::with_capacity(charges * NAME),
            ends: Vec::with_capacity(charges),
            places: HashMap::with_capacity(charges),
            ..Self::default()
        }
    }

    /// Adds a request. The clock is read for calendar windows, which are sent along, and for late charges.
    pub fn add(&mut self, prefix: &str, policies: &[Policy], charges: &[Charge], clock: &Clock) {
        if let [charge] = charges
            && self.prolongs_run(prefix, policies, charge)
        {
            return;
        }
        let (at, mut key) = (self.requests.len(), 0);
        push_u16(&mut self.requests, 1);
        push_u16(&mut self.requests, charges.len());
        for charge in charges {
            let policy = &policies[charge.policy];
            key = self.place_of(prefix, policy, charge.key);
            let known = self.named.len();
            let place = place(&mut self.named, charge.policy);
            if self.named.len() > known {
                self.policies.push(packed(policy, clock));
            }
            self.requests.extend_from_slice(&key.to_le_bytes());
            push_u16(&mut self.requests, place);
            self.requests.push(charge.manner as u8);
            // More than any limit is all the same, and what a double tells apart from all that a limit can be.
            push_number(&mut self.requests, charge.cost.min(MAX_TICKS + 2).cast_signed());
            if let Quota::Concurrency(_) = policy.quota {
                self.requests.extend_from_slice(&charge.holder.0.to_le_bytes());
            } else if charge.manner == ChargeKind::Refund {
                push_number(&mut self.requests, charge.taken.0.cast_signed());
            } else if charge.manner == ChargeKind::Late {
                // As an age: the server's clock is not ours.
                push_number(&mut self.requests, clock.now().since(charge.taken).0.cast_signed());
            }
        }
        self.run = match charges {
            [charge] if self.requests.len() == at + REQUEST => {
                Some(Run { at, count: 1, next: key.saturating_add(1), charge: *charge })
            }
            _ => None,
        };
    }

    /// Whether a request is the last one again on the key behind; then that one stands for both.
    fn prolongs_run(&mut self, prefix: &str, policies: &[Policy], charge: &Charge) -> bool {
        let Some(mut run) = self.run else { return false };
        let same = |charge: &Charge| (charge.policy, charge.manner, charge.cost);
        let policy = &policies[charge.policy];
        if same(charge) != same(&run.charge) || self.place_of(prefix, policy, charge.key) != run.next {
            return false;
        }
        (run.count, run.next) = (run.count.saturating_add(1), run.next.saturating_add(1));
        self.requests[run.at..run.at + 2].copy_from_slice(&run.count.to_le_bytes());
        self.run = Some(run);
        true
    }

    /// The keys, and what the script gets beside them.
    pub fn into_parts(self) -> (Vec<Bytes>, Vec<Bytes>) {
        let names = Bytes::from(self.names);
        let mut from = 0;
        let name = |until| names.slice(std::mem::replace(&mut from, until)..until);
        let keys = self.ends.into_iter().map(name).collect();
        (keys, std::iter::once(self.requests.into()).chain(self.policies).collect())
    }

    /// The place of a stored key, counted from 1; it is added if it is new.
    fn place_of(&mut self, prefix: &str, policy: &Policy, key: Key) -> u16 {
        let next = u16::try_from(self.ends.len() + 1).unwrap_or(u16::MAX);
        let id = u128::from_le_bytes(key.0) ^ policy.salt();
        let place = *self.places.entry(id).or_insert(next);
        if place == next {
            push_name(&mut self.names, prefix, policy, key, policy.quota.letter());
            self.ends.push(self.names.len());
        }
        place
    }
}

/// Bytes of a reply that says so many decisions.
pub(super) fn reply_len(charges: usize) -> usize {
    charges * DECISION
}

/// The name of a count: `PREFIX:{TAG}:LIMIT:A`, where A is the letter of the algorithm. The braces make all limits
/// of one key share a node of a cluster.
#[must_use]
pub fn stored_key(prefix: &str, policy: &Policy, key: Key, letter: u8) -> Vec<u8> {
    let mut name = Vec::with_capacity(NAME);
    push_name(&mut name, prefix, policy, key, letter);
    name
}

fn push_name(out: &mut Vec<u8>, prefix: &str, policy: &Policy, key: Key, letter: u8) {
    out.extend_from_slice(prefix.as_bytes());
    out.extend_from_slice(b":{");
    out.extend_from_slice(&key.text());
    out.extend_from_slice(b"}:");
    out.extend_from_slice(policy.stored.as_bytes());
    out.extend_from_slice(&[b':', letter]);
}

/// A pattern of SCAN that the stored keys of a policy match.
pub(super) fn pattern(prefix: &str, policy: &Policy) -> Vec<u8> {
    let plain = |text: &str| {
        let special = |byte: u8| matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\' | b'^');
        text.bytes()
            .flat_map(|byte| special(byte).then_some(b'\\').into_iter().chain([byte]))
            .collect::<Vec<u8>>()
    };
    let any = [b'?'; Key::TEXT_LEN];
    let letter = [b':', policy.quota.letter()];
    [&plain(prefix)[..], b":{", &any, b"}:", &plain(&policy.stored), &letter].concat()
}

/// The key in the name of a count.
pub(super) fn key_of(prefix: &str, name: &[u8]) -> Option<Key> {
    let from = prefix.len() + 2;
    Key::parse(name.get(from..from + Key::TEXT_LEN)?)
}

/// The place of `item` in `list`, counted from 1, where it is added if it is new.
fn place<L, T: PartialEq>(list: &mut L, item: T) -> usize
where
    L: Extend<T> + AsRef<[T]>,
{
    if let Some(at) = list.as_ref().iter().position(|other| *other == item) {
        return at + 1;
    }
    list.extend([item]);
    list.as_ref().len()
}

fn packed(policy: &Policy, clock: &Clock) -> Bytes {
    let wall = if policy.follows_calendar() { clock.wall() } else { Timestamp::default() };
    let numbers = policy.quota.numbers(wall);
    let ban = policy.ban.map(|ban| [ban.after, ban.within.0, ban.length.0].map(u64::cast_signed));
    let ban = ban.as_ref().map_or(&[][..], |ban| &ban[..]);
    let options = u8::from(!ban.is_empty()) | u8::from(policy.shadow) << 1;
    // Far fewer than 256: a log has at most 16 rates.
    let count = u8::try_from(ban.len() + numbers.len()).unwrap_or(u8::MAX);
    let mut packed = vec![policy.quota.letter(), options, count];
    for number in ban.iter().chain(&numbers) {
        push_number(&mut packed, *number);
    }
    packed.into()
}

fn push_u16(out: &mut Vec<u8>, number: usize) {
    // A request has far fewer than 65,536 limits; a configuration with more is refused.
    out.extend_from_slice(&u16::try_from(number).unwrap_or(u16::MAX).to_le_bytes());
}

#[allow(clippy::cast_precision_loss)] // Costs and a policy's numbers are exact up to there.
fn push_number(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(&(number as f64).to_le_bytes());
}

/// What stands in a decision's place until it is made.
pub(super) fn nothing() -> Decision {
    Decision::allowed(0, 0, Micros::ZERO)
}

/// When the script ran, which a reply ends with.
pub(super) fn time(reply: &[u8]) -> Timestamp {
    let at = reply.len().saturating_sub(size_of::<f64>());
    Timestamp(whole(number(&reply[at..])))
}

/// The part of a reply that is about one request, and when the script ran.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub said: Bytes,
    pub at: Timestamp,
}

/// Reads a reply to one request: one decision for each charge, and the time.
pub(super) fn decisions(
    reply: &Bytes,
    policies: &[Policy],
    charges: &[Charge],
) -> Result<Decisions, StoreError> {
    let until = reply.len().saturating_sub(size_of::<f64>());
    read(&Part { said: reply.slice(..until), at: time(reply) }, policies, charges)
}

/// Reads what a reply says to one of its requests.
pub(super) fn read(part: &Part, policies: &[Policy], charges: &[Charge]) -> Result<Decisions, StoreError> {
    let (wanted, length) = (reply_len(charges.len()), part.said.len());
    if length != wanted {
        let wrong = format!("{length} bytes where {} charges take {wanted}", charges.len());
        return Err(StoreError::Garbled(wrong));
    }
    let limits = charges.iter().map(|charge| policies[charge.policy].quota.limit());
    let of = |(bytes, limit)| Decision { at: part.at, ..decision(bytes, limit) };
    Ok(part.said.chunks_exact(DECISION).zip(limits).map(of).collect())
}

fn decision(bytes: &[u8], limit: u64) -> Decision {
    let (code, numbers) = bytes.split_first().map_or((0, bytes), |(code, rest)| (code.cast_signed(), rest));
    let mut numbers = numbers.chunks_exact(size_of::<f64>()).map(number);
    let mut next = || numbers.next().unwrap_or(0.0);
    let (remaining, reset, wait) = (whole(next()), Micros(whole(next())), next());
    if code > 0 {
        return Decision { delay: Micros(whole(wait)), ..Decision::allowed(limit, remaining, reset) };
    }
    let cause = match code {
        -1 => DenyReason::Ban,
        -2 => DenyReason::Block,
        _ => DenyReason::Quota,
    };
    let retry_after = (wait >= 0.0).then(|| Micros(whole(wait)));
    Decision { allowed: false, cause, retry_after, ..Decision::allowed(limit, remaining, reset) }
}

fn number(bytes: &[u8]) -> f64 {
    bytes.try_into().map_or(0.0, f64::from_le_bytes)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates, and NaN is zero.
fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Rate;

    fn policies() -> Vec<Policy> {
        let rate = Rate::new(1, Micros::SECOND).unwrap();
        vec![Policy::new("a", Quota::token_bucket(rate, 5).unwrap())]
    }

    #[test]
    fn a_key_and_a_policy_stand_once() {
        let charge = Charge::take(PolicyId(0), Key([7; 16]), 1);
        let mut call = Call::default();
        call.add("tidegate", &policies(), &[charge, charge], &Clock::Monotonic);
        let (keys, arguments) = call.into_parts();
        assert_eq!(keys, [Bytes::from_static(b"tidegate:{BwcHBwcHBwcHBwcHBwcHBw}:a:b")]);
        let lengths: Vec<usize> = arguments.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [2 + 2 + 2 * (2 + 2 + 1 + 8), 3 + 3 * 8]);
    }

    #[test]
    fn equal_requests_on_keys_behind_each_other_stand_once() {
        let mut call = Call::default();
        let mut add = |key: u8, cost| {
            let charge = Charge::take(PolicyId(0), Key([key; 16]), cost);
            call.add("tidegate", &policies(), &[charge], &Clock::Monotonic);
        };
        // Three in a row; a key that has its place; one behind that; another cost.
        for (key, cost) in [(1, 1), (2, 1), (3, 1), (2, 1), (3, 1), (4, 2)] {
            add(key, cost);
        }
        let starts: Vec<(u16, u16)> = call
            .requests
            .chunks_exact(REQUEST)
            .map(|bytes| (u16::from_le_bytes([bytes[0], bytes[1]]), u16::from_le_bytes([bytes[4], bytes[5]])))
            .collect();
        assert_eq!(starts, [(3, 1), (2, 2), (1, 4)]);
        assert_eq!(call.ends.len(), 4);
    }

    #[test]
    fn setting_the_wall_clock_makes_no_late_charge_older() {
        let late = Charge::take(PolicyId(0), Key([7; 16]), 1).late(Timestamp(3));
        let sent = |wall| {
            let clock = Clock::manual(Timestamp(10));
            clock.set_wall(Timestamp(wall));
            let mut call = Call::default();
            call.add("tidegate", &policies(), &[late], &clock);
            call.requests
        };
        assert!(sent(10).ends_with(&7_f64.to_le_bytes()));
        assert_eq!(sent(10), sent(3_600_000_010));
    }

    #[test]
    fn names_match_their_pattern_and_give_the_key_back() {
        let (policy, key) = (&policies()[0], Key([9; 16]));
        let name = stored_key("ti*de", policy, key, b'b');
        assert_eq!(key_of("ti*de", &name), Some(key));
        assert_eq!(key_of("ti*de", b"ti*de:{short}:a:b"), None);
        assert_eq!(pattern("ti*de", policy), b"ti\\*de:{??????????????????????}:a:b");
    }

    #[test]
    fn a_reply_of_the_wrong_length_is_an_error() {
        let charge = Charge::take(PolicyId(0), Key([7; 16]), 1);
        assert!(matches!(
            decisions(&Bytes::from_static(b"OK"), &policies(), &[charge]),
            Err(StoreError::Garbled(_))
        ));
    }

    #[test]
    fn a_reply_is_read() {
        let numbers = [3.0, 9e15, -1.0, 7.0];
        let reply: Vec<u8> =
            std::iter::once(0).chain(numbers.iter().flat_map(|n: &f64| n.to_le_bytes())).collect();
        let charge = Charge::take(PolicyId(0), Key([7; 16]), 9);
        let reply = Bytes::from(reply);
        let read = decisions(&reply, &policies(), &[charge]).unwrap()[0];
        assert_eq!((read.allowed, read.limit, read.remaining), (false, 5, 3));
        assert_eq!((read.reset_after, read.retry_after), (Micros(9_000_000_000_000_000), None));
        assert_eq!(read.at, Timestamp(7));
    }
}
