//! Explains where a route forwards a request.

mod admission;

use http::StatusCode;
use http::header::HeaderName;

use super::explained::{ResponseInfo, TextRows};
use crate::cli::describe;
use crate::config::Loaded;
use crate::gate::{DenyStatus, Gate, KeySpec, Subject};
use crate::http1::{RequestHead, names};
use crate::proxy::{
    AuthorizationCaching, AuthorizationOrder, AuthorizationRule, ForwardTarget, HeaderEdits, OnFailure,
    Redirect, Rewrite, RouteAction, SentHeaders, Target,
};
use crate::time::format_duration;
use crate::upstream::{Balance, ForwardPolicy, HostRule, ServerSpec, SharedUpstream, UpstreamSpec};

/// Explains what a route does with a request; `path` is the normalized path, which is sent upstream.
pub(super) fn explain(
    rows: &mut TextRows,
    loaded: &Loaded,
    action: &RouteAction,
    subject: &Subject<'_>,
    path: &str,
) -> ResponseInfo {
    let response = match &action.target {
        Target::Respond { status, .. } => {
            rows.row("response", format!("{status}, from the route itself"));
            ResponseInfo::new("respond", *status)
        }
        Target::Redirect(redirect) => explain_redirect(rows, redirect, subject),
        Target::Limits => {
            rows.row("response", "200 OK: the state of these limits, which are not charged");
            ResponseInfo::new("limits", StatusCode::OK)
        }
        Target::Block => explain_block(rows, action.deny_status),
        Target::Decide(_) => {
            rows.row("response", "404 Not Found: the original request is an authorization request itself");
            ResponseInfo::rejected(StatusCode::NOT_FOUND, &"it is an authorization request itself")
        }
        Target::Authorize(authorized) => {
            explain_authorization(rows, loaded, &authorized.rule);
            explain_target(rows, loaded, &authorized.target, subject, path)
        }
        Target::Forward(target) => explain_target(rows, loaded, target, subject, path),
    };
    if let Some(status) = action.deny_status {
        rows.row("denials", format!("{}, whatever the limits say (`deny_status`)", describe::denial(status)));
    }
    list_edits(rows, "in the request", &action.request_headers);
    let responses = if action.edits_local_replies { "in every response" } else { "in the response" };
    list_edits(rows, responses, &action.response_headers);
    response
}

/// Explains where a request is forwarded.
fn explain_target(
    rows: &mut TextRows,
    loaded: &Loaded,
    target: &ForwardTarget,
    subject: &Subject<'_>,
    path: &str,
) -> ResponseInfo {
    let ForwardTarget { upstream, rewrite, key, policy, admission, .. } = target;
    let upstream = &loaded.config.snapshot.upstreams[*upstream];
    let first = explain_balancing(rows, &loaded.config.snapshot.gate, upstream, key.as_ref(), subject);
    let query = subject.head.uri.query().map_or_else(String::new, |query| format!("?{query}"));
    let rewritten = subject.route.map_or(path.into(), |route| rewrite.path(path, &route.path));
    let target = format!("{rewritten}{query}");
    // A part of the URL may be a secret from an environment variable.
    let url = |server: &ServerSpec| format!("{}{target}", loaded.without_variables(&server.url()));
    let urls: Vec<String> = upstream.servers.iter().map(url).collect();
    list_servers(rows, upstream, first, &urls);
    explain_host(rows, upstream, rewrite, subject.head);
    if rewrite.location {
        rows.row("locations", "Location and cookies with the server's address get the client's view");
    }
    explain_policy(rows, policy, &upstream.forward_policy());
    if let (Some(rule), Some(spec)) = (admission, &upstream.overload) {
        admission::explain(rows, &loaded.config.snapshot.gate, (rule, spec), subject);
    }
    admission::explain_tunnels(rows, admission.as_deref(), upstream.max_tunnels_per_client, subject);
    let upstream = Some(upstream.label().to_owned());
    ResponseInfo { kind: "forward", upstream, urls, ..ResponseInfo::default() }
}

/// Explains what an authorization server is asked. It is not asked here.
fn explain_authorization(rows: &mut TextRows, loaded: &Loaded, rule: &AuthorizationRule) {
    let names = |names: &[HeaderName]| names.iter().map(HeaderName::as_str).collect::<Vec<_>>().join(", ");
    let upstream = &loaded.config.snapshot.upstreams[rule.upstream];
    let url = |server: &ServerSpec| format!("{}{}", loaded.without_variables(&server.url()), rule.target);
    let urls: Vec<String> = upstream.servers.iter().map(url).collect();
    let order = match rule.order {
        AuthorizationOrder::AfterLimits => "after the limits",
        AuthorizationOrder::BeforeLimits => "before the limits",
    };
    let failure = match rule.on_failure {
        OnFailure::Deny => "503",
        OnFailure::Allow => "the request is forwarded",
    };
    rows.row("authorize", format!("{order}, by GET {}; not asked here", urls.join(" or ")));
    rows.row("authorize", format!("within {}, or else {failure}", format_duration(rule.timeout())));
    let sent = match &rule.send {
        SentHeaders::All => "all that do not belong to the body or the connection".to_owned(),
        SentHeaders::Named(sent) => names(sent),
    };
    if !sent.is_empty() {
        rows.row("authorize", format!("headers that are sent: {sent}"));
    }
    if !rule.copy.is_empty() {
        rows.row("authorize", format!("headers from the response: {}", names(&rule.copy)));
    }
    if let Some(AuthorizationCaching { lasts, key }) = &rule.cache {
        let parts: Vec<String> = key.parts.iter().map(ToString::to_string).collect();
        let lasts = format_duration(*lasts);
        rows.row(
            "authorize",
            format!("2xx holds for {lasts} for requests with the same {}", parts.join(", ")),
        );
    }
}

/// Explains the response of a route that blocks its requests.
fn explain_block(rows: &mut TextRows, deny_status: Option<DenyStatus>) -> ResponseInfo {
    let why = "the route blocks its requests (`block`)";
    let status = match deny_status {
        None => StatusCode::FORBIDDEN,
        Some(DenyStatus::Status(status)) => status,
        Some(DenyStatus::Close) => {
            rows.row("response", format!("none: {why}"));
            return ResponseInfo { kind: "block", ..ResponseInfo::default() };
        }
    };
    rows.row("response", format!("{status}: {why}"));
    ResponseInfo::new("block", status)
}

/// Explains where a redirect sends the client.
fn explain_redirect(rows: &mut TextRows, redirect: &Redirect, subject: &Subject<'_>) -> ResponseInfo {
    let scheme = subject.location.scheme(&subject.head.fields).unwrap_or("http");
    let pattern = subject.route.map(|route| &route.path);
    let Some(location) = redirect.location.fill(scheme, subject.head, pattern) else {
        rows.row("response", "400 Bad Request: the redirect needs the host, and the request names none");
        return ResponseInfo::new("redirect", StatusCode::BAD_REQUEST);
    };
    rows.row("response", format!("{}, to {location}", redirect.status));
    ResponseInfo::new("redirect", redirect.status)
}

/// Explains how a server is selected; returns the index of the server that is, or may be, selected.
fn explain_balancing(
    rows: &mut TextRows,
    gate: &Gate,
    upstream: &UpstreamSpec,
    key: Option<&KeySpec>,
    subject: &Subject<'_>,
) -> usize {
    if !upstream.name.contains("://") {
        rows.row("upstream", &*upstream.name);
    }
    let Some(key) = key else {
        match upstream.balance {
            Balance::LeastRequests => rows.row("balance", "the server with the fewest requests in flight"),
            Balance::PowerOfTwo => {
                rows.row("balance", "of two random servers the one with fewer requests in flight");
            }
            Balance::RoundRobin | Balance::Hash => {}
        }
        return 0;
    };
    let found = key
        .balance_hash(subject, &gate.hasher)
        .and_then(|number| SharedUpstream::new(upstream).server_for_key(number));
    for part in &key.parts {
        let by = match part.value_or_recorded(subject).one() {
            Some(value) => format!("{part} = {}", String::from_utf8_lossy(&value)),
            None => format!("client_ip = {}, since the request has no {part}", subject.client),
        };
        let selected = if found.is_some() {
            "the first of these servers, while it is healthy"
        } else {
            "always the same server, while it is healthy"
        };
        rows.row("balance", format!("by {by}: {selected}"));
    }
    found.unwrap_or(0)
}

/// Lists the servers with the URL of the request, that at index `first` before the others.
fn list_servers(rows: &mut TextRows, upstream: &UpstreamSpec, first: usize, urls: &[String]) {
    let mut servers: Vec<_> = upstream.servers.iter().zip(urls).collect();
    if let Some(servers) = servers.get_mut(..=first) {
        servers.rotate_right(1);
    }
    for (index, (server, url)) in servers.into_iter().enumerate() {
        let label = if index == 0 { "sent to" } else { "or" };
        let weight = if server.weight == 1 { String::new() } else { format!(" (weight {})", server.weight) };
        rows.row(label, format!("{url}{weight}"));
    }
}

fn explain_host(rows: &mut TextRows, upstream: &UpstreamSpec, rewrite: &Rewrite, head: &RequestHead) {
    rows.row(
        "as host",
        match &rewrite.host {
            HostRule::Client => {
                String::from_utf8_lossy(head.fields.get(names::HOST).unwrap_or_default()).into_owned()
            }
            HostRule::Named(name) => String::from_utf8_lossy(name.as_bytes()).into_owned(),
            HostRule::Upstream => {
                upstream.servers.iter().map(ServerSpec::authority).collect::<Vec<_>>().join(" or ")
            }
        },
    );
}

/// Explains the timeouts and retries of a route that differ from those of its upstream.
fn explain_policy(rows: &mut TextRows, policy: &ForwardPolicy, upstream: &ForwardPolicy) {
    let total = |policy: &ForwardPolicy| policy.total_timeout.map_or("off".to_owned(), format_duration);
    for (key, own, other) in [
        (
            "response_timeout",
            format_duration(policy.response_timeout),
            format_duration(upstream.response_timeout),
        ),
        ("stall_timeout", format_duration(policy.stall_timeout), format_duration(upstream.stall_timeout)),
        ("total_timeout", total(policy), total(upstream)),
        ("retries", policy.retries.to_string(), upstream.retries.to_string()),
    ] {
        if own != other {
            rows.row("times", format!("{key} {own}, by the route; {other} by the upstream"));
        }
    }
}

fn list_edits(rows: &mut TextRows, message: &str, edits: &HeaderEdits) {
    let removed: Vec<&str> = edits.remove.iter().map(HeaderName::as_str).collect();
    if !removed.is_empty() {
        rows.row("removed", format!("{message}: {}", removed.join(", ")));
    }
    let set: Vec<&str> = edits.set_names().map(HeaderName::as_str).collect();
    if !set.is_empty() {
        rows.row("set", format!("{message}: {}", set.join(", ")));
    }
}
