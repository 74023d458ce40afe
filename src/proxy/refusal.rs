//! Answers that are no server's: the one place that turns a refusal or an error into a response.

use std::fmt::Write as _;

use http::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::answers::{Answers, CustomDenied, Field};
use super::stamp::{number, reset};
use crate::gate::{Malformed, MissingPart};
use crate::limit::{Cause, Policy, binding};
use crate::limiter::{Denial, Standing};
use crate::time::{Micros, Timestamp};
use crate::upstream::ForwardError;

/// Seconds that `{retry_after}` says of a request that can never pass: a year.
const NEVER: u64 = 31_536_000;

pub(super) const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

/// The methods that the proxy serves, if a route does.
const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

/// A response whose body is ours.
pub(super) type Own = Response<bytes::Bytes>;

/// The answer to a request that is refused for what it is.
pub(super) fn malformed(error: &Malformed) -> Own {
    let mut response = problem(error.status(), &error.to_string());
    if !matches!(error, Malformed::Blocked(_) | Malformed::TooLarge) {
        // What else comes over this connection is no more to be trusted.
        close(&mut response);
    }
    if let Malformed::Connect = error {
        response.headers_mut().insert(ALLOW, METHODS);
    }
    response
}

/// The answer to a request that lacks a key part which a limit requires.
pub(super) fn missing_part(missing: &MissingPart) -> Own {
    let mut response = problem(missing.status, &missing.detail());
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.extend(missing.challenge().map(|challenge| (WWW_AUTHENTICATE, challenge)));
    response
}

/// The answer to an OPTIONS request that asks the proxy itself. What may be done with a resource only its server knows, so
/// there is no Allow.
pub(super) fn options() -> Own {
    let mut response = Own::default();
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// The answer to a TRACE request that may go no further. What it has sent is not echoed: it may hold secrets that a script
/// in a browser must not see.
pub(super) fn trace() -> Own {
    let mut response = problem(StatusCode::METHOD_NOT_ALLOWED, "the proxy itself does not answer TRACE");
    response.headers_mut().insert(ALLOW, METHODS);
    response
}

/// The answer to a request whose Max-Forwards can't be counted down.
pub(super) fn malformed_max_forwards() -> Own {
    problem(StatusCode::BAD_REQUEST, "Max-Forwards must be one number")
}

/// The answer where no route matches.
pub(super) fn no_route() -> Own {
    problem(StatusCode::NOT_FOUND, "no route matches this request")
}

/// The answer where no server gave one. It says what went wrong, but not where: that is for the log.
pub(super) fn not_forwarded(error: &ForwardError) -> Own {
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
        response.headers_mut().insert(RETRY_AFTER, number(1));
    }
    if status.is_client_error() && !matches!(error, ForwardError::ClientLimit(_)) {
        // The rest of the request is still on its way.
        close(&mut response);
    }
    response
}

/// The answer where the server has not agreed to switch protocols as it should have.
pub(super) fn not_switched() -> Own {
    problem(StatusCode::BAD_GATEWAY, "the upstream did not switch protocols as it was asked")
}

/// Says that this is the last answer on its connection.
pub(super) fn close<B>(response: &mut Response<B>) {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
}

/// Whether this is the last answer on its connection.
pub(super) fn closes<B>(response: &Response<B>) -> bool {
    response.headers().get(CONNECTION).is_some_and(|connection| connection == "close")
}

/// The answer to a request that the limiter refuses, and the seconds that its Retry-After says.
pub(super) fn denied(
    denial: Denial,
    standings: &[Standing],
    answers: &Answers,
    policies: &[Policy],
    id: &HeaderValue,
    now: impl Fn() -> Timestamp,
) -> (Own, Option<u64>) {
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
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let retry_after = wait.map(|wait| answers.retry_after(wait));
    if let Some(retry_after) = retry_after {
        headers.insert(RETRY_AFTER, number(retry_after));
    }
    (response, retry_after)
}

/// Whether it is refused by a block that somebody set, and not by its quota.
fn is_blocked(standing: &Standing) -> bool {
    !standing.decision.allowed && standing.decision.cause == Cause::Block
}

impl Answers {
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
fn quota_exceeded(policies: &[Policy], standings: &[Standing], place: usize, wait: Option<u64>) -> Own {
    let name = |standing: &Standing| &*policies[standing.policy.0 as usize].name;
    let binding = name(&standings[place]);
    let mut body = String::with_capacity(384);
    body.push_str(concat!(
        r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
        r#""title":"Request cannot be satisfied as assigned quota has been exceeded","#,
        r#""status":429,"detail":""#,
    ));
    match wait {
        Some(wait) => {
            let unit = if wait == 1 { "second" } else { "seconds" };
            let what = match standings[place].decision.cause {
                Cause::Ban => "has refused this caller too often and bans it",
                Cause::Quota | Cause::Block => "is used up",
            };
            let wait = number(wait);
            let wait = wait.to_str().unwrap_or_default();
            for part in ["the limit ", binding, " ", what, "; try again in ", wait, " ", unit] {
                body.push_str(part);
            }
        }
        None => {
            // Writing to a string can't fail.
            let _ = write!(body, "this request costs more than the limit {binding} can ever give");
        }
    }
    body.push_str(r#"","violated-policies":["#);
    let mut separator = "";
    for standing in standings.iter().filter(|standing| !standing.decision.allowed) {
        // Names of limits have nothing to escape.
        for part in [separator, "\"", name(standing), "\""] {
            body.push_str(part);
        }
        separator = ",";
    }
    body.push_str("]}\n");
    own(StatusCode::TOO_MANY_REQUESTS, PROBLEM, body)
}

fn in_own_words(
    custom: &CustomDenied,
    answers: &Answers,
    binding: &Standing,
    wait: Option<u64>,
    id: &HeaderValue,
    now: impl Fn() -> Timestamp,
) -> Own {
    let decision = &binding.decision;
    let body = custom.body.fill(|field| match field {
        Field::Limit => decision.limit.to_string(),
        Field::Remaining => decision.remaining.to_string(),
        Field::Reset => reset(decision, answers, &now).to_string(),
        // A number in any case, so that a body of JSON stays valid.
        Field::RetryAfter => wait.unwrap_or(NEVER).to_string(),
        Field::RequestId => id.to_str().unwrap_or_default().to_owned(),
    });
    own(custom.status, custom.content_type.clone(), body)
}

/// A problem of no type of its own (RFC 9457).
fn problem(status: StatusCode, detail: &str) -> Own {
    let title = status.canonical_reason().unwrap_or("Error");
    let detail = serde_json::Value::from(detail);
    let body = format!(
        "{{\"type\":\"about:blank\",\"title\":\"{title}\",\"status\":{},\"detail\":{detail}}}\n",
        status.as_u16()
    );
    own(status, PROBLEM, body)
}

/// A response of ours.
pub(super) fn own(status: StatusCode, content_type: HeaderValue, body: impl Into<bytes::Bytes>) -> Own {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    *response.headers_mut() = HeaderMap::with_capacity(8);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn retry_after_is_at_least_one_and_at_most_the_maximum() {
        let answers = Answers::default();
        assert_eq!(answers.wait(Micros(1)), 1);
        assert_eq!(answers.wait(Micros(1_000_001)), 2);
        assert_eq!(answers.retry_after(86_400), 86_400);
        let short = Answers { retry_after_max: Some(Duration::from_secs(10)), ..Answers::default() };
        assert_eq!((short.wait(Micros(90_000_000)), short.retry_after(90)), (90, 10));
    }

    #[test]
    fn jitter_only_adds() {
        let answers = Answers { retry_after_jitter: 0.5, ..Answers::default() };
        let waits: Vec<u64> = (0..200).map(|_| answers.wait(Micros(100_000_000))).collect();
        assert!(waits.iter().all(|wait| (100..=150).contains(wait)));
        assert!(waits.iter().any(|wait| *wait > 100));
    }
}
