//! Answers that are no server's: the one place that turns a refusal or an error into a response.

use std::io::Write as _;

use bytes::Bytes;
use http::StatusCode;

use super::ProxyResponse;
use super::request_id::RequestId;
use super::response_policy::{CustomDenied, Field, ResponsePolicy};
use super::stamp::reset;
use crate::gate::{MissingPart, RequestError};
use crate::http1::names::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use crate::http1::{ResponseHead, push_decimal};
use crate::limit::{DenyReason, Policy, binding};
use crate::limiter::{Denial, LimitStatus};
use crate::time::{Micros, Timestamp};
use crate::upstream::ForwardError;

/// Seconds that `{retry_after}` says of a request that can never pass: a year.
const NEVER: u64 = 31_536_000;

pub(super) const PROBLEM: &[u8] = b"application/problem+json";

/// The methods that the proxy serves, if a route does.
const METHODS: &[u8] = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// A response whose body is ours.
pub(super) type LocalReply = ProxyResponse<Bytes>;

/// The answer to a request that is refused for what it is.
pub(super) fn malformed(error: &RequestError) -> LocalReply {
    let mut response = problem(error.status(), &error.to_string());
    if !matches!(error, RequestError::Blocked(_) | RequestError::TooLarge) {
        // What else comes over this connection is no more to be trusted.
        close(&mut response.head);
    }
    if let RequestError::Connect = error {
        response.head.fields.push(ALLOW, METHODS);
    }
    response
}

/// The answer to a request that lacks a key part which a limit requires.
pub(super) fn missing_part(missing: &MissingPart) -> LocalReply {
    let mut response = problem(missing.status, &missing.detail());
    response.head.fields.push(CACHE_CONTROL, b"no-store");
    if let Some(challenge) = missing.challenge() {
        response.head.fields.push(WWW_AUTHENTICATE, challenge.as_bytes());
    }
    response
}

/// The answer to an OPTIONS request that asks the proxy itself. What may be done with a resource only its server knows, so
/// there is no Allow.
pub(super) fn options() -> LocalReply {
    LocalReply::new(ResponseHead::new(StatusCode::NO_CONTENT), Bytes::new())
}

/// The answer to a TRACE request that may go no further. What it has sent is not echoed: it may hold secrets that a script
/// in a browser must not see.
pub(super) fn trace() -> LocalReply {
    let mut response = problem(StatusCode::METHOD_NOT_ALLOWED, "the proxy itself does not answer TRACE");
    response.head.fields.push(ALLOW, METHODS);
    response
}

/// The answer to a request whose Max-Forwards can't be counted down.
pub(super) fn malformed_max_forwards() -> LocalReply {
    problem(StatusCode::BAD_REQUEST, "Max-Forwards must be one number")
}

/// The answer where no route matches.
pub(super) fn no_route() -> LocalReply {
    problem(StatusCode::NOT_FOUND, "no route matches this request")
}

/// The answer where no server gave one. It says what went wrong, but not where: that is for the log.
pub(super) fn not_forwarded(error: &ForwardError) -> LocalReply {
    let (status, detail) = match error {
        ForwardError::Connect { .. } | ForwardError::Unresolved(_) => {
            (StatusCode::BAD_GATEWAY, "the upstream can't be reached")
        }
        ForwardError::Full(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "all connections to the upstream are in use")
        }
        ForwardError::ClientLimit(_) => {
            (StatusCode::TOO_MANY_REQUESTS, "too many requests of this client are under way")
        }
        ForwardError::Broken { .. } | ForwardError::Framing(_) => {
            (StatusCode::BAD_GATEWAY, "the upstream gave no valid response")
        }
        ForwardError::Switched(_) => (StatusCode::BAD_GATEWAY, "the upstream switched protocols unasked"),
        ForwardError::NoTunnels(_) => (StatusCode::BAD_GATEWAY, "the upstream takes no WebSockets"),
        ForwardError::ConnectTimeout(_) => {
            (StatusCode::GATEWAY_TIMEOUT, "the upstream could not be reached in time")
        }
        ForwardError::ResponseTimeout(_) => {
            (StatusCode::GATEWAY_TIMEOUT, "the upstream did not respond in time")
        }
        ForwardError::RequestBody(_) => (StatusCode::BAD_REQUEST, "the request's body could not be read"),
        ForwardError::RequestBodyTooLarge => {
            (StatusCode::PAYLOAD_TOO_LARGE, "the request's body is larger than it may be here")
        }
        ForwardError::RequestBodyTimeout => {
            (StatusCode::REQUEST_TIMEOUT, "the request's body did not come in time")
        }
        ForwardError::Loop => {
            (StatusCode::LOOP_DETECTED, "the request came back to this proxy, which had forwarded it before")
        }
        ForwardError::Target(_) => (StatusCode::BAD_REQUEST, "the path can't be sent upstream"),
    };
    let mut response = problem(status, detail);
    if let ForwardError::Full(_) | ForwardError::ClientLimit(_) = error {
        // Nobody knows when one comes free.
        response.head.fields.push(RETRY_AFTER, b"1");
    }
    if status.is_client_error() && !matches!(error, ForwardError::ClientLimit(_)) {
        // The rest of the request is still on its way.
        close(&mut response.head);
    }
    response
}

/// The answer where the server has not agreed to switch protocols as it should have.
pub(super) fn not_switched() -> LocalReply {
    problem(StatusCode::BAD_GATEWAY, "the upstream did not switch protocols as it was asked")
}

/// Says that this is the last answer on its connection.
pub(super) fn close(head: &mut ResponseHead) {
    head.fields.set(CONNECTION, b"close");
}

/// The answer to a request that the limiter refuses, and the seconds that its Retry-After says.
pub(super) fn denied(
    denial: Denial,
    standings: &[LimitStatus],
    answers: &ResponsePolicy,
    policies: &[Policy],
    id: &RequestId,
    now: impl Fn() -> Timestamp,
) -> (LocalReply, Option<u64>) {
    let (mut response, wait) = match denial {
        Denial::Limited if standings.iter().any(is_blocked) => {
            (problem(StatusCode::FORBIDDEN, "this caller is blocked"), None)
        }
        Denial::Limited => {
            let place = binding(standings.iter().map(|standing| &standing.decision)).unwrap_or(0);
            let wait = standings[place].decision.retry_after.map(|wait| answers.wait(wait));
            let response = match &answers.denied {
                None => quota_exceeded(policies, standings, place, wait),
                Some(custom) => in_own_words(custom, answers, &standings[place], wait, id, now),
            };
            (response, wait)
        }
        Denial::Unavailable { retry_after } => {
            let detail = "the limits of this route can't be checked at the moment";
            (problem(StatusCode::SERVICE_UNAVAILABLE, detail), Some(answers.wait(retry_after)))
        }
    };
    let fields = &mut response.head.fields;
    fields.push(CACHE_CONTROL, b"no-store");
    let retry_after = wait.map(|wait| answers.retry_after(wait));
    if let Some(retry_after) = retry_after {
        fields.push_with(RETRY_AFTER, |out| push_decimal(out, retry_after));
    }
    (response, retry_after)
}

/// Whether it is refused by a block that somebody set, and not by its quota.
fn is_blocked(standing: &LimitStatus) -> bool {
    !standing.decision.allowed && standing.decision.cause == DenyReason::Block
}

impl ResponsePolicy {
    /// Whole seconds to wait, rounded up, at least one, with the configured jitter.
    fn wait(&self, wait: Micros) -> u64 {
        let wait = wait.ceil_secs().max(1);
        let jitter = if self.retry_after_jitter > 0.0 { self.jitter(wait) } else { 0 };
        wait.saturating_add(jitter)
    }

    /// What `Retry-After` says of a wait in seconds: no more than configured.
    fn retry_after(&self, wait: u64) -> u64 {
        self.retry_after_max.map_or(wait, |max| wait.min(max.as_secs().max(1)))
    }

    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn jitter(&self, wait: u64) -> u64 {
        (wait as f64 * self.retry_after_jitter * fastrand::f64()).ceil() as u64
    }
}

/// A problem of the type for used-up quotas (draft-ietf-httpapi-ratelimit-headers). The body is put together
/// by hand: it is what an attacker makes us write most.
fn quota_exceeded(
    policies: &[Policy],
    standings: &[LimitStatus],
    place: usize,
    wait: Option<u64>,
) -> LocalReply {
    let name = |standing: &LimitStatus| &*policies[standing.policy].name;
    let binding = name(&standings[place]);
    let mut body = Vec::with_capacity(384);
    body.extend_from_slice(
        concat!(
            r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
            r#""title":"Request cannot be satisfied as assigned quota has been exceeded","#,
            r#""status":429,"detail":""#,
        )
        .as_bytes(),
    );
    match wait {
        Some(wait) => {
            let unit = if wait == 1 { "second" } else { "seconds" };
            let what = match standings[place].decision.cause {
                DenyReason::Ban => "has refused this caller too often and bans it",
                DenyReason::Quota | DenyReason::Block => "is used up",
            };
            for part in ["the limit ", binding, " ", what, "; try again in "] {
                body.extend_from_slice(part.as_bytes());
            }
            push_decimal(&mut body, wait);
            body.push(b' ');
            body.extend_from_slice(unit.as_bytes());
        }
        None => {
            // Writing to memory can't fail.
            let _ = write!(body, "this request costs more than the limit {binding} can ever give");
        }
    }
    body.extend_from_slice(br#"","violated-policies":["#);
    let mut separator = "";
    for standing in standings.iter().filter(|standing| !standing.decision.allowed) {
        // Names of limits have nothing to escape.
        for part in [separator, "\"", name(standing), "\""] {
            body.extend_from_slice(part.as_bytes());
        }
        separator = ",";
    }
    body.extend_from_slice(b"]}\n");
    own(StatusCode::TOO_MANY_REQUESTS, PROBLEM, body)
}

fn in_own_words(
    custom: &CustomDenied,
    answers: &ResponsePolicy,
    binding: &LimitStatus,
    wait: Option<u64>,
    id: &RequestId,
    now: impl Fn() -> Timestamp,
) -> LocalReply {
    let decision = &binding.decision;
    let body = custom.body.fill(|field| match field {
        Field::Limit => decision.limit.to_string(),
        Field::Remaining => decision.remaining.to_string(),
        Field::Reset => reset(decision, answers, &now).to_string(),
        // A number in any case, so that a body of JSON stays valid.
        Field::RetryAfter => wait.unwrap_or(NEVER).to_string(),
        Field::RequestId => id.as_str().to_owned(),
    });
    own(custom.status, custom.content_type.as_bytes(), body)
}

/// A problem of no type of its own (RFC 9457).
fn problem(status: StatusCode, detail: &str) -> LocalReply {
    let title = status.canonical_reason().unwrap_or("Error");
    let detail = serde_json::Value::from(detail);
    let body = format!(
        "{{\"type\":\"about:blank\",\"title\":\"{title}\",\"status\":{},\"detail\":{detail}}}\n",
        status.as_u16()
    );
    own(status, PROBLEM, body)
}

/// A response of ours.
pub(super) fn own(status: StatusCode, content_type: &[u8], body: impl Into<Bytes>) -> LocalReply {
    let mut head = ResponseHead::new(status);
    head.fields.push(CONTENT_TYPE, content_type);
    LocalReply::new(head, body.into())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn retry_after_is_at_least_one_and_at_most_the_maximum() {
        let answers = ResponsePolicy::default();
        assert_eq!(answers.wait(Micros(1)), 1);
        assert_eq!(answers.wait(Micros(1_000_001)), 2);
        assert_eq!(answers.retry_after(86_400), 86_400);
        let short =
            ResponsePolicy { retry_after_max: Some(Duration::from_secs(10)), ..ResponsePolicy::default() };
        assert_eq!((short.wait(Micros(90_000_000)), short.retry_after(90)), (90, 10));
    }

    #[test]
    fn jitter_only_adds() {
        let answers = ResponsePolicy { retry_after_jitter: 0.5, ..ResponsePolicy::default() };
        let waits: Vec<u64> = (0..200).map(|_| answers.wait(Micros(100_000_000))).collect();
        assert!(waits.iter().all(|wait| (100..=150).contains(wait)));
        assert!(waits.iter().any(|wait| *wait > 100));
    }
}
