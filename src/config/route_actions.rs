//! What is done with the requests of a route: `rewrite`, `upgrades`, timeouts and retries; `respond = "decide"` and `deny_status`,
//! which listeners have too.

use http::header::HeaderName;
use http::{HeaderValue, StatusCode};

use super::deny_status;
use super::item::{Item, TextItem};
use super::keys::keys;
use super::keys::kinds::{Choice, Integer, words};
use super::report::Problem;
use super::route_keys::RouteKeys;
use super::table::{Field, Optional, Reported, Table};
use crate::gate::{ClientIp, DenyStatus, PathPattern, host_of, normalize};
use crate::proxy::{ForwardAuth, PathTemplate, Rewrite, Target, Upgrades};
use crate::upstream::{ForwardPolicy, HostRule};

keys! {
    /// The keys of `rewrite`.
    RewriteKeys {
        /// A prefix of the path to remove, in whole segments
        strip_prefix: Text;
        /// A prefix to put before the path, after `strip_prefix`
        add_prefix: Text;
        /// The whole path, such as `"/v2/{id}/*"`: with parameters of the route's path, and what the `*` at its end matches
        path: Text, or "the client's";
        /// The Host header: `"upstream"` for the host of the server, or a name
        host: Text, or "the client's";
        /// Whether `Location`, and the domain and path of cookies, get the client's view where they name the server's own
        /// address
        location: Boolean = false;
    }
}

/// Reads `{ strip_prefix = "/v1", host = "upstream" }`.
pub(super) fn rewrite(item: Option<Item<'_>>, path: Option<&PathPattern>) -> Option<Rewrite> {
    let Some(item) = item else { return Some(Rewrite::default()) };
    let table = Table::<RewriteKeys>::of(item, "`rewrite`")?;
    let strip_prefix = table.strip_prefix().with(|item| strip_prefix(item, path));
    let add_prefix = table.add_prefix().with(|item| prefix(&item.string()?));
    let template = table.path().with(|item| template(item, path));
    let host = table.host().with(host);
    let prefixes = [table.strip_prefix().given(), table.add_prefix().given()];
    if let (Some(whole), Some(other)) = (table.path().given(), prefixes.into_iter().flatten().next()) {
        let problem =
            other.error(format!("`{}` has no effect beside `path`, which is the whole path", other.name));
        other.reject::<()>(problem.related(whole.span(), "the whole path").help("leave one of them out"));
    }
    let location = table.location().read();
    if let (Some(whole), Some(true)) = (table.path().given(), location)
        && let Some(item) = table.location().given()
    {
        let problem = item.error("`location` needs paths that can be mapped back to those of clients");
        let help = "use strip_prefix and add_prefix in place of `path`, or leave `location` out";
        item.reject::<()>(problem.related(whole.span(), "any path of the route becomes this one").help(help));
    }
    table.close();
    let (strip_prefix, add_prefix, template) = (strip_prefix.ok()?, add_prefix.ok()?, template.ok()?);
    let host = host.ok()?.unwrap_or_default();
    Some(Rewrite { strip_prefix, add_prefix, template, host, location: location? })
}

fn prefix(text: &TextItem<'_>) -> Option<Box<str>> {
    let help = "write whole segments, such as \"/v1\" or \"/api/v1\"";
    text.parsed("a prefix of a path", help, |text| {
        let normal = normalize(text).ok().filter(|normal| !normal.encoded_slash)?;
        let prefix = normal.matched().trim_end_matches('/');
        (prefix.starts_with('/') && !text.contains(['*', '{', '}', '?', '#'])).then(|| Box::from(prefix))
    })
}

fn strip_prefix(item: Item<'_>, path: Option<&PathPattern>) -> Option<Box<str>> {
    let text = item.string()?;
    let prefix = prefix(&text)?;
    if let Some(path) = path {
        warn_if_never_removed(&text, &prefix, path);
    }
    Some(prefix)
}

/// Reads the whole path of a rewrite, whose form is that of a route's path.
fn template(item: Item<'_>, path: Option<&PathPattern>) -> Option<PathTemplate> {
    let text = item.string()?;
    let help =
        "write a path such as \"/v2/{id}/*\": with parameters of the route's path, and `*` only at the end";
    let parsed = text.parsed("the path of a rewrite", help, |text| {
        let pattern = PathPattern::parse(text).ok()?;
        let (normal, is_plain) = (pattern.to_string(), !pattern.has_stars() && !text.contains(['?', '#']));
        (text.starts_with('/') && is_plain && normal.ends_with('*') == text.ends_with('*')).then_some(normal)
    })?;
    let path = path?;
    PathTemplate::parse(&parsed, path).ok().or_else(|| {
        let missing = PathTemplate::parse(&parsed, path).err().unwrap_or_default();
        let title = match missing {
            "*" => format!(
                "`*` is what the `*` at the end of the route's path matches, and `{path}` does not end so"
            ),
            name => format!("the path of the route, `{path}`, has no `{{{name}}}`"),
        };
        text.reject(text.error(title).help("use the parts of the route's path, or leave this one out"))
    })
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

/// Reads `["websocket", "tcp"]`.
pub(super) fn upgrades(item: Option<Item<'_>>) -> Option<Upgrades> {
    let Some(item) = item else { return Some(Upgrades::default()) };
    let names = item.list_of("put them in brackets: [\"websocket\"]", upgrade)?;
    let (websocket, others): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| **name == *"websocket");
    Some(Upgrades { websocket: !websocket.is_empty(), others: others.into() })
}

/// The name of a protocol, in lower case if it is WebSocket.
fn upgrade(item: Item<'_>) -> Option<Box<str>> {
    let text = item.string()?;
    let (name, version) = text.value.split_once('/').unwrap_or((&text.value, "1"));
    if ["h2c", "http", "tls"].iter().any(|own| own.eq_ignore_ascii_case(name)) {
        let title = format!(
            "{} can't be used through a proxy: it would carry requests that no limit counts",
            text.quoted()
        );
        return text.reject(
            text.error(title).help("leave it out: clients can use HTTP/2 and TLS with tidegate itself"),
        );
    }
    let is_token = |text: &str| HeaderName::from_bytes(text.as_bytes()).is_ok();
    let help =
        "write the protocol as in the `Upgrade` header, such as \"websocket\", \"tcp\" or \"SPDY/3.1\"";
    text.parsed("the name of a protocol", help, |text| {
        let name = if text.eq_ignore_ascii_case("websocket") { "websocket" } else { text };
        (is_token(text.split('/').next()?) && is_token(version)).then(|| name.into())
    })
}

/// Reads the timeouts and retries of a route, which replace those of its upstream.
pub(super) fn times(table: &Table<'_, RouteKeys>) -> Option<impl Fn(ForwardPolicy) -> ForwardPolicy + use<>> {
    let (response_timeout, stall_timeout) = (table.response_timeout().read(), table.stall_timeout().read());
    let (total_timeout, retries) = (table.total_timeout().read(), table.retries().read());
    let (response_timeout, stall_timeout) = (response_timeout.ok()?, stall_timeout.ok()?);
    let (total_timeout, retries) = (total_timeout.ok()?, retries.ok()?);
    Some(move |upstream: ForwardPolicy| ForwardPolicy {
        response_timeout: response_timeout.unwrap_or(upstream.response_timeout),
        stall_timeout: stall_timeout.unwrap_or(upstream.stall_timeout),
        total_timeout: total_timeout.unwrap_or(upstream.total_timeout),
        retries: retries.unwrap_or(upstream.retries),
    })
}

/// Rejects keys about requests to an upstream in a route that sends none, since it has `action`.
pub(super) fn reject_upstream_keys(table: &Table<'_, RouteKeys>, action: &str) {
    let edits = [table.rewrite().given(), table.request_headers().given(), table.upgrades().given()];
    let times = [
        table.authorize().given(),
        table.response_timeout().given(),
        table.stall_timeout().given(),
        table.total_timeout().given(),
        table.retries().given(),
    ];
    let named = |verb, items: &[Option<Item<'_>>]| {
        for item in items.iter().flatten() {
            let key = item.name;
            let title =
                format!("`{key}` {verb} the request to the upstream, and this route responds without one");
            item.reject::<()>(item.error(title).help(format!("leave `{key}` or `{action}` out")));
        }
    };
    named("changes", &edits);
    named("is for", &times);
}

/// Help for a file without the trusted proxies that authorization requests need.
pub(super) const TRUST: &str = "name the networks of the proxies that send authorization requests: [client_ip] trusted_proxies = [\"10.0.0.0/8\"]";

words!(DecideWords: () = [("decide", ())]);

/// `deny_status` of a listener.
type DecisionStatus<'t, 'a> = Field<'t, 'a, Integer<400, 599, StatusCode>, Optional>;

/// The meaning of `deny_status` for authorization requests.
pub(super) const DENY_STATUS: &str = " With `respond = \"decide\"`: the status of every denial, for proxies that accept no other one; \
     `X-Tidegate-Status` has the status that the client should get";

/// Reads how the decisions of a listener are returned, if it is for authorization requests.
pub(super) fn of_listener(
    respond: &Field<'_, '_, Choice<DecideWords>, Optional>,
    deny_status: &DecisionStatus<'_, '_>,
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
        return deny_status.read().map(|deny_status| Some(ForwardAuth { deny_status }));
    }
    reject_deny_status(deny_status);
    Ok(None)
}

/// Reads how the decisions of a route are returned.
pub(super) fn settings(table: &Table<'_, RouteKeys>) -> Option<ForwardAuth> {
    let deny_status = table.deny_status().with(deny_status::of_decisions);
    deny_status.ok().map(|deny_status| ForwardAuth { deny_status })
}

/// Reads `deny_status` of a route, and warns if it denies nothing.
pub(super) fn deny_status(
    table: &Table<'_, RouteKeys>,
    target: Option<&Target>,
    has_limits: bool,
) -> Result<Option<DenyStatus>, Reported> {
    if let Some(Target::Decide(_)) = target {
        return Ok(None);
    }
    let denies = has_limits || table.reader.is_for_library() || matches!(target, None | Some(Target::Block));
    if let Some(item) = table.deny_status().given().filter(|_| !denies) {
        deny_status::warn(item, "this route has no limits", "name them: limits = [\"per-client\"]");
    }
    table.deny_status().with(deny_status::read)
}

/// Rejects `deny_status` of a listener without authorization requests.
fn reject_deny_status(deny_status: &DecisionStatus<'_, '_>) {
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
