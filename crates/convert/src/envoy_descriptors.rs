//! Converts the configuration of Envoy's rate-limit service (envoyproxy/ratelimit) to one of the service of tidegate.

use super::document::{DocNode, documents};
use super::envoy_refusals::{refusals, remarks};
use super::model::{Converted, Limit, TomlAlgorithm, TomlDescriptor, TomlListener, UniqueNames};
use super::note::{FileLine, Note, SyntaxError};
use super::restrictions::Restriction;
use super::source::SourceFile;

/// The address of the reference service, in this host.
const ADDRESS: &str = "127.0.0.1:8081";

/// Keys that only change metrics.
const OF_METRICS: [&str; 3] = ["detailed_metric", "value_to_metric", "metadata"];

/// The state of the conversion of descriptors into rules.
struct DescriptorConverter {
    names: UniqueNames,
    converted: Converted,
    domain: String,
    /// The names that rules have.
    rules: Vec<String>,
}

/// The descriptors around a rule, and itself.
#[derive(Clone, Default)]
struct RulePath {
    entries: Vec<Entry>,
}

/// A key of a descriptor with its value.
#[derive(Clone)]
struct Entry {
    key: String,
    value: Option<String>,
    /// Whether all values have one count.
    is_shared: bool,
}

/// Converts files, each of which has a domain.
pub(super) fn convert(files: &[SourceFile<'_>]) -> Result<Converted, SyntaxError> {
    let roots = documents(files, |_| false)?;
    let mut maker = DescriptorConverter {
        names: UniqueNames::default(),
        converted: Converted::default(),
        domain: String::new(),
        rules: Vec::new(),
    };
    maker.converted.listeners.push(TomlListener {
        notes: vec![Note::text("Name this address in the `rate_limit_service` of Envoy's filter.")],
        address: ADDRESS.to_owned(),
        serves: Some("envoy-ratelimit"),
        ..TomlListener::default()
    });
    maker.converted.notes.extend(refusals(&roots));
    for root in &roots {
        find_names(root.get("descriptors"), &mut maker.rules);
    }
    for root in &roots {
        maker.converted.restrictions.extend(restrictions(root));
        let Some(domain) = root.get("domain").text().filter(|domain| !domain.is_empty()) else {
            maker.converted.notes.extend(without_domain(root));
            continue;
        };
        domain.clone_into(&mut maker.domain);
        maker.converted.notes.extend(remarks(root, &["domain", "descriptors"]));
        maker.descriptors(root.get("descriptors"), &RulePath::default());
    }
    Ok(maker.converted)
}

/// A note on a document without a domain, unless it is empty.
pub(super) fn without_domain(root: &DocNode) -> Option<Note> {
    let reason = "it has no `domain`, and the rate-limit service does not start with such a file: write the text of the file alone, without the \
                  object around it";
    root.is_present().then(|| root.finding("document", reason))
}

/// The limits of a document, wherever they are in it.
pub(super) fn restrictions(root: &DocNode) -> Vec<Restriction> {
    fn walk(node: &DocNode, around: &[FileLine], found: &mut Vec<Restriction>) {
        let within: Vec<FileLine> = around.iter().chain([&node.place]).cloned().collect();
        for (key, value) in node.entries() {
            let is_limit = key == "rate_limit" && !value.get("unlimited").is_true();
            // A file in an object of Kubernetes.
            if is_limit || value.text().is_some_and(|text| text.contains("rate_limit:")) {
                let units = value.get("requests_per_unit").text().unwrap_or_default();
                let text = format!("{key}: {units} each {}", value.get("unit").text().unwrap_or("unit"));
                found.push(Restriction::limit(value.place.clone(), text, within.clone()));
            }
            walk(value, &within, found);
        }
        node.items().iter().for_each(|item| walk(item, &within, found));
    }
    let mut found = Vec::new();
    walk(root, &[], &mut found);
    found
}

/// Collects the names of all rules.
fn find_names(list: &DocNode, names: &mut Vec<String>) {
    for node in list.items() {
        names.extend(node.get("rate_limit").get("name").text().map(str::to_owned));
        find_names(node.get("descriptors"), names);
    }
}

impl DescriptorConverter {
    fn descriptors(&mut self, list: &DocNode, path: &RulePath) {
        for node in list.items() {
            let entry = Entry {
                key: node.get("key").text().unwrap_or_default().to_owned(),
                value: node.get("value").text().filter(|value| !value.is_empty()).map(str::to_owned),
                is_shared: node.get("share_threshold").is_true(),
            };
            let mut inner = path.clone();
            inner.entries.push(entry);
            self.descriptor(node, &inner);
            self.descriptors(node.get("descriptors"), &inner);
        }
    }

    fn descriptor(&mut self, node: &DocNode, path: &RulePath) {
        let known = ["key", "value", "rate_limit", "descriptors", "shadow_mode", "share_threshold"];
        let known: Vec<&str> = known.into_iter().chain(OF_METRICS).collect();
        let mut notes = remarks(node, &known);
        for key in OF_METRICS.iter().filter(|key| node.get(key).is_present()) {
            notes.push(Note::text(format!(
                "`{key}` is ignored: metrics have the name of the limit, and never its keys."
            )));
        }
        let limit = node.get("rate_limit");
        if !limit.is_present() && !node.get("descriptors").items().is_empty() {
            self.converted.notes.extend(notes);
            return;
        }
        notes.insert(0, node.origin(&path.text()));
        let mut rule = TomlDescriptor::new(&self.domain, path.patterns());
        if self.converted.descriptors.iter().any(|it| it.domain == rule.domain && it.entries == rule.entries)
        {
            let reason = "another descriptor matches the same requests, and is converted";
            self.converted.notes.push(node.finding(&path.text(), reason));
            return;
        }
        if path.entries.iter().any(|entry| entry.key.is_empty() || entry.key.contains(['=', '*'])) {
            let reason =
                "ACCESS IS OPEN: a key without text, with `=` or with `*` can't be written in `match`";
            self.converted.notes.push(node.finding(&path.text(), reason));
            return;
        }
        if limit.is_present() {
            let known = ["unit", "requests_per_unit", "unlimited", "name", "replaces"];
            notes.extend(remarks(limit, &known));
            rule.name = limit.get("name").text().map(str::to_owned);
            self.replaces(limit, &mut rule, &mut notes);
            self.limit(node, path, &mut rule, &mut notes);
        } else {
            notes.push(Note::text("Without a limit, and so unlimited."));
        }
        rule.notes = notes;
        self.converted.descriptors.push(rule);
    }

    fn replaces(&mut self, limit: &DocNode, rule: &mut TomlDescriptor, notes: &mut Vec<Note>) {
        for replaced in limit.get("replaces").items() {
            let name = replaced.get("name").text().unwrap_or_default();
            if self.rules.iter().any(|rule| rule == name) {
                rule.replaces.push(name.to_owned());
            } else {
                let reason = "no rule of this file has this name";
                notes.push(replaced.finding(&format!("replaces: {name}"), reason));
            }
        }
    }

    /// Gives a rule the limit of its descriptor.
    fn limit(&mut self, node: &DocNode, path: &RulePath, rule: &mut TomlDescriptor, notes: &mut Vec<Note>) {
        let limit = node.get("rate_limit");
        if limit.get("unlimited").is_true() {
            notes.push(Note::text("Unlimited."));
            return;
        }
        let is_shadow = node.get("shadow_mode").is_true();
        match allowance(node) {
            Some(Allowance::Rate(rate)) => {
                let Some(key) = path.key() else {
                    let reason = "ACCESS IS OPEN: the descriptor has a key twice, so a limit can't count by its values";
                    notes.push(limit.finding(&path.text(), reason));
                    return;
                };
                let name = limit.get("name").text().map_or_else(|| path.name(), str::to_owned);
                let name = self.names.unique(&name);
                let mut made = Limit::new(name.clone(), TomlAlgorithm::FixedWindow { rate }, key);
                made.is_shadow = is_shadow;
                made.uses.push(limit.place.clone());
                rule.limits.push(name);
                self.converted.limits.push(made);
            }
            Some(Allowance::None) if is_shadow => {
                notes.push(limit.finding("requests_per_unit: 0", "in shadow mode it denies nothing"));
            }
            Some(Allowance::None) => {
                rule.blocks = true;
                notes.push(limit.origin("requests_per_unit: 0"));
            }
            None => {
                let reason = "ACCESS IS OPEN: `unit` is second, minute, hour, day, week, month or year, and \
                              `requests_per_unit` a number";
                notes.push(limit.finding("rate_limit", reason));
            }
        }
    }
}

impl RulePath {
    /// The `match` of a rule.
    fn patterns(&self) -> Vec<String> {
        let pattern = |entry: &Entry| match &entry.value {
            // `*` matches any characters in both.
            Some(value) => format!("{}={}", entry.key, value.replace('\\', "\\\\")),
            None => entry.key.clone(),
        };
        self.entries.iter().map(pattern).collect()
    }

    /// The parts by which a limit counts: all values that are not fixed. None if a key has two of them.
    fn key(&self) -> Option<Vec<String>> {
        let is_fixed = |entry: &Entry| entry.value.as_ref().is_some_and(|value| !value.contains('*'));
        let varying: Vec<&str> = self
            .entries
            .iter()
            .filter(|entry| !is_fixed(entry) && !entry.is_shared)
            .map(|entry| &*entry.key)
            .collect();
        let is_unique = |key: &str| self.entries.iter().filter(|entry| entry.key == key).count() == 1;
        if !varying.iter().all(|key| is_unique(key)) {
            return None;
        }
        let parts: Vec<String> = varying.iter().map(|key| format!("descriptor:{key}")).collect();
        Some(if parts.is_empty() { vec!["global".to_owned()] } else { parts })
    }

    /// The name of a limit.
    fn name(&self) -> String {
        let name = |entry: &Entry| match &entry.value {
            Some(value) => format!("{}-{value}", entry.key),
            None => entry.key.clone(),
        };
        self.entries.iter().map(name).collect::<Vec<_>>().join("-")
    }

    /// The descriptor for notes.
    fn text(&self) -> String {
        let text = |entry: &Entry| match &entry.value {
            Some(value) => format!("{}={value}", entry.key),
            None => entry.key.clone(),
        };
        self.entries.iter().map(text).collect::<Vec<_>>().join(", ")
    }
}

/// The requests that a descriptor allows.
pub(super) enum Allowance {
    /// So many requests in a period.
    Rate(String),
    /// No request.
    None,
}

/// The allowance of a descriptor, in windows that start at multiples of their length, as those of the service do.
pub(super) fn allowance(node: &DocNode) -> Option<Allowance> {
    let limit = node.get("rate_limit");
    allowance_of(limit.get("requests_per_unit").number()?, limit.get("unit").text()?)
}

/// So many requests in each of these units of time.
pub(super) fn allowance_of(units: u64, unit: &str) -> Option<Allowance> {
    let period = match &*unit.to_ascii_lowercase() {
        "second" => "s",
        "minute" => "minute",
        "hour" => "hour",
        "day" => "day",
        // Weeks, months and years of the service are multiples of days, and not those of the calendar.
        "week" => "168h",
        "month" => "720h",
        "year" => "8760h",
        _ => return None,
    };
    Some(if units == 0 { Allowance::None } else { Allowance::Rate(format!("{units}/{period}")) })
}
