//! Lints of listeners: requests that loop, rules that none serves, and authorization requests.

use std::net::{IpAddr, SocketAddr};

use crate::config::limits::ReadLimit;
use crate::config::report::Problem;
use crate::config::route_actions::{TRUST, untrusted};
use crate::config::routes::ReadRoute;
use crate::config::sections::Sections;
use crate::config::store::is_loopback;
use crate::gate::KeyPart;
use crate::limit::{PolicyId, Quota};
use crate::proxy::Target;
use crate::server::{ListenerSpec, Service};
use crate::upstream::{ServerAddress, ServerSpec};

/// Upstreams that no route uses.
pub(super) fn unused_upstreams(sections: &Sections<'_>) -> Vec<Problem> {
    sections.upstreams.unused().map(|span| Problem::warning(span, "no route uses this upstream")).collect()
}

/// Upstreams with a server that is a listener of this file.
pub(super) fn loops(sections: &Sections<'_>) -> Vec<Problem> {
    let looping = sections.upstreams.servers().filter_map(|(servers, span)| {
        let reached = |server: &ServerSpec| {
            sections.listeners().iter().find(|listener| reaches(server, listener.address))
        };
        let address = servers.iter().find_map(reached)?.address;
        let title = format!("requests would loop: {address} is a listener of this file");
        Some(Problem::warning(span, title).help("name the address of the application"))
    });
    looping.collect()
}

/// Whether connections to a server arrive at a listener, by their addresses.
fn reaches(server: &ServerSpec, listener: SocketAddr) -> bool {
    let ip = listener.ip().to_canonical();
    let is_here = |host: IpAddr| host == ip || (ip.is_unspecified() && host.is_loopback());
    let ServerAddress::Tcp { host, port } = &server.address else { return false };
    *port == listener.port()
        && match server.literal() {
            Some(host) => is_here(host.to_canonical()),
            None => is_loopback(host) && (ip.is_loopback() || ip.is_unspecified()),
        }
}

/// Rules without a listener that serves them, and of such listeners without rules or without HTTP/2.
pub(super) fn descriptors(sections: &Sections<'_>) -> Vec<Problem> {
    let Some(read) = &sections.descriptors else { return Vec::new() };
    let serves = |listener: &&ListenerSpec| listener.service == Service::EnvoyRatelimit;
    let serving: Vec<&ListenerSpec> = sections.listeners().iter().filter(serves).collect();
    let mut problems = Vec::new();
    match (read.spans.first(), serving.is_empty()) {
        (Some(span), true) => {
            let problem = Problem::warning(span.clone(), "no listener serves descriptors");
            problems.push(problem.help("add a listener with serve = \"envoy-ratelimit\""));
        }
        (None, false) => {
            let title =
                "a listener serves descriptors, and the file has no rules for them: all are unlimited";
            let problem = Problem::without_span(title).into_warning();
            problems.push(problem.help("add [[descriptors]] with `domain`, `match` and `limits`"));
        }
        _ => {}
    }
    for listener in serving.into_iter().filter(|listener| !listener.protocols.h2) {
        let address = listener.address;
        let title = format!("Envoy can't call the rate-limit service on {address}: gRPC needs HTTP/2");
        let problem = Problem::without_span(title).into_warning();
        problems.push(problem.help("leave `protocols` out, or add \"h2\"; only POST /json works without it"));
    }
    problems
}

/// Routes for authorization requests without trusted proxies.
pub(super) fn untrusted_decisions(sections: &Sections<'_>) -> Vec<Problem> {
    if sections.client_ip.as_ref().is_none_or(|client_ip| !client_ip.trusted_proxies.is_empty()) {
        return Vec::new();
    }
    let deciding = sections.routes().iter().filter(|read| decides(read));
    deciding
        .map(|read| Problem::error(read.span.clone(), untrusted("this route")).help(TRUST).derived())
        .collect()
}

/// Whether there may be authorization requests.
pub(super) fn has_decisions(sections: &Sections<'_>) -> bool {
    sections.listeners().iter().any(asks) || sections.routes().iter().any(decides)
}

fn asks(spec: &ListenerSpec) -> bool {
    spec.forward_auth.is_some()
}

fn decides(read: &ReadRoute) -> bool {
    matches!(read.action.target, Target::Decide(_))
}

/// Limits that decisions can't apply as the proxy does: errors if every request is an authorization request, otherwise
/// warnings.
pub(super) fn unknown_to_decisions(sections: &Sections<'_>) -> Vec<Problem> {
    if !has_decisions(sections) {
        return Vec::new();
    }
    let (routes, listeners, limits) = (sections.routes(), sections.listeners(), &sections.limits);
    let all_ask = !listeners.is_empty() && listeners.iter().all(asks);
    let is_used = |id: &PolicyId| {
        routes.iter().any(|read| read.route.limits.contains(id))
            || sections.defaults.iter().any(|(default, _)| default == id)
    };
    let problem = |id| {
        let (title, help) = unknown(limits.get(id)?)?;
        let span = limits.span(id);
        let problem = if all_ask { Problem::error(span, title) } else { Problem::warning(span, title) };
        Some(problem.help(help))
    };
    limits.ids().filter(is_used).filter_map(problem).collect()
}

/// A fact that a limit counts by and that is unknown when a decision is returned, and the cure.
fn unknown(limit: &ReadLimit) -> Option<(String, &'static str)> {
    if let Quota::Concurrency(_) = limit.policy.quota {
        let title = "a decision holds no slot of this limit: the end of the original request is not known";
        return Some((title.to_owned(), "limit concurrent requests in the trusted proxy"));
    }
    if limit.policy.settles() {
        let title =
            "a decision reserves units of this limit and never settles them: the response is not known";
        return Some((
            title.to_owned(),
            "forward these requests, or give the limit a cost that is known on arrival",
        ));
    }
    if limit.policy.charges_by_status() {
        let title = "a decision charges this limit whatever `charge_on` is: the final status is not known";
        return Some((title.to_owned(), "leave `charge_on` out, or forward these requests"));
    }
    let part = limit.rule.key.parts.iter().find(|part| matches!(part, KeyPart::Body(_)))?;
    let title = format!("decisions are made without the body of the request: `{part}` is always missing");
    Some((title, "count by another part of the request, or forward these requests"))
}
