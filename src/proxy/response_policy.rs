//! How responses show limits to clients: rate headers, Retry-After, and responses of the operator.

use std::time::Duration;

use http::{HeaderValue, StatusCode};

use super::template::Template;
use crate::time::Micros;

/// How responses show limits.
#[derive(Clone, Debug)]
pub struct ResponsePolicy {
    /// Which rate headers are sent.
    pub rate_headers: RateHeaders,
    /// Whether `X-RateLimit-Reset` is a Unix time instead of a number of seconds.
    pub reset_is_epoch: bool,
    /// The highest `Retry-After`, if it is bounded.
    pub retry_after_max: Option<Duration>,
    /// Up to this share is added to `Retry-After`, so that clients do not come back all at once.
    pub retry_after_jitter: f64,
    /// The responses that are not problem+json.
    pub custom: Box<CustomReplies>,
}

/// Which rate headers are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateHeaders {
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset` of the binding limit.
    pub x_ratelimit: bool,
    /// `RateLimit-Policy` and `RateLimit` of every limit (draft-ietf-httpapi-ratelimit-headers-11).
    pub draft_11: bool,
    /// `x-ratelimit-limit-requests` and the others of `OpenAI`, for limits of requests and of tokens.
    pub openai: bool,
}

impl ResponsePolicy {
    /// Whole seconds to wait, rounded up, at least one, with the configured jitter.
    pub(super) fn wait(&self, wait: Micros) -> u64 {
        let wait = wait.ceil_secs().max(1);
        let jitter = if self.retry_after_jitter > 0.0 { self.jitter(wait) } else { 0 };
        wait.saturating_add(jitter)
    }

    /// The value of `Retry-After` for a wait in seconds: at most the configured maximum.
    pub(super) fn retry_after(&self, wait: u64) -> u64 {
        self.retry_after_max.map_or(wait, |max| wait.min(max.as_secs().max(1)))
    }

    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn jitter(&self, wait: u64) -> u64 {
        (wait as f64 * self.retry_after_jitter * fastrand::f64()).ceil() as u64
    }
}

/// The operator's own response of one kind.
#[derive(Clone, Debug)]
pub struct CustomReply {
    /// The status code, if it is another one.
    pub status: Option<StatusCode>,
    /// The Content-Type of the body.
    pub content_type: HeaderValue,
    /// The body.
    pub body: Template,
}

/// The operator's own responses, by the kind of response that they replace.
#[derive(Clone, Debug, Default)]
pub struct CustomReplies {
    /// 429.
    pub denied: Option<CustomReply>,
    /// 401.
    pub unauthorized: Option<CustomReply>,
    /// 403.
    pub forbidden: Option<CustomReply>,
    /// 404.
    pub not_found: Option<CustomReply>,
    /// 400, and other statuses of requests that are not accepted as they are: 405, 408, 431 and 501.
    pub bad_request: Option<CustomReply>,
    /// 413.
    pub payload_too_large: Option<CustomReply>,
    /// 503.
    pub unavailable: Option<CustomReply>,
    /// 502 and 508.
    pub bad_gateway: Option<CustomReply>,
    /// 504.
    pub timeout: Option<CustomReply>,
}

impl CustomReplies {
    /// The response in place of one with this status.
    #[must_use]
    pub fn of(&self, status: StatusCode) -> Option<&CustomReply> {
        let custom = match status {
            StatusCode::TOO_MANY_REQUESTS => &self.denied,
            StatusCode::UNAUTHORIZED => &self.unauthorized,
            StatusCode::FORBIDDEN => &self.forbidden,
            StatusCode::NOT_FOUND => &self.not_found,
            StatusCode::PAYLOAD_TOO_LARGE => &self.payload_too_large,
            StatusCode::SERVICE_UNAVAILABLE => &self.unavailable,
            StatusCode::BAD_GATEWAY | StatusCode::LOOP_DETECTED => &self.bad_gateway,
            StatusCode::GATEWAY_TIMEOUT => &self.timeout,
            _ => &self.bad_request,
        };
        custom.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn retry_after_is_at_least_one_and_at_most_the_maximum() {
        let answers = config::defaults::response_policy();
        assert_eq!(answers.wait(Micros(1)), 1);
        assert_eq!(answers.wait(Micros(1_000_001)), 2);
        assert_eq!(answers.retry_after(86_400), 86_400);
        let short = ResponsePolicy {
            retry_after_max: Some(Duration::from_secs(10)),
            ..config::defaults::response_policy()
        };
        assert_eq!((short.wait(Micros(90_000_000)), short.retry_after(90)), (90, 10));
    }

    #[test]
    fn jitter_only_adds() {
        let answers = ResponsePolicy { retry_after_jitter: 0.5, ..config::defaults::response_policy() };
        let waits: Vec<u64> = (0..200).map(|_| answers.wait(Micros(100_000_000))).collect();
        assert!(waits.iter().all(|wait| (100..=150).contains(wait)));
        assert!(waits.iter().any(|wait| *wait > 100));
    }
}
