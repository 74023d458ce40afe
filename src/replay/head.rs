//! The head of a request that a log has.

use http::{Method, Uri, Version};

use super::entry::Entry;
use crate::http1::{RequestHead, names};

/// The Host of a request of which the log has none.
const UNKNOWN_HOST: &[u8] = b"localhost";

/// What a log lacks of a request, or has malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum HeadError {
    /// No address of the client.
    #[error("without an address of the client")]
    NoClient,
    /// A malformed method.
    #[error("with a malformed method")]
    Method,
    /// A malformed request target.
    #[error("with a malformed target")]
    Target,
    /// A header with a control character.
    #[error("with a malformed header")]
    Header,
}

/// The head that a client sent, as far as the log has it; `host` is the host of a request of which the log has none. Rejects a
/// malformed method, request target or header.
pub(super) fn request_head(entry: &Entry<'_>, host: Option<&[u8]>) -> Result<RequestHead, HeadError> {
    let method = Method::from_bytes(&entry.method).map_err(|_| HeadError::Method)?;
    let target = Uri::try_from(&*entry.target).map_err(|_| HeadError::Target)?;
    let mut head = RequestHead::new(method, target);
    head.version = match entry.protocol.as_deref() {
        Some(b"HTTP/1.0") => Version::HTTP_10,
        Some(b"HTTP/2" | b"HTTP/2.0" | b"HTTP/3" | b"HTTP/3.0") => Version::HTTP_2,
        _ => Version::HTTP_11,
    };
    head.fields.push(names::HOST, checked(entry.host.as_deref().or(host).unwrap_or(UNKNOWN_HOST))?);
    let known = [(names::USER_AGENT, &entry.user_agent), (names::REFERER, &entry.referer)];
    for (name, value) in known {
        if let Some(value) = value {
            head.fields.push(name, checked(value)?);
        }
    }
    for (name, value) in &entry.headers {
        if let Ok(name) = http::HeaderName::from_bytes(name)
            && name != http::header::HOST
        {
            head.fields.push(&name, checked(value)?);
        }
    }
    Ok(head)
}

/// The value of a header, unless it has control characters, with which the proxy would reject the request.
fn checked(value: &[u8]) -> Result<&[u8], HeadError> {
    http::HeaderValue::from_bytes(value).map(|_| value).map_err(|_| HeadError::Header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_with_a_control_character_is_malformed() {
        let entry = |agent: &'static [u8]| Entry {
            method: b"GET".into(),
            target: b"/".into(),
            user_agent: Some(agent.into()),
            ..Entry::default()
        };
        assert!(request_head(&entry(b"caf\xc3\xa9\t1"), None).is_ok());
        assert_eq!(request_head(&entry(b"a\x01b"), None).map(|_| ()), Err(HeadError::Header));
    }
}
