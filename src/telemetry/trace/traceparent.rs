//! The headers `traceparent` and `tracestate` (W3C Trace Context). The second is passed on unchanged if it is valid (§3.3).

use smallvec::SmallVec;

use super::id::{SpanId, TraceId, is_hex, value};

/// The length of the header in version 00; headers of later versions are at least as long.
const LENGTH: usize = 55;
/// Where the id of the span begins.
const SPAN: usize = 36;
/// The flag of a sampled trace.
const SAMPLED: u8 = 1;

/// The span that a request belongs to at its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub trace: TraceId,
    pub span: SpanId,
    pub is_sampled: bool,
}

/// The header that is sent, in version 00.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traceparent([u8; LENGTH]);

impl Parent {
    /// Parses the header. One of a later version is read as far as version 00 defines it; version ff is invalid.
    pub fn parse(header: &[u8]) -> Option<Self> {
        let head: &[u8; LENGTH] = header.first_chunk()?;
        let (version, flags) = (&head[..2], &head[53..]);
        let is_separated = [2, 35, 52].into_iter().all(|at| head[at] == b'-');
        let is_complete = match version {
            b"00" => header.len() == LENGTH,
            b"ff" => false,
            _ => header.get(LENGTH).is_none_or(|next| *next == b'-'),
        };
        if !is_separated || !is_complete || !is_hex(version) || !is_hex(flags) {
            return None;
        }
        Some(Self {
            trace: TraceId::parse(head[3..].first_chunk()?)?,
            span: SpanId::parse(head[SPAN..].first_chunk()?)?,
            is_sampled: value(flags[1]) & SAMPLED != 0,
        })
    }
}

impl Traceparent {
    pub fn new(trace: &TraceId, span: &SpanId, is_sampled: bool) -> Self {
        let mut header = *b"00-00000000000000000000000000000000-0000000000000000-00";
        header[3..35].copy_from_slice(trace.as_bytes());
        header[SPAN..52].copy_from_slice(span.as_bytes());
        header[54] += u8::from(is_sampled);
        Self(header)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The most members of the list.
const MAX_MEMBERS: usize = 32;

/// Whether the lines of the header form a valid list of members with unique keys.
pub(super) fn is_valid_tracestate<'a>(lines: impl Iterator<Item = &'a [u8]>) -> bool {
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

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_header_is_read_and_written() {
        let parent = Parent::parse(VALID.as_bytes()).unwrap();
        assert_eq!(parent.trace.as_str(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(parent.span.as_str(), "00f067aa0ba902b7");
        for (is_sampled, end) in [(true, "01"), (false, "00")] {
            let header = Traceparent::new(&parent.trace, &parent.span, is_sampled);
            assert_eq!(header.as_bytes(), format!("{}{end}", &VALID[..53]).as_bytes());
        }
    }

    #[test]
    fn flags_other_than_sampled_are_ignored() {
        for (flags, is_sampled) in [("00", false), ("01", true), ("02", false), ("ff", true), ("fe", false)] {
            let parent = Parent::parse(format!("{}{flags}", &VALID[..53]).as_bytes()).unwrap();
            assert_eq!(parent.is_sampled, is_sampled, "{flags}");
        }
    }

    #[test]
    fn later_versions_are_read_as_far_as_they_are_known() {
        for (version, rest, is_valid) in [
            ("cc", "", true),
            ("cc", "-", true),
            ("cc", "-what-the-future-will-be-like", true),
            ("cc", ".what-the-future-will-be-like", false),
            ("cc", "1", false),
            ("00", "-", false),
            ("00", "-extra", false),
            ("ff", "", false),
            ("CC", "", false),
            ("0", "", false),
        ] {
            let header = format!("{version}{}{rest}", &VALID[2..]);
            assert_eq!(Parent::parse(header.as_bytes()).is_some(), is_valid, "{header}");
        }
    }

    #[test]
    fn malformed_headers_are_invalid() {
        for (from, to) in [
            ("4bf92f3577b34da6a3ce929d0e0e4736", "00000000000000000000000000000000"),
            ("00f067aa0ba902b7", "0000000000000000"),
            ("4bf9", "4BF9"),
            ("4bf9", "4bfg"),
            ("4bf9", "4bf"),
            ("4bf9", "4bf99"),
            ("-01", "-1"),
            ("-01", "-001"),
            ("-01", "-0x"),
            ("-01", ""),
            ("-", "_"),
            ("00-", " 00-"),
        ] {
            let header = VALID.replacen(from, to, 1);
            assert_eq!(Parent::parse(header.as_bytes()), None, "{header}");
        }
    }

    fn valid(lines: &[&str]) -> bool {
        is_valid_tracestate(lines.iter().map(|line| line.as_bytes()))
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
