//! Explains a descriptor of the rate-limit service: its rule, its limits, and the answer.

use serde::Serialize;

use super::explained::{ExplainedLimit, TextRows};
use super::limits;
use crate::config::Loaded;
use crate::gate::{Descriptor, DescriptorRule};
use crate::limit::PolicyId;

/// A descriptor, explained.
#[derive(Serialize)]
pub(super) struct ExplainedDescriptor {
    domain: String,
    descriptor: String,
    /// Whether a rule matches.
    is_matched: bool,
    /// Whether the rule blocks it.
    is_blocked: bool,
    limits: Vec<ExplainedLimit>,
    /// Why it can't be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// The text, which also says why.
    #[serde(skip)]
    pub rows: TextRows,
}

/// Explains a descriptor.
pub(super) fn explain(loaded: &Loaded, domain: &str, descriptor: &Descriptor<'_>) -> ExplainedDescriptor {
    let gate = &loaded.config.snapshot.gate;
    let (mut rows, mut limit_rows) = (TextRows::default(), TextRows::default());
    let rule = gate.descriptor_rules.find(domain, descriptor);
    let error = error(loaded, domain, descriptor);
    let limits = gate.descriptors().with_subject(descriptor, |subject| {
        let ids = rule.iter().flat_map(|rule| &rule.limits);
        let explain = |id: &PolicyId| {
            limit_rows.gap();
            limits::explain(&mut limit_rows, loaded, *id, subject)
        };
        ids.map(explain).collect()
    });
    rows.row("domain", domain);
    rows.row("entries", descriptor.to_string());
    rows.row("rule", describe(loaded, domain, rule));
    match (rule, &error) {
        (None, _) => {}
        (Some(_), Some(error)) => rows.row("error", error),
        (Some(rule), None) => {
            if rule.charges_late {
                rows.row("", "hits are charged whatever the limits allow (charge_late)");
            }
            if !rule.replaces.is_empty() {
                rows.row("replaces", format!("{}, in the same request", rule.replaces.join(", ")));
            }
            rows.append(&limit_rows);
        }
    }
    ExplainedDescriptor {
        domain: domain.to_owned(),
        descriptor: descriptor.to_string(),
        is_matched: rule.is_some(),
        is_blocked: rule.is_some_and(|rule| rule.blocks),
        limits,
        error,
        rows,
    }
}

fn describe(loaded: &Loaded, domain: &str, rule: Option<&DescriptorRule>) -> String {
    let table = &loaded.config.snapshot.gate.descriptor_rules;
    match rule {
        None if table.has_domain(domain) => "none of this domain matches: it is unlimited".to_owned(),
        None => "the file has no rules for this domain: it is unlimited".to_owned(),
        Some(rule) => {
            let position = table.rules().iter().position(|other| std::ptr::eq(other, rule));
            let number = position.map_or(0, |position| position + 1);
            let name = rule.name.as_ref().map_or_else(String::new, |name| format!(", {name}"));
            let effect = match rule.limits.len() {
                _ if rule.blocks => ": it is always over the limit (block)",
                0 => ": it is unlimited",
                _ => "",
            };
            format!("{number}{name}{effect}")
        }
    }
}

/// Why a descriptor can't be counted.
fn error(loaded: &Loaded, domain: &str, descriptor: &Descriptor<'_>) -> Option<String> {
    let asked = [(descriptor.clone(), 1)];
    let plans = loaded.config.snapshot.gate.descriptors().plan(domain, &asked);
    plans.err().map(|(_, error)| error.to_string())
}
