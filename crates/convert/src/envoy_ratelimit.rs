//! Converts the limits of Envoy's rate-limit service (envoyproxy/ratelimit) to routes, for a tidegate in place of Envoy.

use super::document::{DocNode, documents};
use super::envoy_descriptors::{Allowance, allowance, restrictions, without_domain};
use super::envoy_refusals::{refusals, remarks};
use super::model::{
    Condition, ConditionKind, Converted, Limit, Test, TomlAlgorithm, TomlRoute, TomlTarget, UniqueNames,
};
use super::note::{Note, SyntaxError};
use super::source::SourceFile;

/// The server of the route, which the service does not know.
const SERVER: &str = "http://127.0.0.1:9000";

/// The state of the conversion of descriptors into routes.
struct RateLimitConverter {
    names: UniqueNames,
    converted: Converted,
}

/// The descriptors around a limit.
#[derive(Clone, Default)]
struct LimitPath {
    /// Key parts.
    parts: Vec<String>,
    /// Values that the first parts must have.
    conditions: Vec<Condition>,
    /// The texts of the descriptors, for names and notes.
    names: Vec<String>,
    /// Constants that routes of Envoy send.
    of_routes: Vec<Note>,
    /// Headers whose names are those of keys.
    guesses: Vec<Note>,
}

/// The counterpart in tidegate of the key of a descriptor.
enum Part {
    Key(String),
    /// A constant that a route of Envoy sends.
    OfRoute,
}

/// Converts files, each of which has a domain.
pub(super) fn convert(files: &[SourceFile<'_>]) -> Result<Converted, SyntaxError> {
    let roots = documents(files, |_| false)?;
    let mut maker = RateLimitConverter { names: UniqueNames::default(), converted: Converted::default() };
    maker.converted.notes.extend(refusals(&roots));
    for root in &roots {
        let domain = root.get("domain");
        maker.converted.restrictions.extend(restrictions(root));
        let Some(name) = domain.text().filter(|name| !name.is_empty()) else {
            maker.converted.notes.extend(without_domain(root));
            continue;
        };
        maker.converted.notes.push(domain.origin(&format!("domain {name}")));
        maker.converted.notes.extend(remarks(root, &["domain", "descriptors"]));
        maker.descriptors(root.get("descriptors"), &LimitPath::default());
    }
    maker.add_route();
    Ok(maker.converted)
}

impl RateLimitConverter {
    fn descriptors(&mut self, list: &DocNode, path: &LimitPath) {
        for node in list.items() {
            let key = node.get("key").text().unwrap_or("");
            let value = node.get("value").text();
            let has_default = |other: &DocNode| {
                other.get("key").text() == Some(key)
                    && other.get("value").text().is_none()
                    && allowance(other).is_some_and(|it| matches!(it, Allowance::Rate(_)))
            };
            match value {
                // Part of the limit for all other values.
                Some(_)
                    if node.get("descriptors").items().is_empty() && list.items().iter().any(has_default) => {
                }
                _ => self.descriptor(node, list, path),
            }
        }
    }

    fn descriptor(&mut self, node: &DocNode, siblings: &DocNode, path: &LimitPath) {
        let (key, value) = (node.get("key").text().unwrap_or(""), node.get("value").text());
        let known = ["key", "value", "rate_limit", "descriptors", "shadow_mode", "detailed_metric"];
        let mut notes = remarks(node, &known);
        let text = value.map_or_else(|| format!("key: {key}"), |value| format!("key: {key}, value: {value}"));
        notes.push(node.origin(&text));
        let mut inner = path.clone();
        inner.names.push(value.map_or_else(|| key.to_owned(), |value| format!("{key}-{value}")));
        match (part(key), value) {
            (Part::OfRoute, value) => {
                let value = value.unwrap_or("any value");
                let reason = format!(
                    "Envoy sends `{key}` = `{value}` on the routes that say so: name the limit in the same routes, where it does not \
                     apply yet"
                );
                inner.of_routes.push(node.finding(&text, reason));
            }
            (Part::Key(part), None) => {
                inner.guesses.extend(guess(key, &part));
                inner.parts.push(part);
            }
            (Part::Key(part), Some(value)) => match condition(&part, value) {
                Some(condition) if inner.conditions.iter().any(|it| it.name == condition.name) => {
                    let reason =
                        "ACCESS IS OPEN: a route has one condition on a header: its limits are left out";
                    self.converted.notes.push(node.finding(&text, reason));
                    return;
                }
                Some(condition) => {
                    inner.guesses.extend(guess(key, &part));
                    inner.conditions.push(condition);
                }
                None => notes.push(node.finding(
                    &text,
                    format!("routes have no condition on `{part}`: the limit is for all of its values"),
                )),
            },
        }
        if node.get("rate_limit").is_present() {
            self.limit(node, siblings, &inner, notes);
        } else {
            self.converted.notes.extend(notes.into_iter().filter(|note| matches!(note, Note::Finding(_))));
        }
        self.descriptors(node.get("descriptors"), &inner);
    }

    fn limit(&mut self, node: &DocNode, siblings: &DocNode, path: &LimitPath, mut notes: Vec<Note>) {
        let limit = node.get("rate_limit");
        notes.extend(remarks(limit, &["unit", "requests_per_unit", "unlimited", "name"]));
        if limit.get("replaces").is_present() {
            let reason = "all limits of a route apply: leave out the ones that it replaces";
            notes.retain(|note| !note.to_string().contains("`replaces`"));
            notes.push(limit.get("replaces").finding("replaces", reason));
        }
        if limit.get("unlimited").is_true() {
            let reason = "there is no limit to exempt it from: a route without limits does the same";
            self.converted.notes.push(limit.finding("unlimited: true", reason));
            return;
        }
        let Some(allowance) = allowance(node) else {
            let reason =
                "`unit` is second, minute, hour, day, week, month or year, and `requests_per_unit` a number";
            self.converted.notes.extend(notes.into_iter().filter(|note| matches!(note, Note::Finding(_))));
            self.converted.notes.push(limit.finding("rate_limit", reason));
            return;
        };
        let Allowance::Rate(rate) = allowance else {
            self.deny(node, path, notes);
            return;
        };
        let key = if path.parts.is_empty() { vec!["global".to_owned()] } else { path.parts.clone() };
        let name = limit.get("name").text().map_or_else(|| path.names.join("-"), str::to_owned);
        let mut made = Limit::new(self.names.unique(&name), TomlAlgorithm::FixedWindow { rate }, key);
        if made.key.iter().any(|part| part.contains(':')) {
            // Envoy sends no descriptor for a request that lacks a part.
            made.on_missing = Some("skip");
        }
        made.is_shadow = node.get("shadow_mode").is_true();
        made.uses.push(limit.place.clone());
        made.notes = notes;
        made.notes.extend(path.guesses.iter().chain(&path.of_routes).cloned());
        self.values((node, siblings), path, &mut made);
        let name = made.name.clone();
        self.converted.limits.push(made);
        if path.of_routes.is_empty() {
            self.name_in_route(name, &path.conditions);
        }
    }

    /// Adds a route that denies the requests with these descriptors, of which none are allowed.
    fn deny(&mut self, node: &DocNode, path: &LimitPath, mut notes: Vec<Note>) {
        let limit = node.get("rate_limit");
        if node.get("shadow_mode").is_true() {
            notes.push(limit.finding("requests_per_unit: 0", "in shadow mode it denies nothing"));
            self.converted.notes.extend(notes);
            return;
        }
        if !path.of_routes.is_empty() {
            let reason = "ACCESS IS OPEN: requests with this descriptor are denied, but its routes are not known here. Write them with \
                          `respond = { status = 429 }`";
            self.converted.notes.extend(notes);
            self.converted.notes.push(limit.finding("requests_per_unit: 0", reason));
            return;
        }
        let mut conditions = path.conditions.clone();
        for name in path.parts.iter().filter_map(|part| part.strip_prefix("header:")) {
            if conditions.iter().all(|condition| condition.name != name) {
                let (kind, name) = (ConditionKind::Header, name.to_owned());
                conditions.push(Condition { kind, name, test: Test::Present(true) });
            }
        }
        notes.extend(path.guesses.iter().cloned());
        notes.push(limit.origin("requests_per_unit: 0 denies all requests"));
        self.converted.routes.push(TomlRoute {
            notes,
            path: "/*".to_owned(),
            conditions,
            target: TomlTarget::Respond { status: 429, body: String::new() },
            ..TomlRoute::default()
        });
    }

    /// Adds a route that denies the requests with this value of the last part of a key.
    fn deny_value(&mut self, node: &DocNode, value: &str, path: &LimitPath) {
        let mut path = path.clone();
        let part = path.parts.pop().unwrap_or_default();
        let text = format!("value: {value}");
        if let Some(condition) = condition(&part, value) {
            path.conditions.push(condition);
            let origin = node.origin(&text);
            self.deny(node, &path, vec![origin]);
        } else {
            let reason =
                format!("ACCESS IS OPEN: its requests are denied, but routes have no condition on `{part}`");
            self.converted.notes.push(node.finding(&text, reason));
        }
    }

    /// Adds the limits of single values, which are overrides of the limit for all other values.
    fn values(&mut self, (node, siblings): (&DocNode, &DocNode), path: &LimitPath, limit: &mut Limit) {
        let is_other = |other: &&DocNode| {
            node.get("value").text().is_none()
                && other.get("key").text() == node.get("key").text()
                && other.get("descriptors").items().is_empty()
        };
        for other in siblings.items().iter().filter(is_other) {
            let Some(value) = other.get("value").text() else { continue };
            let is_denied = matches!(allowance(other), Some(Allowance::None));
            if is_denied && other.get("shadow_mode").is_true() {
                limit.notes.push(other.finding(value, "in shadow mode it denies nothing"));
                continue;
            }
            if is_denied && limit.key.len() != 1 {
                self.deny_value(other, value, path);
                continue;
            }
            if limit.key.len() != 1 {
                let reason = "the limit of this value is not converted: it has that of all other values";
                limit.notes.push(other.finding(value, reason));
                continue;
            }
            let names = value.replace('|', "\\|");
            limit.uses.push(other.get("rate_limit").place.clone());
            match allowance(other) {
                _ if other.get("rate_limit").get("unlimited").is_true() => {
                    limit.allow.push(format!("key:{names}"));
                }
                Some(Allowance::Rate(rate)) => limit.overrides.push((names, rate)),
                // A limit in shadow mode ignores `block`, as the service does.
                Some(Allowance::None) => limit.block.push(format!("key:{names}")),
                None => {
                    let reason = "`unit` and `requests_per_unit` are missing";
                    limit.notes.push(other.finding(value, reason));
                }
            }
        }
    }

    /// Names a limit in the route with these conditions.
    fn name_in_route(&mut self, name: String, conditions: &[Condition]) {
        let routes = &mut self.converted.routes;
        let is_forwarded = |route: &TomlRoute| matches!(route.target, TomlTarget::Upstream(_));
        match routes.iter_mut().find(|route| is_forwarded(route) && route.conditions == conditions) {
            Some(route) => route.limits.push(name),
            None => routes.push(TomlRoute {
                path: "/*".to_owned(),
                conditions: conditions.to_vec(),
                limits: vec![name],
                target: TomlTarget::Upstream(SERVER.to_owned()),
                ..TomlRoute::default()
            }),
        }
    }

    /// Completes the routes: those with more conditions come first, and have the limits of the others, too.
    fn add_route(&mut self) {
        let routes = &mut self.converted.routes;
        // Of routes with the same conditions the one that denies comes first, and values come before the presence of any value.
        let is_present = |condition: &&Condition| condition.test == Test::Present(true);
        routes.sort_by_key(|route| matches!(route.target, TomlTarget::Upstream(_)));
        routes.sort_by_key(|route| route.conditions.iter().filter(is_present).count());
        routes.sort_by_key(|route| std::cmp::Reverse(route.conditions.len()));
        if routes.last().is_none_or(|route| !route.conditions.is_empty()) {
            routes.push(TomlRoute {
                path: "/*".to_owned(),
                target: TomlTarget::Upstream(SERVER.to_owned()),
                ..TomlRoute::default()
            });
        }
        for index in 0..routes.len() {
            let (before, rest) = routes.split_at_mut(index + 1);
            let route = &mut before[index];
            if !matches!(route.target, TomlTarget::Upstream(_)) {
                continue;
            }
            let implied =
                rest.iter().filter(|other| other.conditions.iter().all(|it| route.conditions.contains(it)));
            let limits: Vec<String> = implied.flat_map(|other| other.limits.clone()).collect();
            route.limits.extend(limits);
        }
        let text = "The rate-limit service has no routes: Envoy's routes decide which descriptors they send. Write its routes and \
                    servers here, and name in each the limits of its descriptors.";
        routes[0].notes.push(Note::text(text));
    }
}

/// The key part of a descriptor's key.
fn part(key: &str) -> Part {
    let key = match key {
        "generic_key" | "destination_cluster" | "source_cluster" | "header_match" => return Part::OfRoute,
        "remote_address" | "masked_remote_address" | "client_ip" => "client_ip".to_owned(),
        "path" | ":path" => "path".to_owned(),
        "method" | ":method" => "method".to_owned(),
        "host" | ":authority" | "authority" => "host".to_owned(),
        header => format!("header:{}", header.to_ascii_lowercase().replace('_', "-")),
    };
    Part::Key(key)
}

/// A note on a header whose name is only known from the key of a descriptor.
fn guess(key: &str, part: &str) -> Option<Note> {
    let name = part.strip_prefix("header:")?;
    let text = format!(
        "GUESSED: the key `{key}` is taken for the header {name}. Correct it if the action of Envoy's routes has another `header_name`."
    );
    Some(Note::text(text))
}

/// The condition that a part of a key has this value.
fn condition(part: &str, value: &str) -> Option<Condition> {
    let name = part.strip_prefix("header:")?.to_owned();
    // `*` at the end of a value matches any rest in both.
    let test = Test::Any(vec![value.replace('\\', "\\\\")]);
    Some(Condition { kind: ConditionKind::Header, name, test })
}
