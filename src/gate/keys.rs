//! Keys: from the parts that a limit names to the [`Key`] that one request has.

use std::borrow::Cow;
use std::net::IpAddr;

use http::header::{COOKIE, HeaderName};
use http::request;

use super::{Subject, method};
use crate::limit::{Key, KeyHasher, PartKind, Parts};

/// One part of a limit's key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyPart {
    /// `global`: one count for everybody.
    Global,
    /// `client_ip`: the client's address, cut to the configured prefix.
    ClientIp,
    /// `header:NAME`.
    Header(HeaderName),
    /// `cookie:NAME`.
    Cookie(Box<str>),
    /// `query:NAME`.
    Query(Box<str>),
    /// `path`: the normalized path.
    Path,
    /// `path_param:NAME`: the segment that the route's path calls so.
    PathParam(Box<str>),
    /// `host`.
    Host,
    /// `method`.
    Method,
    /// `route`: the name of the route that matched.
    Route,
    /// `jwt:CLAIM`: what the request's token says, if that is to be believed.
    Jwt(Box<str>),
    /// `tls:subject`: whose certificate the client has shown.
    TlsSubject,
}

/// What becomes of a request that lacks a part of the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnMissing {
    /// The client's address stands in for the part.
    #[default]
    ClientIp,
    /// The limit does not count this request.
    Skip,
    /// The request is refused.
    Deny,
}

/// How a limit finds its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeySpec {
    /// The parts, in order; several make one composite key.
    pub parts: Vec<KeyPart>,
    /// What a missing part means.
    pub on_missing: OnMissing,
}

/// What a limit counts a request under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// This key.
    Key(Key),
    /// Not at all: a part is missing and the limit says `skip`.
    Skip,
    /// The request must be refused: it lacks this part and the limit says `deny`.
    Deny(KeyPart),
}

impl KeyPart {
    /// Every form a key part can take, for messages.
    pub const FORMS: [&'static str; 12] = [
        "client_ip",
        "header:NAME",
        "cookie:NAME",
        "query:NAME",
        "path",
        "path_param:NAME",
        "host",
        "method",
        "route",
        "jwt:CLAIM",
        "tls:subject",
        "global",
    ];

    /// Reads a part as the configuration spells it; `None` if there is no such part.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, name) = text.split_once(':').map_or((text, None), |(kind, name)| (kind, Some(name)));
        let named = name.filter(|name| !name.is_empty());
        Some(match (kind, name) {
            ("global", None) => Self::Global,
            ("client_ip", None) => Self::ClientIp,
            ("path", None) => Self::Path,
            ("host", None) => Self::Host,
            ("method", None) => Self::Method,
            ("route", None) => Self::Route,
            ("tls", Some("subject")) => Self::TlsSubject,
            ("header", _) => Self::Header(HeaderName::from_bytes(named?.as_bytes()).ok()?),
            ("cookie", _) => Self::Cookie(named?.into()),
            ("query", _) => Self::Query(named?.into()),
            ("path_param", _) => Self::PathParam(named?.into()),
            ("jwt", _) => Self::Jwt(named?.into()),
            _ => return None,
        })
    }

    /// The value that a request has for this part; none if it has none, or an empty one, or several that differ.
    /// A query parameter is decoded: `%6Bey=a` and `key=%61` must not be other keys than `key=a`. The client's
    /// address is given as text, and counted as its bytes.
    #[must_use]
    pub fn value<'a>(&self, subject: &Subject<'a>) -> Option<Cow<'a, [u8]>> {
        let value = match self {
            Self::Global => return Some(Cow::Borrowed(b"")),
            Self::ClientIp => Cow::Owned(subject.client.to_string().into_bytes()),
            Self::Header(name) => Cow::Borrowed(header(subject.head, name)?),
            Self::Cookie(name) => Cow::Borrowed(cookie(subject.head, name)?),
            Self::Query(name) => Cow::Owned(agreed(query_values(subject.head.uri.query()?, name))?),
            Self::Path => Cow::Borrowed(subject.path.as_bytes()),
            Self::PathParam(name) => Cow::Borrowed(subject.path_param(name)?.as_bytes()),
            Self::Host => Cow::Borrowed(subject.host.as_bytes()),
            Self::Method => Cow::Borrowed(method::counted(&subject.head.method).as_bytes()),
            Self::Route => Cow::Borrowed(subject.route_name().as_bytes()),
            Self::Jwt(claim) => Cow::Owned(subject.token.claims().ok()?.text(claim)?.into_bytes()),
            Self::TlsSubject => Cow::Borrowed(subject.tls_subject?.as_bytes()),
        };
        (!value.is_empty()).then_some(value)
    }

    pub(super) fn kind(&self) -> PartKind {
        match self {
            Self::Global => PartKind::Global,
            Self::ClientIp => PartKind::ClientIp,
            Self::Header(_) => PartKind::Header,
            Self::Cookie(_) => PartKind::Cookie,
            Self::Query(_) => PartKind::Query,
            Self::Path => PartKind::Path,
            Self::PathParam(_) => PartKind::PathParam,
            Self::Host => PartKind::Host,
            Self::Method => PartKind::Method,
            Self::Route => PartKind::Route,
            Self::Jwt(_) => PartKind::Jwt,
            Self::TlsSubject => PartKind::TlsSubject,
        }
    }

    /// Whether it is worth no more than the client's word.
    #[must_use]
    pub fn is_clients_word(&self) -> bool {
        matches!(self, Self::Header(_) | Self::Cookie(_) | Self::Query(_))
    }

    /// Whether a client can put there whatever it likes, and so get a fresh count at will. What a token says is
    /// up to who issues them, and what a certificate says to its authority.
    #[must_use]
    pub fn is_made_up(&self) -> bool {
        use KeyPart::{ClientIp, Global, Jwt, Method, Route, TlsSubject};
        !matches!(self, Global | ClientIp | Method | Route | Jwt(_) | TlsSubject)
    }
}

impl std::fmt::Display for KeyPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Global => f.write_str("global"),
            Self::ClientIp => f.write_str("client_ip"),
            Self::Header(name) => write!(f, "header:{name}"),
            Self::Cookie(name) => write!(f, "cookie:{name}"),
            Self::Query(name) => write!(f, "query:{name}"),
            Self::Path => f.write_str("path"),
            Self::PathParam(name) => write!(f, "path_param:{name}"),
            Self::Host => f.write_str("host"),
            Self::Method => f.write_str("method"),
            Self::Route => f.write_str("route"),
            Self::Jwt(claim) => write!(f, "jwt:{claim}"),
            Self::TlsSubject => f.write_str("tls:subject"),
        }
    }
}

impl KeySpec {
    /// The key of a request, or what its absence means.
    #[must_use]
    pub fn find(&self, subject: &Subject<'_>, hasher: &KeyHasher) -> Found {
        let mut parts = Parts::default();
        for part in &self.parts {
            if !push_part(&mut parts, part, subject) {
                match self.on_missing {
                    OnMissing::ClientIp => push_address(&mut parts, subject.client),
                    OnMissing::Skip => return Found::Skip,
                    OnMissing::Deny => return Found::Deny(part.clone()),
                }
            }
        }
        Found::Key(hasher.key(&parts))
    }

    /// The key that the first part of a request's key alone would make, if the request has it.
    pub(super) fn first_part(&self, subject: &Subject<'_>, hasher: &KeyHasher) -> Option<Key> {
        let mut parts = Parts::default();
        push_part(&mut parts, self.parts.first()?, subject).then(|| hasher.key(&parts))
    }
}

impl Found {
    /// The key, if there is one.
    #[must_use]
    pub fn key(&self) -> Option<Key> {
        if let Self::Key(key) = self { Some(*key) } else { None }
    }
}

/// Adds a part if the request has it.
fn push_part(parts: &mut Parts, part: &KeyPart, subject: &Subject<'_>) -> bool {
    if let KeyPart::ClientIp = part {
        push_address(parts, subject.client);
        return true;
    }
    let value = part.value(subject);
    if let Some(value) = &value {
        parts.push(part.kind(), value);
    }
    value.is_some()
}

pub(super) fn push_address(parts: &mut Parts, client: IpAddr) {
    match client {
        IpAddr::V4(v4) => parts.push(PartKind::ClientIp, &v4.octets()),
        IpAddr::V6(v6) => parts.push(PartKind::ClientIp, &v6.octets()),
    }
}

/// The one value of several that are all the same. Where they differ there is none: the server may read another
/// one than we do, so each would be a way to a fresh count.
fn agreed<T: PartialEq>(mut values: impl Iterator<Item = T>) -> Option<T> {
    let first = values.next()?;
    values.all(|other| other == first).then_some(first)
}

pub(super) fn header<'a>(head: &'a request::Parts, name: &HeaderName) -> Option<&'a [u8]> {
    agreed(head.headers.get_all(name).iter().map(|value| value.as_bytes().trim_ascii()))
}

fn cookie<'a>(head: &'a request::Parts, name: &str) -> Option<&'a [u8]> {
    let pairs =
        head.headers.get_all(COOKIE).iter().flat_map(|value| value.as_bytes().split(|&byte| byte == b';'));
    let value = |pair: &'a [u8]| pair.trim_ascii_start().strip_prefix(name.as_bytes())?.strip_prefix(b"=");
    agreed(pairs.filter_map(value).map(<[u8]>::trim_ascii))
}

/// Whether a query has this parameter with this value, among others maybe.
pub(super) fn query_value_is(query: &str, name: &str, value: &str) -> bool {
    query_values(query, name).any(|found| found == value.as_bytes())
}

/// The values of a query parameter, decoded as forms are: `+` is a blank.
pub(super) fn query_values<'q>(query: &'q str, name: &'q str) -> impl Iterator<Item = Vec<u8>> + 'q {
    query.split('&').filter_map(move |pair| {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        (form_decoded(key) == name.as_bytes()).then(|| form_decoded(value))
    })
}

fn form_decoded(text: &str) -> Vec<u8> {
    let plain: Vec<u8> = text.bytes().map(|byte| if byte == b'+' { b' ' } else { byte }).collect();
    percent_encoding::percent_decode(&plain).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_read_back_as_they_were_written() {
        for text in [
            "client_ip",
            "header:x-api-key",
            "cookie:sid",
            "query:key",
            "path",
            "path_param:id",
            "jwt:sub",
            "tls:subject",
        ] {
            assert_eq!(KeyPart::parse(text).unwrap().to_string(), text);
        }
        for wrong in [
            "",
            "header",
            "header:",
            "header:a b",
            "client_ip:x",
            "clientip",
            "cookie:",
            "jwt",
            "jwt:",
            "tls",
            "tls:issuer",
        ] {
            assert_eq!(KeyPart::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn cookies_are_found_among_others() {
        let (head, ()) = http::Request::builder()
            .header("cookie", "asid=no; sid=yes; sid=yes; two=1")
            .header("cookie", "two=2")
            .body(())
            .unwrap()
            .into_parts();
        assert_eq!(cookie(&head, "sid"), Some(&b"yes"[..]));
        assert_eq!(cookie(&head, "si"), None);
        assert_eq!(cookie(&head, "two"), None);
    }

    #[test]
    fn query_values_have_one_spelling() {
        let one = |query, name| agreed(query_values(query, name));
        assert_eq!(one("a=1&%6Bey=x%2fy+z", "key"), Some(b"x/y z".to_vec()));
        assert_eq!(one("a=1&key", "key"), Some(Vec::new()));
        assert_eq!(one("", "key"), None);
        assert_eq!(one("key=a&key=%61", "key"), Some(b"a".to_vec()));
        assert_eq!(one("key=a&key=b", "key"), None);
    }
}
