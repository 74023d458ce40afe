//! Normalizes HTTP/2 requests to the form of HTTP/1.1, which all other code reads.

use bytes::Bytes;
use http::uri::{Scheme, Uri};
use http::{StatusCode, Version};
use hyper::ext::Protocol;
use hyper::upgrade::OnUpgrade;

use super::response::ProxyResponse;
use super::response_body::BodySource;
use super::upgrade;
use crate::gate::{PathError, RequestError};
use crate::http1::is_digits;
use crate::http1::names::{CONTENT_LENGTH, COOKIE, HOST};
use crate::http1::{Fields, RequestHead, push_decimal};
use crate::upstream::is_token;

/// A CONNECT request over HTTP/2, whose stream may become a tunnel (RFC 8441).
#[derive(Debug)]
pub struct Connect {
    /// Its `:protocol`, if it has one.
    pub protocol: Option<Protocol>,
    /// The stream, once the response has been sent.
    pub stream: OnUpgrade,
}

/// Normalizes an HTTP/2 request to the form of HTTP/1.1: Host instead of `:authority`, a target of path and query alone, one
/// Cookie header (RFC 9113 §8.2.3, §8.3.1), and for an extended CONNECT a WebSocket handshake. The HTTP/2 library has rejected
/// connection-specific fields and malformed pseudo-header fields. Rejects a head with no host, or several that differ; another
/// scheme; a path without a slash; a malformed header; more than `max_headers` headers.
pub(super) fn normalize(
    head: &mut RequestHead,
    connect: Option<&Connect>,
    max_headers: usize,
) -> Result<(), RequestError> {
    if head.version != Version::HTTP_2 {
        return Ok(());
    }
    if head.fields.len() > max_headers {
        return Err(RequestError::TooManyHeaders);
    }
    if !are_valid(&head.fields) {
        return Err(RequestError::Header);
    }
    join_cookies(&mut head.fields);
    if let Some(protocol) = connect.and_then(|connect| connect.protocol.as_ref()) {
        upgrade::from_connect(head, protocol.as_str())?;
    }
    let parts = std::mem::take(&mut head.uri).into_parts();
    // The library adds the slash that is missing before such a query.
    if parts.path_and_query.as_ref().is_some_and(|path| path.as_str().starts_with('?')) {
        return Err(PathError::NotAbsolute.into());
    }
    let is_served = |scheme: &Scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS;
    head.uri = parts.path_and_query.map(Uri::from).unwrap_or_default();
    if let Some(authority) = parts.authority {
        let host = authority.as_str().as_bytes();
        if head.fields.get_all(HOST).any(|named| !named.eq_ignore_ascii_case(host)) {
            return Err(RequestError::Host);
        }
        head.fields.set(HOST, host);
    } else if !head.fields.contains(HOST) {
        return Err(RequestError::Host);
    }
    if parts.scheme.is_none_or(|scheme| is_served(&scheme)) { Ok(()) } else { Err(RequestError::Scheme) }
}

/// Removes the body of a local reply that must not have one; over HTTP/1.1 the connection does.
pub(super) fn drop_forbidden_body(response: &mut ProxyResponse<BodySource>, is_to_head: bool) {
    let ProxyResponse { head, body: BodySource::Local(body), .. } = response else { return };
    let never = matches!(head.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let cut = if is_to_head || never { std::mem::take(body) } else { Bytes::new() };
    if is_to_head && !never {
        head.fields.set_with(CONTENT_LENGTH, |out| push_decimal(out, cut.len() as u64));
    }
}

/// Whether header names and Content-Length are valid over HTTP/1.1 too.
fn are_valid(fields: &Fields) -> bool {
    fields.get_all(CONTENT_LENGTH).all(is_digits) && names_are_valid(fields)
}

/// Whether every header name is a token (RFC 9110 §5.6.2).
pub(super) fn names_are_valid(fields: &Fields) -> bool {
    fields.iter().all(|field| is_token(field.name.as_str()))
}

fn join_cookies(fields: &mut Fields) {
    if fields.get_all(COOKIE).nth(1).is_some() {
        let cookie = fields.get_all(COOKIE).collect::<Vec<_>>().join(&b"; "[..]);
        fields.set(COOKIE, &cookie);
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    fn normalized(uri: &str, fields: &[(&str, &str)]) -> Result<RequestHead, String> {
        let mut head = RequestHead::new(Method::GET, uri.parse().unwrap());
        head.version = Version::HTTP_2;
        head.fields = fields.iter().copied().collect();
        normalize(&mut head, None, 4).map(|()| head).map_err(|error| error.to_string())
    }

    #[test]
    fn a_request_is_normalized_to_http_1_1() {
        let fields = [("host", "a.example:8443"), ("cookie", "a=1"), ("cookie", "b=2")];
        let head = normalized("https://A.example:8443/a?b", &fields).unwrap();
        assert_eq!(head.uri, "/a?b");
        assert_eq!(head.fields.get_all(HOST).collect::<Vec<_>>(), [b"A.example:8443"]);
        assert_eq!(head.fields.get_all(COOKIE).collect::<Vec<_>>(), [b"a=1; b=2"]);
    }

    /// RFC 9113 §8.3.1.
    #[test]
    fn authority_and_host_must_agree() {
        let host = "the request must have exactly one valid Host header";
        assert_eq!(normalized("http://a/", &[("host", "b")]).unwrap_err(), host);
        assert_eq!(normalized("/", &[]).unwrap_err(), host);
        assert_eq!(normalized("/", &[("host", "a")]).unwrap().fields.get(HOST), Some(&b"a"[..]));
    }

    #[test]
    fn unsupported_requests_are_rejected() {
        assert_eq!(
            normalized("http://a/", &[("x", "1"); 5]).unwrap_err(),
            "the request has too many headers"
        );
        assert_eq!(
            normalized("ftp://a/", &[]).unwrap_err(),
            "the scheme of the request target must be http or https"
        );
    }
}
