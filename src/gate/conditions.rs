//! The conditions of a route besides its host and path: whether a request meets them, and which it does not meet.

use std::borrow::Cow;

use http::Method;
use http::header::HeaderName;

use super::canonical;
use super::route::{RequestView, Route};
use super::value_condition::ValueCondition;
use crate::http1::{RequestHead, names};

/// The first condition of a route that a request does not meet.
#[derive(Clone, Copy, Debug)]
pub enum Unmet<'r> {
    /// The methods.
    Methods(&'r [Method]),
    /// A condition on a header.
    Header(&'r HeaderName, &'r ValueCondition),
    /// A condition on a query parameter.
    Query(&'r str, &'r ValueCondition),
    /// A condition on a cookie.
    Cookie(&'r str, &'r ValueCondition),
}

impl Route {
    /// Whether all conditions but host and path hold.
    #[must_use]
    pub fn accepts(&self, request: RequestView<'_>) -> bool {
        self.unmet(request).is_none()
    }

    /// The first condition, besides host and path, that does not hold.
    #[must_use]
    pub fn unmet(&self, RequestView { head, method, query }: RequestView<'_>) -> Option<Unmet<'_>> {
        if !self.accepts_method(method) {
            return Some(Unmet::Methods(&self.methods));
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
        headers().or_else(parameters).or_else(cookies)
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
            && self.path.covers(&other.path)
    }

    fn accepts_method(&self, method: &Method) -> bool {
        self.methods.is_empty()
            || self.methods.contains(method)
            || (*method == Method::HEAD && self.methods.contains(&Method::GET))
    }
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
            Self::Header(name, condition) => write!(f, "the header {name} {}", condition.failure()),
            Self::Query(name, condition) => write!(f, "the query parameter {name} {}", condition.failure()),
            Self::Cookie(name, condition) => write!(f, "the cookie {name} {}", condition.failure()),
        }
    }
}
