//! What is done with the requests of a route: `rewrite`, `respond = "decide"` and `deny_status`, which listeners have too.

use http::{HeaderValue, StatusCode};

use super::item::{Item, TextItem};
use super::keys::keys;
use super::keys::kinds::{Choice, Integer, words};
use super::report::Problem;
use super::table::{Field, Optional, Reported, Table};
use crate::gate::{ClientIp, PathPattern, host_of, normalize};
use crate::proxy::{ForwardAuth, Rewrite};
use crate::upstream::HostRule;

keys! {
    /// The keys of `rewrite`.
    RewriteKeys {
        /// A prefix of the path to remove, in whole segments
        strip_prefix: Text;
        /// The Host header: `"upstream"` for the host of the server, or a name
        host: Text, or "the client's";
    }
}

/// Reads `{ strip_prefix = "/v1", host = "upstream" }`.
pub(super) fn rewrite(item: Option<Item<'_>>, path: Option<&PathPattern>) -> Option<Rewrite> {
    let Some(item) = item else { return Some(Rewrite::default()) };
    let table = Table::<RewriteKeys>::of(item, "`rewrite`")?;
    let strip_prefix = table.strip_prefix().with(|item| prefix(item, path));
    let host = table.host().with(host);
    table.close();
    Some(Rewrite { strip_prefix: strip_prefix.ok()?, host: host.ok()?.unwrap_or_default() })
}

fn prefix(item: Item<'_>, path: Option<&PathPattern>) -> Option<Box<str>> {
    let text = item.string()?;
    let help = "write whole segments, such as \"/v1\" or \"/api/v1\"";
    let prefix = text.parsed("a prefix that can be removed from a path", help, |text| {
        let normal = normalize(text).ok().filter(|normal| !normal.encoded_slash)?;
        let prefix = normal.matched().trim_end_matches('/');
        (prefix.starts_with('/') && !text.contains(['*', '{', '}', '?', '#'])).then(|| Box::from(prefix))
    })?;
    if let Some(path) = path {
        warn_if_never_removed(&text, &prefix, path);
    }
    Some(prefix)
}

/// Warns where no path of the route can start with the prefix.
fn warn_if_never_removed(text: &TextItem<'_>, prefix: &str, path: &PathPattern) {
    let pattern = path.to_string();
    let fixed = &pattern[..pattern.find(['{', '*']).unwrap_or(pattern.len())];
    let prefix_slash = format!("{prefix}/");
    let may_start = fixed == prefix
        || fixed.starts_with(&prefix_slash)
        || (fixed.len() < pattern.len() && prefix_slash.starts_with(fixed));
    if !may_start {
        let title = format!(
            "`strip_prefix` removes nothing: no path of this route (`{pattern}`) starts with this prefix"
        );
        text.item.reader.report(Problem::warning(text.item.span(), title));
    }
}

fn host(item: Item<'_>) -> Option<HostRule> {
    let text = item.string()?;
    if text.value == "upstream" {
        return Some(HostRule::Upstream);
    }
    text.parsed("a host", "write \"upstream\", or a name such as \"api.internal\"", |text| {
        host_of(text)?;
        HeaderValue::from_str(text).ok().map(HostRule::Named)
    })
}

/// Help for a file without the trusted proxies that authorization requests need.
pub(super) const TRUST: &str = "name the networks of the proxies that send authorization requests: [client_ip] trusted_proxies = [\"10.0.0.0/8\"]";

words!(DecideWords: () = [("decide", ())]);

/// `deny_status` of a listener or a route.
type DenyStatus<'t, 'a> = Field<'t, 'a, Integer<400, 599, StatusCode>, Optional>;

/// The meaning of `deny_status`.
pub(super) const DENY_STATUS: &str = " With `respond = \"decide\"`: the status of every denial, for proxies that accept no other one; \
     `X-Tidegate-Status` has the status that the client should get";

/// Reads how the decisions of a listener are returned, if it is for authorization requests.
pub(super) fn of_listener(
    respond: &Field<'_, '_, Choice<DecideWords>, Optional>,
    deny_status: &DenyStatus<'_, '_>,
    client_ip: Option<&ClientIp>,
) -> Result<Option<ForwardAuth>, Reported> {
    let asks = respond.with(|item| {
        respond.value(item)?;
        if client_ip.is_some_and(|client_ip| client_ip.trusted_proxies.is_empty()) {
            return item.reject(item.error(untrusted("this listener")).help(TRUST).derived());
        }
        Some(())
    })?;
    if asks.is_some() {
        return settings(deny_status).map(Some).ok_or(Reported);
    }
    reject_deny_status(deny_status);
    Ok(None)
}

/// Reads how decisions are returned.
pub(super) fn settings(deny_status: &DenyStatus<'_, '_>) -> Option<ForwardAuth> {
    deny_status.read().ok().map(|deny_status| ForwardAuth { deny_status })
}

/// Rejects `deny_status` where there are no authorization requests.
pub(super) fn reject_deny_status(deny_status: &DenyStatus<'_, '_>) {
    if let (Some(item), Ok(Some(_))) = (deny_status.given(), deny_status.read()) {
        let problem = item.error("`deny_status` is for authorization requests, and there are none here");
        item.reject::<()>(problem.help("add respond = \"decide\", or leave `deny_status` out").derived());
    }
}

/// Rejects limits of a route for authorization requests: the limits of the original request apply.
pub(super) fn reject_limits(limits: Option<Item<'_>>) {
    if let Some(item) = limits {
        let title = "these limits would count the authorization requests of the trusted proxy";
        let help = "leave `limits` out: those of the route that the original request matches apply";
        item.reject::<()>(item.error(title).help(help));
    }
}

/// Why a place for authorization requests decides none.
pub(super) fn untrusted(place: &str) -> String {
    format!(
        "no request could be decided: {place} accepts authorization requests only from trusted proxies, and `trusted_proxies` is empty"
    )
}
