//! `authorize` of a route: from text to the rule by which an authorization server decides.

use http::Uri;
use http::header::HeaderName;

use super::headers;
use super::item::Item;
use super::keys::keys;
use super::keys::kinds::words;
use super::limits;
use super::report::Problem;
use super::table::Table;
use super::upstreams::{ReadUpstreams, path};
use crate::gate::{KeyPart, KeySpec, OnMissing};
use crate::proxy::{AuthorizationCaching, AuthorizationOrder, AuthorizationRule, OnFailure, SentHeaders};
use crate::upstream::ForwardPolicy;

words!(OnFailureWords: OnFailure = [("deny", OnFailure::Deny), ("allow", OnFailure::Allow)]);
words!(OrderWords: AuthorizationOrder = [
    ("after_limits", AuthorizationOrder::AfterLimits),
    ("before_limits", AuthorizationOrder::BeforeLimits)
]);

keys! {
    /// The keys of `authorize`.
    AuthorizeKeys {
        /// The authorization server: the name of an upstream, or a URL
        upstream: Text, required "auth";
        /// The path of the requests to it, with a query if it needs one
        path: Text, required "/verify";
        /// The headers of the request that it is sent, if the request has them; `["*"]` for all but those of the body and the
        /// connection
        send: List<Text> = ["authorization", "cookie"];
        /// The headers of its response that the request to the upstream gets. Those of the client with these names are removed
        copy: List<Text> = [];
        /// How long it may take, with its connection and retries
        timeout: Duration<MILLISECOND, MINUTE> = "1s";
        /// What happens to a request if it gives no valid response in time, or one of 5xx: `"deny"` rejects it with 503,
        /// `"allow"` forwards it
        on_failure: Choice<OnFailureWords> = "deny";
        /// `"after_limits"` asks it about requests that the limits allow; with `"before_limits"` limits can count by the
        /// headers in `copy`
        order: Choice<OrderWords> = "after_limits";
        /// How long a response of 2xx holds for requests with the same key, such as
        /// `{ for = "30s", key = "header:authorization" }`
        cache: KeyTable<CacheKeys>, or "every request is asked about";
    }
}

keys! {
    /// The keys of `cache`.
    CacheKeys {
        /// The time from the response
        lasts("for"): Duration<MILLISECOND, DAY>, required "30s";
        /// A [key part](key-parts.md), or several: everything by which the authorization server decides. A request
        /// without one of them is asked about
        key: Either<Text, List<Text>>, required "header:authorization";
    }
}

/// Headers that tell an upstream where a request comes from: the proxy writes them.
const OWN: [&str; 3] = ["forwarded", "via", "x-request-id"];

/// Reads `authorize`.
pub(super) fn authorize(item: Item<'_>, upstreams: &mut ReadUpstreams) -> Option<AuthorizationRule> {
    if item.reader.is_for_library() {
        let title = "the library sends no requests, so it can't have this route authorized";
        let help = "leave `authorize` out of the file of the program, and check the request there";
        return item.reject(item.error(title).help(help));
    }
    let table = Table::<AuthorizeKeys>::of(item, "`authorize`")?;
    let upstream = table.upstream().with(|item| upstreams.resolve(item));
    let (target, timeout) = (table.path().with(target), table.timeout().read());
    let send = headers::all_or(table.send().item(), |item| name(item, "sent"));
    let copy = table.copy().with(|item| item.list_of("put the names in brackets: [\"x-user\"]", copied));
    let (on_failure, order) = (table.on_failure().read(), table.order().read());
    let cache = table.cache().with(cache);
    if let (Some(item), Ok(Some(cache)), Ok(send)) = (table.cache().given(), &cache, &send) {
        warn_of_key(item, &cache.key, send.as_deref());
    }
    table.close();
    let (policy, timeout) = (upstreams.forward_policy(upstream)?, timeout?);
    Some(AuthorizationRule {
        upstream: upstream?,
        target: target?,
        send: send.ok()?.map_or(SentHeaders::All, |names| SentHeaders::Named(names.into())),
        copy: copy?.into(),
        policy: ForwardPolicy {
            response_timeout: timeout,
            stall_timeout: timeout,
            total_timeout: Some(timeout),
            ..policy
        },
        on_failure: on_failure?,
        order: order?,
        cache: cache.ok()?,
    })
}

fn target(item: Item<'_>) -> Option<Uri> {
    // It has been parsed as path and query.
    path(item)?.parse().ok()
}

/// Reads the name of a header that does not belong to the connection, to the body or to the server.
fn name(item: Item<'_>, verb: &str) -> Option<HeaderName> {
    let name = item.string()?.parsed("a header name", "", |text| text.parse::<HeaderName>().ok())?;
    if headers::OWN.contains(&name.as_str()) || name == "host" {
        return item.reject(item.error(format!("`{name}` can't be {verb}: tidegate writes it itself")));
    }
    Some(name)
}

fn copied(item: Item<'_>) -> Option<HeaderName> {
    let name = name(item, "copied")?;
    if OWN.contains(&name.as_str()) || name.as_str().starts_with("x-forwarded-") {
        return item.reject(item.error(format!("`{name}` can't be copied: tidegate writes it itself")));
    }
    Some(name)
}

fn cache(item: Item<'_>) -> Option<AuthorizationCaching> {
    let table = Table::<CacheKeys>::of(item, "`cache`")?;
    let (lasts, key) = (table.lasts().read(), table.key().with(cache_key));
    table.close();
    Some(AuthorizationCaching { lasts: lasts?, key: key? })
}

fn cache_key(item: Item<'_>) -> Option<KeySpec> {
    let parts = limits::key(item)?;
    let is_unknown = |part: &&KeyPart| matches!(part, KeyPart::Body(_) | KeyPart::Descriptor(_));
    if let Some(part) = parts.iter().find(is_unknown) {
        let problem = item.error(format!("decisions are not cached by `{part}`: the server is not sent it"));
        return item.reject(problem.help("such as \"header:authorization\""));
    }
    if parts.iter().all(|part| *part == KeyPart::Global) {
        let problem =
            item.error("one allowed request would let all others pass: `global` is the same for all");
        return item.reject(problem.help("such as \"header:authorization\""));
    }
    Some(KeySpec { parts, on_missing: OnMissing::Skip })
}

/// Warns of a key without a header that the server is sent: requests that differ in it would have one decision.
fn warn_of_key(item: Item<'_>, key: &KeySpec, send: Option<&[HeaderName]>) {
    let is_keyed = |name: &HeaderName| {
        key.parts.iter().any(|part| match part {
            KeyPart::Header(header) => header == name,
            KeyPart::Cookie(_) => name == "cookie",
            KeyPart::Jwt(_) => name == "authorization",
            _ => false,
        })
    };
    let missing = match send {
        Some(names) => names.iter().find(|name| !is_keyed(name)).map(|name| format!("the header `{name}`")),
        None => Some("any other header".to_owned()),
    };
    if let Some(missing) = missing {
        let title = format!(
            "requests that differ in {missing} get the same decision: it is sent, and `key` has no such part"
        );
        let help = "add it to `key`, or name in `send` only what the decision depends on";
        item.reader.report(Problem::warning(item.span(), title).help(help));
    }
}
