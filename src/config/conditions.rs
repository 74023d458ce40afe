//! The conditions of a route besides its path.

use http::Method;
use http::header::{AUTHORIZATION, COOKIE, HeaderName, PROXY_AUTHORIZATION};

use super::geo::ReadGeo;
use super::headers;
use super::item::Item;
use super::literal_patterns;
use super::route_keys::{NotKeys, RouteKeys};
use super::table::{Name, Table};
use crate::gate::{Country, GeoCondition, HostPattern, ValueCondition, ValuePattern, header_ignores_case};

/// The conditions of a route besides its path.
pub(super) struct Conditions {
    pub host: Option<HostPattern>,
    pub methods: Vec<Method>,
    pub headers: Vec<(HeaderName, ValueCondition)>,
    pub query: Vec<(Box<str>, ValueCondition)>,
    pub cookies: Vec<(Box<str>, ValueCondition)>,
    pub country: Option<GeoCondition<Country>>,
    pub asn: Option<GeoCondition<u32>>,
}

/// Reads the conditions of a route.
pub(super) fn conditions(table: &Table<'_, RouteKeys>, geo: &ReadGeo) -> Option<Conditions> {
    let host = table.host().with(host);
    let methods = table.methods().with(headers::methods);
    let headers = table.headers().with(|item| headers::pairs(item, header));
    let query = table.query().with(|item| headers::pairs(item, named_value));
    let cookies = table.cookies().with(|item| headers::pairs(item, named_value));
    let country = table.country().with(|item| geo.country(item));
    let asn = table.asn().with(|item| geo.asn(item));
    Some(Conditions {
        host: host.ok()?,
        methods: methods.ok()?.unwrap_or_default(),
        headers: headers.ok()?.unwrap_or_default(),
        query: query.ok()?.unwrap_or_default(),
        cookies: cookies.ok()?.unwrap_or_default(),
        country: country.ok()?,
        asn: asn.ok()?,
    })
}

fn host(item: Item<'_>) -> Option<HostPattern> {
    let text = item.string()?;
    text.parsed(
        "a host",
        "write it without scheme and port: \"api.example.com\" or \"*.example.com\"",
        HostPattern::parse,
    )
}

/// A condition on a header.
fn header(name: &Name<'_>, item: Item<'_>) -> Option<(HeaderName, ValueCondition)> {
    let name = headers::name(name, item)?;
    let condition = condition(item, &|item| header_pattern(&name, item))?;
    Some((name, condition))
}

fn header_pattern(name: &HeaderName, item: Item<'_>) -> Option<ValuePattern> {
    let text = item.string()?;
    headers::value(&text)?;
    literal_patterns::warn_of_header(name, &text);
    let pattern = ValuePattern::parse(&text.value);
    let pattern = if header_ignores_case(name) { pattern.ignoring_case() } else { pattern };
    let is_secret = text.from_env || [AUTHORIZATION, COOKIE, PROXY_AUTHORIZATION].contains(name);
    Some(if is_secret { pattern.secret() } else { pattern })
}

/// A condition on a query parameter or a cookie.
fn named_value(name: &Name<'_>, item: Item<'_>) -> Option<(Box<str>, ValueCondition)> {
    let pattern = |item: Item<'_>| {
        let text = item.string()?;
        let pattern = ValuePattern::parse(&text.value);
        Some(if text.from_env { pattern.secret() } else { pattern })
    };
    Some((name.text.into(), condition(item, &pattern)?))
}

/// Reads a pattern or a list of them, `true`, `false`, or `{ not = … }`.
fn condition(item: Item<'_>, pattern: &dyn Fn(Item<'_>) -> Option<ValuePattern>) -> Option<ValueCondition> {
    if item.is_boolean() {
        let is_present = item.boolean()?;
        return Some(if is_present { ValueCondition::Present } else { ValueCondition::Absent });
    }
    if item.is_table() {
        let table = Table::<NotKeys>::of(item, format!("`{}`", item.name))?;
        let refused = table.not().with(|item| patterns(item, pattern));
        table.close();
        return refused.map(ValueCondition::NoneOf);
    }
    patterns(item, pattern).map(ValueCondition::AnyOf)
}

/// Reads a pattern or a list of them.
fn patterns(
    item: Item<'_>,
    pattern: &dyn Fn(Item<'_>) -> Option<ValuePattern>,
) -> Option<Box<[ValuePattern]>> {
    if !item.is_array() {
        return Some([pattern(item)?].into());
    }
    let patterns = item.list_of("", pattern)?;
    if patterns.is_empty() {
        let problem = item.error(format!("`{}` names no value: the list is empty", item.name));
        return item.reject(problem.help("write true for any value, or false for none"));
    }
    Some(patterns.into())
}
