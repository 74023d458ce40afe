//! What HTTP/2 says in another way than HTTP/1.1, whose form everything else is used to.

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, COOKIE, HOST};
use http::uri::{Scheme, Uri};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version, request};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::ext::Protocol;
use tokio::time::timeout;

use super::reply::Source;
use super::{unread, websocket};
use crate::gate::{Malformed, PathError};
use crate::upstream::is_token;

/// How much is read of the body of a refused request: more than a client can have sent before it could read its answer.
const MAX_READ_ON: usize = 256 * 1024;

/// A value that hardly comes twice. HTTP/2 would remember it, and what it remembers it looks through for each header.
pub(super) fn once(mut value: HeaderValue) -> HeaderValue {
    // The library remembers everything but what is marked so; HTTP/1.1 does not see the mark.
    value.set_sensitive(true);
    value
}

/// Gives a request one form, whichever version it came in: its authority is its Host, its target is path and query
/// alone, and its cookies are one header (RFC 9113 §8.2.3, §8.3.1). The library has refused fields that belong to a
/// connection, and whatever is malformed by itself.
///
/// # Errors
/// No host, or several that differ; another scheme; a path without a slash; a malformed header; more than `max_headers`
/// headers.
pub(super) fn level(head: &mut request::Parts, max_headers: usize) -> Result<(), Malformed> {
    if head.version != Version::HTTP_2 {
        return Ok(());
    }
    if head.headers.len() > max_headers {
        return Err(Malformed::TooManyHeaders);
    }
    if !are_plain(&head.headers) {
        return Err(Malformed::Header);
    }
    join_cookies(&mut head.headers);
    if let Some(protocol) = head.extensions.remove::<Protocol>() {
        websocket::from_connect(head, protocol.as_str())?;
    }
    let parts = std::mem::take(&mut head.uri).into_parts();
    // The library reads a slash before a query that has none.
    if parts.path_and_query.as_ref().is_some_and(|path| path.as_str().starts_with('?')) {
        return Err(PathError::NotAbsolute.into());
    }
    let is_served = |scheme: &Scheme| *scheme == Scheme::HTTP || *scheme == Scheme::HTTPS;
    head.uri = parts.path_and_query.map(Uri::from).unwrap_or_default();
    if let Some(authority) = parts.authority {
        let host = HeaderValue::from_str(authority.as_str()).map_err(|_| Malformed::Host)?;
        let mut named = head.headers.get_all(HOST).iter();
        if named.any(|named| !named.as_bytes().eq_ignore_ascii_case(host.as_bytes())) {
            return Err(Malformed::Host);
        }
        head.headers.insert(HOST, host);
    } else if !head.headers.contains_key(HOST) {
        return Err(Malformed::Host);
    }
    if parts.scheme.is_none_or(|scheme| is_served(&scheme)) { Ok(()) } else { Err(Malformed::Scheme) }
}

/// Takes the body from an answer of ours that can have none; over HTTP/1.1 hyper does.
pub(super) fn cut_body(response: &mut Response<Source>, is_to_head: bool) {
    let never = matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let Source::Own(body) = response.body_mut() else { return };
    let cut = if is_to_head || never { std::mem::take(body) } else { Bytes::new() };
    if is_to_head && !never {
        response.headers_mut().insert(CONTENT_LENGTH, cut.len().into());
    }
}

/// Whether names and lengths are what they are over HTTP/1.1 as well.
fn are_plain(headers: &HeaderMap) -> bool {
    let is_number =
        |length: &HeaderValue| !length.is_empty() && length.as_bytes().iter().all(u8::is_ascii_digit);
    headers.get_all(CONTENT_LENGTH).iter().all(is_number) && has_names(headers)
}

/// Whether every name is one.
pub(super) fn has_names(headers: &HeaderMap) -> bool {
    headers.keys().all(|name| is_token(name.as_str()))
}

/// Reads the rest of the body of a refused request for a while, during its response. Some clients take a stream
/// that is reset right behind its answer for a failure, though it is in order (RFC 9113 §8.1).
/// What is returned ends when no more is read.
pub(super) fn read_on(mut unread: Incoming) -> impl Future {
    tokio::task::spawn_local(timeout(unread::MAX_TIME, async move {
        let mut read = 0;
        while let Some(Ok(frame)) = unread.frame().await
            && read < MAX_READ_ON
        {
            read += frame.data_ref().map_or(0, Bytes::len);
        }
    }))
}

fn join_cookies(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(COOKIE).iter();
    if crumbs.next().is_none() || crumbs.next().is_none() {
        return;
    }
    let crumbs: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    // Joined valid values are valid.
    if let Ok(cookie) = HeaderValue::from_bytes(&crumbs.join(&b"; "[..])) {
        headers.insert(COOKIE, cookie);
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn leveled(request: request::Builder) -> Result<request::Parts, String> {
        let (mut head, ()) = request.version(Version::HTTP_2).body(()).unwrap().into_parts();
        level(&mut head, 4).map(|()| head).map_err(|error| error.to_string())
    }

    #[test]
    fn a_request_takes_the_form_of_http_1() {
        let request = Request::get("https://A.example:8443/a?b").header("host", "a.example:8443");
        let head = leveled(request.header("cookie", "a=1").header("cookie", "b=2")).unwrap();
        assert_eq!(head.uri, "/a?b");
        assert_eq!(head.headers["host"], "A.example:8443");
        assert_eq!(head.headers.get_all("cookie").iter().collect::<Vec<_>>(), ["a=1; b=2"]);
    }

    #[test]
    fn there_is_one_host() {
        let host = "the request must have exactly one valid Host header";
        assert_eq!(leveled(Request::get("http://a/").header("host", "b")).unwrap_err(), host);
        assert_eq!(leveled(Request::get("/")).unwrap_err(), host);
        assert_eq!(leveled(Request::get("/").header("host", "a")).unwrap().headers["host"], "a");
    }

    #[test]
    fn what_is_not_served_is_refused() {
        let many = (0..5).fold(Request::get("http://a/"), |request, n| request.header("x", n));
        assert_eq!(leveled(many).unwrap_err(), "the request has too many headers");
        assert_eq!(leveled(Request::get("ftp://a/")).unwrap_err(), "only http and https are served");
    }
}
