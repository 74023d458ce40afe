//! Lints of overload: keys of fairness that clients can invent, and priorities without effect.

use std::ops::Range;

use super::limits::can_be_invented;
use crate::config::report::Problem;
use crate::config::routes::ReadRoute;
use crate::config::sections::Sections;
use crate::gate::{ClientIp, KeyPart};
use crate::limit::PolicyId;
use crate::overload::{LimitSpec, Mode};
use crate::proxy::ForwardTarget;
use crate::text::plural;
use crate::upstream::UpstreamSpec;

/// Upstreams whose waiting requests take turns by a value that clients can invent: one with a new value for each request would
/// have every turn.
pub(super) fn invented_turns(sections: &Sections<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for read in sections.routes() {
        let fair_by = target(read).and_then(|target| sections.upstreams.fair_by(target.upstream));
        let Some(key) = fair_by else { continue };
        let is_invented = |part: &&KeyPart| {
            can_be_invented(part, &read.route) && !is_vouched_for(part, sections.client_ip.as_ref())
        };
        let Some(part) = key.spec.parts.iter().find(is_invented) else { continue };
        let title = format!(
            "clients of route `{}` could take every turn: each request can have another value of `{part}`",
            read.route.name
        );
        let problem = Problem::error(key.span.clone(), title).related(read.span.clone(), "this route");
        problems.push(problem.help(match part {
            KeyPart::Header(name) => format!(
                "write fair_by = \"client_ip\", \"consumer\" or \"jwt:sub\"; if your proxies set `{name}`, add it to `remove_headers` of [client_ip]"
            ),
            _ => "write fair_by = \"client_ip\", \"consumer\" or \"jwt:sub\"".to_owned(),
        }));
    }
    // Each key once, with the first route.
    problems.sort_by_key(Problem::start);
    problems.dedup_by_key(|problem| problem.start());
    problems
}

/// Whether only trusted proxies can send the value.
fn is_vouched_for(part: &KeyPart, client_ip: Option<&ClientIp>) -> bool {
    match part {
        KeyPart::Header(name) => client_ip.is_none_or(|client_ip| client_ip.remove_headers.contains(name)),
        _ => false,
    }
}

fn target(read: &ReadRoute) -> Option<&ForwardTarget> {
    read.action.target.forwarding()
}

/// Routes whose priority has no effect: neither their upstream nor their authorization server has `overload`, and their limits
/// reserve no slots.
pub(super) fn unused_priorities(sections: &Sections<'_>) -> Vec<Problem> {
    let problem = |read: &ReadRoute| {
        let title = format!("the priority of route `{}` has no effect", read.route.name);
        let help = if target(read).is_some() {
            "its upstream has no `overload`: write overload = true in [upstreams.NAME], or `reserved_share` in a limit of the route"
        } else {
            "it has no upstream: write `reserved_share` in a limit of the route, or leave the priority out"
        };
        Some(Problem::warning(read.priority_span.clone()?, title).help(help))
    };
    let unused = sections.routes().iter().filter(|read| !uses_priority(read, sections));
    unused.filter_map(problem).collect()
}

fn uses_priority(read: &ReadRoute, sections: &Sections<'_>) -> bool {
    let asked = [
        target(read).map(|target| target.upstream),
        read.action.target.authorization().map(|rule| rule.upstream),
    ];
    asked.into_iter().flatten().any(|upstream| !sections.upstreams.is_without_overload(upstream))
        || read.route.limits.iter().any(|id| may_reserve(*id, sections))
}

/// Whether a limit reserves slots for classes. One that is invalid may do so.
fn may_reserve(id: PolicyId, sections: &Sections<'_>) -> bool {
    sections.limits.get(id).is_none_or(|limit| limit.rule.classes.is_some())
}

/// Priorities in headers that no proxy is trusted to send.
pub(super) fn untrusted_priorities(sections: &Sections<'_>) -> Vec<Problem> {
    let is_trusting = |client_ip: &ClientIp| !client_ip.trusted_proxies.is_empty();
    if sections.client_ip.as_ref().is_none_or(is_trusting) {
        return Vec::new();
    }
    let problem = |read: &ReadRoute| {
        let name = read.route.priority.header.as_ref()?;
        let title =
            format!("no request has the priority that `{name}` names: it is read from trusted proxies only");
        let help = "name their networks: [client_ip] trusted_proxies = [\"10.0.0.0/8\"]";
        Some(Problem::warning(read.priority_span.clone()?, title).help(help))
    };
    sections.routes().iter().filter(|read| uses_priority(read, sections)).filter_map(problem).collect()
}

/// Priorities of tiers that no consumer has, and those of a file where nothing uses them.
pub(super) fn priorities_of_tiers(sections: &Sections<'_>) -> Vec<Problem> {
    let tiers = sections.consumers.priorities();
    let of_nobody = tiers.iter().filter(|one| !sections.consumers.have_tier(&one.tier));
    let of_nobody = of_nobody.map(|one| sections.consumers.tier_of_nobody(one.span.clone(), &one.tier));
    let is_unused = sections.upstreams.are_without_overload()
        && !sections.limits.ids().any(|id| may_reserve(id, sections));
    let first = tiers.first().filter(|_| is_unused);
    let unused = first.map(|first| {
        Problem::warning(
            first.span.clone(),
            "the priorities of tiers have no effect: no upstream has `overload`, and no limit `reserved_share`",
        )
        .help("write overload = true in [upstreams.NAME]")
    });
    of_nobody.chain(unused).collect()
}

/// Limits of requests above the connections of their upstream: those that get none wait again, without priorities.
pub(super) fn above_connections(sections: &Sections<'_>) -> Vec<Problem> {
    let problem = |(upstream, span): (&UpstreamSpec, &Range<usize>)| {
        let overload = upstream.overload.as_ref().filter(|overload| overload.mode == Mode::Enforce)?;
        let (limit, key) = match overload.limit {
            LimitSpec::Fixed(limit) => (limit, "limit"),
            LimitSpec::Adaptive { max, .. } => (max, "max_limit"),
        };
        let (count, each) = (upstream.servers.len(), upstream.max_connections);
        let all = count.saturating_mul(each);
        // Over HTTP/2 requests share connections.
        if upstream.is_http2 || limit as usize <= all {
            return None;
        }
        let title = format!(
            "upstream `{}` may admit {limit} requests at once, and has {each} connections to each address of {count} server{}",
            upstream.name,
            plural(count)
        );
        let help = format!(
            "requests that are admitted and find no connection wait again, whatever their priority: write {key} = {all}, or a larger `max_connections`"
        );
        Some(Problem::warning(span.clone(), title).help(help))
    };
    sections.upstreams.bounded().filter_map(problem).collect()
}
