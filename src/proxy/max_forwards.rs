//! Max-Forwards: how many more proxies an OPTIONS or TRACE request may pass (RFC 9110 §7.6.2).

use http::Method;

use super::local_reply::{self, LocalReply};
use super::rejection::Rejection;
use crate::http1::names::MAX_FORWARDS;
use crate::http1::{RequestHead, parse_decimal_saturating, push_decimal};

/// Decrements Max-Forwards, and returns the response to a request that must not be forwarded any more. Rejects a malformed
/// Max-Forwards, and a TRACE that must not be forwarded.
pub(super) fn decrement(head: &mut RequestHead) -> Result<Option<LocalReply>, Rejection> {
    if !head.fields.contains(MAX_FORWARDS) || !matches!(head.method, Method::OPTIONS | Method::TRACE) {
        return Ok(None);
    }
    let mut values = head.fields.get_all(MAX_FORWARDS);
    let (first, more) = (values.next().and_then(parse_count), values.next());
    match first.filter(|_| more.is_none()) {
        None => Err(Rejection::MaxForwards),
        Some(0) if head.method == Method::OPTIONS => Ok(Some(local_reply::options())),
        Some(0) => Err(Rejection::Trace),
        Some(left) => {
            head.fields.set_with(MAX_FORWARDS, |out| push_decimal(out, left - 1));
            Ok(None)
        }
    }
}

/// Parses digits; a larger number counts as `u32::MAX + 1`, so that at most `u32::MAX` is forwarded.
fn parse_count(digits: &[u8]) -> Option<u64> {
    let most = u64::from(u32::MAX) + 1;
    parse_decimal_saturating(digits).map(|number| number.min(most))
}
