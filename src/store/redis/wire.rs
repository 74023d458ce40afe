//! The script's arguments and its reply; `lua/take.lua` documents the layout.
//!
//! A stored key is `PREFIX:{TAG}:LIMIT:A`. TAG is a BLAKE3 hash (128 bits) over kind, length and value of each key part, keyed
//! with `hash_key`. A is a letter for the algorithm and its state layout, so that an old state is never misread: a changed
//! layout needs a new letter. A record expires when it equals an empty one.

use bytes::Bytes;
use hashbrown::HashMap;
use smallvec::SmallVec;

use crate::limit::{Charge, ChargeKind, EntryId, GrantRequest, Key, MAX_TICKS, Policy, PolicyId, Quota};
use crate::time::{Clock, Timestamp};

/// The most charges that requests are batched to in one call: a call must not block the server for long, and Lua takes some
/// thousand keys at most. Keys and charges are numbered in 16 bits.
pub(super) const MAX_CHARGES: usize = 512;

/// The option of a policy with a ban.
const BAN: u8 = 1;
/// The option of a policy in shadow mode.
const SHADOW: u8 = 2;
/// The option of a policy that grants units.
const GRANTS: u8 = 4;
/// The option of a policy that settles costs.
const SETTLES: u8 = 8;
/// About the length of a stored key's name, in bytes.
const NAME: usize = 48;
/// Bytes of a request of one charge, without the fields that only some charges have.
const REQUEST: usize = 2 + 2 + 2 + 2 + 1 + size_of::<f64>();

/// One call: its keys, policies and requests.
#[derive(Debug, Default)]
pub(super) struct Call {
    /// The names of stored keys, each once, concatenated.
    names: Vec<u8>,
    /// Where each name ends.
    ends: Vec<usize>,
    /// Policies, each once.
    policies: SmallVec<[Bytes; 4]>,
    /// Requests with their charges.
    requests: Vec<u8>,
    /// The ids of `policies`.
    policy_ids: SmallVec<[PolicyId; 4]>,
    /// The number of each key, from 1. Policies of the same name share stored keys, whatever their numbers.
    key_numbers: HashMap<EntryId, u16>,
    /// The last request, if the next ones could be the same on the keys that follow.
    run: Option<Run>,
}

/// The charges of a request, with the grant requests of those that are of the kind `Grant`, in their order.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChargesWithGrants<'a> {
    pub charges: &'a [Charge],
    pub grant_requests: &'a [GrantRequest],
}

impl<'a> ChargesWithGrants<'a> {
    /// Charges of other kinds.
    pub fn charges_only(charges: &'a [Charge]) -> Self {
        Self { charges, grant_requests: &[] }
    }

    /// Splits the charges into requests of at most `count` charges each.
    pub fn chunks(self, count: usize) -> impl Iterator<Item = Self> {
        let mut rest = self.grant_requests;
        self.charges.chunks(count).map(move |charges| {
            let granting = charges.iter().filter(|charge| charge.kind == ChargeKind::Grant).count();
            let (grant_requests, others) = rest.split_at(granting.min(rest.len()));
            rest = others;
            Self { charges, grant_requests }
        })
    }
}

/// Requests of one charge that differ only in their keys, which follow each other.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Its offset in the requests.
    at: usize,
    count: u16,
    /// The number of the next key.
    next: u16,
    charge: Charge,
}

impl Call {
    /// An empty call with capacity for this number of charges.
    pub fn with_capacity(charges: usize) -> Self {
        Self {
            names: Vec::with_capacity(charges * NAME),
            ends: Vec::with_capacity(charges),
            key_numbers: HashMap::with_capacity(charges),
            ..Self::default()
        }
    }

    /// Adds a request. The clock is read for calendar windows, whose edges are sent, and for the age of late charges.
    pub fn add(&mut self, prefix: &str, policies: &[Policy], request: ChargesWithGrants<'_>, clock: &Clock) {
        let ChargesWithGrants { charges, grant_requests } = request;
        if let [charge] = charges
            && self.extend_run(prefix, policies, charge)
        {
            return;
        }
        let (at, mut key, mut grant_requests) = (self.requests.len(), 0, grant_requests.iter());
        push_u16(&mut self.requests, 1);
        push_u16(&mut self.requests, charges.len());
        for charge in charges {
            let policy = &policies[charge.policy];
            key = self.number_of(prefix, policy, charge.key);
            let known = self.policy_ids.iter().position(|id| *id == charge.policy);
            let policy_index = known.unwrap_or_else(|| {
                self.policy_ids.push(charge.policy);
                self.policies.push(packed(policy, clock));
                self.policies.len() - 1
            });
            self.requests.extend_from_slice(&key.to_le_bytes());
            push_u16(&mut self.requests, policy_index + 1);
            self.requests.push(charge.kind as u8);
            // All costs above any limit are denied alike; this one a double distinguishes from every possible limit.
            push_number(&mut self.requests, charge.cost.min(MAX_TICKS + 2).cast_signed());
            if let Quota::Concurrency(_) = policy.quota {
                self.requests.extend_from_slice(&charge.holder.0.to_le_bytes());
            } else if charge.kind == ChargeKind::Refund {
                push_number(&mut self.requests, charge.taken.0.cast_signed());
            } else if charge.kind == ChargeKind::Late {
                // As an age, since the server has another clock.
                push_number(&mut self.requests, clock.now().since(charge.taken).0.cast_signed());
            } else if charge.kind == ChargeKind::Grant {
                push_grant_request(&mut self.requests, grant_requests.next().copied().unwrap_or_default());
            }
        }
        self.run = match charges {
            [charge] if self.requests.len() == at + REQUEST => {
                Some(Run { at, count: 1, next: key.saturating_add(1), charge: *charge })
            }
            _ => None,
        };
    }

    /// Extends the last request if this one is equal, on the next key; returns whether it is.
    fn extend_run(&mut self, prefix: &str, policies: &[Policy], charge: &Charge) -> bool {
        let Some(mut run) = self.run else { return false };
        let same = |charge: &Charge| (charge.policy, charge.kind, charge.cost);
        let policy = &policies[charge.policy];
        if same(charge) != same(&run.charge) || self.number_of(prefix, policy, charge.key) != run.next {
            return false;
        }
        (run.count, run.next) = (run.count.saturating_add(1), run.next.saturating_add(1));
        self.requests[run.at..run.at + 2].copy_from_slice(&run.count.to_le_bytes());
        self.run = Some(run);
        true
    }

    /// The keys and the arguments of the script.
    pub fn into_parts(self) -> (Vec<Bytes>, Vec<Bytes>) {
        let names = Bytes::from(self.names);
        let mut from = 0;
        let name = |until| names.slice(std::mem::replace(&mut from, until)..until);
        let keys = self.ends.into_iter().map(name).collect();
        (keys, std::iter::once(self.requests.into()).chain(self.policies).collect())
    }

    /// The number of a stored key, counted from 1; the key is added if it is new.
    fn number_of(&mut self, prefix: &str, policy: &Policy, key: Key) -> u16 {
        let next = in_16_bits(self.ends.len() + 1);
        let number = *self.key_numbers.entry(EntryId::new(policy, key)).or_insert(next);
        if number == next {
            push_name(&mut self.names, prefix, policy, key, policy.letter());
            self.ends.push(self.names.len());
        }
        number
    }
}

/// The name of a count: `PREFIX:{TAG}:LIMIT:A`, where A is the letter of the algorithm. The braces make all limits
/// of one key share a hash slot of a cluster.
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

/// The SCAN pattern of a policy's stored keys.
pub(super) fn pattern(prefix: &str, policy: &Policy) -> Vec<u8> {
    let plain = |text: &str| {
        let special = |byte: u8| matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\' | b'^');
        text.bytes()
            .flat_map(|byte| special(byte).then_some(b'\\').into_iter().chain([byte]))
            .collect::<Vec<u8>>()
    };
    let any = [b'?'; Key::TEXT_LEN];
    let letter = [b':', policy.letter()];
    [&plain(prefix)[..], b":{", &any, b"}:", &plain(&policy.stored), &letter].concat()
}

/// Reads the key from the name of a count.
pub(super) fn key_of(prefix: &str, name: &[u8]) -> Option<Key> {
    let from = prefix.len() + 2;
    Key::parse(name.get(from..from + Key::TEXT_LEN)?)
}

fn packed(policy: &Policy, clock: &Clock) -> Bytes {
    let wall = if policy.follows_calendar() { clock.wall() } else { Timestamp::default() };
    let numbers = policy.quota.numbers(wall);
    let ban = policy.ban.map(|ban| [ban.after, ban.within.0, ban.length.0].map(u64::cast_signed));
    let ban = ban.as_ref().map_or(&[][..], |ban| &ban[..]);
    let ahead = policy.ahead.map(|ahead| [ahead.span.0, ahead.share.get()].map(u64::cast_signed));
    let ahead = ahead.as_ref().map_or(&[][..], |ahead| &ahead[..]);
    let most = policy.settles().then(|| policy.quota.most_units().cast_signed());
    let option = |is_set, option| if is_set { option } else { 0 };
    let options = option(!ban.is_empty(), BAN)
        | option(policy.shadow, SHADOW)
        | option(!ahead.is_empty(), GRANTS)
        | option(policy.settles(), SETTLES);
    let all = || ban.iter().chain(ahead).chain(&most).chain(&numbers);
    #[expect(clippy::expect_used, reason = "a log has at most 16 rates of two numbers, the rest are six")]
    let count = u8::try_from(all().count()).expect("a policy has few numbers");
    let letter = if policy.settles() { policy.letter().to_ascii_lowercase() } else { policy.letter() };
    let mut packed = vec![letter, options, count];
    for number in all() {
        push_number(&mut packed, *number);
    }
    packed.into()
}

fn push_grant_request(out: &mut Vec<u8>, request: GrantRequest) {
    let report = request.report.unwrap_or_default();
    let units = [report.spent, report.returned, request.wanted].map(|units| units.min(MAX_TICKS));
    for number in [report.opened.0, report.until.0].into_iter().chain(units) {
        push_number(out, number.cast_signed());
    }
}

fn push_u16(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&in_16_bits(number).to_le_bytes());
}

#[expect(
    clippy::expect_used,
    reason = "a call has `MAX_CHARGES` charges at most, or those of one request, which are fewer"
)]
fn in_16_bits(number: usize) -> u16 {
    const { assert!(MAX_CHARGES < u16::MAX as usize) };
    u16::try_from(number).expect("a call has fewer than 65,536 keys and charges")
}

#[allow(clippy::cast_precision_loss)] // Costs and a policy's numbers are exact up to there.
fn push_number(out: &mut Vec<u8>, number: i64) {
    out.extend_from_slice(&(number as f64).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Rate;
    use crate::time::Micros;

    fn policies() -> Vec<Policy> {
        let rate = Rate::new(1, Micros::SECOND).unwrap();
        vec![Policy::new("a", Quota::token_bucket(rate, 5).unwrap())]
    }

    #[test]
    fn keys_and_policies_are_sent_once() {
        let charge = Charge::take(PolicyId(0), Key([7; 16]), 1);
        let mut call = Call::default();
        call.add(
            "tidegate",
            &policies(),
            ChargesWithGrants::charges_only(&[charge, charge]),
            &Clock::Monotonic,
        );
        let (keys, arguments) = call.into_parts();
        assert_eq!(keys, [Bytes::from_static(b"tidegate:{BwcHBwcHBwcHBwcHBwcHBw}:a:b")]);
        let lengths: Vec<usize> = arguments.iter().map(Bytes::len).collect();
        assert_eq!(lengths, [2 + 2 + 2 * (2 + 2 + 1 + 8), 3 + 3 * 8]);
    }

    #[test]
    fn equal_requests_on_consecutive_keys_are_sent_once() {
        let mut call = Call::default();
        let mut add = |key: u8, cost| {
            let charge = Charge::take(PolicyId(0), Key([key; 16]), cost);
            call.add("tidegate", &policies(), ChargesWithGrants::charges_only(&[charge]), &Clock::Monotonic);
        };
        // Three on consecutive keys; one on a known key; one on the key after it; one of another cost.
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
    fn setting_the_wall_clock_does_not_age_late_charges() {
        let late = Charge::take(PolicyId(0), Key([7; 16]), 1).late(Timestamp(3));
        let sent = |wall| {
            let clock = Clock::manual(Timestamp(10));
            clock.set_wall(Timestamp(wall));
            let mut call = Call::default();
            call.add("tidegate", &policies(), ChargesWithGrants::charges_only(&[late]), &clock);
            call.requests
        };
        assert!(sent(10).ends_with(&7_f64.to_le_bytes()));
        assert_eq!(sent(10), sent(3_600_000_010));
    }

    #[test]
    fn names_match_their_pattern_and_contain_the_key() {
        let (policy, key) = (&policies()[0], Key([9; 16]));
        let name = stored_key("ti*de", policy, key, b'b');
        assert_eq!(key_of("ti*de", &name), Some(key));
        assert_eq!(key_of("ti*de", b"ti*de:{short}:a:b"), None);
        assert_eq!(pattern("ti*de", policy), b"ti\\*de:{??????????????????????}:a:b");
    }
}
