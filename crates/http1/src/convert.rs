//! Conversion of heads from and to the types of the `http` crate, which hyper uses for HTTP/2.

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, request, response};

use super::fields::Fields;
use super::head::{RequestHead, ResponseHead};
use super::name::{FieldName, NameSet, names};

/// Fields whose values seldom repeat: they are marked "never indexed" so that they do not fill HPACK's dynamic table.
const SELDOM_REPEATED: NameSet = NameSet::of(&[
    names::X_REQUEST_ID,
    names::X_RATELIMIT_REMAINING,
    names::X_RATELIMIT_RESET,
    names::RATELIMIT,
    names::GRPC_STATUS_DETAILS_BIN,
]);

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
    /// The same head, with the usual reason phrase.
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
