//! Rules of rate limits of Envoy Gateway, and the routes that tell apart the requests to which they apply.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::document::DocNode;
use crate::envoy_descriptors::{Allowance, allowance_of};
use crate::model::{Condition, ConditionKind, Test, TomlRoute, TomlTarget};
use crate::nginx::literal;
use crate::note::Note;

/// The most routes that the rules of one route make of it.
const MOST_ROUTES: usize = 16;

/// A rule.
pub(super) struct RateRule<'d> {
    pub node: &'d DocNode,
    /// The rate of the limit; none if all requests are denied.
    pub rate: Option<String>,
    pub key: Vec<String>,
    pub notes: Vec<Note>,
    pub is_local: bool,
    /// The requests that it is for.
    conditions: Vec<Condition>,
    methods: Vec<String>,
}

impl RateRule<'_> {
    /// Whether it is for all requests.
    pub fn is_unconditional(&self) -> bool {
        self.conditions.is_empty() && self.methods.is_empty() && self.key == ["global"]
    }
}

/// Reads a rule. Fails with the reason why it can't be converted.
pub(super) fn rule(node: &DocNode, is_local: bool) -> Result<RateRule<'_>, String> {
    let mut rule = RateRule {
        node,
        rate: None,
        key: Vec::new(),
        notes: Vec::new(),
        is_local,
        conditions: Vec::new(),
        methods: Vec::new(),
    };
    let known = ["clientSelectors", "cost", "limit", "name", "shadowMode", "shared"];
    if let Some((key, _)) = node.entries().iter().find(|(key, _)| !known.contains(&&**key)) {
        return Err(format!("a limit has no counterpart of `{key}`"));
    }
    for selector in node.get("clientSelectors").items() {
        select(selector, &mut rule)?;
    }
    if rule.key.is_empty() {
        rule.key.push("global".to_owned());
    }
    let limit = node.get("limit");
    let (requests, unit) = (limit.get("requests").number(), limit.get("unit").text());
    let (requests, unit) = requests.zip(unit).ok_or("it has no number of `requests`, or no `unit`")?;
    let cost = node.get("cost");
    let number = cost.get("request").get("number").number();
    let each = match (cost.get("response").is_present(), cost.get("request").is_present(), number) {
        (false, false, _) => 1,
        (false, true, Some(number @ 1..)) => number,
        _ => {
            return Err(
                "the cost of a request is not known before its response: see `cost` of a limit".to_owned()
            );
        }
    };
    if each > 1 {
        rule.notes.push(Note::text(format!("Each request costs {each} of {requests} units.")));
    }
    let allowance = allowance_of(requests / each, unit).ok_or_else(|| format!("`{unit}` is no unit"))?;
    if let Allowance::Rate(rate) = allowance {
        rule.rate = Some(rate);
    } else if node.get("shadowMode").is_true() {
        return Err("in shadow mode it denies nothing".to_owned());
    }
    Ok(rule)
}

/// Adds the requests that a selector is for, and the parts of their key.
fn select(selector: &DocNode, rule: &mut RateRule<'_>) -> Result<(), String> {
    let known = ["headers", "methods", "queryParams", "sourceCIDR"];
    if let Some((key, _)) = selector.entries().iter().find(|(key, _)| !known.contains(&&**key)) {
        return Err(format!("limits have no condition on `{key}`: write a route with it"));
    }
    for (key, kind, part) in
        [("headers", ConditionKind::Header, "header"), ("queryParams", ConditionKind::Query, "query")]
    {
        for item in selector.get(key).items() {
            let name = item.get("name").text().unwrap_or("");
            let name =
                if kind == ConditionKind::Header { name.to_ascii_lowercase() } else { name.to_owned() };
            let values = vec![literal(item.get("value").text().unwrap_or(""))];
            match item.get("type").text() {
                Some("Distinct") => rule.key.push(format!("{part}:{name}")),
                None | Some("Exact") => {
                    let test =
                        if item.get("invert").is_true() { Test::Not(values) } else { Test::Any(values) };
                    rule.conditions.push(Condition { kind, name, test });
                }
                Some(other) => return Err(format!("values are compared with texts, and not by `{other}`")),
            }
        }
    }
    for method in selector.get("methods").items() {
        if method.get("invert").is_true() {
            return Err("a route can't exclude methods".to_owned());
        }
        rule.methods.extend(method.get("value").text().map(str::to_owned));
    }
    let source = selector.get("sourceCIDR");
    if source.is_present() {
        if source.get("invert").is_true() {
            return Err("a route can't exclude these addresses for a limit".to_owned());
        }
        let text = source.get("value").text().or(source.text()).unwrap_or("");
        let network = network(text).ok_or_else(|| format!("`{text}` is no network"))?;
        if source.get("type").text() == Some("Distinct") {
            rule.key.push("client_ip".to_owned());
        }
        if network.prefix_len() > 0 {
            rule.conditions.push(Condition::client_ip(&[text.to_owned()], true)?);
        }
    }
    Ok(())
}

fn network(text: &str) -> Option<IpNet> {
    text.parse().ok().or_else(|| Some(text.parse::<IpAddr>().ok()?.into()))
}

/// The requests of a route for which a rule is.
enum Part {
    /// All, or none.
    Whole(bool),
    Some(Box<TomlRoute>),
    /// No route has the conditions of both.
    Unknown,
}

/// Adds the limit of a rule to routes, or denies its requests: routes of which it is for a part become two.
pub(super) fn split(routes: Vec<TomlRoute>, rule: &RateRule<'_>, limit: Option<&str>) -> Vec<TomlRoute> {
    let mut found: Vec<TomlRoute> = Vec::new();
    let can_grow = routes.len() < MOST_ROUTES;
    let limited = |mut route: TomlRoute| {
        match limit {
            Some(name) => route.limits.push(name.to_owned()),
            // Requests that get 501 stay closed.
            None if route.target == TomlTarget::missing() => {}
            None => {
                route.limits.clear();
                route.target = TomlTarget::Respond { status: 429, body: String::new() };
            }
        }
        route.uses.push(rule.node.place.clone());
        route
    };
    for mut route in routes {
        match part(&route, rule) {
            Part::Whole(true) => found.push(limited(route)),
            Part::Whole(false) => found.push(route),
            Part::Some(mut own) if can_grow => {
                own.notes = std::mem::take(&mut route.notes);
                found.extend([limited(*own), route]);
            }
            _ => {
                let reason = "it is lost for a route: no route can have all conditions of both";
                route.notes.push(rule.node.finding("rateLimit rule", reason).lost());
                found.push(route);
            }
        }
    }
    found
}

fn part(route: &TomlRoute, rule: &RateRule<'_>) -> Part {
    let mut own = route.clone();
    if !rule.methods.is_empty() {
        if own.methods.is_empty() {
            own.methods.clone_from(&rule.methods);
        } else {
            own.methods.retain(|method| rule.methods.contains(method));
        }
        if own.methods.is_empty() {
            return Part::Whole(false);
        }
    }
    for condition in &rule.conditions {
        let same = |known: &&mut Condition| (known.kind, &known.name) == (condition.kind, &condition.name);
        let Some(known) = own.conditions.iter_mut().find(same) else {
            own.conditions.push(condition.clone());
            continue;
        };
        match (&known.test, &condition.test) {
            (known, wanted) if known == wanted => {}
            (Test::Any(values), Test::Any(wanted)) if condition.kind == ConditionKind::ClientIp => {
                let networks = values.iter().chain(wanted).filter_map(|it| network(it)).collect::<Vec<_>>();
                let [known_network, wanted_network] = networks[..] else { return Part::Unknown };
                if wanted_network.contains(&known_network) {
                    continue;
                }
                if !known_network.contains(&wanted_network) {
                    return Part::Whole(false);
                }
                *known = condition.clone();
            }
            // Plain values that differ.
            (Test::Any(values), Test::Any(wanted))
                if !values.iter().chain(wanted).any(|it| it.contains('*')) =>
            {
                if values.iter().any(|value| wanted.contains(value)) {
                    return Part::Unknown;
                }
                return Part::Whole(false);
            }
            (Test::Any(values), Test::Not(without))
                if values.len() == 1 && !values.iter().chain(without).any(|it| it.contains('*')) =>
            {
                if without.contains(&values[0]) {
                    return Part::Whole(false);
                }
            }
            _ => return Part::Unknown,
        }
    }
    let is_whole = own.methods == route.methods && own.conditions == route.conditions;
    if is_whole { Part::Whole(true) } else { Part::Some(Box::new(own)) }
}
