//! What a request is called, on its way and in logs.

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};

use super::http2::once;

/// The header that carries it, in both directions.
pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest that is taken over.
const MAX_TAKEN: usize = 128;

/// The id that a trusted proxy gives, if it has at most 128 characters, and only such as mean nothing in JSON, HTML, logs
/// and shells; else 128 random bits, in hex.
pub(super) fn request_id(headers: &HeaderMap, is_trusted: bool) -> HeaderValue {
    let given = if is_trusted { headers.get(&X_REQUEST_ID) } else { None };
    once(given.filter(|id| is_fit(id.as_bytes())).cloned().unwrap_or_else(made))
}

fn is_fit(id: &[u8]) -> bool {
    let is_safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"._:/+=@-".contains(byte);
    (1..=MAX_TAKEN).contains(&id.len()) && id.iter().all(is_safe)
}

fn made() -> HeaderValue {
    let mut digits = [0; 32];
    let bits = fastrand::u128(..);
    for (place, digit) in digits.iter_mut().enumerate() {
        // Four bits at a time.
        let value = (bits >> (4 * place) & 15) as u8;
        *digit = if value < 10 { b'0' + value } else { b'a' + value - 10 };
    }
    // Hex digits are always valid.
    HeaderValue::from_bytes(&digits).unwrap_or_else(|_| HeaderValue::from_static("0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_fit_id_of_a_trusted_proxy_is_taken_over() {
        let with = |id: &[u8], is_trusted| {
            let headers = HeaderMap::from_iter([(X_REQUEST_ID, HeaderValue::from_bytes(id).unwrap())]);
            request_id(&headers, is_trusted)
        };
        assert_eq!(with(b"Root=1-67891233-abc", true), "Root=1-67891233-abc");
        for (id, is_trusted) in [
            (&b"abc"[..], false),
            (b"", true),
            (b"a b", true),
            (b"\xff", true),
            (&[b'a'; 129], true),
            (b"a\"b", true),
        ] {
            let made = with(id, is_trusted);
            assert!(made.len() == 32 && made.as_bytes().iter().all(u8::is_ascii_hexdigit), "{made:?}");
        }
        let none = HeaderMap::new();
        assert!(request_id(&none, true).is_sensitive());
        assert_ne!(request_id(&none, true), request_id(&none, true));
    }
}
