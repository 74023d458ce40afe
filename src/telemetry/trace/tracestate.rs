//! The header `tracestate` (W3C Trace Context §3.3), which is passed on unchanged if it is valid.

use smallvec::SmallVec;

/// The most members of the list.
const MAX_MEMBERS: usize = 32;

/// Whether the lines of the header form a valid list of members with unique keys.
pub(super) fn is_valid<'a>(lines: impl Iterator<Item = &'a [u8]>) -> bool {
    let mut keys = SmallVec::<[&[u8]; 8]>::new();
    for member in lines.flat_map(|line| line.split(|byte| *byte == b',')) {
        let member = member.trim_ascii();
        if member.is_empty() {
            continue;
        }
        let Some(equals) = memchr::memchr(b'=', member) else { return false };
        let (key, value) = (&member[..equals], &member[equals + 1..]);
        if !is_key(key) || !is_value(value) || keys.contains(&key) || keys.len() == MAX_MEMBERS {
            return false;
        }
        keys.push(key);
    }
    true
}

/// Whether this is a key: a name, or the name of a tenant and of its system.
fn is_key(key: &[u8]) -> bool {
    match memchr::memchr(b'@', key) {
        None => is_name(key, 256) && !key[0].is_ascii_digit(),
        Some(at) => {
            let (tenant, system) = (&key[..at], &key[at + 1..]);
            is_name(tenant, 241) && is_name(system, 14) && !system[0].is_ascii_digit()
        }
    }
}

fn is_name(name: &[u8], max: usize) -> bool {
    let is_start = |first: &u8| first.is_ascii_lowercase() || first.is_ascii_digit();
    let is_rest = |byte: &u8| is_start(byte) || b"_-*/".contains(byte);
    name.first().is_some_and(is_start) && name.len() <= max && name.iter().all(is_rest)
}

/// Whether this is a value, which does not end with a space: the member is trimmed.
fn is_value(value: &[u8]) -> bool {
    let is_character = |byte: &u8| matches!(byte, b' '..=b'~') && !b",=".contains(byte);
    (1..=256).contains(&value.len()) && value.iter().all(is_character)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid(lines: &[&str]) -> bool {
        is_valid(lines.iter().map(|line| line.as_bytes()))
    }

    #[test]
    fn lists_of_members_are_valid() {
        for lines in [
            &["rojo=00f067aa0ba902b7"][..],
            &["rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"],
            &["rojo=1", "congo=2"],
            &["rojo=1 , \t congo=2,,"],
            &[""],
            &["a*b-c_d/e=!\"#$%&'()*+-./:;<>?@[\\]^_`{|}~"],
            &["fw529a3039@dt=x", "1tenant@sys=x"],
            &["a= leading"],
        ] {
            assert!(valid(lines), "{lines:?}");
        }
        let long =
            format!("{}={},{}@{}=1", "a".repeat(256), "b".repeat(256), "1".repeat(241), "s".repeat(14));
        assert!(valid(&[&long]));
    }

    #[test]
    fn other_lists_are_invalid() {
        for text in [
            "foo",
            "foo=",
            "=1",
            "FOO=1",
            "1foo=1",
            "foo @=1",
            "foo@=1",
            "@foo=1",
            "foo@1=1",
            "foo@a@b=1",
            "foo=1=2",
            "foo=é",
            "foo=a\tb",
            "foo=1,foo=2",
            "foo.bar=1",
            "foo =1",
        ] {
            assert!(!valid(&[text]), "{text}");
        }
        for text in [
            format!("{}=1", "a".repeat(257)),
            format!("a={}", "b".repeat(257)),
            format!("{}@a=1", "t".repeat(242)),
            format!("t@{}=1", "s".repeat(15)),
        ] {
            assert!(!valid(&[&text]), "{text}");
        }
        assert!(!valid(&["rojo=1", "rojo=2"]));
    }

    #[test]
    fn a_list_has_32_members_at_most() {
        let list =
            |count: usize| (0..count).map(|number| format!("k{number}=1")).collect::<Vec<_>>().join(",");
        assert!(valid(&[&list(32)]));
        assert!(!valid(&[&list(33)]));
        assert!(!valid(&[&list(32), "more=1"]));
    }
}
