//! The response when an upstream gave none, or none that is valid.

use http::StatusCode;

use crate::upstream::ForwardError;

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
        ForwardError::ClientLimit(_) => {
            (StatusCode::TOO_MANY_REQUESTS, "this client has too many concurrent requests")
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
