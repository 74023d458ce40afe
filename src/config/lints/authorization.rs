//! Checks of external authorization with limits and credentials: they must not be read before the authorization server has set
//! the headers that they are in.

use http::header::{COOKIE, HeaderName};

use crate::config::limits::ReadLimit;
use crate::config::report::Problem;
use crate::config::routes::ReadRoute;
use crate::config::sections::Sections;
use crate::gate::{Cost, KeyPart};
use crate::proxy::{AuthorizationOrder, AuthorizationRule};

/// Routes whose limits or credentials are in a header of the client that authorization replaces later.
pub(super) fn order(sections: &Sections<'_>) -> Vec<Problem> {
    let authorized = |read| Some((read, authorization(read)?));
    let problem = |(read, rule): (&ReadRoute, &AuthorizationRule)| {
        condition(sections, read, rule).or_else(|| match rule.order {
            AuthorizationOrder::AfterLimits => counted(sections, read, rule).or_else(|| balanced(read, rule)),
            AuthorizationOrder::BeforeLimits => credential(sections, read, rule),
        })
    };
    sections.routes().iter().filter_map(authorized).filter_map(problem).collect()
}

fn authorization(read: &ReadRoute) -> Option<&AuthorizationRule> {
    read.action.target.authorization()
}

/// A route that is chosen by a header which the client sends, while the authorization server sets it later: the client would choose
/// the limits and the authorization of its request.
fn condition(sections: &Sections<'_>, read: &ReadRoute, rule: &AuthorizationRule) -> Option<Problem> {
    let conditions = |other: &ReadRoute| {
        let cookies = (!other.route.cookies.is_empty()).then_some(COOKIE);
        other.route.headers.iter().map(|(name, _)| name.clone()).chain(cookies).collect::<Vec<_>>()
    };
    let (name, other) = sections.routes().iter().find_map(|other| {
        let name = conditions(other).into_iter().find(|name| rule.copy.contains(name))?;
        Some((name, &other.route.name))
    })?;
    let title = format!(
        "route `{other}` is chosen by the header `{name}` of the client, and the authorization of route `{}` sets it later",
        read.route.name
    );
    Some(Problem::error(read.span.clone(), title).help("let the authorization server set another header"))
}

/// An upstream that balances by such a header.
fn balanced(read: &ReadRoute, rule: &AuthorizationRule) -> Option<Problem> {
    let parts = &read.action.target.forwarding()?.key.as_ref()?.parts;
    let name = rule.copy.iter().find(|name| parts.iter().any(|part| is_of(part, name)))?;
    let title = format!(
        "the upstream balances by the header `{name}` of the client, and the authorization of route `{}` sets it later",
        read.route.name
    );
    let help = "add order = \"before_limits\" to `authorize`";
    Some(Problem::error(read.span.clone(), title).help(help))
}

/// Whether the value of a key part comes from a header.
fn is_of(part: &KeyPart, header: &HeaderName) -> bool {
    match part {
        KeyPart::Header(name) => name == header,
        KeyPart::Cookie(_) => header == COOKIE,
        _ => false,
    }
}

/// A limit that counts by a header which the client sends, while the upstream gets that of the authorization server.
fn counted(sections: &Sections<'_>, read: &ReadRoute, rule: &AuthorizationRule) -> Option<Problem> {
    let mut limits = read.route.limits.iter().filter_map(|id| sections.limits.get(*id));
    let (limit, name) =
        limits.find_map(|limit| Some((limit, rule.copy.iter().find(|name| reads(limit, name))?)))?;
    let title = format!(
        "the limit `{}` counts by the header `{name}` of the client, and the authorization of route `{}` replaces it later",
        limit.policy.name, read.route.name
    );
    let help = "add order = \"before_limits\" to `authorize`, so that the limit counts by what the authorization server says";
    Some(Problem::error(read.span.clone(), title).help(help))
}

/// Whether the charge of a limit depends on a header.
fn reads(limit: &ReadLimit, header: &HeaderName) -> bool {
    let mut parts = limit.rule.key.parts.iter().chain(limit.rule.tiers.iter().map(|tiers| &tiers.by));
    let sets_cost = match &limit.rule.cost {
        Cost::Fixed(_) => false,
        Cost::Header { name, .. } => name == header,
        Cost::Settled(cost) => cost.request_headers().any(|name| name == header),
    };
    sets_cost || parts.any(|part| is_of(part, header))
}

/// A credential that is read before authorization replaces its header.
fn credential(sections: &Sections<'_>, read: &ReadRoute, rule: &AuthorizationRule) -> Option<Problem> {
    let token = sections.jwt.as_ref().ok().and_then(Option::as_ref).map(|jwt| &jwt.header);
    let mut read_before = [(token, "[jwt]"), (sections.consumers.credential_header(), "[consumers]")]
        .into_iter()
        .filter_map(|(header, section)| Some((header.filter(|name| rule.copy.contains(name))?, section)));
    let (name, section) = read_before.next()?;
    let title = format!(
        "{section} reads the header `{name}` before the authorization of route `{}` has set it",
        read.route.name
    );
    let help = "let the authorization server set another header, or leave `order` out";
    Some(Problem::error(read.span.clone(), title).help(help))
}
