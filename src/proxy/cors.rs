//! CORS: which web pages may read responses, as the Fetch standard defines it (<https://fetch.spec.whatwg.org/#http-cors-protocol>).
//!
//! The origin of a page decides. The headers are the same whoever makes the response: an upstream or the proxy itself.

mod origins;

use std::sync::Arc;

use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HeaderName,
};
use http::{HeaderValue, Method};

pub use self::origins::{OriginPattern, Origins};
use crate::gate::{ClientIdentity, Gate, RequestError, RouteId, RouteMatch, RouteTable};
use crate::http1::names::{ORIGIN, VARY};
use crate::http1::{Fields, RequestHead, ascii};
use crate::id_vec::IdVec;

/// Which pages may read the responses of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorsPolicy {
    /// The origins of the pages.
    pub origins: Origins,
    /// The methods that need a preflight and may be used; none for all.
    pub methods: Option<Vec<Method>>,
    /// The request headers that a page may set, as the value of a header; none for all.
    pub headers: Option<HeaderValue>,
    /// The response headers that a page may read, as the value of a header; none for those that it always may.
    pub expose_headers: Option<HeaderValue>,
    /// Whether requests may have cookies, HTTP authentication or client certificates.
    pub credentials: bool,
    /// How long a browser may keep the result of a preflight, in seconds.
    pub max_age: HeaderValue,
}

/// The CORS policies of all routes.
#[derive(Debug)]
pub struct CorsRules {
    /// The policy of requests that match no route.
    pub default: Option<Arc<CorsPolicy>>,
    /// The policy of each route.
    pub routes: IdVec<RouteId, Option<Arc<CorsPolicy>>>,
    /// The routes without their conditions on cookies and on those headers that a preflight does not have; none if no route
    /// has such a condition.
    pub preflight_routes: Option<RouteTable>,
}

/// A preflight: the question of a browser whether a page may send a certain request.
#[derive(Debug)]
pub struct Preflight<'a> {
    /// The policy of the route that the request would match.
    pub policy: &'a CorsPolicy,
    /// The method of the request.
    pub method: Method,
    /// The target of the request, and its route.
    pub matched: Option<RouteMatch<'a>>,
}

/// What is needed of a request for the CORS headers of its response, whose route is known only later.
#[derive(Debug)]
pub(super) struct CorsRequest<'p> {
    rules: &'p CorsRules,
    /// The Origin of the request; none if it is not ASCII, or sent twice.
    origin: Option<Box<str>>,
}

impl CorsPolicy {
    /// Whether pages of this origin may read responses.
    #[must_use]
    pub fn allows(&self, origin: &str) -> bool {
        self.origins.contains(origin)
    }

    /// Whether pages may use this method, if their origin is allowed.
    #[must_use]
    pub fn allows_method(&self, method: &Method) -> bool {
        // These need no preflight for their own sake, so a browser does not look them up in the response.
        matches!(*method, Method::GET | Method::HEAD | Method::POST)
            || self.methods.as_ref().is_none_or(|methods| methods.contains(method))
    }

    /// Replaces the CORS headers of a response to a request with this origin.
    fn write(&self, origin: Option<&str>, fields: &mut Fields) {
        if self.write_origin(origin, fields)
            && let Some(exposed) = &self.expose_headers
        {
            fields.push(&ACCESS_CONTROL_EXPOSE_HEADERS, exposed.as_bytes());
        }
    }

    /// Replaces the headers that allow an origin, and adds those that tell caches whether the response depends on it; returns
    /// whether the origin is allowed.
    fn write_origin(&self, origin: Option<&str>, fields: &mut Fields) -> bool {
        for name in
            [&ACCESS_CONTROL_ALLOW_ORIGIN, &ACCESS_CONTROL_ALLOW_CREDENTIALS, &ACCESS_CONTROL_EXPOSE_HEADERS]
        {
            fields.remove(name);
        }
        if self.origins == Origins::Any {
            // Sent to all, so that a cache needs to keep only one response.
            fields.push(&ACCESS_CONTROL_ALLOW_ORIGIN, b"*");
            return true;
        }
        add_vary("Origin", fields);
        let Some(origin) = origin.filter(|origin| self.allows(origin)) else { return false };
        fields.push(&ACCESS_CONTROL_ALLOW_ORIGIN, origin.as_bytes());
        if self.credentials {
            fields.push(&ACCESS_CONTROL_ALLOW_CREDENTIALS, b"true");
        }
        true
    }
}

impl CorsRules {
    /// The policy for requests that match this route, or none.
    #[must_use]
    pub fn policy(&self, route: Option<RouteId>) -> Option<&CorsPolicy> {
        route.map_or(&self.default, |route| &self.routes[route]).as_deref()
    }

    /// The preflight that a request is; none if it is another request, or has to be handled as one: where no policy
    /// applies, and where the target is malformed.
    #[must_use]
    pub fn preflight<'a>(
        &'a self,
        gate: &Gate,
        client: ClientIdentity<'_>,
        head: &'a RequestHead,
    ) -> Option<Preflight<'a>> {
        if head.method != Method::OPTIONS || !head.fields.contains(ORIGIN) {
            return None;
        }
        let method = Method::from_bytes(head.fields.get(&ACCESS_CONTROL_REQUEST_METHOD)?).ok()?;
        let routes = self.preflight_routes.as_ref().unwrap_or(&gate.routes);
        let matched = match gate.match_route_in(routes, head, &method, &gate.locate(client, head)) {
            Ok(matched) => Some(matched),
            // The request itself would be rejected, with the policy of requests without a route.
            Err(RequestError::MethodCase | RequestError::Connect) => None,
            Err(_) => return None,
        };
        let policy = self.policy(matched.as_ref().and_then(|matched| matched.route))?;
        Some(Preflight { policy, method, matched })
    }
}

impl Preflight<'_> {
    /// Writes the headers of the response to the preflight with this head.
    pub(super) fn write(&self, head: &RequestHead, fields: &mut Fields) {
        // Responses to OPTIONS are not cacheable, but some caches keep them.
        add_vary("Access-Control-Request-Method", fields);
        add_vary("Access-Control-Request-Headers", fields);
        if !self.policy.write_origin(origin(head).as_deref(), fields) {
            return;
        }
        if self.policy.allows_method(&self.method) {
            // Not the other methods: they may be those of another route.
            fields.push(&ACCESS_CONTROL_ALLOW_METHODS, self.method.as_str().as_bytes());
        }
        let asked = || head.fields.get(&ACCESS_CONTROL_REQUEST_HEADERS).filter(|names| are_names(names));
        if let Some(headers) = self.policy.headers.as_ref().map(HeaderValue::as_bytes).or_else(asked) {
            fields.push(&ACCESS_CONTROL_ALLOW_HEADERS, headers);
        }
        fields.push(&ACCESS_CONTROL_MAX_AGE, self.policy.max_age.as_bytes());
    }
}

impl<'p> CorsRequest<'p> {
    pub fn new(rules: &'p CorsRules, head: &RequestHead) -> Self {
        Self { rules, origin: origin(head) }
    }

    /// Replaces the CORS headers of the response, if the route has a policy.
    pub fn write(&self, route: Option<RouteId>, fields: &mut Fields) {
        if let Some(policy) = self.rules.policy(route) {
            policy.write(self.origin.as_deref(), fields);
        }
    }
}

/// The Origin of a request, if it has exactly one that is ASCII.
fn origin(head: &RequestHead) -> Option<Box<str>> {
    let mut values = head.fields.get_all(ORIGIN);
    let origin = values.next().and_then(ascii)?;
    values.next().is_none().then(|| origin.into())
}

/// Whether a value is a list of header names.
fn are_names(value: &[u8]) -> bool {
    value.split(|byte| *byte == b',').all(|name| HeaderName::from_bytes(name.trim_ascii()).is_ok())
}

/// Adds a name to Vary, unless it is there.
fn add_vary(name: &str, fields: &mut Fields) {
    let is_named = |element: &[u8]| element == b"*" || element.eq_ignore_ascii_case(name.as_bytes());
    if fields.elements(VARY).any(is_named) {
        return;
    }
    // One line, because some caches read only the first.
    let lines: Vec<&[u8]> = fields.get_all(VARY).filter(|line| !line.is_empty()).collect();
    let value = [lines.as_slice(), &[name.as_bytes()]].concat().join(&b", "[..]);
    fields.set(VARY, &value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vary_is_merged() {
        for (before, after) in [
            (&[][..], &["Origin"][..]),
            (&["Accept-Encoding"], &["Accept-Encoding, Origin"]),
            (&["a, b", "c"], &["a, b, c, Origin"]),
            (&["a", "oRIGIN, b"], &["a", "oRIGIN, b"]),
            (&["*"], &["*"]),
            (&[""], &["Origin"]),
        ] {
            let mut fields: Fields = before.iter().map(|value| ("vary", *value)).collect();
            add_vary("Origin", &mut fields);
            let found: Vec<&[u8]> = fields.get_all(VARY).collect();
            assert_eq!(found, after.iter().map(|value| value.as_bytes()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn only_lists_of_header_names_are_repeated() {
        assert!(are_names(b"x-api-key") && are_names(b"a, b,c"));
        for odd in [&b""[..], b"a b", b"a,,b", b"a,\"b\"", "é".as_bytes()] {
            assert!(!are_names(odd), "{odd:?}");
        }
    }
}
