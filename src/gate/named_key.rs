//! Keys that operators and tools name, the rules that a limit has for them, and keys of requests in the same form.

use http::header::{AUTHORIZATION, PROXY_AUTHORIZATION};

use super::client_ip::ClientIp;
use super::consumer_rules::CredentialSource;
use super::key_name::{NameError, NamedKeys, escaped, split};
use super::key_part::KeyPart;
use super::key_spec::KeySpec;
use super::limit_rule::LimitRule;
use super::subject::Subject;
use crate::limit::{Key, KeyHasher, Parts, PolicyId};

/// A key of a limit, found by its name, and the rules that the limit has for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedKey<'a> {
    /// The key.
    pub key: Key,
    /// The policy of the key when no tier applies: an override's, or the limit's own.
    pub policy: PolicyId,
    /// The name of the override, if there is one.
    pub override_name: Option<&'a str>,
    /// Whether the limit's `allow` list has the name.
    pub is_allowed: bool,
    /// Whether the limit's `block` list has the name.
    pub is_blocked: bool,
    /// The tiers of the limit, each with its own count of the key; none for a key that has an override.
    pub tiers: Vec<(&'a str, PolicyId)>,
}

/// Finds keys of one limit by name.
#[derive(Clone, Copy, Debug)]
pub struct KeyResolver<'a> {
    pub(super) limit: PolicyId,
    pub(super) rule: &'a LimitRule,
    pub(super) client_ip: &'a ClientIp,
    pub(super) hasher: &'a KeyHasher,
}

impl<'a> KeyResolver<'a> {
    /// The key with this name; the name must have all parts of the key. Rejects a wrong number of parts, or a value that no part
    /// of a key can have.
    pub fn named(&self, name: &str) -> Result<NamedKey<'a>, NameError> {
        match self.parse(name)? {
            NamedKeys::Key(key) => Ok(self.with_rules(key, self.first_part(name))),
            NamedKeys::FirstPart(_) => Err(self.rule.key.wrong_count(1)),
        }
    }

    /// The key for free text, whatever parts the limit's keys have: the key with this name, or else a key that no
    /// request has. The rules for its first part apply to it as well.
    #[must_use]
    pub fn any(&self, text: &str) -> NamedKey<'a> {
        let key = if let Ok(NamedKeys::Key(key)) = self.parse(text) {
            key
        } else {
            let mut parts = Parts::default();
            // A request's `global` part is always empty, so no request has this key.
            parts.push(KeyPart::Global.kind(), text.as_bytes());
            self.hasher.key(&parts)
        };
        self.with_rules(key, self.first_part(text))
    }

    /// The name of the key of a consumer; `others` has the values of the other parts of the key. Fails if the key has no part
    /// `consumer`, or another number of other parts.
    pub fn name_of_consumer(&self, consumer: &str, others: Option<&str>) -> Result<String, String> {
        let spec = &self.rule.key;
        if !spec.parts.contains(&KeyPart::Consumer) {
            return Err(format!("this limit does not count by consumer: its key is {}", spec.form()));
        }
        let others = others.map(split).unwrap_or_default();
        if others.len() + 1 != spec.parts.len() {
            return Err(format!("with the consumer {}", spec.wrong_count(others.len() + 1)));
        }
        let mut others = others.iter();
        let value = |part: &KeyPart| match part {
            KeyPart::Consumer => Some(escaped(consumer)),
            _ => others.next().map(|value| escaped(value)),
        };
        let values: Vec<String> = spec.parts.iter().filter_map(value).collect();
        Ok(values.join("|"))
    }

    /// The value of the part `consumer` in the name of a key; none if there is no such part.
    #[must_use]
    pub fn consumer_in(&self, name: &str) -> Option<String> {
        let place = self.rule.key.parts.iter().position(|part| *part == KeyPart::Consumer)?;
        split(name).into_iter().nth(place)
    }

    /// A key whose parts are unknown: only rules for whole keys apply.
    #[must_use]
    pub fn known(&self, key: Key) -> NamedKey<'a> {
        self.with_rules(key, None)
    }

    fn parse(&self, name: &str) -> Result<NamedKeys, NameError> {
        self.rule.key.named(name, self.client_ip, self.hasher)
    }

    /// The key that the first part of a name would make alone, where keys have several parts.
    fn first_part(&self, name: &str) -> Option<Key> {
        // `split` removes the escapes of bars, so they have to be put back.
        match self.parse(&split(name).first()?.replace('|', r"\|")) {
            Ok(NamedKeys::FirstPart(key)) => Some(key),
            _ => None,
        }
    }

    fn with_rules(&self, key: Key, first_part: Option<Key>) -> NamedKey<'a> {
        let rules = self.rule.rules.on_keys(&[key], first_part.as_slice());
        let policy = rules.policy();
        let tiers = self.rule.tiers.as_ref().filter(|_| policy.is_none());
        NamedKey {
            key,
            policy: policy.map_or(self.limit, |(policy, _)| policy),
            override_name: policy.map(|(_, name)| name),
            is_allowed: rules.allow().is_some(),
            is_blocked: rules.block().is_some(),
            tiers: tiers.map_or_else(Vec::new, |tiers| tiers.all().collect()),
        }
    }
}

/// The most bytes of a key's name; a longer one is of no use to a reader.
const MAX_NAME: usize = 512;

/// The values of all parts of a request's key, with bars between them; none if one is missing, ambiguous, a credential, or
/// not UTF-8.
pub(super) fn key_name(
    spec: &KeySpec,
    subject: &Subject<'_>,
    credential: Option<&CredentialSource>,
) -> Option<String> {
    let mut name = String::new();
    for (index, part) in spec.parts.iter().enumerate() {
        if index > 0 {
            name.push('|');
        }
        match part {
            KeyPart::Global => name.push_str("global"),
            _ if is_credential(part, credential) => return None,
            _ => {
                let value = part.value_or_recorded(subject).one()?;
                name.push_str(&str::from_utf8(&value).ok()?.replace('|', r"\|"));
            }
        }
    }
    (name.len() <= MAX_NAME).then_some(name)
}

fn is_credential(part: &KeyPart, credential: Option<&CredentialSource>) -> bool {
    let is_of_consumers = matches!(credential, Some(CredentialSource::Part(source)) if source == part);
    is_of_consumers
        || matches!(part, KeyPart::Header(name) if *name == AUTHORIZATION || *name == PROXY_AUTHORIZATION)
}
