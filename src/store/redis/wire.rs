//! What goes to the script and what comes back; the layout is written down in `lua/take.lua`.

use bytes::Bytes;
use smallvec::SmallVec;

use crate::limit::{Charge, Decision, Key, Policy, PolicyId};
use crate::store::{Decisions, StoreError};
use crate::time::Micros;

/// Bytes of one decision in a reply.
const DECISION: usize = 5 * size_of::<f64>();

/// One call: its keys, policies and requests.
#[derive(Debug, Default)]
pub(super) struct Call {
    /// Stored keys, each once.
    pub keys: Vec<Bytes>,
    /// Policies, each once.
    pub policies: Vec<u8>,
    /// Requests with their charges.
    pub requests: Vec<u8>,
}

impl Call {
    /// A call for one request.
    pub fn new(prefix: &str, policies: &[Policy], charges: &[Charge]) -> Self {
        let mut call = Self::default();
        let mut named: SmallVec<[PolicyId; 4]> = SmallVec::new();
        push_u16(&mut call.requests, charges.len());
        for charge in charges {
            let policy = &policies[charge.policy.0 as usize];
            let key = Bytes::from(stored_key(prefix, policy, charge.key));
            let key = place(&mut call.keys, key);
            let known = named.len();
            let at = place(&mut named, charge.policy);
            if named.len() > known {
                push_policy(&mut call.policies, policy);
            }
            push_u16(&mut call.requests, key);
            push_u16(&mut call.requests, at);
            push_number(&mut call.requests, charge.cost);
        }
        call
    }
}

/// The name of a count: `PREFIX:{TAG}:LIMIT:A`. The braces make all limits of one key share a node of a
/// cluster.
#[must_use]
pub fn stored_key(prefix: &str, policy: &Policy, key: Key) -> Vec<u8> {
    let mut name = Vec::with_capacity(prefix.len() + policy.name.len() + 28);
    name.extend_from_slice(prefix.as_bytes());
    name.extend_from_slice(b":{");
    name.extend_from_slice(&key.text());
    name.extend_from_slice(b"}:");
    name.extend_from_slice(policy.name.as_bytes());
    name.extend_from_slice(&[b':', policy.quota.algorithm().letter()]);
    name
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

fn push_policy(out: &mut Vec<u8>, policy: &Policy) {
    let numbers = policy.quota.numbers();
    out.push(policy.quota.algorithm().letter());
    push_number(out, numbers.len() as u64);
    for number in numbers {
        push_number(out, number);
    }
}

fn push_u16(out: &mut Vec<u8>, number: usize) {
    // A request has far fewer than 65,536 limits; a configuration with more is refused.
    out.extend_from_slice(&u16::try_from(number).unwrap_or(u16::MAX).to_le_bytes());
}

#[allow(clippy::cast_precision_loss)] // Costs and a policy's numbers are at most 2^53.
fn push_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&(number as f64).to_le_bytes());
}

/// Reads a reply: one decision for each charge.
pub(super) fn decisions(
    reply: &[u8],
    policies: &[Policy],
    charges: &[Charge],
) -> Result<Decisions, StoreError> {
    if reply.len() != charges.len() * DECISION {
        let wrong = format!(
            "{} bytes where {} charges take {}",
            reply.len(),
            charges.len(),
            charges.len() * DECISION
        );
        return Err(StoreError::Garbled(wrong));
    }
    let limits = charges.iter().map(|charge| policies[charge.policy.0 as usize].quota.limit());
    Ok(reply.chunks_exact(DECISION).zip(limits).map(|(bytes, limit)| decision(bytes, limit)).collect())
}

fn decision(bytes: &[u8], limit: u64) -> Decision {
    let mut fields = bytes.chunks_exact(size_of::<f64>()).map(number);
    let mut next = || fields.next().unwrap_or(0.0);
    let (allowed, remaining, reset, retry, delay) = (next(), next(), next(), next(), next());
    Decision {
        allowed: allowed > 0.0,
        limit,
        remaining: whole(remaining),
        reset_after: Micros(whole(reset)),
        retry_after: (retry >= 0.0).then(|| Micros(whole(retry))),
        delay: Micros(whole(delay)),
    }
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
    use crate::limit::{Quota, Rate};

    fn policies() -> Vec<Policy> {
        let rate = Rate::new(1, Micros::SECOND).unwrap();
        vec![Policy::new("a", Quota::token_bucket(rate, 5).unwrap())]
    }

    #[test]
    fn a_key_and_a_policy_stand_once() {
        let charge = Charge { policy: PolicyId(0), key: Key([7; 16]), cost: 1 };
        let call = Call::new("tidegate", &policies(), &[charge, charge]);
        assert_eq!(call.keys, [Bytes::from_static(b"tidegate:{BwcHBwcHBwcHBwcHBwcHBw}:a:b")]);
        assert_eq!(call.policies.len(), 1 + 8 + 3 * 8);
        assert_eq!(call.requests.len(), 2 + 2 * (2 + 2 + 8));
    }

    #[test]
    fn a_reply_of_the_wrong_length_is_an_error() {
        let charge = Charge { policy: PolicyId(0), key: Key([7; 16]), cost: 1 };
        assert!(matches!(decisions(b"OK", &policies(), &[charge]), Err(StoreError::Garbled(_))));
    }

    #[test]
    fn a_reply_is_read() {
        let reply: Vec<u8> = [0.0, 3.0, 9e15, -1.0, 0.0].iter().flat_map(|n: &f64| n.to_le_bytes()).collect();
        let charge = Charge { policy: PolicyId(0), key: Key([7; 16]), cost: 9 };
        let read = decisions(&reply, &policies(), &[charge]).unwrap()[0];
        assert_eq!((read.allowed, read.limit, read.remaining), (false, 5, 3));
        assert_eq!((read.reset_after, read.retry_after), (Micros(9_000_000_000_000_000), None));
    }
}
