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
