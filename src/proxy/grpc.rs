//! How gRPC calls are recognized, and their status codes.

use http::{Method, Version};

use crate::http1::names::CONTENT_TYPE;
use crate::http1::{RequestHead, parse_decimal};

/// The content type of gRPC.
pub(super) const GRPC: &[u8] = b"application/grpc";

/// Whether a request is a gRPC call: a POST over HTTP/2 with its content type. Other requests with this content type get
/// plain HTTP responses, which caches understand.
pub(super) fn is_call(head: &RequestHead) -> bool {
    // Not `application/grpc-web`, whose clients read HTTP status codes.
    let is_grpc = |kind: &[u8]| matches!(kind.strip_prefix(GRPC), Some([] | [b'+' | b';', ..]));
    head.version == Version::HTTP_2
        && head.method == Method::POST
        && head.fields.get(CONTENT_TYPE).is_some_and(is_grpc)
}

/// The HTTP status code for the value of a `grpc-status` field, as google.rpc.Code maps them; none if the value is not a
/// number.
pub(super) fn http_status(grpc_status: &[u8]) -> Option<u16> {
    Some(match u16::try_from(parse_decimal(grpc_status)?).ok()? {
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
