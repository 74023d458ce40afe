//! Names: keys as the file and the command line spell them.
//!
//! A name stands for the first part of a key, and `a|b` for all of its parts; `\|` is a bar that belongs to a
//! value. Names are hashed as the keys of requests are, so that finding the one of a request takes one look.

use http::header::AUTHORIZATION;

use super::{ClientIp, Gate, KeyPart, KeySpec, canonical, host_of, is_method_value, normalize};
use crate::limit::{Key, KeyHasher, Parts, PolicyId};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// One key.
    Key(Key),
    /// Every key that begins with a certain part; the key that this part alone would make.
    FirstPart(Key),
}

/// Why a name stands for no key of a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The key has another number of parts.
    #[error("it spells {}, and the key has {}: {form}", parts(*found), *wanted)]
    Count {
        /// How many parts the name has.
        found: usize,
        /// How many the key has.
        wanted: usize,
        /// The parts of the key, with bars between them.
        form: String,
    },
    /// A part that no request can have: an empty value counts as missing.
    #[error("its value of {0} is empty")]
    Empty(KeyPart),
    /// The value of a part that is spelled otherwise.
    #[error("`{text}` is not {expected}, which is the value of {part}")]
    Value {
        /// What was found.
        text: String,
        /// What was expected.
        expected: &'static str,
        /// The part that it stands for.
        part: KeyPart,
    },
}

/// A key of a limit, found by its name, and what the limit has for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedKey<'a> {
    /// The key.
    pub key: Key,
    /// The numbers that hold for it where no tier does: an override's, or the limit's own.
    pub policy: PolicyId,
    /// The name of the override, if there is one.
    pub override_name: Option<&'a str>,
    /// Whether the limit lets it off by name.
    pub is_allowed: bool,
    /// Whether the limit turns it away by name.
    pub is_blocked: bool,
    /// The tiers of the limit, each of which counts the key apart; none for a key that has an override.
    pub tiers: Vec<(&'a str, PolicyId)>,
}

impl KeySpec {
    /// What a name stands for.
    ///
    /// # Errors
    /// A wrong number of parts, or a value that no part of a key can have.
    pub fn named(&self, name: &str, client_ip: &ClientIp, hasher: &KeyHasher) -> Result<Named, NameError> {
        let values = split(name);
        let is_whole = values.len() == self.parts.len();
        if values.len() > 1 && !is_whole {
            return Err(self.count(values.len()));
        }
        let mut parts = Parts::default();
        for (part, value) in self.parts.iter().zip(&values) {
            push(&mut parts, part, value, client_ip)?;
        }
        let key = hasher.key(&parts);
        Ok(if is_whole { Named::Key(key) } else { Named::FirstPart(key) })
    }

    fn count(&self, found: usize) -> NameError {
        let form: Vec<String> = self.parts.iter().map(ToString::to_string).collect();
        NameError::Count { found, wanted: self.parts.len(), form: form.join("|") }
    }
}

impl Gate {
    /// The key of a limit that `name` spells; all of its parts are needed.
    ///
    /// # Errors
    /// A wrong number of parts, or a value that no part of a key can have.
    pub fn named_key(&self, limit: PolicyId, name: &str) -> Result<NamedKey<'_>, NameError> {
        match self.spelled(limit, name)? {
            Named::Key(key) => Ok(self.with_numbers(limit, key, || self.first_part(limit, name))),
            Named::FirstPart(_) => Err(self.terms(limit).key.count(1)),
        }
    }

    /// The key that free text stands for, whatever parts the limit's has: the one that it spells, or else one that no
    /// request has. What the limit has for its first part holds for it as well.
    #[must_use]
    pub fn any_key(&self, limit: PolicyId, text: &str) -> NamedKey<'_> {
        let key = if let Ok(Named::Key(key)) = self.spelled(limit, text) {
            key
        } else {
            let mut parts = Parts::default();
            // In a request it has no value.
            parts.push(KeyPart::Global.kind(), text.as_bytes());
            self.hasher.key(&parts)
        };
        self.with_numbers(limit, key, || self.first_part(limit, text))
    }

    fn spelled(&self, limit: PolicyId, name: &str) -> Result<Named, NameError> {
        self.terms(limit).key.named(name, &self.client_ip, &self.hasher)
    }

    /// What the first part that a name spells stands for, where keys have several.
    fn first_part(&self, limit: PolicyId, name: &str) -> Option<Key> {
        // A bar that belongs to the value is spelled as one again.
        match self.spelled(limit, &split(name).first()?.replace('|', r"\|")) {
            Ok(Named::FirstPart(key)) => Some(key),
            _ => None,
        }
    }

    /// What a limit has for a key whose parts are not known: only what it has for whole keys.
    #[must_use]
    pub fn known_key(&self, limit: PolicyId, key: Key) -> NamedKey<'_> {
        self.with_numbers(limit, key, || None)
    }

    fn with_numbers(
        &self,
        limit: PolicyId,
        key: Key,
        first_part: impl FnOnce() -> Option<Key>,
    ) -> NamedKey<'_> {
        let terms = self.terms(limit);
        let remarks = terms.rules.on_keys(&[key], first_part().as_slice());
        let numbers = remarks.numbers();
        let tiers = terms.tiers.as_ref().filter(|_| numbers.is_none());
        NamedKey {
            key,
            policy: numbers.map_or(limit, |(policy, _)| policy),
            override_name: numbers.map(|(_, name)| name),
            is_allowed: remarks.allow().is_some(),
            is_blocked: remarks.block().is_some(),
            tiers: tiers.map_or_else(Vec::new, |tiers| tiers.all().collect()),
        }
    }
}

/// The values that a name spells.
fn split(name: &str) -> Vec<String> {
    let mut values = vec![String::new()];
    let mut rest = name;
    while let Some(bar) = rest.find('|') {
        let (before, after) = (&rest[..bar], &rest[bar + 1..]);
        let last = values.len() - 1;
        if let Some(before) = before.strip_suffix('\\') {
            values[last].push_str(before);
            values[last].push('|');
        } else {
            values[last].push_str(before);
            values.push(String::new());
        }
        rest = after;
    }
    let last = values.len() - 1;
    values[last].push_str(rest);
    values
}

/// Adds the value of a part as a request would have it.
fn push(parts: &mut Parts, part: &KeyPart, value: &str, client_ip: &ClientIp) -> Result<(), NameError> {
    if value.is_empty() {
        return Err(NameError::Empty(part.clone()));
    }
    let wrong = |expected| NameError::Value { text: value.to_owned(), expected, part: part.clone() };
    match part {
        KeyPart::Global if value == "global" => parts.push(part.kind(), b""),
        KeyPart::Global => return Err(wrong("`global`")),
        KeyPart::ClientIp => {
            let address = value.parse().map_err(|_| wrong("an address"))?;
            super::keys::push_address(parts, client_ip.counted(address));
        }
        KeyPart::Host => {
            let host = host_of(value).ok_or_else(|| wrong("a host"))?;
            parts.push(part.kind(), host.as_bytes());
        }
        KeyPart::Path => {
            let path = normalize(value).map_err(|_| wrong("a path"))?;
            parts.push(part.kind(), path.matched().as_bytes());
        }
        KeyPart::Method if !is_method_value(value) => {
            return Err(wrong("a registered method or `other`"));
        }
        KeyPart::Cookie(_) => parts.push(part.kind(), &canonical::cookie_value(value.as_bytes())),
        KeyPart::Header(name) if *name == AUTHORIZATION => {
            parts.push(part.kind(), &canonical::authorization(value.as_bytes()));
        }
        _ => parts.push(part.kind(), value.as_bytes()),
    }
    Ok(())
}

fn parts(count: usize) -> String {
    if count == 1 { "one part".to_owned() } else { format!("{count} parts") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::OnMissing;

    fn named(parts: &[&str], name: &str) -> Result<Named, NameError> {
        let parts = parts.iter().map(|part| KeyPart::parse(part).unwrap()).collect();
        let spec = KeySpec { parts, on_missing: OnMissing::ClientIp };
        spec.named(name, &ClientIp::default(), &KeyHasher::new(None))
    }

    #[test]
    fn names_are_split_at_bars_that_are_not_escaped() {
        for (name, values) in [
            ("a", &["a"][..]),
            ("a|b", &["a", "b"]),
            (r"a\|b", &["a|b"]),
            (r"a\|b|c\d|", &["a|b", r"c\d", ""]),
            (r"\", &[r"\"]),
            ("", &[""]),
            ("||", &["", "", ""]),
        ] {
            assert_eq!(split(name), values, "{name}");
        }
    }

    #[test]
    fn a_name_stands_for_the_key_that_requests_have() {
        let two = ["header:x", "method"];
        assert!(matches!(named(&two, "a"), Ok(Named::FirstPart(_))));
        assert!(matches!(named(&two, r"a\|b|GET"), Ok(Named::Key(_))));
        assert_ne!(named(&two, "a|GET"), named(&["header:x", "host"], "a|GET"));
        // An address is cut as that of a client is, and it is no header that spells it.
        assert_eq!(named(&["client_ip"], "2001:db8::1"), named(&["client_ip"], "2001:db8::2"));
        assert_ne!(named(&["client_ip"], "10.0.0.1"), named(&["header:x"], "10.0.0.1"));
        assert_eq!(named(&["client_ip"], "::ffff:10.0.0.1"), named(&["client_ip"], "10.0.0.1"));
        assert_eq!(named(&["host"], "A.Example."), named(&["host"], "a.example"));
        assert_eq!(named(&["path"], "/a/./b"), named(&["path"], "/a/b"));
        assert!(named(&["global"], "global").is_ok());
    }

    #[test]
    fn what_is_no_name_is_told_apart() {
        let said = |parts: &[&str], name: &str| named(parts, name).unwrap_err().to_string();
        assert_eq!(said(&["header:x"], "a|b"), "it spells 2 parts, and the key has 1: header:x");
        assert_eq!(
            said(&["header:x", "method", "host"], "a|b"),
            "it spells 2 parts, and the key has 3: header:x|method|host"
        );
        assert_eq!(said(&["client_ip"], "a"), "`a` is not an address, which is the value of client_ip");
        let method = "`get` is not a registered method or `other`, which is the value of method";
        assert_eq!(said(&["header:x", "method"], "a|get"), method);
        assert_eq!(said(&["header:x", "method"], "a|"), "its value of method is empty");
        assert_eq!(said(&["global"], "a"), "`a` is not `global`, which is the value of global");
    }
}
