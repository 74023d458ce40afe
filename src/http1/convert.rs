//! Heads from and to the form of the `http` crate, which is that of HTTP/2.

use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, request};

use super::fields::Fields;
use super::head::RequestHead;
use super::name::{FieldName, NameSet, names};

/// Values that hardly come twice. HTTP/2 would keep them in its table, through which it looks for each field.
const SELDOM_REPEATED: NameSet = NameSet::of(&[
    names::X_REQUEST_ID,
    names::X_RATELIMIT_REMAINING,
    names::X_RATELIMIT_RESET,
    names::RATELIMIT,
    names::GRPC_STATUS_DETAILS_BIN,
]);

impl Fields {
    /// The same fields as a map.
    #[must_use]
    pub fn to_map(&self) -> HeaderMap {
        let mut map = HeaderMap::with_capacity(self.len());
        for field in self.iter() {
            let (name, value) =
                (HeaderName::from_bytes(field.name.as_bytes()), HeaderValue::from_bytes(field.value));
            // Both are valid, or they would not be here.
            if let (Ok(name), Ok(mut value)) = (name, value) {
                value.set_sensitive(SELDOM_REPEATED.contains(field.name));
                map.append(name, value);
            }
        }
        map
    }
}

impl From<&HeaderMap> for Fields {
    fn from(map: &HeaderMap) -> Self {
        let mut fields = Self::new();
        for (name, value) in map {
            fields.push(FieldName::from(name), value.as_bytes().trim_ascii());
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

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn fields_are_the_same_as_a_map() {
        let fields: Fields =
            [("host", "a"), ("x", "1"), ("x-request-id", "b"), ("x", "2")].into_iter().collect();
        let map = fields.to_map();
        assert_eq!(map.get_all("x").iter().collect::<Vec<_>>(), ["1", "2"]);
        assert!(map["x-request-id"].is_sensitive() && !map["host"].is_sensitive());
        assert_eq!(Fields::from(&map).to_map(), map);
        let request = Request::put("/a?b").header("X", "\t y ").body(()).unwrap();
        let head = RequestHead::from(request.into_parts().0);
        assert_eq!((head.method.as_str(), head.uri.to_string()), ("PUT", "/a?b".to_owned()));
        assert_eq!(head.fields.iter().next().map(|field| field.value), Some(&b"y"[..]));
    }
}
