//! Lints of limits: those that never count, or that requests evade.

use std::collections::HashSet;
use std::ops::Range;

use http::{Method, StatusCode};

use super::listeners::has_decisions;
use super::settlement;
use crate::config::descriptors::ReadDescriptors;
use crate::config::limits::{ReadLimit, ReadLimits};
use crate::config::report::Problem;
use crate::config::routes::ReadRoute;
use crate::config::sections::Sections;
use crate::gate::{Cost, HostPattern, KeyPart, KeySpec, OnMissing, Route};
use crate::limit::{Ahead, Policy, PolicyId, Quota};
use crate::limiter::OnStoreFailure;
use crate::proxy::Target;
use crate::store::StoreSpec;

/// Final statuses where no route matches: 404, and 204 for `OPTIONS *`.
const WITHOUT_ROUTE: [u16; 2] = [204, 404];

/// Limits with `charge_on` that never charge a request, because all of their routes have `respond` with other statuses.
pub(super) fn uncharged(sections: &Sections<'_>) -> Vec<Problem> {
    let (routes, limits) = (sections.routes(), &sections.limits);
    let never_charges = |id: PolicyId| {
        let policy = &limits.get(id)?.policy;
        let charge_on = policy.charge_on();
        let mut own = routes.iter().filter(|read| read.route.limits.contains(&id)).peekable();
        let is_default = sections.defaults.iter().any(|(default, _)| *default == id);
        // `settlement::unsent` reports those whose cost the response decides.
        if charge_on.is_empty() || policy.settles() || (own.peek().is_none() && !is_default) {
            return None;
        }
        let can_end = |read: &ReadRoute| {
            let own = match read.action.target {
                Target::Forward(_) | Target::Authorize(_) => return true,
                Target::Respond { status, .. } => status,
                Target::Redirect(ref redirect) => redirect.status,
                // The request is not charged, unless it is rejected.
                Target::Limits => return denies_missing_parts(read, limits),
                Target::Block => StatusCode::FORBIDDEN,
                // Such a route has no limits.
                Target::Decide(_) => return false,
            };
            charge_on.contains(&own.as_u16()) || denies_missing_parts(read, limits)
        };
        let without_route = is_default && charge_on.iter().any(|status| WITHOUT_ROUTE.contains(status));
        let never = !without_route && !own.any(can_end);
        never.then(|| {
            let title = "this limit never charges a request: none of its routes responds with a status of `charge_on`";
            Problem::warning(limits.span(id), title)
                .help("leave `charge_on` out, or use the limit on a route that forwards")
        })
    };
    limits.ids().filter_map(never_charges).collect()
}

/// Whether a limit of the route denies requests that lack a key part, with its own status.
fn denies_missing_parts(read: &ReadRoute, limits: &ReadLimits) -> bool {
    let mut of_route = read.route.limits.iter().filter_map(|id| limits.get(*id));
    of_route.any(|limit| limit.rule.key.on_missing == OnMissing::Deny)
}

/// Limits whose `ahead` has no effect.
pub(super) fn ahead(sections: &Sections<'_>) -> Vec<Problem> {
    let is_in_memory = sections.store.as_ref().is_some_and(|store| matches!(store.spec, StoreSpec::Memory));
    let without_effect = |id| {
        let limit = sections.limits.get(id)?;
        let at = limit.ahead.clone()?;
        if is_in_memory {
            let title =
                "`ahead` has no effect: this process counts the limit itself, so there are no calls to save";
            return Some(Problem::warning(at, title).help("leave it out, or set `url` in [store]"));
        }
        too_small(limit, at)
    };
    sections.limits.ids().filter_map(without_effect).collect()
}

/// A limit that has too few units, as have all of its tiers and overrides.
fn too_small(limit: &ReadLimit, at: Range<usize>) -> Option<Problem> {
    if limit.policies().any(has_effect) {
        return None;
    }
    let title = match (&limit.policy.quota, limit.policy.ahead) {
        (Quota::Concurrency(_), _) => {
            "`ahead` has no effect: slots of so small a limit are not kept".to_owned()
        }
        (quota, Some(Ahead { share, .. })) => format!(
            "`ahead` has no effect: a grant has at least {} units and at most 1/{share} of those available, and this limit has {}",
            Ahead::MIN_GRANT,
            quota.limit()
        ),
        (_, None) => return None,
    };
    Some(Problem::warning(at, title).help("leave it out: Redis decides each request in any case"))
}

fn has_effect(policy: &Policy) -> bool {
    match (&policy.quota, policy.ahead) {
        (Quota::Concurrency(slots), _) => slots.max_kept() > 0,
        (quota, Some(ahead)) => ahead.may_grant(quota),
        (_, None) => false,
    }
}

/// The routes that charge their limits: one that shows limits does not.
fn charging<'s>(sections: &'s Sections<'_>) -> impl Iterator<Item = &'s ReadRoute> {
    sections.routes().iter().filter(|read| !matches!(read.action.target, Target::Limits))
}

/// Routes all of whose limits a client can evade with an invented key for each request.
pub(super) fn evadable(sections: &Sections<'_>) -> Vec<Problem> {
    charging(sections).filter_map(|read| evadable_route(read, &sections.limits)).collect()
}

fn evadable_route(read: &ReadRoute, limits: &ReadLimits) -> Option<Problem> {
    let own = read.route.limits.iter().filter_map(|id| limits.get(*id));
    // Limits in shadow mode deny nothing.
    let own: Vec<&ReadLimit> = own.filter(|limit| !limit.policy.shadow).collect();
    let part_of = |limit: &&ReadLimit| {
        limit.rule.key.parts.iter().find(|part| can_be_invented(part, &read.route)).map(ToString::to_string)
    };
    let parts: Option<Vec<String>> = own.iter().map(part_of).collect();
    let mut parts = parts.filter(|parts| !parts.is_empty())?;
    parts.sort_unstable();
    parts.dedup();
    let parts = parts.iter().map(|part| format!("`{part}`")).collect::<Vec<_>>().join(" and ");
    let title = format!(
        "clients can evade every limit of route `{}`: an invented {parts} gives them a new count",
        read.route.name
    );
    let help = "add a limit that counts by `client_ip`, large enough for several clients behind one address";
    Some(Problem::warning(read.span.clone(), title).help(help))
}

/// Whether a client of this route can choose the value of a part freely. Values that the conditions of the route fix
/// can't be chosen; a method can, if the route has no condition on it.
pub(super) fn can_be_invented(part: &KeyPart, route: &Route) -> bool {
    match part {
        KeyPart::Host => !matches!(route.host, Some(HostPattern::Exact(_))),
        KeyPart::Method => route.methods.is_empty(),
        KeyPart::Path => {
            let path = route.path.to_string();
            path.contains(['{', '*'])
        }
        KeyPart::Header(name) if route.is_header_awaited(name) => false,
        part => part.is_freely_chosen(),
    }
}

/// Limits that do not count a request which lacks a part of their key, where no other limit counts it.
pub(super) fn skipping(sections: &Sections<'_>) -> Vec<Problem> {
    let limits = &sections.limits;
    let mut warned: HashSet<PolicyId> = HashSet::new();
    let mut problems = Vec::new();
    let mut check = |ids: &[PolicyId], route: Option<&ReadRoute>| {
        let enforcing = |id: &PolicyId| limits.get(*id).filter(|limit| !limit.policy.shadow);
        let counts_all = |limit: &ReadLimit| skipped_without(limit, route).is_none();
        if ids.iter().filter_map(enforcing).any(counts_all) {
            return;
        }
        for id in ids {
            let part = enforcing(id).and_then(|limit| skipped_without(limit, route));
            if let Some(part) = part.filter(|_| warned.insert(*id)) {
                problems.push(skips(part, limits.span(*id), route));
            }
        }
    };
    for read in sections.routes() {
        check(&read.route.limits, Some(read));
    }
    let defaults: Vec<PolicyId> = sections.defaults.iter().map(|(id, _)| *id).collect();
    check(&defaults, None);
    problems
}

/// The part of a limit's key that requests of a route, or of none, may lack, so that the limit skips them.
fn skipped_without<'l>(limit: &'l ReadLimit, route: Option<&ReadRoute>) -> Option<&'l KeyPart> {
    let KeySpec { parts, on_missing } = &limit.rule.key;
    let may_lack = |part: &&KeyPart| match part {
        KeyPart::Header(_)
        | KeyPart::Cookie(_)
        | KeyPart::Query(_)
        | KeyPart::Jwt(_)
        | KeyPart::TlsSubject
        | KeyPart::TlsSan
        | KeyPart::Consumer
        | KeyPart::Country
        | KeyPart::Asn
        | KeyPart::Body(_) => true,
        // With HTTP/1.0 a request may have none.
        KeyPart::Host => route.is_none_or(|read| read.route.host.is_none()),
        KeyPart::PathParam(_) | KeyPart::Route => route.is_none(),
        KeyPart::Global | KeyPart::ClientIp | KeyPart::Path | KeyPart::Method | KeyPart::Descriptor(_) => {
            false
        }
    };
    if *on_missing == OnMissing::Skip { parts.iter().find(may_lack) } else { None }
}

fn skips(part: &KeyPart, limit: Range<usize>, route: Option<&ReadRoute>) -> Problem {
    let scope = route.map_or_else(
        || "without a matching route".to_owned(),
        |read| format!("on route `{}`", read.route.name),
    );
    let title = format!(
        "requests without `{part}` are not limited {scope}: this limit skips them, and no limit beside it counts every request"
    );
    let problem = Problem::warning(limit, title);
    let problem = match route {
        Some(read) => problem.related(read.span.clone(), "this route"),
        None => problem,
    };
    problem.help("add a limit that counts by `client_ip`, or write on_missing = \"client_ip\" or \"deny\"")
}

/// Limits that count by the body, on routes whose methods have none.
pub(super) fn bodiless(sections: &Sections<'_>) -> Vec<Problem> {
    sections.routes().iter().filter_map(|read| bodiless_route(read, &sections.limits)).collect()
}

fn bodiless_route(read: &ReadRoute, limits: &ReadLimits) -> Option<Problem> {
    let has_no_body =
        |method: &Method| [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE].contains(method);
    let methods = &read.route.methods;
    let is_bodiless = !methods.is_empty() && methods.iter().all(has_no_body);
    if !is_bodiless {
        return None;
    }
    let Some(field) = read.route.body_fields().first() else { return settlement::bodiless(read, limits) };
    let name = &read.route.name;
    let title =
        format!("requests of route `{name}` have no body, and so no `{field}`, by which this limit counts");
    let is_field = |part: &KeyPart| matches!(part, KeyPart::Body(other) if other == field);
    let mut counting = read
        .route
        .limits
        .iter()
        .filter(|id| limits.get(**id).is_some_and(|limit| limit.rule.key.parts.iter().any(is_field)));
    let problem = Problem::warning(limits.span(*counting.next()?), title);
    Some(
        problem
            .related(read.span.clone(), "this route")
            .help("leave the limit out, or add a method such as POST"),
    )
}

/// Limits that no route, default or descriptor charges.
pub(super) fn unused(sections: &Sections<'_>) -> Vec<Problem> {
    let limits = &sections.limits;
    let of_routes = charging(sections).flat_map(|read| &read.route.limits);
    let named = of_routes.chain(sections.defaults.iter().map(|(id, _)| id));
    let named = named.chain(sections.descriptors.iter().flat_map(ReadDescriptors::limits));
    let used: HashSet<&PolicyId> = named.collect();
    let unused = limits.ids().filter(|id| !used.contains(id));
    let problem = |id| {
        let is_shown = sections.routes().iter().any(|read| read.route.limits.contains(&id));
        let title = if is_shown { "no route charges this limit" } else { "no route uses this limit" };
        Problem::warning(limits.span(id), title).help("name it in a route's `limits`, or in `default_limits`")
    };
    unused.map(problem).collect()
}

/// Limits that tell a server what they would deny, on routes without one. A decision is for the server of another proxy.
pub(super) fn marking_for_nobody(sections: &Sections<'_>) -> Vec<Problem> {
    if has_decisions(sections) {
        return Vec::new();
    }
    let problem = |read: &ReadRoute| {
        let action = &read.action;
        let is_served_here =
            matches!(action.target, Target::Respond { .. } | Target::Redirect(_) | Target::Block);
        let marks = |id: &&PolicyId| sections.limits.get(**id).is_some_and(|limit| limit.policy.soft.marks);
        let id = read.route.limits.iter().find(marks).filter(|_| is_served_here)?;
        let title = format!(
            "limit `{}` marks requests for a server, and route `{}` has none",
            sections.limits.get(*id)?.policy.name,
            read.route.name
        );
        let problem =
            Problem::warning(read.span.clone(), title).related(sections.limits.span(*id), "the limit");
        Some(problem.help("write mode = \"shadow\" to count without denials, or \"enforce\" to deny"))
    };
    sections.routes().iter().filter_map(problem).collect()
}

/// Limits that cost nothing.
pub(super) fn free(sections: &Sections<'_>) -> Vec<Problem> {
    let limits = &sections.limits;
    let free =
        limits.ids().filter(|id| limits.get(*id).is_some_and(|limit| limit.rule.cost == Cost::Fixed(0)));
    free.map(|id| Problem::warning(limits.span(id), "this limit never denies a request: its cost is 0"))
        .collect()
}

/// A Redis on another machine is probably shared, and without `instances` the share of each proxy is unknown.
pub(super) fn instances(sections: &Sections<'_>) -> Vec<Problem> {
    let limits = &sections.limits;
    let shared = sections.store.as_ref().and_then(|store| store.shared.clone());
    let is_local = |id| limits.get(id).is_some_and(|limit| limit.on_failure == OnStoreFailure::Local);
    let problem = |span| {
        let title = "`instances` is not set: while this Redis is unavailable, each proxy that shares it allows the \
                     whole of a limit";
        let help = "add the number of proxies, such as instances = 3; for a single one, instances = 1";
        Problem::warning(span, title).help(help)
    };
    shared.filter(|_| limits.ids().any(is_local)).map(problem).into_iter().collect()
}
