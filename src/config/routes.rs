//! `[[routes]]`: from text to routes, and to what becomes of their requests.

use std::collections::HashMap;
use std::ops::{Range, RangeInclusive};

use bytes::Bytes;
use http::header::HeaderName;
use http::{HeaderValue, StatusCode};

use super::answers::status;
use super::headers::{self, Direction};
use super::limits::ReadLimits;
use super::reader::Item;
use super::report::Problem;
use super::rewrite::rewrite;
use super::table::{Name, Table};
use super::unmatched;
use super::upstreams::{ReadKey, ReadUpstreams};
use crate::gate::{HostPattern, KeyPart, PathPattern, PatternError, Route};
use crate::limit::PolicyId;
use crate::proxy::{RouteAction, Target};

/// The most limits of one route: all of them are decided in one call.
pub(super) const MAX_LIMITS: usize = 1_000;

const MAX_NAME: usize = 128;

/// More than any body has.
const BODY: RangeInclusive<u64> = 0..=1 << 50;

/// One route.
pub(super) struct ReadRoute {
    pub route: Route,
    pub treatment: RouteAction,
    /// Where it starts.
    pub span: Range<usize>,
    /// Where its name stands, if it has one.
    pub name_span: Option<Range<usize>>,
    /// Where it says what becomes of an encoded slash, if it does.
    pub slash_span: Option<Range<usize>>,
}

/// What routes refer to.
pub(super) struct Names<'n> {
    pub limits: &'n ReadLimits,
    pub upstreams: &'n mut ReadUpstreams,
    /// The limits of every route, with their places.
    pub defaults: &'n [(PolicyId, Range<usize>)],
}

/// Limits with the places where they are named.
type Named = Vec<(PolicyId, Range<usize>)>;

/// Reads all routes.
pub(super) fn routes(item: Option<Item<'_>>, names: &mut Names<'_>) -> Option<Vec<ReadRoute>> {
    let Some(item) = item else { return Some(Vec::new()) };
    let items = item.list("write [[routes]] with two brackets")?;
    let routes: Vec<Option<ReadRoute>> =
        (1..).zip(items).map(|(number, item)| route(number, item, names)).collect();
    check_names(item, &routes);
    routes.into_iter().collect()
}

fn route(number: usize, item: Item<'_>, names: &mut Names<'_>) -> Option<ReadRoute> {
    let mut table = item.table(format!("route {number}"))?;
    let name_item = table.item("name");
    let name = name_item.map_or_else(|| Some(number.to_string()), name);
    let host = table.item("host").map_or(Some(None), |item| host(item).map(Some));
    let path = table.required("path", "path = \"/*\"").and_then(path);
    let methods = table.item("methods").map_or(Some(Vec::new()), headers::methods);
    let headers = table.item("headers").map_or(Some(Vec::new()), |item| pairs(item, header));
    let query = table.item("query").map_or(Some(Vec::new()), |item| {
        pairs(item, |name, item| Some((Box::from(name.text), Box::from(item.string()?.value))))
    });
    let limits = limits(&mut table, path.as_ref(), number, names);
    let slash = table.item("encoded_slash");
    let keeps = slash.map_or(Some(false), |item| item.choice(&[("refuse", false), ("keep", true)], &[]));
    let max_body = table.item("max_body").map_or(Some(None), |item| item.size(&BODY).map(Some));
    let treatment = treatment(&mut table, path.as_ref(), number, names.upstreams);
    let span = table.span();
    table.close();
    let route = Route {
        name: name?.into(),
        host: host?,
        path: path?,
        methods: methods?,
        headers: headers?,
        query: query?,
        limits: limits?,
        keeps_encoded_slash: keeps?,
        max_body: max_body?.map(|most| most as u64),
    };
    let (name_span, slash_span) = (name_item.map(Item::span), slash.map(Item::span));
    Some(ReadRoute { route, treatment: treatment?, span, name_span, slash_span })
}

fn name(item: Item<'_>) -> Option<String> {
    let text = item.string()?;
    let help = "a name has 1 to 128 characters, none of them a control character";
    text.parsed("a name for a route", help, |name| {
        let right = !name.is_empty() && name.chars().count() <= MAX_NAME && !name.contains(char::is_control);
        right.then(|| name.to_owned())
    })
}

fn host(item: Item<'_>) -> Option<HostPattern> {
    let text = item.string()?;
    text.parsed(
        "a host",
        "write it without scheme and port: \"api.example.com\" or \"*.example.com\"",
        HostPattern::parse,
    )
}

fn path(item: Item<'_>) -> Option<PathPattern> {
    let text = item.string()?;
    let error = match PathPattern::parse(&text.value) {
        Ok(pattern) => {
            unmatched::warn_of_path(&text);
            return Some(pattern);
        }
        Err(error) => error,
    };
    let problem = text.error(format!("{} can't be the path of a route: {error}", text.quoted()));
    let is_relative = !text.value.starts_with('/');
    text.refuse(match error {
        PatternError::Path(_) if is_relative && text.from_env => problem,
        PatternError::Path(_) if is_relative => problem.help(format!("write \"/{}\"", text.value)),
        _ => problem,
    })
}

/// A header that a request must have.
fn header(name: &Name<'_>, item: Item<'_>) -> Option<(HeaderName, HeaderValue)> {
    let (name, text) = (headers::name(name, item)?, item.string()?);
    unmatched::warn_of_header(&name, &text);
    Some((name, headers::value(&text)?))
}

fn pairs<K, V>(item: Item<'_>, read: impl Fn(&Name<'_>, Item<'_>) -> Option<(K, V)>) -> Option<Vec<(K, V)>> {
    let table = item.table(format!("`{}`", item.name))?;
    let pairs: Vec<Option<(K, V)>> = table.entries().iter().map(|(name, item)| read(name, *item)).collect();
    pairs.into_iter().collect()
}

/// The default limits, then the route's own, each once.
fn limits(
    table: &mut Table<'_>,
    path: Option<&PathPattern>,
    number: usize,
    names: &Names<'_>,
) -> Option<Vec<PolicyId>> {
    let inherits = table.item("inherit_limits").map_or(Some(true), Item::boolean)?;
    let item = table.item("limits");
    let own = item.map_or_else(Vec::new, |item| names.limits.resolve_all(item));
    // A default limit is named far away: what it asks of this route is shown at the route itself.
    let inherited = names.defaults.iter().filter(|_| inherits).map(|(id, _)| (*id, table.span()));
    let mut limits: Named = inherited.collect();
    for (id, span) in own {
        match limits.iter_mut().find(|(other, _)| *other == id) {
            Some(limit) => limit.1 = span,
            None => limits.push((id, span)),
        }
    }
    if limits.len() > MAX_LIMITS {
        let place = item.map_or_else(|| table.span(), Item::span);
        let problem = Problem::error(place, format!("route {number} has {} limits", limits.len()));
        table.reader.note(problem.help(format!("a route has at most {MAX_LIMITS}")));
        return None;
    }
    if let Some(path) = path {
        check_params(table, &limits, path, number, names.limits);
    }
    Some(limits.into_iter().map(|(id, _)| id).collect())
}

/// A limit that counts by a part of the path needs a path that has it.
fn check_params(table: &Table<'_>, limits: &Named, path: &PathPattern, number: usize, all: &ReadLimits) {
    for (id, span) in limits {
        let Some(limit) = all.get(*id) else { continue };
        for part in &limit.terms.key.parts {
            let KeyPart::PathParam(param) = part else { continue };
            if path.params().all(|name| *name != **param) {
                let title = format!(
                    "the limit `{}` counts by `{part}`, and the path of route {number} has no `{{{param}}}`",
                    limit.policy.name
                );
                let help = format!("name a segment: path = \"/users/{{{param}}}\"");
                table.reader.note(Problem::error(span.clone(), title).help(help));
            }
        }
    }
}

/// An upstream whose servers are chosen by a part of the path needs a path that has it.
fn check_key(item: Item<'_>, key: &ReadKey, path: &PathPattern, number: usize) {
    for part in &key.spec.parts {
        let KeyPart::PathParam(param) = part else { continue };
        if path.params().all(|name| *name != **param) {
            let title = format!(
                "this upstream chooses servers by `{part}`, and the path of route {number} has no `{{{param}}}`"
            );
            let problem = item.error(title).related(key.span.clone(), "here");
            item.refuse::<()>(problem.help(format!("name a segment: path = \"/users/{{{param}}}\"")));
        }
    }
}

fn treatment(
    table: &mut Table<'_>,
    path: Option<&PathPattern>,
    number: usize,
    upstreams: &mut ReadUpstreams,
) -> Option<RouteAction> {
    let (upstream, respond_item) = (table.item("upstream"), table.item("respond"));
    let rewrite_item = table.item("rewrite");
    let request_item = table.item("request_headers");
    let request_headers = headers::edits(request_item, Direction::Request);
    let response_headers = headers::edits(table.item("response_headers"), Direction::Response);
    let id = upstream.map(|item| upstreams.resolve(item));
    let response = respond_item.map(respond);
    let rewrite = rewrite(rewrite_item, path);
    let target = match (id, response) {
        (Some(id), None) => {
            let key = id.and_then(|id| upstreams.key(id));
            if let (Some(key), Some(path), Some(item)) = (key, path, upstream) {
                check_key(item, key, path, number);
            }
            Target::Forward { upstream: id?, rewrite: rewrite?, key: key.map(|key| key.spec.clone()) }
        }
        (None, Some(response)) => {
            for item in [rewrite_item, request_item].into_iter().flatten() {
                let problem = item.error(format!(
                    "`{}` changes what goes upstream, and this route answers by itself",
                    item.name
                ));
                item.refuse::<()>(problem.help(format!("leave `{}` or `respond` out", item.name)));
            }
            let (status, body) = response?;
            Target::Respond { status, body }
        }
        (Some(_), Some(_)) => {
            let place = table.key_span("respond").unwrap_or_default();
            let problem = Problem::error(place, "a route either forwards or answers by itself");
            let other = table.key_span("upstream").unwrap_or_default();
            table
                .reader
                .note(problem.related(other, "here it forwards").help("leave `upstream` or `respond` out"));
            return None;
        }
        (None, None) => {
            let problem =
                Problem::error(table.span(), "this route does not say what becomes of its requests");
            let help =
                "add upstream = \"http://127.0.0.1:9000\", or respond = { status = 200, body = \"ok\\n\" }";
            table.reader.note(problem.help(help).derived());
            return None;
        }
    };
    Some(RouteAction { target, request_headers: request_headers?, response_headers: response_headers? })
}

fn respond(item: Item<'_>) -> Option<(StatusCode, Bytes)> {
    let mut table = item.table("`respond`")?;
    let status = table.item("status").map_or(Some(StatusCode::OK), |item| status(item, &(200..=599)));
    let body_item = table.item("body");
    let body = body_item.map_or(Some(Bytes::new()), |item| Some(item.string()?.value.into()));
    table.close();
    let (status, body) = (status?, body?);
    let has_no_body =
        matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::NOT_MODIFIED);
    match body_item {
        Some(item) if has_no_body && !body.is_empty() => {
            let problem = item.error(format!("an answer with status {} has no body", status.as_u16()));
            item.refuse(problem.help("leave `body` out"))
        }
        _ => Some((status, body)),
    }
}

/// No two routes may have one name: the log, `explain` and the key part `route` go by it.
fn check_names(item: Item<'_>, routes: &[Option<ReadRoute>]) {
    let mut seen: HashMap<&str, &ReadRoute> = HashMap::new();
    for read in routes.iter().flatten() {
        let Some(first) = seen.insert(&read.route.name, read) else { continue };
        let span = |read: &ReadRoute| read.name_span.clone().unwrap_or_else(|| read.span.clone());
        // A route without a name goes by its number: then the one that took the number is to blame.
        let (blamed, other) = if read.name_span.is_none() { (first, read) } else { (read, first) };
        let label = if other.name_span.is_some() {
            "the other"
        } else {
            "this route has no name, so this is its number"
        };
        let problem =
            Problem::error(span(blamed), format!("two routes have the name `{}`", blamed.route.name));
        item.reader.note(problem.related(span(other), label));
    }
}
