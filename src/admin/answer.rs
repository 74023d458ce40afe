//! Answers, and refusals that say what would be right.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;

use super::api::Failed;

/// An answer of the interface.
pub(super) type Answer = Response<Full<Bytes>>;

/// Why a request is refused.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    failed: Failed,
    header: Option<(HeaderName, Cow<'static, str>)>,
}

impl Refusal {
    pub fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, failed: Failed { error: error.into(), help: None }, header: None }
    }

    /// The request is wrong in itself.
    pub fn wrong(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    /// Adds the cure.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.failed.help = Some(help.into());
        self
    }

    /// Adds a header that the status calls for.
    pub fn header(self, name: HeaderName, value: impl Into<Cow<'static, str>>) -> Self {
        Self { header: Some((name, value.into())), ..self }
    }

    pub fn into_answer(self) -> Answer {
        let mut answer = with_status(self.status, &self.failed);
        if let Some((name, value)) = self.header
            && let Ok(value) = HeaderValue::from_str(&value)
        {
            answer.headers_mut().insert(name, value);
        }
        answer
    }
}

/// A value as JSON.
pub(super) fn json(value: &impl Serialize) -> Answer {
    with_status(StatusCode::OK, value)
}

/// Text of some type.
pub(super) fn text(status: StatusCode, content_type: &'static str, text: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(text)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

fn with_status(status: StatusCode, value: &impl Serialize) -> Answer {
    // What is answered has text for keys and finite numbers, so that all of it can be written.
    let body = serde_json::to_string_pretty(value).unwrap_or_default();
    text(status, "application/json", body + "\n")
}
