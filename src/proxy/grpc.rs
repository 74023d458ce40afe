//! Refusals as clients of gRPC understand them.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version, request};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::refusal::PROBLEM;
use super::reply::Source;

const GRPC: &[u8] = b"application/grpc";
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// When a client may try again by itself (gRFC A6).
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

/// What a message can't have as it is: all but visible ASCII and spaces, and the sign of an escape.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// What is read of a problem of our own.
#[derive(serde::Deserialize)]
struct Problem<'p> {
    #[serde(borrow)]
    detail: Cow<'p, str>,
}

/// Whether a request is a call of gRPC, which is spoken over HTTP/2 alone.
pub(super) fn is_call(head: &request::Parts) -> bool {
    // Not `application/grpc-web`, whose clients read statuses of HTTP.
    let is_grpc =
        |kind: &HeaderValue| matches!(kind.as_bytes().strip_prefix(GRPC), Some([] | [b'+' | b';', ..]));
    head.version == Version::HTTP_2 && head.headers.get(CONTENT_TYPE).is_some_and(is_grpc)
}

/// Spells an answer of ours to a call, if it is a refusal, as gRPC does: success of HTTP, and what is wrong in headers
/// that stand for trailers, without a body.
pub(super) fn spell(response: &mut Response<Source>) {
    let status = response.status();
    let Source::Own(body) = response.body_mut() else { return };
    if status.is_success() {
        return;
    }
    let body = std::mem::take(body);
    let message = message(response.headers(), &body, status);
    let pushback = pushback(response.headers(), status);
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(STATUS, HeaderValue::from(code(status)));
    headers.insert(MESSAGE, message);
    if let Some(pushback) = pushback {
        headers.insert(PUSHBACK, pushback);
    }
}

/// The status of gRPC that says the same: for the most part what a client makes of one of HTTP by itself (gRPC's
/// http-grpc-status-mapping), but for those of which we know more.
fn code(status: StatusCode) -> u16 {
    match status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::PAYLOAD_TOO_LARGE => 8, // RESOURCE_EXHAUSTED
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => 4,     // DEADLINE_EXCEEDED
        StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => 14,    // UNAVAILABLE
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => 12, // UNIMPLEMENTED
        StatusCode::UNAUTHORIZED => 16, // UNAUTHENTICATED
        StatusCode::FORBIDDEN => 7,     // PERMISSION_DENIED
        StatusCode::BAD_REQUEST | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => 13, // INTERNAL
        _ => 2,                         // UNKNOWN
    }
}

/// What is wrong, in words: those of our problems, or the operator's own.
fn message(headers: &HeaderMap, body: &Bytes, status: StatusCode) -> HeaderValue {
    let is_problem = headers.get(CONTENT_TYPE) == Some(&PROBLEM);
    let detail = serde_json::from_slice::<Problem<'_>>(body).ok().filter(|_| is_problem);
    let text = match &detail {
        Some(problem) => Cow::Borrowed(&*problem.detail),
        None if body.is_empty() => Cow::Borrowed(status.canonical_reason().unwrap_or("refused")),
        None => String::from_utf8_lossy(body),
    };
    let escaped = utf8_percent_encode(text.trim(), ESCAPED).to_string();
    HeaderValue::try_from(escaped).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// When to try again, or that it is of no use.
fn pushback(headers: &HeaderMap, status: StatusCode) -> Option<HeaderValue> {
    let seconds = headers.get(RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.parse::<u64>().ok());
    match seconds {
        Some(seconds) => Some(HeaderValue::from(seconds.saturating_mul(1000))),
        None if status == StatusCode::TOO_MANY_REQUESTS => Some(HeaderValue::from_static("-1")),
        None => None,
    }
}
