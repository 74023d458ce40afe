//! Keys of limits: from the parts that a limit names to the [`Key`] of a request, or of a name in the configuration.

use smallvec::SmallVec;

use super::client_ip::ClientIp;
use super::key_name::{NameError, NamedKeys, push, split};
use super::key_part::{KeyPart, PartValue, push_address};
use super::subject::Subject;
use crate::limit::{Key, KeyHasher, Parts};

/// The treatment of a request that lacks a part of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OnMissing {
    /// Counts it by the client's address in place of the part.
    ClientIp,
    /// Does not count it.
    Skip,
    /// Rejects it.
    Deny,
}

/// How the key of a request is made.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeySpec {
    /// The parts, in order; several make one composite key.
    pub parts: Vec<KeyPart>,
    /// The treatment of a request without one of the parts.
    pub on_missing: OnMissing,
}

/// The key of one request under one limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyLookup {
    /// This key.
    Key(Key),
    /// A cookie or query parameter has several values that differ, so the client's address takes its place.
    Ambiguous {
        /// The key with that address.
        key: Key,
        /// The number of keys that its values would make.
        combinations: usize,
    },
    /// No key: a part is missing, and `on_missing` is `skip`.
    Skip,
    /// The request must be rejected: this part is missing, and `on_missing` is `deny`.
    Deny(KeyPart),
}

impl KeySpec {
    /// Makes the key of a request.
    #[must_use]
    pub fn find(&self, subject: &Subject<'_>, hasher: &KeyHasher) -> KeyLookup {
        match self.parts_of(subject) {
            Ok((parts, 1)) => KeyLookup::Key(hasher.key(&parts)),
            Ok((parts, combinations)) => KeyLookup::Ambiguous { key: hasher.key(&parts), combinations },
            Err(none) => none,
        }
    }

    /// The hash by which an upstream with this key selects a server: the same for equal keys, on every proxy with this
    /// `hash_key`. None if the request has no key.
    #[must_use]
    pub fn balance_hash(&self, subject: &Subject<'_>, hasher: &KeyHasher) -> Option<u64> {
        self.parts_of(subject).ok().map(|(parts, _)| hasher.short(&parts))
    }

    /// The parts of the key of a request, and the number of keys that its values would make.
    ///
    /// # Errors
    /// How a request without key is treated.
    #[inline]
    fn parts_of(&self, subject: &Subject<'_>) -> Result<(Parts, usize), KeyLookup> {
        let (mut parts, mut combinations) = (Parts::default(), 1_usize);
        for part in &self.parts {
            match (part, subject.consumer()) {
                (KeyPart::ClientIp, _) => {
                    push_address(&mut parts, subject.client);
                    continue;
                }
                // Without a copy of the name, which `KeyPart::value` would make.
                (KeyPart::Consumer, Some(consumer)) => {
                    parts.push(part.kind(), consumer.name.as_bytes());
                    continue;
                }
                _ => {}
            }
            match part.value_or_recorded(subject) {
                PartValue::One(value) => parts.push(part.kind(), &value),
                PartValue::Several(values) => {
                    // Never skipped: a second value must not exempt a client from a limit.
                    combinations = combinations.saturating_mul(values.len());
                    push_address(&mut parts, subject.client);
                }
                PartValue::Missing => match self.on_missing {
                    OnMissing::ClientIp => push_address(&mut parts, subject.client),
                    OnMissing::Skip => return Err(KeyLookup::Skip),
                    OnMissing::Deny => return Err(KeyLookup::Deny(part.clone())),
                },
            }
        }
        Ok((parts, combinations))
    }

    /// The keys that the values of the first part alone would make, at most `most` of them.
    pub(super) fn first_parts(
        &self,
        subject: &Subject<'_>,
        hasher: &KeyHasher,
        most: usize,
    ) -> SmallVec<[Key; 1]> {
        let first = self.parts.first().map(|part| part.choices(subject)).unwrap_or_default();
        first.iter().take(most).map(|parts| hasher.key(parts)).collect()
    }

    /// The keys that the values of an ambiguous request would make, one for each combination of them.
    pub(super) fn combinations(&self, subject: &Subject<'_>, hasher: &KeyHasher) -> SmallVec<[Key; 1]> {
        let mut all = vec![Parts::default()];
        for part in &self.parts {
            let choices = part.choices(subject);
            let extended =
                all.iter().flat_map(|parts| choices.iter().map(|choice| parts.followed_by(choice)));
            all = extended.collect();
        }
        all.iter().map(|parts| hasher.key(parts)).collect()
    }

    /// The key with this name. Rejects a wrong number of parts, or a value that no part of a key can have.
    pub fn named(
        &self,
        name: &str,
        client_ip: &ClientIp,
        hasher: &KeyHasher,
    ) -> Result<NamedKeys, NameError> {
        let values = split(name);
        let is_whole = values.len() == self.parts.len();
        if values.len() > 1 && !is_whole {
            return Err(self.wrong_count(values.len()));
        }
        let mut parts = Parts::default();
        for (part, value) in self.parts.iter().zip(&values) {
            push(&mut parts, part, value, client_ip)?;
        }
        let key = hasher.key(&parts);
        Ok(if is_whole { NamedKeys::Key(key) } else { NamedKeys::FirstPart(key) })
    }

    pub(super) fn wrong_count(&self, found: usize) -> NameError {
        NameError::Count { found, wanted: self.parts.len(), form: self.form() }
    }

    /// The parts with bars between them.
    pub(super) fn form(&self) -> String {
        let parts: Vec<String> = self.parts.iter().map(ToString::to_string).collect();
        parts.join("|")
    }
}

impl KeyLookup {
    /// The key, if there is one.
    #[must_use]
    pub fn key(&self) -> Option<Key> {
        match self {
            Self::Key(key) | Self::Ambiguous { key, .. } => Some(*key),
            Self::Skip | Self::Deny(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn named(parts: &[&str], name: &str) -> Result<NamedKeys, NameError> {
        let parts = parts.iter().map(|part| KeyPart::parse(part).unwrap()).collect();
        let spec = KeySpec { parts, on_missing: OnMissing::ClientIp };
        spec.named(name, &config::defaults::client_ip(), &KeyHasher::new(None))
    }

    #[test]
    fn names_make_the_same_keys_as_requests() {
        let two = ["header:x", "method"];
        assert!(matches!(named(&two, "a"), Ok(NamedKeys::FirstPart(_))));
        assert!(matches!(named(&two, r"a\|b|GET"), Ok(NamedKeys::Key(_))));
        assert_ne!(named(&two, "a|GET"), named(&["header:x", "host"], "a|GET"));
        // Addresses are cut to the prefix, as those of clients are, and differ from headers with the same text.
        assert_eq!(named(&["client_ip"], "2001:db8::1"), named(&["client_ip"], "2001:db8::2"));
        assert_ne!(named(&["client_ip"], "10.0.0.1"), named(&["header:x"], "10.0.0.1"));
        assert_eq!(named(&["client_ip"], "::ffff:10.0.0.1"), named(&["client_ip"], "10.0.0.1"));
        assert_eq!(named(&["host"], "A.Example."), named(&["host"], "a.example"));
        assert_eq!(named(&["path"], "/a/./b"), named(&["path"], "/a/b"));
        assert!(named(&["global"], "global").is_ok());
    }

    #[test]
    fn errors_name_the_part_and_the_expected_value() {
        let message = |parts: &[&str], name: &str| named(parts, name).unwrap_err().to_string();
        assert_eq!(message(&["header:x"], "a|b"), "the name has 2 parts, and the key has 1: header:x");
        assert_eq!(
            message(&["header:x", "method", "host"], "a|b"),
            "the name has 2 parts, and the key has 3: header:x|method|host"
        );
        assert_eq!(message(&["client_ip"], "a"), "`a` is not an address, which is the value of client_ip");
        let method = "`get` is not a registered method or `other`, which is the value of method";
        assert_eq!(message(&["header:x", "method"], "a|get"), method);
        assert_eq!(message(&["header:x", "method"], "a|"), "the value of method is empty");
        assert_eq!(message(&["global"], "a"), "`a` is not `global`, which is the value of global");
    }
}
