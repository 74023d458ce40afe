//! Rules of routers, such as ``Host(`a`) && (PathPrefix(`/b`) || Method(`POST`))``.

use crate::model::{Condition, ConditionKind, Test, TomlRoute};
use crate::nginx::{literal, paths_of_regex, start_of_regex};

/// A part of a rule.
enum RouterRule {
    All(Vec<RouterRule>),
    Any(Vec<RouterRule>),
    Not(Box<RouterRule>),
    Matcher(String, Vec<String>),
}

/// The routes that match a rule, without targets.
pub(super) fn alternatives(text: &str) -> Result<Vec<TomlRoute>, String> {
    let mut reader = RuleReader { rest: text };
    let rule = reader.any()?;
    if !reader.rest.trim().is_empty() {
        return Err(format!("`{}` is not understood", reader.rest.trim()));
    }
    let all = TomlRoute { path: "/*".to_owned(), ..TomlRoute::default() };
    routes(&rule, vec![all])
}

/// Routes for all requests that may match a rule: matchers that routes do not have are left out.
pub(super) fn widest(text: &str) -> Vec<TomlRoute> {
    let all = vec![TomlRoute { path: "/*".to_owned(), ..TomlRoute::default() }];
    let mut reader = RuleReader { rest: text };
    match reader.any() {
        Ok(rule) if reader.rest.trim().is_empty() => widened(&rule, all),
        _ => all,
    }
}

fn widened(rule: &RouterRule, within: Vec<TomlRoute>) -> Vec<TomlRoute> {
    match rule {
        RouterRule::All(rules) => rules.iter().fold(within, |within, rule| widened(rule, within)),
        RouterRule::Any(rules) => rules.iter().flat_map(|rule| widened(rule, within.clone())).collect(),
        RouterRule::Matcher(name, values) if name == "PathRegexp" => {
            let starts = values.iter().map(|regex| start_of_regex(regex, true));
            let starts = starts.filter(|start| start.starts_with('/')).map(|start| format!("{start}*"));
            let starts: Vec<String> = starts.collect();
            let narrowed = |route: &TomlRoute| {
                let with = |path: &String| TomlRoute { path: path.clone(), ..route.clone() };
                starts.iter().map(with).collect::<Vec<_>>()
            };
            let can_narrow = starts.len() == values.len() && within.iter().all(|route| route.path == "/*");
            if can_narrow { within.iter().flat_map(narrowed).collect() } else { within }
        }
        RouterRule::Not(_) | RouterRule::Matcher(..) => routes(rule, within.clone()).unwrap_or(within),
    }
}

struct RuleReader<'t> {
    rest: &'t str,
}

impl RuleReader<'_> {
    fn skip(&mut self, token: &str) -> bool {
        let rest = self.rest.trim_start();
        let after = rest.strip_prefix(token);
        self.rest = after.unwrap_or(rest);
        after.is_some()
    }

    fn any(&mut self) -> Result<RouterRule, String> {
        let mut rules = vec![self.all()?];
        while self.skip("||") {
            rules.push(self.all()?);
        }
        Ok(RouterRule::Any(rules))
    }

    fn all(&mut self) -> Result<RouterRule, String> {
        let mut rules = vec![self.single()?];
        while self.skip("&&") {
            rules.push(self.single()?);
        }
        Ok(RouterRule::All(rules))
    }

    fn single(&mut self) -> Result<RouterRule, String> {
        if self.skip("!") {
            return Ok(RouterRule::Not(Box::new(self.single()?)));
        }
        if self.skip("(") {
            let inner = self.any()?;
            return if self.skip(")") { Ok(inner) } else { Err("a parenthesis is not closed".to_owned()) };
        }
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        let name = name.to_owned();
        self.rest = rest;
        if name.is_empty() || !self.skip("(") {
            return Err("the rule is not understood".to_owned());
        }
        let mut values = Vec::new();
        while !self.skip(")") {
            values.push(self.value()?);
            self.skip(",");
        }
        Ok(RouterRule::Matcher(name, values))
    }

    fn value(&mut self) -> Result<String, String> {
        let rest = self.rest.trim_start();
        let error = || "a quote is missing in the rule".to_owned();
        let quote = rest.chars().next().filter(|c| matches!(c, '`' | '"' | '\'')).ok_or_else(error)?;
        let (value, after) = rest[1..].split_once(quote).ok_or_else(error)?;
        self.rest = after;
        Ok(value.to_owned())
    }
}

/// The parts of these routes that match a rule.
fn routes(rule: &RouterRule, within: Vec<TomlRoute>) -> Result<Vec<TomlRoute>, String> {
    match rule {
        RouterRule::All(rules) => rules.iter().try_fold(within, |within, rule| routes(rule, within)),
        RouterRule::Any(rules) => {
            let mut found = Vec::new();
            for rule in rules {
                found.extend(routes(rule, within.clone())?);
            }
            Ok(found)
        }
        RouterRule::Not(inner) => match &**inner {
            RouterRule::Matcher(name, values) => {
                let condition = condition(name, values)?;
                let condition = condition.ok_or_else(|| format!("a route can't exclude by `{name}`"))?;
                let test = match condition.test {
                    Test::Any(values) => Test::Not(values),
                    other => other,
                };
                add(within, &Condition { test, ..condition })
            }
            _ => Err("a route can exclude addresses, headers and query parameters only".to_owned()),
        },
        RouterRule::Matcher(name, values) => matched(name, values, within),
    }
}

fn matched(name: &str, values: &[String], within: Vec<TomlRoute>) -> Result<Vec<TomlRoute>, String> {
    if let Some(condition) = condition(name, values)? {
        return add(within, &condition);
    }
    let is_plain = |path: &String| path.starts_with('/') && !path.contains(['*', '{']);
    let mut found = Vec::new();
    for route in within {
        for value in values {
            if let ("PathRegexp", "/*", Some(paths)) = (name, &*route.path, paths_of_regex(value)) {
                found.extend(paths.into_iter().map(|path| TomlRoute { path, ..route.clone() }));
                continue;
            }
            let mut route = route.clone();
            match name {
                "Host" | "HostHeader" if route.host.is_none() => {
                    route.host = Some(value.to_ascii_lowercase());
                }
                "Path" if is_plain(value) && route.path == "/*" => route.path.clone_from(value),
                "PathPrefix" if is_plain(value) && route.path == "/*" => route.path = format!("{value}*"),
                // Traefik matches no request by two methods.
                "Method" if route.methods.is_empty() => route.methods.push(value.clone()),
                _ => return Err(format!("routes have no counterpart of `{name}` with `{value}`")),
            }
            found.push(route);
        }
    }
    Ok(found)
}

/// The condition of a matcher of addresses, headers or query parameters; `None` for others.
fn condition(name: &str, values: &[String]) -> Result<Option<Condition>, String> {
    if name == "ClientIP" {
        return Condition::client_ip(values, true).map(Some);
    }
    let kind = match name {
        "Header" | "Headers" => ConditionKind::Header,
        "Query" => ConditionKind::Query,
        _ => return Ok(None),
    };
    let (name, value) = match values {
        [name, value] => (&**name, &**value),
        // The syntax of version 2.
        [pair] => pair.split_once('=').ok_or("a query parameter needs a value")?,
        _ => return Err(format!("`{name}` has a name and a value")),
    };
    let name = if kind == ConditionKind::Header { name.to_ascii_lowercase() } else { name.to_owned() };
    Ok(Some(Condition { kind, name, test: Test::Any(vec![literal(value)]) }))
}

fn add(mut routes: Vec<TomlRoute>, condition: &Condition) -> Result<Vec<TomlRoute>, String> {
    for route in &mut routes {
        if route.conditions.iter().any(|known| known.kind == condition.kind && known.name == condition.name) {
            return Err(format!("a route has one condition on `{}`", condition.name));
        }
        route.conditions.push(condition.clone());
    }
    Ok(routes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_routes() {
        let describe = |rule: &str| {
            let routes = alternatives(rule).ok()?;
            let route = |it: TomlRoute| {
                format!("{} {}{}", it.methods.join(","), it.host.unwrap_or_default(), it.path)
            };
            Some(routes.into_iter().map(route).collect::<Vec<_>>().join("; "))
        };
        let cases = [
            ("Host(`a.test`)", Some(" a.test/*")),
            ("Host(`a`, `b`) && Path(`/x`)", Some(" a/x;  b/x")),
            ("Host(`a`) && (PathPrefix(`/b`) || Method(`POST`))", Some(" a/b*; POST a/*")),
            ("HostRegexp(`.*`)", None),
            ("Host(`a`) && PathRegexp(`^/(js|css)/.*\\.map$`)", Some(" a/js/**.map;  a/css/**.map")),
            ("PathRegexp(`^/v[0-9]+/`)", None),
            ("!Host(`a`)", None),
            ("!Header(`X-A`, `1`)", Some(" /*")),
            ("Host(`a`", None),
        ];
        for (rule, expected) in cases {
            assert_eq!(describe(rule).as_deref(), expected, "{rule}");
        }
        let describe = |route: &TomlRoute| format!("{}{}", route.host.as_deref().unwrap_or(""), route.path);
        let cases = [
            ("Host(`a`) && PathRegexp(`^/admin`)", "a/admin*"),
            ("PathRegexp(`\\.php$`)", "/*"),
            ("HostSNI(`a`) && (Path(`/a`) || HostRegexp(`.*`))", "/a /*"),
            ("PathPrefix(`/a`) && !Path(`/a/b`)", "/a*"),
            ("Host(`a`", "/*"),
        ];
        for (rule, expected) in cases {
            let found: Vec<String> = widest(rule).iter().map(describe).collect();
            assert_eq!(found.join(" "), expected, "{rule}");
        }
    }
}
