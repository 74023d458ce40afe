//! The response when an upstream gave none, or none that is valid.

use http::StatusCode;

use super::authorization::AuthorizationError;
use crate::http1::names::{CACHE_CONTROL, RETRY_AFTER};
use crate::http1::{Fields, push_decimal};
use crate::upstream::{Counted, ForwardError};

/// The status and the detail of the response when the upstream gave none, or none that is valid. It does not name the
/// server: that is for the log.
pub(super) fn describe_upstream_error(error: &ForwardError) -> (StatusCode, &'static str) {
    match error {
        ForwardError::Connect { .. } | ForwardError::Unresolved(_) => {
            (StatusCode::BAD_GATEWAY, "the upstream can't be reached")
        }
        ForwardError::NoFreeConnection(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "all connections to the upstream are in use")
        }
        ForwardError::Reclaimed(_) => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the upstream did not respond, and its connection was given to another client",
        ),
        ForwardError::Overloaded(_) => (StatusCode::SERVICE_UNAVAILABLE, "the upstream is overloaded"),
        ForwardError::ClientLimit(Counted::Requests, _) => {
            (StatusCode::TOO_MANY_REQUESTS, "this client has too many concurrent requests")
        }
        ForwardError::ClientLimit(Counted::Tunnels, _) => {
            (StatusCode::SERVICE_UNAVAILABLE, "this client has too many open tunnels to the upstream")
        }
        ForwardError::Broken { .. } | ForwardError::Framing(_) => {
            (StatusCode::BAD_GATEWAY, "the upstream sent no valid response")
        }
        ForwardError::Switched(_) => (
            StatusCode::BAD_GATEWAY,
            "the upstream sent a 101 response that does not match the Upgrade of the request",
        ),
        ForwardError::NoTunnels(_) => {
            (StatusCode::BAD_GATEWAY, "the upstream does not support WebSocket over HTTP/2")
        }
        ForwardError::ConnectTimeout(_) => {
            (StatusCode::GATEWAY_TIMEOUT, "the upstream could not be reached in time")
        }
        ForwardError::ResponseTimeout(_) => {
            (StatusCode::GATEWAY_TIMEOUT, "the upstream did not respond in time")
        }
        ForwardError::RequestBody(_) => {
            (StatusCode::BAD_REQUEST, "the request body is malformed or incomplete")
        }
        ForwardError::RequestBodyTooLarge => {
            (StatusCode::PAYLOAD_TOO_LARGE, "the request body is larger than the route allows")
        }
        ForwardError::RequestBodyTimeout => {
            (StatusCode::REQUEST_TIMEOUT, "the request body did not arrive in time")
        }
        ForwardError::Loop => (
            StatusCode::LOOP_DETECTED,
            "the request loops: its Via header shows that this proxy has forwarded it before, by the same route to the same target, or five \
             times",
        ),
        ForwardError::Target(_) => {
            (StatusCode::BAD_REQUEST, "the request target or Host header is not valid for the upstream")
        }
    }
}

/// When a client may try again, in seconds, if the connections or the limit of the upstream are the reason. It is unknown when one
/// becomes free. Clients of an overloaded upstream are spread, so that they do not return at once.
pub(super) fn retry_after(error: &ForwardError) -> Option<u64> {
    match error {
        ForwardError::Overloaded(_) => Some(fastrand::u64(1..=3)),
        error => error.is_over_capacity().then_some(1),
    }
}

/// When a client may try again whose request an authorization server has not decided, in seconds.
pub(super) fn retry_after_authorization(error: &AuthorizationError) -> u64 {
    let of_upstream =
        if let AuthorizationError::NoResponse(error) = error { retry_after(error) } else { None };
    of_upstream.unwrap_or(1)
}

/// Sets the fields of a response to such a request.
pub(super) fn set_fields(fields: &mut Fields, error: &ForwardError, wait: Option<u64>) {
    if let Some(wait) = wait {
        fields.push_with(RETRY_AFTER, |out| push_decimal(out, wait));
    }
    if let ForwardError::Overloaded(_) = error {
        fields.push(CACHE_CONTROL, b"no-store");
    }
}
