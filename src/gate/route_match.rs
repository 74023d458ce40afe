//! Finding the route of a request: its target is read, and rejected if it is ambiguous.

use http::Method;

use super::error::RequestError;
use super::geo::ClientLocation;
use super::path::normalize;
use super::plan::RouteMatch;
use super::query::Query;
use super::requested_host::requested_host;
use super::route::RequestView;
use super::table::RouteTable;
use crate::http1::{RequestHead, has_only_chunked_coding};

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
