//! Whom a limit lets off, whom it turns away, and who has numbers of their own.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::names::Named;
use crate::limit::{Key, PolicyId};

/// A set of networks.
#[derive(Clone, Debug, Default)]
pub struct Networks(
    /// Sorted, and none of them within another, so that one look finds the only one that can hold an address.
    Vec<IpNet>,
);

/// Who is treated otherwise than all others.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Networks that are turned away.
    pub block: Networks,
    /// Networks that are let off.
    pub allow: Networks,
    /// What holds for whole keys.
    keys: HashMap<Key, Rule>,
    /// What holds for all keys that begin with a certain part, where keys have several.
    first_parts: HashMap<Key, Rule>,
}

/// What holds for one name.
#[derive(Clone, Debug)]
struct Rule {
    name: Box<str>,
    is_blocked: bool,
    is_allowed: bool,
    numbers: Option<PolicyId>,
}

/// One thing that holds for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyRule {
    /// It is turned away.
    Block,
    /// It is let off.
    Allow,
    /// It has these numbers.
    Numbers(PolicyId),
}

/// By what a rule applies to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match<'a> {
    /// The client's address lies in this network.
    Network(IpNet),
    /// The key has this name.
    Name(&'a str),
}

/// The rules for the keys of a request: for the whole of them, and then for their first part.
pub(super) struct KeyRules<'a>([Matched<'a>; 2]);

/// What holds for several keys of which the server may read any.
#[derive(Clone, Copy, Default)]
struct Matched<'a> {
    /// The rule that blocks one of them.
    block: Option<&'a Rule>,
    /// A rule that allows one of them, where each is allowed by one.
    allow: Option<&'a Rule>,
    /// The rule that has other numbers, where there is but one key.
    numbers: Option<&'a Rule>,
}

impl FromIterator<IpNet> for Networks {
    fn from_iter<I: IntoIterator<Item = IpNet>>(networks: I) -> Self {
        let networks: Vec<IpNet> = networks.into_iter().collect();
        let mut apart = IpNet::aggregate(&networks);
        apart.sort_unstable_by_key(IpNet::network);
        Self(apart)
    }
}

impl Networks {
    /// The network that holds this address; networks that adjoin each other are one.
    #[must_use]
    pub fn find(&self, address: IpAddr) -> Option<IpNet> {
        let after = self.0.partition_point(|network| network.network() <= address);
        let last = self.0[..after].last()?;
        last.contains(&address).then_some(*last)
    }

    pub(super) fn matches<'a>(&self, address: IpAddr) -> Option<Match<'a>> {
        self.find(address).map(Match::Network)
    }
}

impl Rules {
    /// Adds what holds for a name. Of two names for one key both hold; the name of an earlier one is returned
    /// if both give it numbers, which can't be.
    pub fn add(&mut self, named: Named, name: &str, remark: KeyRule) -> Option<&str> {
        let rules = match named {
            Named::Key(_) => &mut self.keys,
            Named::FirstPart(_) => &mut self.first_parts,
        };
        let (Named::Key(key) | Named::FirstPart(key)) = named;
        let rule = rules.entry(key).or_insert_with(|| Rule::of(name));
        match remark {
            KeyRule::Block => rule.is_blocked = true,
            KeyRule::Allow => rule.is_allowed = true,
            KeyRule::Numbers(_) if rule.numbers.is_some() => return Some(&rule.name),
            KeyRule::Numbers(policy) => {
                rule.numbers = Some(policy);
                rule.name = name.into();
            }
        }
        None
    }

    /// The names that have numbers of their own, in the order of the file.
    pub fn overrides(&self) -> impl Iterator<Item = (&str, PolicyId)> {
        let rules = self.keys.values().chain(self.first_parts.values());
        let mut all: Vec<(&str, PolicyId)> =
            rules.filter_map(|rule| Some((&*rule.name, rule.numbers?))).collect();
        all.sort_unstable_by_key(|(_, policy)| *policy);
        all.into_iter()
    }

    /// Whether names stand for whole keys.
    pub(super) fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Whether names stand for first parts of keys.
    pub(super) fn has_first_parts(&self) -> bool {
        !self.first_parts.is_empty()
    }

    /// What holds for a request: its key or, where a value is ambiguous, all keys that it could have; and the same for
    /// the first parts of keys.
    pub(super) fn on_keys(&self, whole: &[Key], first_parts: &[Key]) -> KeyRules<'_> {
        KeyRules([Matched::of(&self.keys, whole), Matched::of(&self.first_parts, first_parts)])
    }
}

impl Rule {
    fn of(name: &str) -> Self {
        Self { name: name.into(), is_blocked: false, is_allowed: false, numbers: None }
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
        let numbers = if keys.len() == 1 { found.next().flatten() } else { None };
        Self { block, allow, numbers: numbers.filter(|rule| rule.numbers.is_some()) }
    }
}

impl<'a> KeyRules<'a> {
    pub fn block(&self) -> Option<Match<'a>> {
        self.0.iter().find_map(|matched| matched.block).map(|rule| Match::Name(&rule.name))
    }

    pub fn allow(&self) -> Option<Match<'a>> {
        self.0.iter().find_map(|matched| matched.allow).map(|rule| Match::Name(&rule.name))
    }

    /// The numbers that a name has; the name of a whole key goes before that of a first part.
    pub fn numbers(&self) -> Option<(PolicyId, &'a str)> {
        let rule = self.0.iter().find_map(|matched| matched.numbers)?;
        Some((rule.numbers?, &*rule.name))
    }
}

impl std::fmt::Display for Match<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Network(network) => write!(f, "the address lies in {network}"),
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
    fn the_whole_key_goes_before_its_first_part() {
        let (whole, first) = (Key([1; 16]), Key([2; 16]));
        let mut rules = Rules::default();
        assert_eq!(rules.add(Named::FirstPart(first), "a", KeyRule::Numbers(PolicyId(7))), None);
        assert_eq!(rules.add(Named::Key(whole), "a|b", KeyRule::Numbers(PolicyId(8))), None);
        assert_eq!(rules.add(Named::Key(whole), "twice", KeyRule::Numbers(PolicyId(9))), Some("a|b"));
        assert_eq!(rules.add(Named::FirstPart(first), "a", KeyRule::Allow), None);
        let numbers = |key, part| rules.on_keys(&[key], &[part]).numbers();
        assert_eq!(numbers(whole, first), Some((PolicyId(8), "a|b")));
        assert_eq!(numbers(Key([3; 16]), first), Some((PolicyId(7), "a")));
        assert_eq!(numbers(first, whole), None);
        let remarks = rules.on_keys(&[whole], &[first]);
        assert_eq!((remarks.allow(), remarks.block()), (Some(Match::Name("a")), None));
    }

    #[test]
    fn of_several_keys_one_blocks_and_all_must_be_allowed() {
        let [friend, foe, other, unknown] = [1, 2, 3, 4].map(|number| Key([number; 16]));
        let mut rules = Rules::default();
        for (key, name, remark) in [
            (friend, "friend", KeyRule::Allow),
            (other, "other", KeyRule::Allow),
            (other, "other", KeyRule::Numbers(PolicyId(7))),
            (foe, "foe", KeyRule::Block),
        ] {
            rules.add(Named::Key(key), name, remark);
        }
        let matched = |keys: &[Key]| {
            let remarks = rules.on_keys(keys, &[]);
            (remarks.block().is_some(), remarks.allow().is_some(), remarks.numbers().is_some())
        };
        assert_eq!(matched(&[friend, foe]), (true, false, false));
        assert_eq!(matched(&[unknown, foe]), (true, false, false));
        assert_eq!(matched(&[friend, other]), (false, true, false));
        assert_eq!(matched(&[friend, unknown]), (false, false, false));
        assert_eq!(matched(&[other]), (false, true, true));
        assert_eq!(matched(&[]), (false, false, false));
    }
}
