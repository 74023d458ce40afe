//! The host that a request names.

use std::borrow::Cow;

use http::uri::Scheme;

use super::error::RequestError;
use super::host::host_of;
use crate::http1::{RequestHead, names};

/// Reads the host of a request: that of an absolute target, or else that of its one Host header (RFC 9112 §3.2.2). Empty for a
/// request over HTTP/1.0 or HTTP/2 without a Host header. Rejects a head with no host, several, or a malformed one, and a target
/// whose scheme is neither http nor https.
pub fn requested_host(head: &RequestHead) -> Result<Cow<'_, str>, RequestError> {
    let mut values = head.fields.get_all(names::HOST);
    let (first, more) = (values.next(), values.next());
    if more.is_some() {
        return Err(RequestError::Host);
    }
    let named = match first {
        // `host_of` rejects characters that are not ASCII.
        Some(value) => Some(std::str::from_utf8(value).map_err(|_| RequestError::Host)?),
        None if head.version <= http::Version::HTTP_10 => None,
        None if head.version >= http::Version::HTTP_2 => None,
        None => return Err(RequestError::Host),
    };
    // An http URI has a host (RFC 9110 §4.2.1), so an empty one is none.
    let named = named.map(|host| host_of(host).ok_or(RequestError::Host)).transpose()?;
    if head.uri.scheme().is_some_and(|scheme| *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS) {
        return Err(RequestError::Scheme);
    }
    match head.uri.authority() {
        Some(authority) => host_of(authority.as_str()).ok_or(RequestError::Host),
        None => Ok(named.unwrap_or(Cow::Borrowed(""))),
    }
}
