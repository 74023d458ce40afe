//! Keys of zones: variables, and `map` and `geo`, of which an empty value means that a request is not limited.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::patterns::{literal, of_regex};
use super::template::{TemplatePart, TextPiece, is_constant, only_variable, part, pieces};
use super::tree::Directive;
use crate::model::{Condition, ConditionKind, Test};

/// The pattern of all values.
pub(super) const ANY: &str = "*";

/// The key of a zone.
#[derive(Clone, Debug, Default)]
pub(super) struct ZoneKey {
    /// Key parts; one or more.
    pub parts: Vec<String>,
    /// Whether each server has counts of its own.
    pub is_of_server: bool,
    pub on_missing: Option<&'static str>,
    /// Networks that are not limited.
    pub allow: Vec<String>,
    /// Which requests are limited, if not all.
    pub when: Option<When>,
    pub notes: Vec<String>,
}

/// Which requests a limit applies to: those in which a part has one of these values, or all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct When {
    pub part: WhenPart,
    /// Methods, or patterns.
    pub values: Vec<String>,
    pub is_negated: bool,
}

/// A part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WhenPart {
    Method,
    Value(ConditionKind, String),
}

/// The variables that a configuration defines.
pub(super) struct NginxVariables<'d> {
    maps: HashMap<String, &'d Directive>,
    geos: HashMap<String, &'d Directive>,
}

/// The values of a `map`.
struct Map<'d> {
    source: String,
    default: &'d str,
    /// Patterns with their values, without the default.
    entries: Vec<(&'d str, &'d str)>,
}

impl<'d> NginxVariables<'d> {
    /// The variables of the `map` and `geo` blocks among these directives.
    pub fn of(directives: &'d [Directive]) -> Self {
        let named = |name: &str| {
            let blocks = directives.iter().filter(move |directive| directive.name == name);
            blocks.filter_map(|it| Some((it.args.last()?.strip_prefix('$')?.to_owned(), it))).collect()
        };
        Self { maps: named("map"), geos: named("geo") }
    }

    /// The rules of a key, each for other requests.
    pub fn rules(&self, key: &str) -> Result<Vec<ZoneKey>, String> {
        match only_variable(key) {
            Some(name) if self.maps.contains_key(&name) => {
                self.map_rule(&Map::of(self.maps[&name])?).map(|rule| vec![rule])
            }
            Some(name) if self.geos.contains_key(&name) => {
                Err(format!("`${name}` is a value of `geo`: its networks would share counts"))
            }
            _ => self.plain(key).map(ZoneKey::by_presence),
        }
    }

    /// The rule of a key without `map` and `geo`.
    fn plain(&self, key: &str) -> Result<ZoneKey, String> {
        let mut rule = ZoneKey::default();
        for piece in pieces(key) {
            let TextPiece::Variable(name) = piece else { continue };
            if self.maps.contains_key(&name) || self.geos.contains_key(&name) {
                return Err(format!("`${name}` is a part of a longer key"));
            }
            match part(&name)? {
                TemplatePart::OfServer => rule.is_of_server = true,
                TemplatePart::Key(part) if rule.parts.contains(&part) => {}
                TemplatePart::Key(part) => rule.parts.push(part),
            }
        }
        if rule.parts.len() == 1 && rule.parts[0].contains(':') {
            rule.on_missing = Some("skip");
        }
        if rule.parts.is_empty() {
            rule.parts.push("global".to_owned());
        }
        Ok(rule)
    }

    fn map_rule(&self, map: &Map<'_>) -> Result<ZoneKey, String> {
        if let Some(geo) = self.geos.get(&map.source) {
            return self.geo_rule(geo, map);
        }
        // The key is the value of the source itself, or the address where that is empty.
        if only_variable(map.default).as_ref() == Some(&map.source)
            && let [("", value)] = map.entries[..]
        {
            let mut rule = self.plain(map.default)?;
            let other = self.plain(value)?;
            if !value.is_empty() {
                rule.on_missing = None;
                if other.parts != ["client_ip"] {
                    return Err("requests with an empty key can only be counted by `client_ip`".to_owned());
                }
            }
            return Ok(rule);
        }
        let all = map.entries.iter().map(|(_, value)| *value).chain([map.default]);
        let mut limited: Vec<&str> = all.filter(|value| !value.is_empty()).collect();
        limited.dedup();
        let [key] = limited[..] else {
            return Err(format!("the map of `${}` has {} different keys", map.source, limited.len()));
        };
        let mut rule = self.plain(key)?;
        let is_limited = !map.default.is_empty();
        let other = map.entries.iter().filter(|(_, value)| value.is_empty() == is_limited);
        let other: Vec<&str> = other.map(|(pattern, _)| *pattern).collect();
        if !other.is_empty() {
            restrict(&mut rule, &map.source, &other, is_limited)?;
        }
        Ok(rule)
    }

    /// The rule of a `map` of a `geo`: networks with an empty key are not limited.
    fn geo_rule(&self, geo: &Directive, map: &Map<'_>) -> Result<ZoneKey, String> {
        if let [address, _] = &geo.args[..]
            && !matches!(&**address, "$remote_addr" | "$binary_remote_addr")
        {
            return Err(format!("`geo` is by `{address}`, not by the address of the client"));
        }
        let key_of = |value: &str| {
            map.entries.iter().find(|(pattern, _)| *pattern == value).map_or(map.default, |(_, key)| key)
        };
        let default = geo.directives().iter().find(|entry| entry.name == "default");
        let key = key_of(default.map_or("", |entry| entry.arg(0)));
        if key.is_empty() {
            return Err(
                "only some networks are limited: a limit of tidegate can only exempt networks".to_owned()
            );
        }
        let mut rule = self.plain(key)?;
        let mut limited = Vec::new();
        for entry in geo.directives().iter().filter(|entry| entry.name != "default") {
            let network =
                entry.name.parse::<IpNet>().ok().or_else(|| Some(entry.name.parse::<IpAddr>().ok()?.into()));
            let network = network.ok_or_else(|| format!("`{}` of `geo` is no network", entry.name))?;
            match key_of(entry.arg(0)) {
                "" => rule.allow.push(network.to_string()),
                other if other == key => limited.push(network),
                _ => return Err("the networks of `geo` have different keys".to_owned()),
            }
        }
        let allowed: Vec<IpNet> = rule.allow.iter().filter_map(|network| network.parse().ok()).collect();
        if limited.iter().any(|inner| allowed.iter().any(|outer| outer.contains(inner))) {
            return Err("a limited network of `geo` is within one that is not limited".to_owned());
        }
        Ok(rule)
    }
}

impl ZoneKey {
    /// A rule for requests with all parts, and one for those that lack a part: nginx counts them together, by the other parts.
    fn by_presence(self) -> Vec<Self> {
        let lacking: Vec<&String> = self.parts.iter().filter(|part| part.contains(':')).collect();
        // An address takes the place of a missing part.
        if self.parts.len() == 1 || lacking.is_empty() || self.parts.iter().any(|part| part == "client_ip") {
            return vec![self];
        }
        let condition = match lacking[..] {
            [only] => condition_kind(only),
            _ => None,
        };
        let Some((kind, name)) = condition else {
            let text = "nginx counts requests that lack a part of the key by its other parts; tidegate by these and the address of the \
                        client";
            return vec![Self { notes: [&self.notes[..], &[text.to_owned()]].concat(), ..self }];
        };
        let when =
            |is_present| When::of(Condition { kind, name: name.to_owned(), test: Test::Present(is_present) });
        let others = self.parts.iter().filter(|part| *part != lacking[0]).cloned().collect();
        let without = Self { parts: others, when: Some(when(false)), ..self.clone() };
        vec![Self { when: Some(when(true)), ..self.clone() }, without]
    }
}

/// The part of a request that a key part is about, if a route can have a condition on it.
fn condition_kind(part: &str) -> Option<(ConditionKind, &str)> {
    let (kind, name) = part.split_once(':')?;
    let kind = match kind {
        "header" => ConditionKind::Header,
        "query" => ConditionKind::Query,
        "cookie" => ConditionKind::Cookie,
        _ => return None,
    };
    Some((kind, name))
}

impl When {
    fn of(Condition { kind, name, test }: Condition) -> Self {
        let (values, is_negated) = match test {
            Test::Any(values) => (values, false),
            Test::Not(values) => (values, true),
            Test::Present(is_present) => (vec![ANY.to_owned()], !is_present),
        };
        Self { part: WhenPart::Value(kind, name), values, is_negated }
    }
}

impl<'d> Map<'d> {
    fn of(directive: &'d Directive) -> Result<Self, String> {
        let source = only_variable(directive.arg(0))
            .ok_or_else(|| format!("the map is by `{}`, not by one variable", directive.arg(0)))?;
        let mut map = Self { source, default: "", entries: Vec::new() };
        for entry in directive.directives() {
            match (&*entry.name, entry.arg(0)) {
                ("hostnames" | "volatile", "") => {}
                ("default", value) => map.default = value,
                (pattern, value) => map.entries.push((pattern.strip_prefix('\\').unwrap_or(pattern), value)),
            }
        }
        Ok(map)
    }
}

/// Restricts a rule: requests whose source has one of these values are limited, or all others if `is_limited`.
fn restrict(rule: &mut ZoneKey, source: &str, patterns: &[&str], is_limited: bool) -> Result<(), String> {
    let owned = || patterns.iter().map(|pattern| (*pattern).to_owned()).collect::<Vec<_>>();
    if source == "request_method" {
        let is_method = |text: &&str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_uppercase());
        if !patterns.iter().all(is_method) {
            return Err("the map of `$request_method` has other patterns than methods".to_owned());
        }
        let methods = owned();
        if methods.iter().any(|method| method == "GET") && !methods.iter().any(|method| method == "HEAD") {
            rule.notes.push("a route for GET also matches HEAD".to_owned());
        }
        rule.when = Some(When { part: WhenPart::Method, values: methods, is_negated: is_limited });
        return Ok(());
    }
    if matches!(source, "remote_addr" | "binary_remote_addr") {
        if !is_limited || patterns.iter().any(|text| text.parse::<IpAddr>().is_err()) {
            return Err(
                "a limit of tidegate can exempt addresses, but not apply to some of them only".to_owned()
            );
        }
        rule.allow = owned();
        return Ok(());
    }
    let (condition, notes) = condition(source, patterns, is_limited)?;
    rule.notes.extend(notes);
    rule.when = Some(When::of(condition));
    Ok(())
}

/// The condition that a variable has one of these patterns of a `map`, or that it has none of them; and notes on it.
pub(super) fn condition(
    source: &str,
    patterns: &[&str],
    is_negated: bool,
) -> Result<(Condition, Vec<String>), String> {
    let name = match part(source) {
        Ok(TemplatePart::Key(name)) => name,
        _ => String::new(),
    };
    let Some((kind, name)) = condition_kind(&name) else {
        return Err(format!("routes have no condition on `${source}`"));
    };
    let mut notes = Vec::new();
    let test = match (test(patterns, name == "user-agent", &mut notes)?, is_negated) {
        (Test::Any(values), true) => Test::Not(values),
        (Test::Present(is_present), true) => Test::Present(!is_present),
        (test, _) => test,
    };
    Ok((Condition { kind, name: name.to_owned(), test }, notes))
}

/// The test for one of these patterns of a `map`.
fn test(patterns: &[&str], ignores_case: bool, notes: &mut Vec<String>) -> Result<Test, String> {
    if patterns == [""] {
        return Ok(Test::Present(false));
    }
    let mut values = Vec::new();
    for pattern in patterns {
        match pattern.strip_prefix('~') {
            _ if pattern.is_empty() || !is_constant(pattern) => {
                return Err(format!("the pattern `{pattern}` of the map can't be combined with others"));
            }
            None => {
                let has_letters = pattern.bytes().any(|byte| byte.is_ascii_alphabetic());
                if has_letters && !ignores_case {
                    let text =
                        format!("nginx ignores case when it compares with `{pattern}`; tidegate does not");
                    notes.push(text);
                }
                values.push(literal(pattern));
            }
            Some(regex) => {
                let insensitive = regex.strip_prefix('*');
                let found = of_regex(insensitive.unwrap_or(regex));
                let found = found.filter(|_| insensitive.is_some() == ignores_case);
                values.extend(
                    found.ok_or_else(|| format!("the pattern `{pattern}` is no list of plain texts"))?,
                );
            }
        }
    }
    Ok(Test::Any(values))
}
