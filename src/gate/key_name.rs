//! Key names: keys as the configuration and the command line write them.
//!
//! A name such as `a` matches every key whose first part is `a`; `a|b` names all parts of one key. A bar within a value
//! is written as `\|`. Names are hashed as the keys of requests are, so that one lookup finds the rules for a request's key.

use http::header::AUTHORIZATION;

use super::canonical;
use super::client_ip::ClientIp;
use super::geo::Country;
use super::host::host_of;
use super::key_part::{KeyPart, push_address};
use super::method::is_method_value;
use super::path::normalize;
use crate::limit::{Key, Parts};

/// The keys that a name matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedKeys {
    /// One key.
    Key(Key),
    /// Every key with a certain first part; this is the key that the part alone would make.
    FirstPart(Key),
}

/// Why a name is no key of a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The key has a different number of parts.
    #[error("the name has {}, and the key has {}: {form}", parts(*found), *wanted)]
    Count {
        /// The number of parts in the name.
        found: usize,
        /// The number of parts in the key.
        wanted: usize,
        /// The parts of the key, with bars between them.
        form: String,
    },
    /// An empty value, which no request can have: it counts as missing.
    #[error("the value of {0} is empty")]
    Empty(KeyPart),
    /// A value that the part can't have.
    #[error("`{text}` is not {expected}, which is the value of {part}")]
    Value {
        /// The text found.
        text: String,
        /// A description of the expected text.
        expected: &'static str,
        /// The part.
        part: KeyPart,
    },
}

/// Splits a name into its values at bars that are not escaped.
pub(super) fn split(name: &str) -> Vec<String> {
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

/// Writes a value as part of a name, with its bars escaped.
pub(super) fn escaped(value: &str) -> String {
    value.replace('|', r"\|")
}

/// Adds the value of a part, in the canonical form of requests.
pub(super) fn push(
    parts: &mut Parts,
    part: &KeyPart,
    value: &str,
    client_ip: &ClientIp,
) -> Result<(), NameError> {
    if value.is_empty() {
        return Err(NameError::Empty(part.clone()));
    }
    let wrong = |expected| NameError::Value { text: value.to_owned(), expected, part: part.clone() };
    match part {
        KeyPart::Global if value == "global" => parts.push(part.kind(), b""),
        KeyPart::Global => return Err(wrong("`global`")),
        KeyPart::ClientIp => {
            let address = value.parse().map_err(|_| wrong("an address"))?;
            push_address(parts, client_ip.counted(address));
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
        KeyPart::Country if Country::parse(value).is_none() => {
            return Err(wrong("the ISO 3166 code of a country"));
        }
        KeyPart::Asn if value.parse::<u32>().map(|asn| asn.to_string()).as_deref() != Ok(value) => {
            return Err(wrong("the number of an autonomous system"));
        }
        KeyPart::Body(_) => match &*canonical::field_value(value) {
            "" => return Err(NameError::Empty(part.clone())),
            value => parts.push(part.kind(), value.as_bytes()),
        },
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
}
