//! The rules of a limit for networks and named keys: `block`, `allow` and `overrides`.

use std::collections::HashMap;

use ipnet::IpNet;

use super::key_name::NamedKeys;
use super::networks::Networks;
use crate::limit::{Key, PolicyId};

/// The rules of a limit for networks and named keys.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Networks whose requests are rejected.
    pub block: Networks,
    /// Networks that are exempt.
    pub allow: Networks,
    /// Rules for whole keys.
    keys: HashMap<Key, Rule>,
    /// Rules for all keys with a certain first part, where keys have several parts.
    first_parts: HashMap<Key, Rule>,
}

/// All entries of the configuration for one key, combined.
#[derive(Clone, Debug)]
struct Rule {
    name: Box<str>,
    is_blocked: bool,
    is_allowed: bool,
    policy: Option<PolicyId>,
}

/// One entry of the configuration for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRule {
    /// Its requests are rejected.
    Block,
    /// Its requests are exempt from the limit.
    Allow,
    /// It has this policy instead of the limit's.
    Override(PolicyId),
}

/// Why a rule applies to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match<'a> {
    /// The network contains the client's address.
    Network(IpNet),
    /// The key has this name.
    Name(&'a str),
}

/// The rules for the keys of a request: first those for whole keys, then those for first parts.
pub(super) struct KeyRules<'a>([Matched<'a>; 2]);

/// The rules for several keys of which the server may read any.
#[derive(Clone, Copy, Default)]
struct Matched<'a> {
    /// The rule that blocks one of them.
    block: Option<&'a Rule>,
    /// A rule that allows one of them, if each of them is allowed by some rule.
    allow: Option<&'a Rule>,
    /// The rule with an override, if there is only one key.
    overriding: Option<&'a Rule>,
}

impl Rules {
    /// Adds a rule for a key. Rules of two names for one key are combined; if both are overrides, the new one is not
    /// added, and the name of the earlier one is returned.
    pub fn add(&mut self, named: NamedKeys, name: &str, rule: KeyRule) -> Option<&str> {
        let rules = match named {
            NamedKeys::Key(_) => &mut self.keys,
            NamedKeys::FirstPart(_) => &mut self.first_parts,
        };
        let (NamedKeys::Key(key) | NamedKeys::FirstPart(key)) = named;
        let combined = rules.entry(key).or_insert_with(|| Rule::of(name));
        match rule {
            KeyRule::Block => combined.is_blocked = true,
            KeyRule::Allow => combined.is_allowed = true,
            KeyRule::Override(_) if combined.policy.is_some() => return Some(&combined.name),
            KeyRule::Override(policy) => {
                combined.policy = Some(policy);
                combined.name = name.into();
            }
        }
        None
    }

    /// The overrides with their names, in the order of the file.
    pub fn overrides(&self) -> impl Iterator<Item = (&str, PolicyId)> {
        let rules = self.keys.values().chain(self.first_parts.values());
        let mut all: Vec<(&str, PolicyId)> =
            rules.filter_map(|rule| Some((&*rule.name, rule.policy?))).collect();
        all.sort_unstable_by_key(|(_, policy)| *policy);
        all.into_iter()
    }

    /// Whether there are rules for networks.
    #[must_use]
    pub fn have_networks(&self) -> bool {
        !self.block.is_empty() || !self.allow.is_empty()
    }

    /// Whether there are no rules.
    pub(super) fn is_empty(&self) -> bool {
        let Self { block, allow, keys, first_parts } = self;
        block.is_empty() && allow.is_empty() && keys.is_empty() && first_parts.is_empty()
    }

    /// Whether there are rules for whole keys.
    pub(super) fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Whether there are rules for first parts of keys.
    pub(super) fn has_first_parts(&self) -> bool {
        !self.first_parts.is_empty()
    }

    /// The rules for a request. `whole` is its key or, where a value is ambiguous, all keys that it could have;
    /// `first_parts` the same for first parts.
    pub(super) fn on_keys(&self, whole: &[Key], first_parts: &[Key]) -> KeyRules<'_> {
        KeyRules([Matched::of(&self.keys, whole), Matched::of(&self.first_parts, first_parts)])
    }
}

impl Rule {
    fn of(name: &str) -> Self {
        Self { name: name.into(), is_blocked: false, is_allowed: false, policy: None }
    }
}

impl<'a> Matched<'a> {
    fn of(rules: &'a HashMap<Key, Rule>, keys: &[Key]) -> Self {
        if rules.is_empty() {
            return Self::default();
        }
        let mut found = keys.iter().map(|key| rules.get(key));
        let block = found.clone().flatten().find(|rule| rule.is_blocked);
        let is_allowed = |rule: Option<&Rule>| rule.is_some_and(|rule| rule.is_allowed);
        let allow = found.clone().next().flatten().filter(|_| found.clone().all(is_allowed));
        let overriding = if keys.len() == 1 { found.next().flatten() } else { None };
        Self { block, allow, overriding: overriding.filter(|rule| rule.policy.is_some()) }
    }
}

impl<'a> KeyRules<'a> {
    pub fn block(&self) -> Option<Match<'a>> {
        self.0.iter().find_map(|matched| matched.block).map(|rule| Match::Name(&rule.name))
    }

    pub fn allow(&self) -> Option<Match<'a>> {
        self.0.iter().find_map(|matched| matched.allow).map(|rule| Match::Name(&rule.name))
    }

    /// The policy of an override, and its name; one for a whole key takes precedence over one for a first part.
    pub fn policy(&self) -> Option<(PolicyId, &'a str)> {
        let rule = self.0.iter().find_map(|matched| matched.overriding)?;
        Some((rule.policy?, &*rule.name))
    }
}

impl std::fmt::Display for Match<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Network(network) => write!(f, "the address is in {network}"),
            Self::Name(name) => write!(f, "the key is named `{name}`"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(networks: &[&str], address: &str) -> Option<String> {
        let networks: Networks = networks.iter().map(|network| network.parse().unwrap()).collect();
        networks.find(address.parse().unwrap()).map(|network| network.to_string())
    }

    #[test]
    fn the_network_of_an_address_is_found_among_many() {
        let networks =
            ["10.1.0.0/16", "192.0.2.7/32", "10.1.2.0/24", "2001:db8::/32", "9.0.0.0/8", "fd00::/8"];
        assert_eq!(found(&networks, "10.1.255.255").as_deref(), Some("10.1.0.0/16"));
        assert_eq!(found(&networks, "10.1.2.3").as_deref(), Some("10.1.0.0/16"));
        assert_eq!(found(&networks, "192.0.2.7").as_deref(), Some("192.0.2.7/32"));
        assert_eq!(found(&networks, "2001:db8::7").as_deref(), Some("2001:db8::/32"));
        for other in
            ["10.2.0.0", "10.0.255.255", "192.0.2.8", "2001:db9::", "::", "0.0.0.0", "255.255.255.255"]
        {
            assert_eq!(found(&networks, other), None, "{other}");
        }
        assert_eq!(found(&[], "10.0.0.1"), None);
        assert_eq!(found(&["0.0.0.0/0"], "::1"), None);
    }

    #[test]
    fn rules_for_a_whole_key_come_before_those_for_its_first_part() {
        let (whole, first) = (Key([1; 16]), Key([2; 16]));
        let mut rules = Rules::default();
        assert_eq!(rules.add(NamedKeys::FirstPart(first), "a", KeyRule::Override(PolicyId(7))), None);
        assert_eq!(rules.add(NamedKeys::Key(whole), "a|b", KeyRule::Override(PolicyId(8))), None);
        assert_eq!(rules.add(NamedKeys::Key(whole), "twice", KeyRule::Override(PolicyId(9))), Some("a|b"));
        assert_eq!(rules.add(NamedKeys::FirstPart(first), "a", KeyRule::Allow), None);
        let policy = |key, part| rules.on_keys(&[key], &[part]).policy();
        assert_eq!(policy(whole, first), Some((PolicyId(8), "a|b")));
        assert_eq!(policy(Key([3; 16]), first), Some((PolicyId(7), "a")));
        assert_eq!(policy(first, whole), None);
        let matched = rules.on_keys(&[whole], &[first]);
        assert_eq!((matched.allow(), matched.block()), (Some(Match::Name("a")), None));
    }

    #[test]
    fn one_of_several_keys_blocks_and_all_must_be_allowed() {
        let [friend, foe, other, unknown] = [1, 2, 3, 4].map(|number| Key([number; 16]));
        let mut rules = Rules::default();
        for (key, name, rule) in [
            (friend, "friend", KeyRule::Allow),
            (other, "other", KeyRule::Allow),
            (other, "other", KeyRule::Override(PolicyId(7))),
            (foe, "foe", KeyRule::Block),
        ] {
            rules.add(NamedKeys::Key(key), name, rule);
        }
        let matched = |keys: &[Key]| {
            let matched = rules.on_keys(keys, &[]);
            (matched.block().is_some(), matched.allow().is_some(), matched.policy().is_some())
        };
        assert_eq!(matched(&[friend, foe]), (true, false, false));
        assert_eq!(matched(&[unknown, foe]), (true, false, false));
        assert_eq!(matched(&[friend, other]), (false, true, false));
        assert_eq!(matched(&[friend, unknown]), (false, false, false));
        assert_eq!(matched(&[other]), (false, true, true));
        assert_eq!(matched(&[]), (false, false, false));
    }
}
