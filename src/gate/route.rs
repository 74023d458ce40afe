//! Routes: whether a request meets their conditions, and which it does not meet.

use std::borrow::Cow;
use std::sync::Arc;

use http::Method;
use http::header::HeaderName;

use super::access::{Access, TokenRule};
use super::body_fields::BodyField;
use super::canonical;
use super::geo::{ClientLocation, Country, GeoCondition};
use super::host::HostPattern;
use super::networks::AddressCondition;
use super::path_pattern::PathPattern;
use super::priority::Priority;
use super::query::Query;
use super::usage_rules::UsageRules;
use super::value_pattern::ValueCondition;
use crate::http1::{RequestHead, names, parse_decimal};
use crate::limit::PolicyId;

/// A route: its conditions, all of which must hold, and its limits.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name, or its number from 1.
    pub name: Box<str>,
    /// The name of the listener; none for any.
    pub listener: Option<Box<str>>,
    /// The scheme, `http` or `https`; none for any.
    pub scheme: Option<&'static str>,
    /// The hosts; none for any.
    pub host: Option<HostPattern>,
    /// The paths.
    pub path: PathPattern,
    /// The methods; empty for any. GET includes HEAD.
    pub methods: Vec<Method>,
    /// Conditions on headers.
    pub headers: Vec<(HeaderName, ValueCondition)>,
    /// Conditions on query parameters.
    pub query: Vec<(Box<str>, ValueCondition)>,
    /// Conditions on cookies.
    pub cookies: Vec<(Box<str>, ValueCondition)>,
    /// The addresses of the client; none for any.
    pub client_ip: Option<AddressCondition>,
    /// The countries of the client; none for any.
    pub country: Option<GeoCondition<Country>>,
    /// The autonomous systems of the client; none for any.
    pub asn: Option<GeoCondition<u32>>,
    /// The limits, with the default ones, without duplicates.
    pub limits: Vec<PolicyId>,
    /// Whether a path may have an encoded slash.
    pub keeps_encoded_slash: bool,
    /// The longest body of a request in bytes, if it is bounded.
    pub max_body: Option<u64>,
    /// The consumers that it serves.
    pub access: Access,
    /// What it requires of the token of a request.
    pub token: Option<TokenRule>,
    /// The priority of its requests under overload.
    pub priority: Priority,
    /// Whether responses settle one of the limits.
    pub is_settled: bool,
    /// What the limits may have to await; none for most routes.
    pub awaits: Option<Box<Awaited>>,
}

/// What has to be known of a request beside its head before the limits of its route are decided.
#[derive(Clone, Debug, Default)]
pub struct Awaited {
    /// The fields of the body that the limits count by.
    pub body_fields: Box<[BodyField]>,
    /// The headers that an authorization server sets, if it decides before the limits.
    pub authorization: Option<Arc<[HeaderName]>>,
    /// What the limits read of bodies for costs that responses settle.
    pub usage: Option<UsageRules>,
}

impl Awaited {
    /// What a route awaits; none if that is nothing.
    #[must_use]
    pub fn boxed(self) -> Option<Box<Self>> {
        let is_needed = !self.body_fields.is_empty() || self.authorization.is_some() || self.usage.is_some();
        is_needed.then(|| Box::new(self))
    }
}

impl Route {
    /// A route for all requests with such a path, without limits.
    #[must_use]
    pub fn new(name: &str, path: PathPattern) -> Self {
        Self {
            name: name.into(),
            listener: None,
            scheme: None,
            host: None,
            path,
            methods: Vec::new(),
            headers: Vec::new(),
            query: Vec::new(),
            cookies: Vec::new(),
            client_ip: None,
            country: None,
            asn: None,
            limits: Vec::new(),
            keeps_encoded_slash: false,
            max_body: None,
            access: Access::Default,
            token: None,
            priority: Priority::default(),
            is_settled: false,
            awaits: None,
        }
    }

    /// The fields of the body that the limits count by.
    #[must_use]
    pub fn body_fields(&self) -> &[BodyField] {
        self.awaits.as_ref().map_or(&[], |awaits| &awaits.body_fields)
    }

    /// What the limits read of bodies for costs that responses settle; none if that is nothing.
    #[must_use]
    pub fn usage_rules(&self) -> Option<&UsageRules> {
        self.awaits.as_ref()?.usage.as_ref()
    }

    /// Whether an authorization server sets this header before the limits are decided.
    #[must_use]
    pub fn is_header_awaited(&self, name: &HeaderName) -> bool {
        let headers = self.awaits.as_ref().and_then(|awaits| awaits.authorization.as_ref());
        headers.is_some_and(|headers| headers.contains(name))
    }

    /// Whether all conditions but host and path hold.
    #[must_use]
    pub fn accepts(&self, request: RequestView<'_>) -> bool {
        self.unmet(request).is_none()
    }

    /// The first condition, besides host and path, that does not hold.
    #[must_use]
    pub fn unmet(&self, RequestView { head, method, query, location }: RequestView<'_>) -> Option<Unmet<'_>> {
        if !self.accepts_method(method) {
            return Some(Unmet::Methods(&self.methods));
        }
        if let Some(listener) = self.listener.as_deref().filter(|want| location.listener() != Some(*want)) {
            return Some(Unmet::Listener(listener));
        }
        if let Some(scheme) = self.scheme.filter(|want| location.scheme(&head.fields) != Some(*want)) {
            return Some(Unmet::Scheme(scheme));
        }
        let headers = || {
            let mut unmet = self.headers.iter().filter(|(name, want)| !want.holds(head.fields.get_all(name)));
            unmet.next().map(|(name, condition)| Unmet::Header(name, condition))
        };
        let parameters = || {
            let mut unmet = self.query.iter().filter(|(name, want)| !want.holds(query.values(name)));
            unmet.next().map(|(name, condition)| Unmet::Query(name, condition))
        };
        let cookies = || {
            let mut unmet = self.cookies.iter().filter(|(name, want)| !want.holds(cookie_values(head, name)));
            unmet.next().map(|(name, condition)| Unmet::Cookie(name, condition))
        };
        let client_ip = || self.client_ip.as_ref().filter(|want| !want.holds(location.address));
        let country = || self.country.as_ref().filter(|want| !want.holds(location.country()));
        let asn = || self.asn.as_ref().filter(|want| !want.holds(location.asn().as_ref()));
        let unmet = headers().or_else(parameters).or_else(cookies);
        let unmet = unmet.or_else(|| client_ip().map(Unmet::ClientIp));
        // Last, because they search a database.
        unmet.or_else(|| country().map(Unmet::Country)).or_else(|| asn().map(Unmet::Asn))
    }

    /// Whether this route matches every request that `other` matches. May be false where that is so, but never true where
    /// it is not.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let host = match (&self.host, &other.host) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(mine), Some(theirs)) => mine.covers(theirs),
        };
        let methods = self.methods.is_empty()
            || (!other.methods.is_empty() && other.methods.iter().all(|method| self.accepts_method(method)));
        host && methods
            && cover(&self.headers, &other.headers)
            && cover(&self.query, &other.query)
            && cover(&self.cookies, &other.cookies)
            && (self.listener.is_none() || self.listener == other.listener)
            && (self.scheme.is_none() || self.scheme == other.scheme)
            && (self.client_ip.is_none() || self.client_ip == other.client_ip)
            && (self.country.is_none() || self.country == other.country)
            && (self.asn.is_none() || self.asn == other.asn)
            && self.path.covers(&other.path)
    }

    /// Whether the Content-Length of a request exceeds `max_body`. A body without one is measured as it arrives.
    pub(super) fn exceeds_max_body(&self, head: &RequestHead) -> bool {
        let Some(most) = self.max_body else { return false };
        let length = head.fields.get_str(names::CONTENT_LENGTH);
        // It has digits only, so a length that can't be parsed is above `u64::MAX`.
        length.is_some_and(|length| parse_decimal(length.as_bytes()).is_none_or(|length| length > most))
    }

    fn accepts_method(&self, method: &Method) -> bool {
        self.methods.is_empty()
            || self.methods.contains(method)
            || (*method == Method::HEAD && self.methods.contains(&Method::GET))
    }
}

/// The parts of a request that the conditions of routes read, besides host and path.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// Its head.
    pub head: &'a RequestHead,
    /// Its method, or the one that a preflight asks for.
    pub method: &'a Method,
    /// Its query.
    pub query: &'a Query<'a>,
    /// Where the client is.
    pub location: &'a ClientLocation<'a>,
}

/// The first condition of a route that a request does not meet.
#[derive(Clone, Copy, Debug)]
pub enum Unmet<'r> {
    /// The methods.
    Methods(&'r [Method]),
    /// The listener.
    Listener(&'r str),
    /// The scheme.
    Scheme(&'static str),
    /// A condition on a header.
    Header(&'r HeaderName, &'r ValueCondition),
    /// A condition on a query parameter.
    Query(&'r str, &'r ValueCondition),
    /// A condition on a cookie.
    Cookie(&'r str, &'r ValueCondition),
    /// The condition on the address.
    ClientIp(&'r AddressCondition),
    /// The condition on the country.
    Country(&'r GeoCondition<Country>),
    /// The condition on the autonomous system.
    Asn(&'r GeoCondition<u32>),
}

/// The values of a cookie, in their canonical form.
pub(super) fn cookie_values<'h>(head: &'h RequestHead, name: &str) -> impl Iterator<Item = Cow<'h, [u8]>> {
    head.fields.get_all(names::COOKIE).flat_map(move |header| canonical::cookies(header, name))
}

/// Whether each of these conditions is covered by one of `others`.
fn cover<N: PartialEq>(mine: &[(N, ValueCondition)], others: &[(N, ValueCondition)]) -> bool {
    mine.iter().all(|(name, condition)| {
        others.iter().any(|(other_name, other)| name == other_name && condition.covers(other))
    })
}

impl std::fmt::Display for Unmet<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Methods(methods) => {
                let methods: Vec<&str> = methods.iter().map(Method::as_str).collect();
                write!(f, "its methods are {}", methods.join(", "))
            }
            Self::Listener(name) => write!(f, "its listener is {name}"),
            Self::Scheme(scheme) => write!(f, "its scheme is {scheme}"),
            Self::Header(name, condition) => write!(f, "the header {name} {}", condition.failure()),
            Self::Query(name, condition) => write!(f, "the query parameter {name} {}", condition.failure()),
            Self::Cookie(name, condition) => write!(f, "the cookie {name} {}", condition.failure()),
            Self::ClientIp(condition) => write!(f, "its client_ip is {condition}"),
            Self::Country(condition) => write!(f, "its country is {condition}"),
            Self::Asn(condition) => write!(f, "its autonomous system is {condition}"),
        }
    }
}
