//! Refusals as clients of gRPC understand them.

mod details;

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version, request};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::http2::once;
use super::refusal::PROBLEM;
use super::reply::Source;

const GRPC: &[u8] = b"application/grpc";
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
/// When a client may try again by itself (gRFC A6).
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");
/// The same for whoever reads the details of a status.
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");

/// How much of an operator's own answer is told, in bytes. It stands in two headers, in the one with up to three for
/// each of its bytes, in the other with four for three; and some clients take no more than 8 KiB of headers in all.
const MAX_MESSAGE: usize = 1024;

/// What a message can't have as it is: all but visible ASCII and spaces, and the sign of an escape.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// What is read of a problem of our own.
#[derive(serde::Deserialize)]
struct Problem<'p> {
    #[serde(borrow)]
    detail: Cow<'p, str>,
}

/// Whether a request is a call of gRPC: a POST over HTTP/2. What else has its content type gets plain HTTP responses,
/// which caches understand.
pub(super) fn is_call(head: &request::Parts) -> bool {
    // Not `application/grpc-web`, whose clients read statuses of HTTP.
    let is_grpc =
        |kind: &HeaderValue| matches!(kind.as_bytes().strip_prefix(GRPC), Some([] | [b'+' | b';', ..]));
    head.version == Version::HTTP_2
        && head.method == Method::POST
        && head.headers.get(CONTENT_TYPE).is_some_and(is_grpc)
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
    let (code, wait) = (code(status), seconds(response.headers()));
    let message = message(response.headers(), &body, status);
    let message = cut(message.trim());
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    // A cache would take it for a success.
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(STATUS, HeaderValue::from(code));
    headers.insert(MESSAGE, escaped(message));
    // All three say the same time, with what was added at random to keep clients apart.
    if let Some(wait) = wait {
        headers.insert(PUSHBACK, HeaderValue::from(wait.saturating_mul(1000)));
        headers.insert(DETAILS, once(details::retry_info(code, message, wait)));
    } else if status == StatusCode::TOO_MANY_REQUESTS {
        // It is of no use.
        headers.insert(PUSHBACK, HeaderValue::from_static("-1"));
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

/// The HTTP equivalent of the `grpc-status` in a head or in trailers, as google.rpc.Code maps them; none if there is no
/// status.
pub(super) fn http_status(headers: &HeaderMap) -> Option<u16> {
    let code: u16 = headers.get(STATUS)?.to_str().ok()?.parse().ok()?;
    Some(match code {
        0 => 200,          // OK
        1 => 499,          // CANCELLED
        3 | 9 | 11 => 400, // INVALID_ARGUMENT, FAILED_PRECONDITION, OUT_OF_RANGE
        4 => 504,          // DEADLINE_EXCEEDED
        5 => 404,          // NOT_FOUND
        6 | 10 => 409,     // ALREADY_EXISTS, ABORTED
        7 => 403,          // PERMISSION_DENIED
        8 => 429,          // RESOURCE_EXHAUSTED
        12 => 501,         // UNIMPLEMENTED
        14 => 503,         // UNAVAILABLE
        16 => 401,         // UNAUTHENTICATED
        _ => 500,          // UNKNOWN, INTERNAL, DATA_LOSS
    })
}

/// What is wrong, in words: those of our problems, or the operator's own.
fn message<'b>(headers: &HeaderMap, body: &'b Bytes, status: StatusCode) -> Cow<'b, str> {
    let is_problem = headers.get(CONTENT_TYPE) == Some(&PROBLEM);
    match is_problem.then(|| serde_json::from_slice::<Problem<'_>>(body)) {
        Some(Ok(problem)) => problem.detail,
        _ if body.is_empty() => Cow::Borrowed(status.canonical_reason().unwrap_or("refused")),
        _ => String::from_utf8_lossy(body),
    }
}

/// As much of a message as is told, in whole characters.
fn cut(message: &str) -> &str {
    // That is where a character begins, or the end.
    message.split_at(message.floor_char_boundary(MAX_MESSAGE)).0
}

/// A message as it stands in a header.
fn escaped(message: &str) -> HeaderValue {
    let escaped = utf8_percent_encode(message, ESCAPED).to_string();
    HeaderValue::try_from(escaped).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// In how many seconds to try again, if that is known.
fn seconds(headers: &HeaderMap) -> Option<u64> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok()
}
