//! The script's reply; `lua/take.lua` documents the layout.

use bytes::Bytes;

use crate::limit::{Charge, ChargeKind, Decision, DenyReason, Grant, Policy};
use crate::store::types::{Granted, StoreError};
use crate::time::{Micros, Timestamp};

/// Bytes of one decision in a reply.
const DECISION: usize = 1 + 3 * size_of::<f64>();
/// Bytes of a grant, which follows the decision on a charge of the kind `Grant`.
const GRANT: usize = 4 * size_of::<f64>();

/// Bytes of a reply to these charges.
pub(super) fn length(charges: &[Charge]) -> usize {
    charges.iter().map(|charge| DECISION + if charge.kind == ChargeKind::Grant { GRANT } else { 0 }).sum()
}

/// The placeholder of a decision that is not made yet.
pub(super) fn undecided() -> Decision {
    Decision::allowed(0, 0, Micros::ZERO)
}

/// When the script ran: the last number of a reply. A shorter reply is an error when its decisions are read.
pub(super) fn time(reply: &[u8]) -> Timestamp {
    Timestamp(reply.last_chunk().map_or(0, |bytes| whole(f64::from_le_bytes(*bytes))))
}

/// The part of a reply that is about one request, and when the script ran.
#[derive(Clone, Debug)]
pub(super) struct ReplyPart {
    pub decisions: Bytes,
    pub at: Timestamp,
}

/// Reads the part of a reply that is about one request.
pub(super) fn read(part: &ReplyPart, policies: &[Policy], charges: &[Charge]) -> Result<Granted, StoreError> {
    let (wanted, length) = (self::length(charges), part.decisions.len());
    if length != wanted {
        let text = format!("{length} bytes where {} charges take {wanted}", charges.len());
        return Err(StoreError::Malformed(text));
    }
    let (mut granted, mut rest) = (Granted::default(), &part.decisions[..]);
    for charge in charges {
        let Some((bytes, after)) = rest.split_first_chunk() else { break };
        let decided = decision(bytes, policies[charge.policy].quota.limit());
        granted.decisions.push(Decision { at: part.at, ..decided });
        rest = after;
        if charge.kind == ChargeKind::Grant
            && let Some((bytes, after)) = rest.split_first_chunk()
        {
            granted.grants.push(grant(bytes));
            rest = after;
        }
    }
    Ok(granted)
}

fn grant(bytes: &[u8; GRANT]) -> Grant {
    let (numbers, _) = bytes.as_chunks();
    let number = |index: usize| f64::from_le_bytes(numbers[index]);
    Grant {
        units: whole(number(0)),
        opened: Timestamp(whole(number(1))),
        duration: Micros(whole(number(2))),
        first: (number(3) >= 0.0).then(|| Micros(whole(number(3)))),
    }
}

fn decision(bytes: &[u8; DECISION], limit: u64) -> Decision {
    let [code, numbers @ ..] = bytes;
    let (code, (numbers, _)) = (code.cast_signed(), numbers.as_chunks());
    let number = |index: usize| f64::from_le_bytes(numbers[index]);
    let (remaining, reset, wait) = (whole(number(0)), Micros(whole(number(1))), number(2));
    if code > 0 {
        return Decision { delay: Micros(whole(wait)), ..Decision::allowed(limit, remaining, reset) };
    }
    let reason = match code {
        -1 => DenyReason::Ban,
        -2 => DenyReason::Block,
        _ => DenyReason::Quota,
    };
    let retry_after = (wait >= 0.0).then(|| Micros(whole(wait)));
    Decision { allowed: false, reason, retry_after, ..Decision::allowed(limit, remaining, reset) }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // `as` saturates, and NaN is zero.
fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Key, PolicyId, Quota, Rate};
    use crate::store::types::Decisions;

    /// Reads a reply to one request.
    fn decisions(reply: &Bytes, policies: &[Policy], charges: &[Charge]) -> Result<Decisions, StoreError> {
        let until = reply.len().saturating_sub(size_of::<f64>());
        let part = ReplyPart { decisions: reply.slice(..until), at: time(reply) };
        read(&part, policies, charges).map(|granted| granted.decisions)
    }

    fn policies() -> Vec<Policy> {
        let rate = Rate::new(1, Micros::SECOND).unwrap();
        vec![Policy::new("a", Quota::token_bucket(rate, 5).unwrap())]
    }

    #[test]
    fn a_reply_of_the_wrong_length_is_an_error() {
        let charge = Charge::take(PolicyId(0), Key([7; 16]), 1);
        assert!(matches!(
            decisions(&Bytes::from_static(b"OK"), &policies(), &[charge]),
            Err(StoreError::Malformed(_))
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
