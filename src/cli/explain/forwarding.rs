//! Where a request goes that its limits let pass.

use http::header::HeaderName;

use super::rows::Rows;
use crate::config::Loaded;
use crate::gate::{Gate, KeySpec, Subject};
use crate::http1::{RequestHead, names};
use crate::proxy::{HeaderEdits, Rewrite, RouteAction, Target};
use crate::upstream::{Balance, HostRule, ServerSpec, SharedUpstream, UpstreamSpec};

/// Tells what a route does with a request; `path` is what goes upstream.
pub(super) fn tell(
    rows: &mut Rows,
    loaded: &Loaded,
    treatment: &RouteAction,
    subject: &Subject<'_>,
    path: &str,
) {
    let site = &loaded.config.site;
    match &treatment.target {
        Target::Respond { status, .. } => rows.row("answer", format!("{status}, by the route itself")),
        Target::Forward { upstream, rewrite, key } => {
            let upstream = &site.upstreams[*upstream];
            let first = choice(rows, &site.gate, upstream, key.as_ref(), subject);
            let query = subject.head.uri.query().map_or_else(String::new, |query| format!("?{query}"));
            servers(rows, loaded, upstream, first, &format!("{}{query}", rewrite.path(path)));
            host(rows, upstream, rewrite, subject.head);
        }
    }
    edits(rows, "on the way there", &treatment.request_headers);
    edits(rows, "on the way back", &treatment.response_headers);
}

/// Tells how a server is chosen; gives the place of the one that it is, or could be.
fn choice(
    rows: &mut Rows,
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
            Balance::LeastRequests => rows.row("balance", "to the server with the fewest requests in flight"),
            Balance::PowerOfTwo => {
                rows.row("balance", "of two servers to the one with fewer requests in flight");
            }
            Balance::RoundRobin | Balance::Hash => {}
        }
        return 0;
    };
    let found =
        gate.balance_hash(key, subject).and_then(|number| SharedUpstream::new(upstream).found_by(number));
    for part in &key.parts {
        let by = match part.value(subject).one() {
            Some(value) => format!("{part} = {}", String::from_utf8_lossy(&value)),
            None => format!("client_ip = {}, since the request has no {part}", subject.client),
        };
        let where_to = if found.is_some() {
            "the first of these servers, while it is well"
        } else {
            "always to the same server, while that is well"
        };
        rows.row("balance", format!("by {by}: {where_to}"));
    }
    found.unwrap_or(0)
}

/// Tells where the request goes, to the server at `first` before all others.
fn servers(rows: &mut Rows, loaded: &Loaded, upstream: &UpstreamSpec, first: usize, target: &str) {
    let (before, from) = upstream.servers.split_at(first.min(upstream.servers.len()));
    for (number, server) in from.iter().take(1).chain(before).chain(from.iter().skip(1)).enumerate() {
        let label = if number == 0 { "sent to" } else { "or" };
        let weight = if server.weight == 1 { String::new() } else { format!(" (weight {})", server.weight) };
        // Its path may be a secret from the environment.
        let url = loaded.without_variables(&server.url());
        rows.row(label, format!("{url}{target}{weight}"));
    }
}

fn host(rows: &mut Rows, upstream: &UpstreamSpec, rewrite: &Rewrite, head: &RequestHead) {
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

fn edits(rows: &mut Rows, way: &str, edits: &HeaderEdits) {
    let removed: Vec<&str> = edits.remove.iter().map(HeaderName::as_str).collect();
    if !removed.is_empty() {
        rows.row("removed", format!("{way}: {}", removed.join(", ")));
    }
    let set: Vec<&str> = edits.set.iter().map(|(name, _)| name.as_str()).collect();
    if !set.is_empty() {
        rows.row("set", format!("{way}: {}", set.join(", ")));
    }
}
