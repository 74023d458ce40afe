//! Descriptors: what a client of the rate-limit service counts in place of a request, and the rules that find its limits.
//!
//! The rules of a domain are a tree of entries. A descriptor follows it entry by entry: an exact value comes before patterns,
//! in the order of the file, and these before a key without a value. There is no way back: a rule that begins with the same
//! entry decides, as in Envoy's reference service.

use std::collections::HashMap;

use super::value_pattern::ValuePattern;
use crate::limit::PolicyId;

/// The entries of a descriptor in their order: keys and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptor<'a>(pub Vec<(&'a str, &'a str)>);

/// An entry in the `match` of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryPattern {
    /// The key.
    pub key: Box<str>,
    /// The values that match; none for any value.
    pub value: Option<ValuePattern>,
}

/// What the service does with the descriptors that a rule matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescriptorRule {
    /// Its name, for the `replaces` of other rules.
    pub name: Option<Box<str>>,
    /// The names of rules that do not apply to a request to which this one applies.
    pub replaces: Vec<Box<str>>,
    /// The limits; without any, the descriptors are unlimited.
    pub limits: Vec<PolicyId>,
    /// Whether its descriptors are always over the limit.
    pub blocks: bool,
    /// Whether hits are charged whatever the limits allow, since they have been spent.
    pub charges_late: bool,
    /// Whether its limits need the client's address, from the entry `remote_address`.
    pub needs_address: bool,
}

/// The rules of all domains.
#[derive(Debug, Default)]
pub struct DescriptorTable {
    domains: HashMap<Box<str>, DescriptorNode>,
    rules: Vec<DescriptorRule>,
}

/// Where the rules that begin with the same entries are.
#[derive(Debug, Default)]
struct DescriptorNode {
    keys: HashMap<Box<str>, ValueNodes>,
    /// The rule that ends here, by its number.
    rule: Option<usize>,
}

/// The next nodes for the values of one key.
#[derive(Debug, Default)]
struct ValueNodes {
    exact: HashMap<Box<[u8]>, DescriptorNode>,
    /// In the order of the file.
    patterns: Vec<(ValuePattern, DescriptorNode)>,
    any: Option<Box<DescriptorNode>>,
}

impl<'a> Descriptor<'a> {
    /// The entry whose value is the address of the client.
    pub const REMOTE_ADDRESS: &'static str = "remote_address";

    /// Parses entries with commas between them, each `key=value`. A value has no comma. Rejects a text without an entry, or an
    /// entry that has no key or no value.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        let entry = |entry: &'a str| {
            let pair = entry.split_once('=').filter(|(key, _)| !key.is_empty());
            pair.ok_or_else(|| format!("`{entry}` is no entry of a descriptor: write KEY=VALUE"))
        };
        Ok(Self(text.split(',').map(entry).collect::<Result<_, _>>()?))
    }

    /// The value of the first entry with this key.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }
}

impl std::fmt::Display for Descriptor<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, (key, value)) in self.0.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{key}={value}")?;
        }
        Ok(())
    }
}

impl std::fmt::Display for EntryPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.key),
            None => f.write_str(&self.key),
        }
    }
}

impl EntryPattern {
    /// Parses `key`, `key=value`, or `key=pattern*`. Rejects an empty key, or an empty value.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (key, value) = text.split_once('=').map_or((text, None), |(key, value)| (key, Some(value)));
        if key.is_empty() {
            return Err("an entry needs a key");
        }
        if value == Some("") {
            return Err("the value of an entry is not empty");
        }
        Ok(Self { key: key.into(), value: value.map(ValuePattern::parse) })
    }

    /// Whether only one value matches.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.value.as_ref().is_some_and(|value| value.exact().is_some())
    }
}

impl DescriptorTable {
    /// Adds a rule. Fails with the number of an earlier rule that has the same entries.
    pub fn add(&mut self, domain: &str, entries: &[EntryPattern], rule: DescriptorRule) -> Result<(), usize> {
        let mut node = self.domains.entry(domain.into()).or_default();
        for entry in entries {
            node = node.keys.entry(entry.key.clone()).or_default().node(entry.value.as_ref());
        }
        if let Some(earlier) = node.rule {
            return Err(earlier);
        }
        node.rule = Some(self.rules.len());
        self.rules.push(rule);
        Ok(())
    }

    /// Whether there are rules for a domain.
    #[must_use]
    pub fn has_domain(&self, domain: &str) -> bool {
        self.domains.contains_key(domain)
    }

    /// The rule for a descriptor: it has as many entries as the descriptor.
    #[must_use]
    pub fn find(&self, domain: &str, descriptor: &Descriptor<'_>) -> Option<&DescriptorRule> {
        let mut node = self.domains.get(domain)?;
        for (key, value) in &descriptor.0 {
            node = node.keys.get(*key)?.find(value)?;
        }
        self.rules.get(node.rule?)
    }

    /// All rules, in the order of the file.
    #[must_use]
    pub fn rules(&self) -> &[DescriptorRule] {
        &self.rules
    }
}

impl ValueNodes {
    /// The node for a value, created if missing.
    fn node(&mut self, value: Option<&ValuePattern>) -> &mut DescriptorNode {
        let Some(pattern) = value else { return self.any.get_or_insert_default() };
        if let Some(exact) = pattern.exact() {
            return self.exact.entry(exact.into()).or_default();
        }
        let known = self.patterns.iter().position(|(other, _)| other == pattern);
        let index = known.unwrap_or(self.patterns.len());
        if known.is_none() {
            self.patterns.push((pattern.clone(), DescriptorNode::default()));
        }
        &mut self.patterns[index].1
    }

    fn find(&self, value: &str) -> Option<&DescriptorNode> {
        let pattern = || self.patterns.iter().find(|(pattern, _)| pattern.matches(value.as_bytes()));
        let node = self.exact.get(value.as_bytes()).or_else(|| pattern().map(|(_, node)| node));
        node.or(self.any.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rules: &[(&str, &[&str])]) -> DescriptorTable {
        let mut table = DescriptorTable::default();
        for (number, (domain, entries)) in (0..).zip(rules) {
            let entries: Vec<EntryPattern> =
                entries.iter().map(|entry| EntryPattern::parse(entry).unwrap()).collect();
            let rule = DescriptorRule { limits: vec![PolicyId(number)], ..DescriptorRule::default() };
            table.add(domain, &entries, rule).unwrap();
        }
        table
    }

    fn found(table: &DescriptorTable, domain: &str, entries: &[(&str, &str)]) -> Option<u32> {
        let descriptor = Descriptor(entries.to_vec());
        table.find(domain, &descriptor).map(|rule| rule.limits[0].0)
    }

    #[test]
    fn exact_values_come_before_patterns_and_these_before_any_value() {
        let table = table(&[
            ("d", &["key"]),
            ("d", &["key=foo*"]),
            ("d", &["key=*bar"]),
            ("d", &["key=foobar"]),
            ("d", &["key=foo\\*"]),
        ]);
        for (value, rule) in [("foobar", 3), ("foobars", 1), ("bar", 2), ("", 0), ("other", 0), ("foo*", 4)] {
            assert_eq!(found(&table, "d", &[("key", value)]), Some(rule), "{value}");
        }
        assert_eq!(found(&table, "d", &[("Key", "foo")]), None);
        assert_eq!(found(&table, "e", &[("key", "foo")]), None);
    }

    #[test]
    fn a_rule_has_as_many_entries_as_the_descriptor_in_the_same_order() {
        let table = table(&[("d", &["a=1", "b"]), ("d", &["a"])]);
        assert_eq!(found(&table, "d", &[("a", "1"), ("b", "2")]), Some(0));
        assert_eq!(found(&table, "d", &[("a", "2")]), Some(1));
        for none in [&[("b", "2"), ("a", "1")][..], &[("a", "2"), ("b", "2")], &[]] {
            assert_eq!(found(&table, "d", none), None, "{none:?}");
        }
        // The exact value leads to rules that do not end here, and there is no way back.
        assert_eq!(found(&table, "d", &[("a", "1")]), None);
    }

    #[test]
    fn entries_are_displayed_as_they_are_written() {
        for text in ["key", "key=value", "path=/a*", "key=a\\*", "key=a=b"] {
            assert_eq!(EntryPattern::parse(text).unwrap().to_string(), text);
        }
        for wrong in ["", "=value", "key="] {
            assert!(EntryPattern::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_second_rule_with_the_same_entries_is_not_added() {
        let mut table = table(&[("d", &["a=1*", "b"])]);
        let entries = ["a=1*", "b"].map(|entry| EntryPattern::parse(entry).unwrap());
        assert_eq!(table.add("d", &entries, DescriptorRule::default()), Err(0));
        assert_eq!(table.add("e", &entries, DescriptorRule::default()), Ok(()));
    }
}
