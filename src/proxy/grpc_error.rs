//! Local replies in the form that gRPC clients understand. The details of an error status, which say when to try again, are a
//! `google.rpc.Status` with a `google.rpc.RetryInfo` in it (googleapis: `google/rpc/status.proto`, `error_details.proto`).

use std::borrow::Cow;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD_NO_PAD;
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
use crate::telemetry::protobuf::Message;

/// The longest error message, in bytes. It is sent in two headers: percent-encoded, which takes up to three bytes for
/// each, and in base64, which takes four bytes for three; and some clients accept only 8 KiB of headers in all.
const MAX_MESSAGE: usize = 1024;

/// The characters that are percent-encoded in `grpc-message`: all but visible ASCII and spaces, and `%` itself.
const ESCAPED: &AsciiSet = &CONTROLS.add(b'%');

/// The member of our own problem+json bodies that becomes the message.
#[derive(serde::Deserialize)]
struct ProblemBody<'p> {
    #[serde(borrow)]
    detail: Cow<'p, str>,
}

/// Turns a local error reply to a call into a gRPC error: status 200 without a body, and headers with the code and
/// message (a Trailers-Only response in gRPC's PROTOCOL-HTTP2).
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
    // A cache would treat status 200 as a success.
    fields.set(CACHE_CONTROL, b"no-store");
    fields.set_with(GRPC_STATUS, |out| push_decimal(out, code.into()));
    fields.set_with(GRPC_MESSAGE, |out| {
        let parts = utf8_percent_encode(message, ESCAPED);
        parts.for_each(|part| out.extend_from_slice(part.as_bytes()));
    });
    // All three have the same wait, with the jitter that spreads clients.
    if let Some(wait) = wait {
        // How long a client waits before it tries again by itself (gRFC A6).
        fields.set_with(GRPC_RETRY_PUSHBACK_MS, |out| push_decimal(out, wait.saturating_mul(1000)));
        let details = retry_info(code, message, wait);
        fields.set(GRPC_STATUS_DETAILS_BIN, details.as_bytes());
    } else if status == StatusCode::TOO_MANY_REQUESTS {
        // A denial without a wait never passes: do not retry (gRFC A6).
        fields.set(GRPC_RETRY_PUSHBACK_MS, b"-1");
    }
}

/// The gRPC code for an HTTP status: mostly that of gRPC's http-grpc-status-mapping, which clients apply themselves, but
/// more precise where the proxy knows more.
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

/// The error message: the `detail` of our problem+json, or the operator's own response body.
fn error_message<'b>(fields: &Fields, body: &'b Bytes, status: StatusCode) -> Cow<'b, str> {
    let is_problem = fields.get(CONTENT_TYPE) == Some(PROBLEM);
    match is_problem.then(|| serde_json::from_slice::<ProblemBody<'_>>(body)) {
        Some(Ok(problem)) => problem.detail,
        _ if body.is_empty() => Cow::Borrowed(status.canonical_reason().unwrap_or("rejected")),
        _ => String::from_utf8_lossy(body),
    }
}

/// Cuts a message to its longest length, at a character boundary.
fn truncate(message: &str) -> &str {
    // A header value never ends with whitespace, so the cut must not leave any.
    message.split_at(message.floor_char_boundary(MAX_MESSAGE)).0.trim_end()
}

/// The seconds in Retry-After, if the response has it.
fn retry_after(fields: &Fields) -> Option<u64> {
    parse_decimal(fields.get(RETRY_AFTER)?)
}

/// The type URL of the message in the `Any`.
const RETRY_INFO: &[u8] = b"type.googleapis.com/google.rpc.RetryInfo";
/// The longest `google.protobuf.Duration`, in seconds: about ten thousand years.
const MAX_DURATION: u64 = 315_576_000_000;

/// The value of `grpc-status-details-bin` for an error with this code and message, after which a client may retry in
/// `seconds`. Binary metadata is sent without padding (gRPC's PROTOCOL-HTTP2).
fn retry_info(code: u16, message: &str, seconds: u64) -> String {
    let mut status = Message::default();
    status.integer(1, code.into());
    status.bytes(2, message.as_bytes());
    status.nested(3, |any| {
        any.bytes(1, RETRY_INFO);
        any.nested(2, |info| info.nested(1, |delay| delay.integer(1, seconds.min(MAX_DURATION))));
    });
    BASE64_STANDARD_NO_PAD.encode(status.into_bytes())
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use tonic_types::pb::{RetryInfo, Status};

    use super::*;

    #[test]
    fn prost_decodes_the_encoded_status() {
        for (message, seconds) in [
            ("", 0),
            ("wait", 1),
            ("\u{7f}100 % für heute\n", 127),
            (&*"long".repeat(100), 128),
            ("never", u64::MAX),
        ] {
            let header = retry_info(8, message, seconds);
            let bytes = BASE64_STANDARD_NO_PAD.decode(header).unwrap();
            let status = Status::decode(&*bytes).unwrap();
            assert_eq!((status.code, &*status.message, status.details.len()), (8, message, 1));
            assert_eq!(status.details[0].type_url.as_bytes(), RETRY_INFO);
            let delay = RetryInfo::decode(&*status.details[0].value).unwrap().retry_delay.unwrap();
            assert_eq!((delay.seconds.cast_unsigned(), delay.nanos), (seconds.min(MAX_DURATION), 0));
        }
    }
}
