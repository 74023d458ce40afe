//! Where a request goes that its limits let pass.

use http::header::{HOST, HeaderName};
use http::request;

use super::rows::Rows;
use crate::proxy::{HeaderEdits, Rewrite, Site, Target, Treatment};
use crate::upstream::{HostRule, ServerSpec, UpstreamSpec};

/// Tells what a route does with a request; `path` is what goes upstream.
pub(super) fn tell(rows: &mut Rows, site: &Site, treatment: &Treatment, head: &request::Parts, path: &str) {
    match &treatment.target {
        Target::Respond { status, .. } => rows.row("answer", format!("{status}, by the route itself")),
        Target::Forward { upstream, rewrite, .. } => {
            if let Some(upstream) = site.upstreams.get(upstream.0 as usize) {
                forward(rows, upstream, rewrite, head, path);
            }
        }
    }
    edits(rows, "on the way there", &treatment.request_headers);
    edits(rows, "on the way back", &treatment.response_headers);
}

fn forward(rows: &mut Rows, upstream: &UpstreamSpec, rewrite: &Rewrite, head: &request::Parts, path: &str) {
    if !upstream.name.contains("://") {
        rows.row("upstream", &*upstream.name);
    }
    let query = head.uri.query().map_or_else(String::new, |query| format!("?{query}"));
    let path = rewrite.path(path);
    for (number, server) in upstream.servers.iter().enumerate() {
        let label = if number == 0 { "sent to" } else { "or" };
        let weight = if server.weight == 1 { String::new() } else { format!(" (weight {})", server.weight) };
        let (authority, base) = (server.authority(), &server.base_path);
        rows.row(label, format!("{}://{authority}{base}{path}{query}{weight}", server.scheme()));
    }
    rows.row(
        "as host",
        match &rewrite.host {
            HostRule::Client => head
                .headers
                .get(HOST)
                .map_or_else(String::new, |host| String::from_utf8_lossy(host.as_bytes()).into_owned()),
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
