//! Heads of requests and responses.

use http::{HeaderMap, Method, Response, StatusCode, Uri, Version};

use super::fields::Fields;

/// The head of a request.
#[derive(Clone, Debug, Default)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The request target.
    pub uri: Uri,
    /// The version in which the client has sent the request.
    pub version: Version,
    /// The header fields.
    pub fields: Fields,
}

/// The head of a response.
#[derive(Clone, Debug)]
pub struct ResponseHead {
    /// The status code.
    pub status: StatusCode,
    /// The reason phrase, if it is not the canonical one.
    pub reason: Option<Box<[u8]>>,
    /// The version in which the server has sent the response.
    pub version: Version,
    /// The header fields.
    pub fields: Fields,
}

impl RequestHead {
    /// A head without fields.
    #[must_use]
    pub fn new(method: Method, uri: Uri) -> Self {
        Self { method, uri, version: Version::HTTP_11, fields: Fields::new() }
    }
}

impl ResponseHead {
    /// A head without fields.
    #[must_use]
    pub fn new(status: StatusCode) -> Self {
        Self { status, reason: None, version: Version::HTTP_11, fields: Fields::new() }
    }

    /// Whether responses with this status code never have a body (RFC 9112 §6.3).
    #[must_use]
    pub fn is_bodiless(&self) -> bool {
        self.status.is_informational()
            || matches!(self.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
    }

    /// A response of the `http` crate with this head and body, without the reason phrase and the version.
    #[must_use]
    pub fn into_response<B>(self, body: B) -> Response<B> {
        let mut response = Response::new(body);
        *response.status_mut() = self.status;
        *response.headers_mut() = HeaderMap::from(&self.fields);
        response
    }
}
