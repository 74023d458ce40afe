//! Parts of keys: the attributes of a request that limits count by.

use std::borrow::Cow;
use std::net::IpAddr;

use http::header::{COOKIE, HeaderName};

use super::body_fields::BodyField;
use super::json_pointer::JsonPointer;
use super::subject::Subject;
use super::{canonical, method};
use crate::consumers::ConsumerError;
use crate::http1::{FieldName, RequestHead, names};
use crate::limit::{PartKind, Parts};

/// One part of a limit's key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyPart {
    /// `global`: one count for all requests.
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
    /// `path_param:NAME`: the segment that has this name in the route's path.
    PathParam(Box<str>),
    /// `host`.
    Host,
    /// `method`.
    Method,
    /// `route`: the name of the route that matched.
    Route,
    /// `jwt:CLAIM`: a claim of the request's token, if the token is valid.
    Jwt(Box<str>),
    /// `tls:subject`: the subject of the client's certificate.
    TlsSubject,
    /// `tls:san`: the subject alternative name that identifies the client.
    TlsSan,
    /// `consumer`: the name of the consumer; as the source of tiers, the consumer's tier.
    Consumer,
    /// `country`: the country of the client's address.
    Country,
    /// `asn`: the number of the autonomous system of the client's address.
    Asn,
    /// `body:/POINTER` or `form:NAME`: a field of the body.
    Body(BodyField),
    /// `descriptor:NAME`: the value of the entry with this key, in a descriptor of the rate-limit service.
    Descriptor(Box<str>),
}

/// The value of a key part in one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartValue<'a> {
    /// None, or only empty values.
    Missing,
    /// One value, perhaps repeated.
    One(Cow<'a, [u8]>),
    /// Values that differ, sorted and without duplicates: the server may read another one than we do. Empty for tokens.
    Several(Vec<Cow<'a, [u8]>>),
}

impl KeyPart {
    /// Every form a key part can take, for messages.
    pub const FORMS: [&'static str; 19] = [
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
        "tls:san",
        "consumer",
        "country",
        "asn",
        "body:/FIELD",
        "form:NAME",
        "descriptor:NAME",
        "global",
    ];

    /// Parses a part as the configuration writes it; `None` if there is no such part.
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
            ("consumer", None) => Self::Consumer,
            ("country", None) => Self::Country,
            ("asn", None) => Self::Asn,
            ("tls", Some("subject")) => Self::TlsSubject,
            ("tls", Some("san")) => Self::TlsSan,
            ("header", _) => Self::Header(HeaderName::from_bytes(named?.as_bytes()).ok()?),
            ("cookie", _) => Self::Cookie(named?.into()),
            ("query", _) => Self::Query(named?.into()),
            ("path_param", _) => Self::PathParam(named?.into()),
            ("jwt", _) => Self::Jwt(named?.into()),
            ("body", _) => Self::Body(BodyField::Json(JsonPointer::parse(named?)?)),
            ("form", _) => Self::Body(BodyField::Form(named?.into())),
            ("descriptor", _) => Self::Descriptor(named?.into()),
            _ => return None,
        })
    }

    /// The value of this part in a request, in its canonical form: query parameters are decoded, cookies and
    /// Authorization as in `canonical`. The client's address is given as text; keys have its bytes.
    #[must_use]
    pub fn value<'a>(&self, subject: &Subject<'a>) -> PartValue<'a> {
        let value = match self {
            Self::Global => return PartValue::One(Cow::Borrowed(b"")),
            Self::Header(name) => return header(subject.head, name),
            Self::Cookie(name) => return cookie(subject.head, name),
            Self::Query(name) => return PartValue::of(subject.query.values(name).map(Cow::Borrowed)),
            Self::Body(field) => return body(subject, field),
            Self::Descriptor(key) => {
                // An empty value is a value too: a client must not escape its limit with it.
                let value = subject.descriptor.and_then(|descriptor| descriptor.value(key));
                return value
                    .map_or(PartValue::Missing, |value| PartValue::One(Cow::Borrowed(value.as_bytes())));
            }
            Self::ClientIp => Some(Cow::Owned(subject.client.to_string().into_bytes())),
            Self::Path => Some(Cow::Borrowed(subject.path.as_bytes())),
            Self::PathParam(name) => subject.path_param(name).map(|value| Cow::Borrowed(value.as_bytes())),
            Self::Host => Some(Cow::Borrowed(subject.host.as_bytes())),
            Self::Method => Some(Cow::Borrowed(method::counted(&subject.head.method).as_bytes())),
            Self::Route => Some(Cow::Borrowed(subject.route_name().as_bytes())),
            Self::Jwt(_) if subject.token.differing_header().is_some() => {
                return PartValue::Several(Vec::new());
            }
            Self::Jwt(claim) => {
                let text = subject.token.claims().ok().and_then(|claims| claims.text(claim));
                text.map(|text| Cow::Owned(text.into_bytes()))
            }
            Self::TlsSubject => subject.tls_subject.map(|subject| Cow::Borrowed(subject.as_bytes())),
            Self::TlsSan => subject.tls_san.map(|name| Cow::Borrowed(name.as_bytes())),
            Self::Consumer => {
                subject.consumer().map(|consumer| Cow::Owned(consumer.name.as_bytes().to_vec()))
            }
            Self::Country => subject.location.country().map(|country| Cow::Borrowed(country.as_bytes())),
            Self::Asn => subject.location.asn().map(|asn| Cow::Owned(asn.to_string().into_bytes())),
        };
        PartValue::of(value.into_iter())
    }

    /// The value of this part in a request, or what a log has in place of it.
    #[must_use]
    pub fn value_or_recorded<'a>(&self, subject: &Subject<'a>) -> PartValue<'a> {
        match (self.value(subject), subject.recorded) {
            (PartValue::Missing, Some(recorded)) => {
                PartValue::of(recorded.value(&self.to_string()).map(Cow::Borrowed).into_iter())
            }
            (value, _) => value,
        }
    }

    /// Whether the value is known only when the body or the consumer was read.
    pub(super) fn is_awaited(&self, subject: &Subject<'_>) -> bool {
        match self {
            Self::Body(_) => subject.body.is_none(),
            Self::Consumer => subject.identity.error == Some(ConsumerError::NotFetched),
            Self::Header(name) => subject.awaits_header(name),
            Self::Cookie(_) => subject.awaits_header(&COOKIE),
            _ => false,
        }
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
            Self::TlsSan => PartKind::TlsSan,
            Self::Consumer => PartKind::Consumer,
            Self::Country => PartKind::Country,
            Self::Asn => PartKind::Asn,
            Self::Body(BodyField::Json(_)) => PartKind::Json,
            Self::Body(BodyField::Form(_)) => PartKind::Form,
            Self::Descriptor(_) => PartKind::Descriptor,
        }
    }

    /// Whether the value comes from the client without proof.
    #[must_use]
    pub fn is_client_supplied(&self) -> bool {
        matches!(self, Self::Header(_) | Self::Cookie(_) | Self::Query(_) | Self::Body(_))
    }

    /// Whether a client can choose any value, and so get a fresh count at will. Claims of tokens are chosen by their
    /// issuer, subjects of certificates by their authority, and descriptors by the proxy that sends them.
    #[must_use]
    pub fn is_freely_chosen(&self) -> bool {
        use KeyPart::{Asn, ClientIp, Consumer, Country, Descriptor, Global, Jwt, Method, Route};
        use KeyPart::{TlsSan, TlsSubject};
        let is_fixed =
            matches!(self, Global | ClientIp | Country | Asn | Method | Route | TlsSubject | TlsSan);
        !is_fixed && !matches!(self, Jwt(_) | Consumer | Descriptor(_))
    }

    /// Each value that a request has for this part, as a part of a key.
    pub(super) fn choices(&self, subject: &Subject<'_>) -> Vec<Parts> {
        let with = |push: &dyn Fn(&mut Parts)| {
            let mut parts = Parts::default();
            push(&mut parts);
            parts
        };
        if *self == Self::ClientIp {
            return vec![with(&|parts| push_address(parts, subject.client))];
        }
        let values = self.value_or_recorded(subject).all();
        values.iter().map(|value| with(&|parts| parts.push(self.kind(), value))).collect()
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
            Self::TlsSan => f.write_str("tls:san"),
            Self::Consumer => f.write_str("consumer"),
            Self::Country => f.write_str("country"),
            Self::Asn => f.write_str("asn"),
            Self::Body(field) => field.fmt(f),
            Self::Descriptor(key) => write!(f, "descriptor:{key}"),
        }
    }
}

impl<'a> PartValue<'a> {
    fn of(mut values: impl Iterator<Item = Cow<'a, [u8]>>) -> Self {
        let Some(first) = values.next() else { return Self::Missing };
        let Some(other) = values.find(|value| *value != first) else {
            return if first.is_empty() { Self::Missing } else { Self::One(first) };
        };
        let mut all = vec![first, other];
        all.extend(values);
        all.sort_unstable();
        all.dedup();
        Self::Several(all)
    }

    /// The value, if there is exactly one.
    #[must_use]
    pub fn one(self) -> Option<Cow<'a, [u8]>> {
        if let Self::One(value) = self { Some(value) } else { None }
    }

    /// All values.
    pub(super) fn all(self) -> Vec<Cow<'a, [u8]>> {
        match self {
            Self::Missing => Vec::new(),
            Self::One(value) => vec![value],
            Self::Several(values) => values,
        }
    }
}

pub(super) fn push_address(parts: &mut Parts, client: IpAddr) {
    match client {
        IpAddr::V4(v4) => parts.push(PartKind::ClientIp, &v4.octets()),
        IpAddr::V6(v6) => parts.push(PartKind::ClientIp, &v6.octets()),
    }
}

/// The value of a header, in its canonical form.
pub(super) fn header<'a>(head: &'a RequestHead, name: &HeaderName) -> PartValue<'a> {
    let name = FieldName::from(name);
    let values = head.fields.get_all(name);
    if name == names::AUTHORIZATION {
        return PartValue::of(values.map(canonical::authorization));
    }
    PartValue::of(values.map(|value| Cow::Borrowed(value.trim_ascii())))
}

fn body<'a>(subject: &Subject<'a>, field: &BodyField) -> PartValue<'a> {
    let values = subject.body.and_then(|body| body.values(field).ok());
    PartValue::of(values.into_iter().flatten().map(|value| Cow::Borrowed(value.as_bytes())))
}

fn cookie<'a>(head: &'a RequestHead, name: &str) -> PartValue<'a> {
    let headers = head.fields.get_all(names::COOKIE);
    PartValue::of(headers.flat_map(|header| canonical::cookies(header, name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_displayed_as_they_are_parsed() {
        for text in [
            "client_ip",
            "header:x-api-key",
            "cookie:sid",
            "query:key",
            "path",
            "path_param:id",
            "jwt:sub",
            "tls:subject",
            "tls:san",
            "consumer",
            "country",
            "asn",
            "body:/user/name",
            "form:user:name",
            "descriptor:remote_address",
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
            "body:user",
            "body:",
            "form",
            "descriptor:",
        ] {
            assert_eq!(KeyPart::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn values_that_differ_are_distinguished_from_repeated_ones() {
        let mut head = RequestHead::new(http::Method::GET, http::Uri::from_static("/"));
        head.fields.push(names::COOKIE, b"asid=no; sid=yes; sid=yes; two=1");
        head.fields.push(names::COOKIE, b"two=2; two=1; empty=; none");
        let borrowed = |text: &'static str| Cow::Borrowed(text.as_bytes());
        assert_eq!(cookie(&head, "sid"), PartValue::One(borrowed("yes")));
        assert_eq!(cookie(&head, "two"), PartValue::Several(vec![borrowed("1"), borrowed("2")]));
        for missing in ["si", "empty", "none"] {
            assert_eq!(cookie(&head, missing), PartValue::Missing, "{missing}");
        }
    }
}
