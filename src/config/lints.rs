//! Lints: valid but suspicious configuration.

mod forward_auth;

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use http::Method;

pub(super) use self::forward_auth::check_trust;
use super::descriptors::{self, ReadDescriptors};
use super::limits::{ReadLimit, ReadLimits};
use super::report::Problem;
use super::routes::ReadRoute;
use super::store::{ReadStore, is_loopback};
use super::upstreams::ReadUpstreams;
use crate::gate::{Cost, HostPattern, KeyPart, KeySpec, OnMissing, Route, ValueCondition};
use crate::limit::PolicyId;
use crate::limiter::OnStoreFailure;
use crate::proxy::Target;
use crate::server::{ListenerSpec, Service};
use crate::upstream::ServerSpec;

/// The sections of a file that lints compare.
pub(super) struct Sections<'s> {
    pub routes: &'s [ReadRoute],
    pub limits: &'s ReadLimits,
    pub upstreams: &'s ReadUpstreams,
    pub defaults: &'s [(PolicyId, Range<usize>)],
    pub descriptors: Option<&'s ReadDescriptors>,
    pub listeners: &'s [ListenerSpec],
    pub store: Option<&'s ReadStore>,
}

/// Every warning about the sections of a file together.
pub(super) fn warnings(sections: &Sections<'_>) -> Vec<Problem> {
    let Sections { routes, limits, upstreams, defaults, .. } = *sections;
    let mut problems = unreachable_routes(routes);
    // A route that shows limits does not charge them.
    let charging = || routes.iter().filter(|read| !matches!(read.action.target, Target::Limits));
    problems.extend(charging().filter_map(|read| evadable(read, limits)));
    problems.extend(skipping_limits(routes, limits, defaults));
    problems.extend(routes.iter().filter_map(|read| bodiless(read, limits)));
    problems.extend(unused_limits(sections));
    problems.extend(zero_cost_limits(limits));
    let unused = |span| Problem::warning(span, "no route uses this upstream");
    problems.extend(upstreams.unused().map(unused));
    problems.extend(loops(upstreams, sections.listeners));
    problems.extend(missing_instances(limits, sections.store));
    problems.extend(forward_auth::problems(routes, limits, defaults, sections.listeners));
    problems.extend(only_root_route(routes));
    problems.extend(routes_without_limits_to_show(routes));
    let of_descriptors = |read| descriptors::warnings(read, sections.listeners);
    problems.extend(sections.descriptors.into_iter().flat_map(of_descriptors));
    let serves_routes = sections.listeners.iter().any(|listener| listener.service == Service::Proxy);
    if routes.is_empty() && serves_routes {
        let problem = Problem::without_span("the file has no routes: every request gets 404");
        problems.push(problem.into_warning().help("add a [[routes]] table with a `path` and an `upstream`"));
    }
    problems
}

fn unused_limits(sections: &Sections<'_>) -> Vec<Problem> {
    let Sections { routes, limits, defaults, descriptors, .. } = *sections;
    let charging = routes.iter().filter(|read| !matches!(read.action.target, Target::Limits));
    let named = charging.flat_map(|read| &read.route.limits).chain(defaults.iter().map(|(id, _)| id));
    let named = named.chain(descriptors.into_iter().flat_map(ReadDescriptors::limits));
    let used: HashSet<&PolicyId> = named.collect();
    let unused = limits.ids().filter(|id| !used.contains(id));
    let problem = |id| {
        let is_shown = routes.iter().any(|read| read.route.limits.contains(&id));
        let title = if is_shown { "no route charges this limit" } else { "no route uses this limit" };
        Problem::warning(limits.span(id), title).help("name it in a route's `limits`, or in `default_limits`")
    };
    unused.map(problem).collect()
}

/// Limits that do not count a request which lacks a part of their key, where no other limit counts it.
fn skipping_limits(
    routes: &[ReadRoute],
    limits: &ReadLimits,
    defaults: &[(PolicyId, Range<usize>)],
) -> Vec<Problem> {
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
                problems.push(skipping(part, limits.span(*id), route));
            }
        }
    };
    for read in routes {
        check(&read.route.limits, Some(read));
    }
    let defaults: Vec<PolicyId> = defaults.iter().map(|(id, _)| *id).collect();
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

fn skipping(part: &KeyPart, limit: Range<usize>, route: Option<&ReadRoute>) -> Problem {
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

/// A limit that counts by the body, on a route whose methods have none.
fn bodiless(read: &ReadRoute, limits: &ReadLimits) -> Option<Problem> {
    let has_no_body =
        |method: &Method| [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE].contains(method);
    let methods = &read.route.methods;
    let is_bodiless = !methods.is_empty() && methods.iter().all(has_no_body);
    let field = read.route.body_fields.first().filter(|_| is_bodiless)?;
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

fn zero_cost_limits(limits: &ReadLimits) -> impl Iterator<Item = Problem> {
    let free =
        limits.ids().filter(|id| limits.get(*id).is_some_and(|limit| limit.rule.cost == Cost::Fixed(0)));
    free.map(|id| Problem::warning(limits.span(id), "this limit never denies a request: its cost is 0"))
}

/// Upstreams with a server that is a listener of this file.
fn loops(upstreams: &ReadUpstreams, listeners: &[ListenerSpec]) -> impl Iterator<Item = Problem> {
    upstreams.servers().filter_map(|(servers, span)| {
        let reached =
            |server: &ServerSpec| listeners.iter().find(|listener| reaches(server, listener.address));
        let address = servers.iter().find_map(reached)?.address;
        let title = format!("requests would loop: {address} is a listener of this file");
        Some(Problem::warning(span, title).help("name the address of the application"))
    })
}

/// Whether connections to a server arrive at a listener, by their addresses.
fn reaches(server: &ServerSpec, listener: SocketAddr) -> bool {
    let ip = listener.ip().to_canonical();
    let is_here = |host: IpAddr| host == ip || (ip.is_unspecified() && host.is_loopback());
    server.port == listener.port()
        && match server.literal() {
            Some(host) => is_here(host.to_canonical()),
            None => is_loopback(&server.host) && (ip.is_loopback() || ip.is_unspecified()),
        }
}

/// A Redis on another machine is probably shared, and without `instances` the share of each proxy is unknown.
fn missing_instances(limits: &ReadLimits, store: Option<&ReadStore>) -> Option<Problem> {
    let span = store?.shared.clone()?;
    let is_local = |id| limits.get(id).is_some_and(|limit| limit.on_failure == OnStoreFailure::Local);
    limits.ids().any(is_local).then(|| {
        let title = "`instances` is not set: while this Redis is unavailable, each proxy that shares it allows the \
                     whole of a limit";
        let help = "add the number of proxies, such as instances = 3; for a single one, instances = 1";
        Problem::warning(span, title).help(help)
    })
}

/// A file whose only path is `/`: probably `/*` is meant.
fn only_root_route(routes: &[ReadRoute]) -> Option<Problem> {
    let [read] = routes else { return None };
    (read.route.path.to_string() == "/").then(|| {
        let title = "this is the only route, and it matches only the path `/`: other paths get 404";
        Problem::warning(read.span.clone(), title).help("write path = \"/*\" for every path")
    })
}

/// Routes that show the limits of a client and have none.
fn routes_without_limits_to_show(routes: &[ReadRoute]) -> impl Iterator<Item = Problem> {
    let shows = |read: &&ReadRoute| matches!(read.action.target, Target::Limits);
    let empty = routes.iter().filter(shows).filter(|read| read.route.limits.is_empty());
    empty.map(|read| {
        let title = format!("route `{}` shows the limits of a client, and has none", read.route.name);
        Problem::warning(read.span.clone(), title).help("name in `limits` those that other routes charge")
    })
}

/// A route all of whose limits a client can evade with an invented key for each request.
fn evadable(read: &ReadRoute, limits: &ReadLimits) -> Option<Problem> {
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
fn can_be_invented(part: &KeyPart, route: &Route) -> bool {
    match part {
        KeyPart::Host => !matches!(route.host, Some(HostPattern::Exact(_))),
        KeyPart::Method => route.methods.is_empty(),
        KeyPart::Path => {
            let path = route.path.to_string();
            path.contains('{') || path.ends_with('*')
        }
        part => part.is_freely_chosen(),
    }
}

/// The index of routes that may hide another: host, path with its parameters unnamed, whether it ends in `*`, and the
/// first of its other conditions.
type IndexKey = (String, String, bool, Option<(String, ValueCondition)>);

/// Routes that never match because an earlier one matches all of their requests. Comparing each pair would take
/// minutes for 10,000 routes, so only those are compared whose host, path and first condition can cover.
fn unreachable_routes(routes: &[ReadRoute]) -> Vec<Problem> {
    let mut index: HashMap<IndexKey, Vec<usize>> = HashMap::new();
    let mut rest_lengths: Vec<usize> = Vec::new();
    let mut problems = Vec::new();
    for (number, read) in routes.iter().enumerate() {
        let (path, takes_rest) = shape(&read.route);
        let covers = |candidate: &&usize| {
            routes.get(**candidate).is_some_and(|earlier| earlier.route.covers(&read.route))
        };
        let candidates = covering_keys(&read.route, &path, takes_rest, &rest_lengths);
        let hiding = candidates.filter_map(|key| index.get(&key)?.iter().find(covers).copied()).min();
        if let Some(earlier) = hiding.and_then(|index| routes.get(index)) {
            let (own, other) = (&read.route.name, &earlier.route.name);
            let title =
                format!("route `{own}` never matches: the earlier route `{other}` matches all its requests");
            let problem = Problem::warning(read.span.clone(), title);
            let help = "routes are tried from the top: put the more specific one first";
            problems.push(problem.related(earlier.span.clone(), "this route").help(help));
        }
        if takes_rest && !rest_lengths.contains(&path.len()) {
            rest_lengths.push(path.len());
        }
        let host = read.route.host.as_ref().map_or_else(String::new, ToString::to_string);
        let key = (host, path, takes_rest, conditions(&read.route).next());
        index.entry(key).or_default().push(number);
    }
    problems
}

/// A route's path without the names of its parameters and without its star.
fn shape(route: &Route) -> (String, bool) {
    let written = route.path.to_string();
    let (body, takes_rest) = written.strip_suffix('*').map_or((&*written, false), |body| (body, true));
    let unnamed = |segment: &str| if segment.starts_with('{') { "{}".to_owned() } else { segment.to_owned() };
    (body.split('/').map(unnamed).collect::<Vec<_>>().join("/"), takes_rest)
}

/// The conditions on headers, query and cookies, in an order that equal lists share.
fn conditions(route: &Route) -> impl Iterator<Item = (String, ValueCondition)> {
    let headers = route.headers.iter().map(|(name, condition)| (format!("h {name}"), condition));
    let query = route.query.iter().map(|(name, condition)| (format!("q {name}"), condition));
    let cookies = route.cookies.iter().map(|(name, condition)| (format!("c {name}"), condition));
    headers.chain(query).chain(cookies).map(|(name, condition)| (name, condition.clone()))
}

/// Every index entry of routes that can cover this one.
fn covering_keys(
    route: &Route,
    path: &str,
    takes_rest: bool,
    rest_lengths: &[usize],
) -> impl Iterator<Item = IndexKey> {
    let mut hosts = vec![String::new()];
    if let Some(host) = &route.host {
        let host = host.to_string();
        hosts.extend(host.match_indices('.').map(|(dot, _)| format!("*{}", &host[dot..])));
        hosts.push(host);
    }
    let mut paths: Vec<(&str, bool)> = Vec::new();
    paths.extend(rest_lengths.iter().filter_map(|length| Some((path.get(..*length)?, true))));
    if !takes_rest {
        paths.push((path, false));
    }
    let paths: Vec<(String, bool)> = paths.into_iter().map(|(path, rest)| (path.to_owned(), rest)).collect();
    // A condition that a name is present covers every condition on its values.
    let present = conditions(route).map(|(name, _)| Some((name, ValueCondition::Present)));
    let conditions: Vec<_> =
        std::iter::once(None).chain(conditions(route).map(Some)).chain(present).collect();
    let mut index = Vec::with_capacity(hosts.len() * paths.len() * conditions.len());
    for host in &hosts {
        for (path, rest) in &paths {
            index.extend(conditions.iter().map(|one| (host.clone(), path.clone(), *rest, one.clone())));
        }
    }
    index.into_iter()
}
