//! Finding the route of a request: its host and target are read, and rejected if they are ambiguous.

use std::borrow::Cow;

use http::Method;
use http::uri::Scheme;

use super::error::RequestError;
use super::geo::ClientLocation;
use super::host::host_of;
use super::path::normalize;
use super::plan::RouteMatch;
use super::query::Query;
use super::route::RequestView;
use super::table::RouteTable;
use crate::http1::{RequestHead, has_only_chunked_coding, names};

/// Reads the target of a request, and finds the route that it would match in `routes` if it had this method. `all` are the
/// routes of the configuration.
#[inline]
pub(super) fn find_match<'a>(
    all: &RouteTable,
    routes: &RouteTable,
    (head, method): (&'a RequestHead, &Method),
    location: &ClientLocation<'_>,
) -> Result<RouteMatch<'a>, RequestError> {
    if *method == Method::CONNECT {
        return Err(RequestError::Connect);
    }
    if all.has_method_in_other_case(method) {
        return Err(RequestError::MethodCase);
    }
    if !has_only_chunked_coding(&head.fields) {
        return Err(RequestError::TransferCoding);
    }
    let path = normalize(head.uri.path())?;
    if path.sent == "*" && *method != Method::OPTIONS {
        return Err(RequestError::Asterisk);
    }
    let host = requested_host(head)?;
    let query = Query::new(head.uri.query());
    let request = RequestView { head, method, query: &query, location };
    let route = routes.find(&host, path.matched(), request);
    // Checked after the match, because the query is decoded only if a condition reads it.
    if query.has_too_many_parameters() {
        return Err(RequestError::TooManyParameters);
    }
    let keeps_slash = route.is_some_and(|id| routes.get(id).keeps_encoded_slash);
    if path.encoded_slash && !keeps_slash {
        return Err(RequestError::EncodedSlash);
    }
    Ok(RouteMatch { path, host, route, query })
}

/// Reads the host of a request: that of an absolute target, or else that of its one Host header (RFC 9112 §3.2.2). Empty for a
/// request over HTTP/1.0 or HTTP/2 without a Host header. Rejects a head with no host, several, or a malformed one, and a target
/// whose scheme is neither http nor https.
#[inline]
pub fn requested_host(head: &RequestHead) -> Result<Cow<'_, str>, RequestError> {
    let mut values = head.fields.get_all(names::HOST);
    let (first, more) = (values.next(), values.next());
    if more.is_some() {
        return Err(RequestError::Host);
    }
    let named = match first {
        // `host_of` rejects characters that are not ASCII.
        Some(value) => Some(std::str::from_utf8(value).map_err(|_| RequestError::Host)?),
        None if head.version <= http::Version::HTTP_10 => None,
        None if head.version >= http::Version::HTTP_2 => None,
        None => return Err(RequestError::Host),
    };
    // An http URI has a host (RFC 9110 §4.2.1), so an empty one is none.
    let named = named.map(|host| host_of(host).ok_or(RequestError::Host)).transpose()?;
    if head.uri.scheme().is_some_and(|scheme| *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS) {
        return Err(RequestError::Scheme);
    }
    match head.uri.authority() {
        Some(authority) => host_of(authority.as_str()).ok_or(RequestError::Host),
        None => Ok(named.unwrap_or(Cow::Borrowed(""))),
    }
}
