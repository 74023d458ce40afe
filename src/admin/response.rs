//! Responses of the admin interface.

use std::borrow::Cow;

use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use serde::Serialize;

use super::api::ErrorBody;
use super::body::AdminBody;

/// A response of the interface.
pub(super) type AdminResponse = Response<AdminBody>;

/// Why a request is rejected: an error response.
#[derive(Debug)]
pub(super) struct AdminError {
    status: StatusCode,
    body: ErrorBody,
    header: Option<(HeaderName, Cow<'static, str>)>,
}

impl AdminError {
    pub fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, body: ErrorBody { error: error.into(), help: None }, header: None }
    }

    /// The request is invalid.
    pub fn bad_request(error: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error)
    }

    /// Adds how to correct it.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.body.help = Some(help.into());
        self
    }

    /// Adds a header that the status requires.
    pub fn header(self, name: HeaderName, value: impl Into<Cow<'static, str>>) -> Self {
        Self { header: Some((name, value.into())), ..self }
    }

    pub fn into_response(self) -> AdminResponse {
        let mut response = with_status(self.status, &self.body);
        if let Some((name, value)) = self.header
            && let Ok(value) = HeaderValue::from_str(&value)
        {
            response.headers_mut().insert(name, value);
        }
        response
    }
}

/// A response with a value as JSON.
pub(super) fn json(value: &impl Serialize) -> AdminResponse {
    with_status(StatusCode::OK, value)
}

/// A response with text.
pub(super) fn text(status: StatusCode, content_type: &'static str, text: String) -> AdminResponse {
    let mut response = with_body(content_type, AdminBody::from(text));
    *response.status_mut() = status;
    response
}

/// A response with this body.
pub(super) fn with_body(content_type: &'static str, body: AdminBody) -> AdminResponse {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// A response of this status with a value as JSON.
pub(super) fn with_status(status: StatusCode, value: &impl Serialize) -> AdminResponse {
    // Serialization can't fail: the values have string keys and finite numbers.
    let body = serde_json::to_string_pretty(value).unwrap_or_default();
    text(status, "application/json", body + "\n")
}
