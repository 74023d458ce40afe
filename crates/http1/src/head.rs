//! Heads of requests and responses, and their conversion from and to the types of the `http` crate, which hyper uses for HTTP/2.

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method, Response, StatusCode, Uri, Version, request, response};

use super::fields::Fields;
use super::name::{FieldName, NameSet, names};

/// Fields whose values seldom repeat: they are marked "never indexed" so that they do not fill HPACK's dynamic table.
const SELDOM_REPEATED: NameSet = NameSet::of(&[
    names::X_REQUEST_ID,
    names::X_RATELIMIT_REMAINING,
    names::X_RATELIMIT_RESET,
    names::RATELIMIT,
    names::GRPC_STATUS_DETAILS_BIN,
]);

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

impl From<&Fields> for HeaderMap {
    fn from(fields: &Fields) -> Self {
        let mut map = Self::with_capacity(fields.len());
        for (field, is_sensitive) in fields.iter_with_sensitivity() {
            let (name, value) =
                (HeaderName::from_bytes(field.name.as_bytes()), HeaderValue::from_bytes(field.value));
            // Both are always valid: `Fields` has only valid names and values.
            if let (Ok(name), Ok(mut value)) = (name, value) {
                value.set_sensitive(is_sensitive || SELDOM_REPEATED.contains(field.name));
                map.append(name, value);
            }
        }
        map
    }
}

impl From<&HeaderMap> for Fields {
    fn from(map: &HeaderMap) -> Self {
        let mut fields = Self::over(b"");
        for (name, value) in map {
            let (name, text) = (FieldName::from(name), value.as_bytes().trim_ascii());
            // A proxy has to forward the mark (RFC 7541 §6.2.3).
            if value.is_sensitive() {
                fields.push_sensitive(name, text);
            } else {
                fields.push(name, text);
            }
        }
        fields
    }
}

impl From<request::Parts> for RequestHead {
    fn from(head: request::Parts) -> Self {
        let fields = Fields::from(&head.headers);
        Self { method: head.method, uri: head.uri, version: head.version, fields }
    }
}

impl From<response::Parts> for ResponseHead {
    /// The head with the canonical reason phrase, since HTTP/2 has none.
    fn from(head: response::Parts) -> Self {
        let fields = Fields::from(&head.headers);
        Self { status: head.status, reason: None, version: head.version, fields }
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    #[test]
    fn sensitive_values_stay_marked() {
        let mut map = HeaderMap::new();
        let mut secret = HeaderValue::from_static("s");
        secret.set_sensitive(true);
        map.append("x-key", secret);
        map.append("x-key", HeaderValue::from_static("t"));
        map.append("x-request-id", HeaderValue::from_static("1"));
        let mut fields = Fields::from(&map);
        fields.push_sensitive(names::COOKIE, b"c");
        let marks: Vec<(String, bool)> = HeaderMap::from(&fields)
            .iter()
            .map(|(name, value)| (format!("{name}: {}", value.to_str().unwrap()), value.is_sensitive()))
            .collect();
        let expected =
            [("x-key: s", true), ("x-key: t", false), ("x-request-id: 1", true), ("cookie: c", true)];
        assert_eq!(marks, expected.map(|(line, is_sensitive)| (line.to_owned(), is_sensitive)));
    }

    #[test]
    fn responses_are_converted_both_ways() {
        let mut head = ResponseHead::new(StatusCode::NOT_FOUND);
        head.fields.push(names::SERVER, b"a");
        let (parts, body) = head.into_response("body").into_parts();
        assert_eq!((parts.status, body), (StatusCode::NOT_FOUND, "body"));
        assert_eq!(parts.headers["server"], "a");
        let head = ResponseHead::from(parts);
        assert_eq!((head.status, head.fields.get(names::SERVER)), (StatusCode::NOT_FOUND, Some(&b"a"[..])));
    }
}
