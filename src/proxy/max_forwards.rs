//! Max-Forwards: how many more proxies an OPTIONS or TRACE request may pass (RFC 9110 §7.6.2).

use http::header::MAX_FORWARDS;
use http::{HeaderValue, Method, request};

use super::refusal;

/// Counts down the Max-Forwards of a request. A response means that the request goes no further.
pub(super) fn count_down(head: &mut request::Parts) -> Option<refusal::Own> {
    if head.method != Method::OPTIONS && head.method != Method::TRACE {
        return None;
    }
    let mut values = head.headers.get_all(MAX_FORWARDS).iter();
    let (first, more) = (values.next()?, values.next());
    match number(first).filter(|_| more.is_none()) {
        None => Some(refusal::malformed_max_forwards()),
        Some(0) if head.method == Method::OPTIONS => Some(refusal::options()),
        Some(0) => Some(refusal::trace()),
        Some(left) => {
            head.headers.insert(MAX_FORWARDS, HeaderValue::from(left - 1));
            None
        }
    }
}

/// A number of digits; one that is too large is the largest that goes on, and one more.
fn number(value: &HeaderValue) -> Option<u64> {
    let digits =
        value.to_str().ok().filter(|text| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit()))?;
    let most = u64::from(u32::MAX) + 1;
    Some(digits.parse().unwrap_or(most).min(most))
}
