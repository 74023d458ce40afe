//! Local replies in the form that gRPC clients understand.

mod details;

use std::borrow::Cow;

use bytes::Bytes;
use http::StatusCode;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use super::grpc::GRPC;
use super::local_reply::PROBLEM;
use super::response::ProxyResponse;
use super::response_body::BodySource;
use crate::http1::names::{
    CACHE_CONTROL, CONTENT_TYPE, GRPC_MESSAGE, GRPC_RETRY_PUSHBACK_MS, GRPC_STATUS, GRPC_STATUS_DETAILS_BIN,
    RETRY_AFTER,
};
use crate::http1::{Fields, parse_decimal, push_decimal};

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

/// Spells an answer of ours to a call, if it is a refusal, as gRPC does: success of HTTP, and what is wrong in headers
/// that stand for trailers, without a body.
pub(super) fn to_grpc_error(response: &mut ProxyResponse<BodySource>) {
    let ProxyResponse { head, body: BodySource::Local(body), .. } = response else { return };
    let status = head.status;
    if status.is_success() {
        return;
    }
    let body = std::mem::take(body);
    let (code, wait) = (code(status), retry_after(&head.fields));
    let message = error_message(&head.fields, &body, status);
    let message = truncate(message.trim());
    head.status = StatusCode::OK;
    let fields = &mut head.fields;
    fields.set(CONTENT_TYPE, GRPC);
    // A cache would take it for a success.
    fields.set(CACHE_CONTROL, b"no-store");
    fields.set_with(GRPC_STATUS, |out| push_decimal(out, code.into()));
    fields.set_with(GRPC_MESSAGE, |out| {
        let parts = utf8_percent_encode(message, ESCAPED);
        parts.for_each(|part| out.extend_from_slice(part.as_bytes()));
    });
    // All three say the same time, with what was added at random to keep clients apart.
    if let Some(wait) = wait {
        // How long a client waits before it tries again by itself (gRFC A6).
        fields.set_with(GRPC_RETRY_PUSHBACK_MS, |out| push_decimal(out, wait.saturating_mul(1000)));
        let details = details::retry_info(code, message, wait);
        fields.set(GRPC_STATUS_DETAILS_BIN, details.as_bytes());
    } else if status == StatusCode::TOO_MANY_REQUESTS {
        // It is of no use.
        fields.set(GRPC_RETRY_PUSHBACK_MS, b"-1");
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
fn error_message<'b>(fields: &Fields, body: &'b Bytes, status: StatusCode) -> Cow<'b, str> {
    let is_problem = fields.get(CONTENT_TYPE) == Some(PROBLEM);
    match is_problem.then(|| serde_json::from_slice::<Problem<'_>>(body)) {
        Some(Ok(problem)) => problem.detail,
        _ if body.is_empty() => Cow::Borrowed(status.canonical_reason().unwrap_or("refused")),
        _ => String::from_utf8_lossy(body),
    }
}

/// As much of a message as is told, in whole characters.
fn truncate(message: &str) -> &str {
    // That is where a character begins, or the end. No header ends with a blank.
    message.split_at(message.floor_char_boundary(MAX_MESSAGE)).0.trim_end()
}

/// In how many seconds to try again, if that is known.
fn retry_after(fields: &Fields) -> Option<u64> {
    parse_decimal(fields.get(RETRY_AFTER)?)
}
