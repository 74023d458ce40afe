//! The terms of a limit: whose count it is, what a request pays, and who gets other numbers.

use std::collections::HashMap;
use std::net::IpAddr;

use http::StatusCode;
use http::header::HeaderName;
use smallvec::SmallVec;

use super::rules::{KeyRules, Match, Rules};
use super::{Gate, KeyLookup, KeyPart, KeySpec, PartValue, Subject, keys};
use crate::limit::{Charge, Key, PolicyId};

/// The most keys that the values of an ambiguous request may make where rules name keys: each is looked up.
const MAX_COMBINATIONS: usize = 256;

/// What a limit wants of a request.
#[derive(Clone, Debug)]
pub struct LimitRule {
    /// Whose count it is.
    pub key: KeySpec,
    /// The status of a request that is refused because a part of its key is missing.
    pub missing_status: StatusCode,
    /// Units that a request spends.
    pub cost: Cost,
    /// Whose headers may set the cost and the tier.
    pub trust: Trust,
    /// Who is treated otherwise than all others.
    pub rules: Rules,
    /// Other numbers by a value of the request.
    pub tiers: Option<Tiers>,
}

/// Units that a request spends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Always so many.
    Fixed(u64),
    /// As many as a header says: at least one, and one if it does not say.
    Header {
        /// Which header.
        name: HeaderName,
        /// The most that it can say.
        max: u64,
    },
}

/// Whose headers may set costs and tiers: a client must not set its own price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Those that trusted proxies send.
    #[default]
    Proxies,
    /// Everybody's.
    Any,
}

/// Other numbers by a value of the request.
#[derive(Clone, Debug)]
pub struct Tiers {
    /// Where the value comes from.
    pub by: KeyPart,
    tiers: HashMap<Box<str>, PolicyId>,
}

/// What a limit has to do with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitMatch<'a> {
    /// It refuses it, whatever the counts are.
    Blocked(Match<'a>),
    /// It lets it off.
    Allowed(Match<'a>),
    /// It does not count it: a part of the key is missing.
    Skipped,
    /// It refuses it, because this part of the key has too many values to look up a rule for each.
    TooManyValues(&'a KeyPart),
    /// It refuses it, because this part of the key is missing.
    Missing(&'a KeyPart),
    /// It charges it.
    Charged {
        /// What for.
        charge: Charge,
        /// By which numbers.
        numbers: PolicySource<'a>,
    },
}

/// Whose numbers decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicySource<'a> {
    /// The limit's own.
    Base,
    /// Those of a tier.
    Tier(&'a str),
    /// Those of an override.
    Override(&'a str),
}

impl LimitRule {
    /// Terms under which each request pays `cost` when it arrives, and all have the same numbers.
    #[must_use]
    pub fn new(key: KeySpec, cost: Cost) -> Self {
        Self {
            key,
            missing_status: StatusCode::FORBIDDEN,
            cost,
            trust: Trust::default(),
            rules: Rules::default(),
            tiers: None,
        }
    }
}

impl LimitRule {
    /// A part of the key that has more values than rules are looked up for, where there are rules for keys.
    fn has_too_many_values(&self, subject: &Subject<'_>, found: &KeyLookup) -> Option<&KeyPart> {
        let has_rules = self.rules.has_keys() || self.rules.has_first_parts();
        match found {
            KeyLookup::Ambiguous { combinations, .. } if has_rules && *combinations > MAX_COMBINATIONS => {
                self.key.parts.iter().find(|part| matches!(part.value(subject), PartValue::Several(_)))
            }
            // A part is missing, but rules for the first one are looked up all the same.
            KeyLookup::Skip | KeyLookup::Deny(_) if self.rules.has_first_parts() => {
                let first = self.key.parts.first();
                first.filter(|part| part.choices(subject).len() > MAX_COMBINATIONS)
            }
            _ => None,
        }
    }
}

impl Cost {
    /// What a request pays. `is_believed` says whether its headers count; it is asked only where they matter.
    fn of(&self, subject: &Subject<'_>, is_believed: impl FnOnce() -> bool) -> u64 {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Header { name, max } => {
                let said = keys::header(subject.head, name).one().filter(|_| is_believed());
                said.and_then(|said| whole_number(&said)).unwrap_or(1).clamp(1, (*max).max(1))
            }
        }
    }
}

/// Reads digits; what is too large to count is as large as can be.
fn whole_number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some(std::str::from_utf8(text).ok()?.parse().unwrap_or(u64::MAX))
}

impl Tiers {
    /// Tiers by their names, which are values of `by`.
    #[must_use]
    pub fn new(by: KeyPart, tiers: impl IntoIterator<Item = (Box<str>, PolicyId)>) -> Self {
        Self { by, tiers: tiers.into_iter().collect() }
    }

    /// The tier of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<(&str, PolicyId)> {
        self.tiers.get_key_value(name).map(|(name, policy)| (&**name, *policy))
    }

    /// Every tier, in the order of the file.
    pub fn all(&self) -> impl Iterator<Item = (&str, PolicyId)> {
        let mut all: Vec<(&str, PolicyId)> =
            self.tiers.iter().map(|(name, policy)| (&**name, *policy)).collect();
        all.sort_unstable_by_key(|(_, policy)| *policy);
        all.into_iter()
    }

    fn of(&self, subject: &Subject<'_>, is_believed: impl FnOnce() -> bool) -> Option<(&str, PolicyId)> {
        if self.by.is_clients_word() && !is_believed() {
            return None;
        }
        self.get(std::str::from_utf8(&self.by.value(subject).one()?).ok()?)
    }
}

impl Gate {
    /// What a limit has to do with a request whose key there is `found`: block, then allow, then override, then
    /// tier, then the limit's own numbers. A limit in shadow mode refuses no request.
    #[must_use]
    pub fn stance<'a>(
        &'a self,
        limit: PolicyId,
        subject: &Subject<'_>,
        found: &'a KeyLookup,
    ) -> LimitMatch<'a> {
        let (terms, enforces) = (self.terms(limit), !self.limits.policies[limit.0 as usize].shadow);
        if let Some(part) = terms.has_too_many_values(subject, found)
            && enforces
        {
            return LimitMatch::TooManyValues(part);
        }
        let remarks = self.remarks(terms, subject, found);
        if enforces && let Some(by) = terms.rules.block.matches(subject.address).or_else(|| remarks.block()) {
            return LimitMatch::Blocked(by);
        }
        if let Some(by) = terms.rules.allow.matches(subject.address).or_else(|| remarks.allow()) {
            return LimitMatch::Allowed(by);
        }
        let key = match found {
            KeyLookup::Key(key) | KeyLookup::Ambiguous { key, .. } => *key,
            KeyLookup::Deny(part) if enforces => return LimitMatch::Missing(part),
            KeyLookup::Deny(_) | KeyLookup::Skip => return LimitMatch::Skipped,
        };
        let is_believed = || self.believes(subject.peer, terms.trust);
        let tier = || terms.tiers.as_ref().and_then(|tiers| tiers.of(subject, is_believed));
        let (policy, numbers) = match remarks.numbers() {
            Some((policy, name)) => (policy, PolicySource::Override(name)),
            None => match tier() {
                Some((name, policy)) => (policy, PolicySource::Tier(name)),
                None => (limit, PolicySource::Base),
            },
        };
        LimitMatch::Charged {
            charge: Charge::take(policy, key, terms.cost.of(subject, is_believed)),
            numbers,
        }
    }

    /// The rules for a request. Those that name keys are looked up for each value that it has.
    fn remarks<'a>(&self, terms: &'a LimitRule, subject: &Subject<'_>, found: &KeyLookup) -> KeyRules<'a> {
        let (mut whole, mut first_parts) = (SmallVec::<[Key; 1]>::new(), SmallVec::new());
        if terms.rules.has_keys() {
            match found {
                KeyLookup::Key(key) => whole.push(*key),
                KeyLookup::Ambiguous { combinations, .. } if *combinations <= MAX_COMBINATIONS => {
                    whole = terms.key.combinations(subject, &self.hasher);
                }
                KeyLookup::Ambiguous { .. } | KeyLookup::Skip | KeyLookup::Deny(_) => {}
            }
        }
        if terms.rules.has_first_parts() {
            first_parts = terms.key.first_parts(subject, &self.hasher, MAX_COMBINATIONS);
        }
        terms.rules.on_keys(&whole, &first_parts)
    }

    /// The header of which a request has several values that differ, where this limit reads it for a key, a price or a
    /// tier. A limit in shadow mode refuses no request.
    pub(super) fn differing_header<'a>(
        &'a self,
        limit: PolicyId,
        subject: &Subject<'a>,
    ) -> Option<&'a HeaderName> {
        let terms = self.terms(limit);
        if self.limits.policies[limit.0 as usize].shadow {
            return None;
        }
        let differs = |name: &HeaderName| {
            // Few requests have a header twice, and only then are its values compared.
            let is_repeated = subject.head.fields.get_all(name).nth(1).is_some();
            is_repeated && matches!(keys::header(subject.head, name), PartValue::Several(_))
        };
        let mut parts = terms.key.parts.iter().chain(terms.tiers.as_ref().map(|tiers| &tiers.by));
        let in_parts = parts.find_map(|part| match part {
            KeyPart::Header(name) if differs(name) => Some(name),
            KeyPart::Jwt(_) => subject.token.differing_header(),
            _ => None,
        });
        in_parts.or(match &terms.cost {
            Cost::Header { name, .. } if differs(name) => Some(name),
            _ => None,
        })
    }

    /// Whether what a request's headers say of its cost and its tier counts when it comes from `peer`.
    #[must_use]
    pub fn believes(&self, peer: IpAddr, trust: Trust) -> bool {
        trust == Trust::Any || self.client_ip.is_trusted(peer)
    }
}
