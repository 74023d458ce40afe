//! The parts of a key as a person reads them.

use std::borrow::Cow;

use http::header::COOKIE;
use http::request;

use crate::gate::{KeyPart, Subject};

/// The value that a request has for a part; `None` if it has none, or an empty one.
pub(super) fn value(part: &KeyPart, subject: &Subject<'_>) -> Option<String> {
    let value = match part {
        KeyPart::Global => return Some("everybody".to_owned()),
        KeyPart::ClientIp => Cow::from(subject.client.to_string()),
        KeyPart::Header(name) => {
            let value = subject.head.headers.get(name)?;
            Cow::from(String::from_utf8_lossy(value.as_bytes().trim_ascii()).into_owned())
        }
        KeyPart::Cookie(name) => Cow::from(cookie(subject.head, name)?),
        KeyPart::Query(name) => query(subject.head, name)?,
        KeyPart::Path => Cow::from(subject.path),
        KeyPart::PathParam(name) => Cow::from(subject.path_param(name)?),
        KeyPart::Host => Cow::from(subject.host),
        KeyPart::Method => Cow::from(subject.head.method.as_str()),
        KeyPart::Route => Cow::from(subject.route_name()),
    };
    (!value.is_empty()).then(|| value.into_owned())
}

fn cookie(head: &request::Parts, name: &str) -> Option<String> {
    let values = head.headers.get_all(COOKIE).iter();
    let mut pairs = values.flat_map(|value| value.as_bytes().split(|&byte| byte == b';'));
    let value = pairs
        .find_map(|pair| pair.trim_ascii_start().strip_prefix(name.as_bytes())?.strip_prefix(b"="))?
        .trim_ascii();
    Some(String::from_utf8_lossy(value).into_owned())
}

fn query<'h>(head: &'h request::Parts, name: &str) -> Option<Cow<'h, str>> {
    let mut pairs = url::form_urlencoded::parse(head.uri.query()?.as_bytes());
    pairs.find(|(key, _)| key == name).map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;
    use crate::gate::{Found, KeySpec, OnMissing, PathPattern, Route};
    use crate::limit::{KeyHasher, PartKind, Parts};

    /// What is shown is what is counted: hashed again, the shown values make the same key.
    #[test]
    fn the_values_shown_are_those_that_are_counted() {
        let (head, ()) = http::Request::builder()
            .method("POST")
            .uri("/users/7?q=a+b%20c&q=d")
            .header("x-key", " k1 ")
            .header("x-key", "k2")
            .header("cookie", "a=1; sid=s1")
            .body(())
            .unwrap()
            .into_parts();
        let route = Route {
            name: "users".into(),
            host: None,
            path: PathPattern::parse("/users/{id}").unwrap(),
            methods: Vec::new(),
            headers: Vec::new(),
            query: Vec::new(),
            limits: Vec::new(),
            keeps_encoded_slash: false,
        };
        let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let subject = Subject { head: &head, host: "h", path: "/users/7", client, route: Some(&route) };
        let hasher = KeyHasher::new(None);
        for (text, kind) in [
            ("header:x-key", PartKind::Header),
            ("cookie:sid", PartKind::Cookie),
            ("query:q", PartKind::Query),
            ("path", PartKind::Path),
            ("path_param:id", PartKind::PathParam),
            ("host", PartKind::Host),
            ("method", PartKind::Method),
            ("route", PartKind::Route),
        ] {
            let part = KeyPart::parse(text).unwrap();
            let mut shown = Parts::default();
            shown.push(kind, value(&part, &subject).unwrap().as_bytes());
            let spec = KeySpec { parts: vec![part], on_missing: OnMissing::Deny };
            assert_eq!(spec.find(&subject, &hasher), Found::Key(hasher.key(&shown)), "{text}");
        }
        for text in ["header:no", "cookie:no", "query:no", "path_param:no"] {
            assert_eq!(value(&KeyPart::parse(text).unwrap(), &subject), None, "{text}");
        }
    }
}
