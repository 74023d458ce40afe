//! Explains where a route forwards a request.

use http::StatusCode;
use http::header::HeaderName;

use super::explained::{ResponseInfo, TextRows};
use crate::config::Loaded;
use crate::gate::{Gate, KeySpec, Subject};
use crate::http1::{RequestHead, names};
use crate::proxy::{HeaderEdits, Redirect, Rewrite, RouteAction, Target};
use crate::upstream::{Balance, HostRule, ServerSpec, SharedUpstream, UpstreamSpec};

/// Explains what a route does with a request; `path` is the normalized path, which is sent upstream.
pub(super) fn explain(
    rows: &mut TextRows,
    loaded: &Loaded,
    action: &RouteAction,
    subject: &Subject<'_>,
    path: &str,
) -> ResponseInfo {
    let snapshot = &loaded.config.snapshot;
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
        Target::Block => {
            rows.row("response", "403 Forbidden: the route blocks its requests (`block`)");
            ResponseInfo::new("block", StatusCode::FORBIDDEN)
        }
        Target::Decide(_) => {
            rows.row("response", "404 Not Found: the original request is an authorization request itself");
            ResponseInfo::rejected(StatusCode::NOT_FOUND, &"it is an authorization request itself")
        }
        Target::Forward { upstream, rewrite, key } => {
            let upstream = &snapshot.upstreams[*upstream];
            let first = explain_balancing(rows, &snapshot.gate, upstream, key.as_ref(), subject);
            let query = subject.head.uri.query().map_or_else(String::new, |query| format!("?{query}"));
            let target = format!("{}{query}", rewrite.path(path));
            // A part of the URL may be a secret from an environment variable.
            let url = |server: &ServerSpec| format!("{}{target}", loaded.without_variables(&server.url()));
            let urls: Vec<String> = upstream.servers.iter().map(url).collect();
            list_servers(rows, upstream, first, &urls);
            explain_host(rows, upstream, rewrite, subject.head);
            let upstream = Some(upstream.label().to_owned());
            ResponseInfo { kind: "forward", upstream, urls, ..ResponseInfo::default() }
        }
    };
    list_edits(rows, "in the request", &action.request_headers);
    let responses = if action.edits_local_replies { "in every response" } else { "in the response" };
    list_edits(rows, responses, &action.response_headers);
    response
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
        let by = match part.value(subject).one() {
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

fn list_edits(rows: &mut TextRows, message: &str, edits: &HeaderEdits) {
    let removed: Vec<&str> = edits.remove.iter().map(HeaderName::as_str).collect();
    if !removed.is_empty() {
        rows.row("removed", format!("{message}: {}", removed.join(", ")));
    }
    let set: Vec<&str> = edits.set.iter().map(|(name, _)| name.as_str()).collect();
    if !set.is_empty() {
        rows.row("set", format!("{message}: {}", set.join(", ")));
    }
}
