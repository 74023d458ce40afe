//! Request IDs, sent as X-Request-Id and logged.

use http::header::HeaderName;
use smallvec::SmallVec;

use super::route_action::HeaderEdits;
use crate::http1::hex_digits;
use crate::http1::{Fields, names};
use crate::telemetry::TraceId;

/// The header with the request ID, in requests and responses.
pub(super) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The longest ID that is accepted from a trusted proxy.
const MAX_LENGTH: usize = 128;

/// The ID of a request: letters, digits and a few symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestId {
    text: SmallVec<[u8; 32]>,
    /// Whether it is valid as the ID of a trace.
    is_trace_id: bool,
}

impl RequestId {
    /// The X-Request-Id that a trusted proxy has sent, if it has at most 128 characters, none of which are special in JSON,
    /// HTML, logs or shells; else 128 random bits in hex.
    pub fn new(fields: &Fields, is_trusted: bool) -> Self {
        let given = if is_trusted { fields.get(names::X_REQUEST_ID) } else { None };
        match given.filter(|id| is_valid(id)) {
            Some(id) => {
                let is_trace_id = id.try_into().ok().and_then(TraceId::parse).is_some();
                Self { text: SmallVec::from_slice(id), is_trace_id }
            }
            None => Self { text: generate(), is_trace_id: true },
        }
    }

    /// The ID as that of a trace, if it is valid as one.
    pub fn as_trace_id(&self) -> Option<TraceId> {
        self.text.as_slice().try_into().ok().filter(|_| self.is_trace_id).map(TraceId::from_digits)
    }

    /// Adds the ID to a response, unless the server or these edits of the route have set it.
    pub fn add_to(&self, response: &mut Fields, edits: Option<&HeaderEdits>) {
        if !edits.is_some_and(|edits| edits.affects(&X_REQUEST_ID)) {
            response.set_default(names::X_REQUEST_ID, self.as_bytes());
        }
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.text
    }

    pub fn as_str(&self) -> &str {
        // `is_valid` and `generate` allow ASCII only.
        std::str::from_utf8(&self.text).unwrap_or_default()
    }
}

fn is_valid(id: &[u8]) -> bool {
    let is_safe = |byte: &u8| byte.is_ascii_alphanumeric() || b"._:/+=@-".contains(byte);
    (1..=MAX_LENGTH).contains(&id.len()) && id.iter().all(is_safe)
}

fn generate() -> SmallVec<[u8; 32]> {
    let mut digits = [0; 32];
    for half in digits.chunks_exact_mut(16) {
        half.copy_from_slice(&hex_digits(fastrand::u64(..)));
    }
    SmallVec::from(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_valid_id_of_a_trusted_proxy_is_kept() {
        let with = |id: &[u8], is_trusted| {
            let mut fields = Fields::new();
            fields.push(names::X_REQUEST_ID, id);
            RequestId::new(&fields, is_trusted)
        };
        assert_eq!(with(b"Root=1-67891233-abc", true).as_str(), "Root=1-67891233-abc");
        assert_eq!(with(&[b'a'; 128], true).as_bytes(), [b'a'; 128]);
        for (id, is_trusted) in [
            (&b"abc"[..], false),
            (b"", true),
            (b"a b", true),
            (b"\xff", true),
            (&[b'a'; 129], true),
            (b"a\"b", true),
        ] {
            let generated = with(id, is_trusted);
            let is_hex = generated.as_bytes().iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            assert!(generated.as_bytes().len() == 32 && is_hex, "{generated:?}");
        }
        let digits = [b'7'; 32];
        assert_eq!(with(&digits, true).as_trace_id(), TraceId::parse(&digits));
        assert!(with(&digits, false).as_trace_id().is_some());
        assert!([&[b'0'; 32], &[b'A'; 32]].iter().all(|id| with(*id, true).as_trace_id().is_none()));
        assert_eq!(with(b"abc", true).as_trace_id(), None);
        let none = Fields::new();
        assert_ne!(RequestId::new(&none, true), RequestId::new(&none, true));
    }
}
