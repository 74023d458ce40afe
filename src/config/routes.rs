//! `[[routes]]`: from text to routes and their actions.

use std::collections::HashMap;
use std::ops::Range;

use http::StatusCode;

use super::authorize::authorize;
use super::conditions::{self, conditions};
use super::consumers::ReadConsumers;
use super::cors::{RouteCors, route_cors};
use super::geo::ReadGeo;
use super::item::Item;
use super::keys::kinds::Words as _;
use super::limits::{NamedLimits, ReadLimits};
use super::report::Problem;
use super::route_actions::rewrite;
use super::route_keys::{RespondKeys, RespondWords, RouteKeys};
use super::table::{AnyTable, Table};
use super::upstreams::{ReadKey, ReadUpstreams};
use super::{headers, jwt, library, priorities, redirects, route_actions};
use crate::gate::{Access, Awaited, KeyPart, PathPattern, PatternError, Route, UsageRules};
use crate::limit::PolicyId;
use crate::proxy::{AuthorizedTarget, ForwardTarget, RouteAction, Target};
use crate::server::ListenerSpec;

/// The most limits of one route: all of them are decided in one call.
pub(super) const MAX_LIMITS: usize = 1_000;

const MAX_NAME: usize = 128;
/// The most routes with patterns that are compared in turn.
const MAX_PATTERNS: usize = 256;

/// One route.
pub(super) struct ReadRoute {
    pub route: Route,
    pub action: RouteAction,
    pub cors: RouteCors,
    /// The span of its header.
    pub span: Range<usize>,
    /// The span of its name, if it has one.
    pub name_span: Option<Range<usize>>,
    /// The span of `encoded_slash`, if it has one.
    pub slash_span: Option<Range<usize>>,
    /// The span of `upgrades`, if the file has it.
    pub upgrades_span: Option<Range<usize>>,
    /// The span of its priority, if it has one.
    pub priority_span: Option<Range<usize>>,
}

/// The names that routes refer to.
pub(super) struct RouteNames<'n> {
    pub limits: &'n ReadLimits,
    pub geo: &'n ReadGeo,
    /// None if they could not be read.
    pub listeners: Option<&'n [ListenerSpec]>,
    pub consumers: &'n ReadConsumers<'n>,
    pub upstreams: &'n mut ReadUpstreams,
    /// The limits of every route, with the spans of their names.
    pub defaults: &'n [(PolicyId, Range<usize>)],
}

/// Reads all routes.
pub(super) fn routes(item: Option<Item<'_>>, names: &mut RouteNames<'_>) -> Option<Vec<ReadRoute>> {
    let Some(item) = item else { return Some(Vec::new()) };
    let items = item.list("write [[routes]] with two brackets")?;
    let routes: Vec<Option<ReadRoute>> =
        (1..).zip(items).map(|(number, item)| route(number, item, names)).collect();
    check_names(item, &routes);
    let patterns = routes.iter().flatten().filter(|read| read.route.path.has_stars()).count();
    if patterns > MAX_PATTERNS {
        let problem = item.error(format!("{patterns} routes have a `*` before the end of their path"));
        let help = format!("at most {MAX_PATTERNS} can have one, since each is compared with many requests");
        return item.reject(problem.help(help));
    }
    routes.into_iter().collect()
}

/// Reads the limits of every route, which also apply to requests without one: they have the same bound as a route's.
pub(super) fn default_limits(item: Item<'_>, limits: &ReadLimits) -> NamedLimits {
    let defaults = limits.resolve_all(item);
    if defaults.len() > MAX_LIMITS {
        let problem = item.error(format!("there are {} default limits", defaults.len()));
        item.reject::<()>(problem.help(format!("a request has at most {MAX_LIMITS}")));
    }
    defaults
}

fn route(number: usize, item: Item<'_>, names: &mut RouteNames<'_>) -> Option<ReadRoute> {
    let mut table = Table::<RouteKeys>::of(item, format!("route {number}"))?;
    library::exclude_actions(&mut table);
    let path = table.path().with(path);
    let conditions = conditions(&table, names.geo, names.listeners);
    let name = table.name().with(name);
    let mut limits = limits(&table, path.as_ref(), number, names);
    let keeps_encoded_slash = table.encoded_slash().read();
    let max_body = table.max_body().read();
    let access = access(&table, names.consumers);
    let token = table.require().with(jwt::required);
    let cors = route_cors(table.cors().given());
    let action = action(&table, path.as_ref(), number, names.upstreams);
    if action.as_ref().is_some_and(|action| matches!(action.target, Target::Decide(_))) {
        route_actions::reject_limits(table.limits().given());
        limits = limits.map(|_| Vec::new());
    }
    let has_limits = limits.as_ref().is_none_or(|limits| !limits.is_empty());
    let deny_status = route_actions::deny_status(&table, action.as_ref().map(|it| &it.target), has_limits);
    let (span, name_span) = (table.span(), table.name().given().map(Item::span));
    let slash_span = table.encoded_slash().given().map(Item::span);
    let upgrades_span = table.upgrades().given().map(Item::span);
    let (priority, priority_span) = (priorities::of_route(&table), priorities::span(&table));
    table.close();
    let (conditions, limits) = (conditions?, limits?);
    let action = action?;
    let is_settled = names.limits.settled_costs(&limits).next().is_some();
    let awaits = Awaited {
        body_fields: names.limits.body_fields(&limits),
        authorization: action.target.awaited_headers(),
        usage: UsageRules::of(names.limits.settled_costs(&limits)),
    };
    let route = Route {
        name: name.ok()?.unwrap_or_else(|| number.to_string()).into(),
        listener: conditions.listener,
        scheme: conditions.scheme,
        host: conditions.host,
        path: path?,
        methods: conditions.methods,
        headers: conditions.headers,
        query: conditions.query,
        cookies: conditions.cookies,
        client_ip: conditions.client_ip,
        country: conditions.country,
        asn: conditions.asn,
        limits,
        keeps_encoded_slash: keeps_encoded_slash?,
        max_body: max_body.ok()?.map(|most| most as u64),
        access: access?,
        token: token.ok()?,
        priority: priority?,
        is_settled,
        awaits: awaits.boxed(),
    };
    let action = RouteAction { deny_status: deny_status.ok()?, ..action };
    let cors = cors?;
    Some(ReadRoute { route, action, cors, span, name_span, slash_span, upgrades_span, priority_span })
}

/// Reads which consumers the route serves.
fn access(table: &Table<'_, RouteKeys>, consumers: &ReadConsumers<'_>) -> Option<Access> {
    let Some(item) = table.consumers().given() else {
        // A route that blocks requests needs no credential for that.
        let blocks =
            table.block().given().filter(|item| item.is_boolean()).and_then(Item::boolean) == Some(true);
        return Some(if blocks { Access::Public } else { Access::Default });
    };
    if !consumers.is_there() {
        let problem = item.error("this route is for certain consumers, and the file has no [consumers]");
        return item
            .reject(problem.help("add a table [consumers] with `file`, the file of consumers").derived());
    }
    if !item.is_array() {
        return table.consumers().first(item).map(|()| Access::Public);
    }
    let tiers = item.list_of("", |item| access_tier(item, consumers))?;
    if tiers.is_empty() {
        let problem = item.error("no request could be served: the list is empty");
        return item.reject(problem.help("name a tier, or leave `consumers` out for all of them"));
    }
    Some(Access::Tiers(tiers))
}

/// Reads the name of a tier, and warns if no consumer has it.
fn access_tier(item: Item<'_>, consumers: &ReadConsumers<'_>) -> Option<Box<str>> {
    let text = item.string()?;
    if !consumers.have_tier(&text.value) {
        item.reader.report(consumers.tier_of_nobody(item.span(), &text.value));
    }
    Some(text.value.into())
}

fn name(item: Item<'_>) -> Option<String> {
    let text = item.string()?;
    let help = "a name has 1 to 128 characters, none of them a control character";
    text.parsed("a name for a route", help, |name| {
        let is_valid =
            !name.is_empty() && name.chars().count() <= MAX_NAME && !name.contains(char::is_control);
        is_valid.then(|| name.to_owned())
    })
}

fn path(item: Item<'_>) -> Option<PathPattern> {
    let text = item.string()?;
    let error = match PathPattern::parse(&text.value) {
        Ok(pattern) => {
            conditions::warn_of_path(&text);
            return Some(pattern);
        }
        Err(error) => error,
    };
    let problem = text.error(format!("{} can't be the path of a route: {error}", text.quoted()));
    let is_relative = !text.value.starts_with(['/', '*']);
    text.reject(match error {
        PatternError::Path(_) if is_relative && text.from_env => problem,
        PatternError::Path(_) if is_relative => problem.help(format!("write \"/{}\"", text.value)),
        _ => problem,
    })
}

/// The default limits, then the route's own, each once.
fn limits(
    table: &Table<'_, RouteKeys>,
    path: Option<&PathPattern>,
    number: usize,
    names: &RouteNames<'_>,
) -> Option<Vec<PolicyId>> {
    let inherits = table.inherit_limits().read()?;
    let item = table.limits().given();
    let own = item.map_or_else(Vec::new, |item| names.limits.resolve_all(item));
    // A default limit is named elsewhere in the file, so a problem with it is shown at this route.
    let inherited = names.defaults.iter().filter(|_| inherits).map(|(id, _)| (*id, table.span()));
    let mut limits: NamedLimits = inherited.collect();
    for (id, span) in own {
        match limits.iter_mut().find(|(other, _)| *other == id) {
            Some(limit) => limit.1 = span,
            None => limits.push((id, span)),
        }
    }
    if limits.len() > MAX_LIMITS {
        let span = item.map_or_else(|| table.span(), Item::span);
        let problem = Problem::error(span, format!("route {number} has {} limits", limits.len()));
        table.reader.report(problem.help(format!("a route has at most {MAX_LIMITS}")));
        return None;
    }
    if let Some(path) = path {
        check_params(table, &limits, path, number, names.limits);
    }
    Some(limits.into_iter().map(|(id, _)| id).collect())
}

/// Rejects limits that count by a segment which the path does not have.
fn check_params(
    table: &AnyTable<'_>,
    limits: &NamedLimits,
    path: &PathPattern,
    number: usize,
    all: &ReadLimits,
) {
    for (id, span) in limits {
        let Some(limit) = all.get(*id) else { continue };
        for part in &limit.rule.key.parts {
            let KeyPart::PathParam(param) = part else { continue };
            if path.params().all(|name| *name != **param) {
                let title = format!(
                    "the limit `{}` counts by `{part}`, and the path of route {number} has no `{{{param}}}`",
                    limit.policy.name
                );
                let help = format!("name a segment: path = \"/users/{{{param}}}\"");
                table.reader.report(Problem::error(span.clone(), title).help(help));
            }
        }
    }
}

/// Rejects an upstream whose servers are chosen by a segment which the path does not have.
fn check_key(item: Item<'_>, key: &ReadKey, path: &PathPattern, number: usize) {
    for part in &key.spec.parts {
        let KeyPart::PathParam(param) = part else { continue };
        if path.params().all(|name| *name != **param) {
            let title = format!(
                "this upstream chooses servers by `{part}`, and the path of route {number} has no `{{{param}}}`"
            );
            let problem = item.error(title).related(key.span.clone(), "here");
            item.reject::<()>(problem.help(format!("name a segment: path = \"/users/{{{param}}}\"")));
        }
    }
}

fn action(
    table: &Table<'_, RouteKeys>,
    path: Option<&PathPattern>,
    number: usize,
    upstreams: &mut ReadUpstreams,
) -> Option<RouteAction> {
    let request_headers = headers::request_edits(table.request_headers().given());
    let response_headers = headers::response_edits(table.response_headers().given());
    let (rewrite, times) = (rewrite(table.rewrite().given(), path), route_actions::times(table));
    let upgrades = route_actions::upgrades(table.upgrades().given());
    let authorization = table.authorize().with(|item| authorize(item, upstreams));
    let upstream = table.upstream().given().map(|item| (item, upstreams.resolve(item)));
    let response = table.respond().given().map(|item| respond(table, item, path));
    let blocks = table.block().read();
    check_only_action(table, blocks == Some(true))?;
    let target = match (upstream, response) {
        (Some((item, id)), _) => {
            let key = id.and_then(|id| upstreams.key(id));
            if let (Some(key), Some(path)) = (key, path) {
                check_key(item, key, path, number);
            }
            let policy = times?(upstreams.forward_policy(id)?);
            let (key, upgrades) = (key.map(|key| key.spec.clone()), upgrades?);
            let admission = priorities::admission(upstreams, id?);
            let target = ForwardTarget { upstream: id?, rewrite: rewrite?, key, policy, upgrades, admission };
            match authorization.ok()? {
                Some(rule) => Target::Authorize(Box::new(AuthorizedTarget { rule, target })),
                None => Target::Forward(target),
            }
        }
        (None, Some(response)) => {
            route_actions::reject_upstream_keys(table, "respond");
            response?
        }
        (None, None) => {
            if blocks? {
                route_actions::reject_upstream_keys(table, "block");
                Target::Block
            } else if table.reader.is_for_library() {
                library::action()
            } else {
                return no_action(table);
            }
        }
    };
    let (response_headers, edits_local_replies) = response_headers?;
    Some(RouteAction {
        target,
        deny_status: None,
        request_headers: request_headers?,
        response_headers,
        edits_local_replies,
    })
}

/// Rejects a route with more than one action.
fn check_only_action(table: &AnyTable<'_>, blocks: bool) -> Option<()> {
    let given = [("upstream", "forwards", true), ("respond", "responds", true), ("block", "blocks", blocks)];
    let mut actions = given.into_iter().filter(|(key, _, counts)| *counts && table.given(key).is_some());
    let (Some((first, verb, _)), Some((second, ..))) = (actions.next(), actions.next()) else {
        return Some(());
    };
    let span = |key| table.key_span(key).unwrap_or_default();
    let problem =
        Problem::error(span(second), format!("a route has either `{first}` or `{second}`, not both"));
    let problem = problem.related(span(first), format!("here the route {verb}"));
    table.reader.report(problem.help(format!("leave `{first}` or `{second}` out")));
    None
}

fn no_action<T>(table: &AnyTable<'_>) -> Option<T> {
    let problem = Problem::error(table.span(), "this route has neither `upstream` nor `respond` nor `block`");
    let help = "add upstream = \"http://127.0.0.1:9000\", respond = { status = 200, body = \"ok\\n\" } or block = true";
    table.reader.report(problem.help(help).derived());
    None
}

fn respond<'a>(route: &Table<'a, RouteKeys>, item: Item<'a>, path: Option<&PathPattern>) -> Option<Target> {
    if !item.is_table() {
        let decides = item.choice_or_table(RespondWords::MEANINGS, "respond = { body = \"ok\" }")?;
        let settings = || route_actions::settings(route).map(Target::Decide);
        return if decides { settings() } else { Some(Target::Limits) };
    }
    let table = Table::<RespondKeys>::of(item, "`respond`")?;
    let (status, body) = (table.status().read(), table.body().read());
    let body_item = table.body().item();
    if let Some(redirect) = table.redirect().given() {
        let target = redirects::of_route(redirect, &table, route, path);
        table.close();
        return target;
    }
    table.close();
    let (status, body) = (status?, body?.value);
    let has_no_body =
        matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED);
    if has_no_body && !body.is_empty() {
        let problem = body_item.error(format!("a response with status {} has no body", status.as_u16()));
        return body_item.reject(problem.help("leave `body` out"));
    }
    Some(Target::Respond { status, body: body.into() })
}

/// Rejects two routes of one name: the log, `explain` and the key part `route` identify a route by it.
fn check_names(item: Item<'_>, routes: &[Option<ReadRoute>]) {
    let mut seen: HashMap<&str, &ReadRoute> = HashMap::new();
    for read in routes.iter().flatten() {
        let Some(first) = seen.insert(&read.route.name, read) else { continue };
        let span = |read: &ReadRoute| read.name_span.clone().unwrap_or_else(|| read.span.clone());
        // The name of a route without one is its number: then the route that chose this number is to blame.
        let (blamed, other) = if read.name_span.is_none() { (first, read) } else { (read, first) };
        let label = if other.name_span.is_some() {
            "the other"
        } else {
            "this route has no name, so this is its number"
        };
        let problem =
            Problem::error(span(blamed), format!("two routes have the name `{}`", blamed.route.name));
        item.reader.report(problem.related(span(other), label));
    }
}
