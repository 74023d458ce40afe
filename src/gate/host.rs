//! Host names: their normal form, and the patterns of routes.

use std::borrow::Cow;
use std::net::Ipv6Addr;

use crate::http1::parse_decimal;

/// The longest DNS name, with room for an address literal.
const MAX_HOST: usize = 255;

/// The hosts that a route matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// Exactly this host.
    Exact(Box<str>),
    /// `*.suffix`: one or more labels before the suffix, not the suffix itself.
    Wildcard(Box<str>),
}

impl HostPattern {
    /// Parses `api.example.com` or `*.example.com`; `None` if the text is no host.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(suffix) = text.strip_prefix("*.") {
            let host = host_of(suffix)?;
            return (host.len() == suffix.trim_end_matches('.').len()).then(|| Self::Wildcard(host.into()));
        }
        let host = host_of(text)?;
        let has_port = host.len() < text.trim_end_matches('.').len();
        (!has_port).then(|| Self::Exact(host.into()))
    }

    /// Whether every host that `other` matches is matched by this pattern too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Exact(mine), Self::Exact(theirs)) => mine == theirs,
            (Self::Exact(_), Self::Wildcard(_)) => false,
            (Self::Wildcard(suffix), Self::Exact(host)) => is_subdomain(host, suffix),
            (Self::Wildcard(mine), Self::Wildcard(theirs)) => mine == theirs || is_subdomain(theirs, mine),
        }
    }
}

impl std::fmt::Display for HostPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(host) => f.write_str(host),
            Self::Wildcard(suffix) => write!(f, "*.{suffix}"),
        }
    }
}

/// Whether `host` has one or more labels before `.suffix`.
fn is_subdomain(host: &str, suffix: &str) -> bool {
    host.strip_suffix(suffix).is_some_and(|labels| labels.len() > 1 && labels.ends_with('.'))
}

/// The normal form of an authority's host: without port and trailing dot, in lower case. `None` if it is
/// malformed (RFC 3986 §3.2.2, §3.2.3) or has user information, which no request may have. Stricter than the
/// RFC: names with escapes, delimiters such as commas, or empty labels are malformed, since neither DNS nor a hosts file
/// has them.
#[must_use]
pub fn host_of(authority: &str) -> Option<Cow<'_, str>> {
    let bytes = authority.as_bytes();
    let (end, has_upper_case) = if bytes.first() == Some(&b'[') {
        let end = 1 + authority.find(']')?;
        authority[1..end - 1].parse::<Ipv6Addr>().ok()?;
        (end, bytes[..end].iter().any(u8::is_ascii_uppercase))
    } else {
        end_of_name(bytes)?
    };
    let has_valid_port = match &bytes[end..] {
        [] | [b':'] => true,
        [b':', ..] => is_port(&authority[end + 1..]),
        _ => false,
    };
    let name = authority[..end].strip_suffix('.').unwrap_or(&authority[..end]);
    if !has_valid_port || name.is_empty() || name.len() > MAX_HOST {
        return None;
    }
    if has_upper_case {
        return Some(Cow::Owned(name.to_ascii_lowercase()));
    }
    Some(Cow::Borrowed(name))
}

/// Whether a text is a port: digits of a number up to 65,535.
pub(super) fn is_port(text: &str) -> bool {
    parse_decimal(text.as_bytes()).is_some_and(|port| u16::try_from(port).is_ok())
}

/// The length of the name at the start of an authority, and whether it has letters in upper case; `None` if one of its labels
/// is empty.
fn end_of_name(bytes: &[u8]) -> Option<(usize, bool)> {
    // As if a dot preceded the name, so that it can't begin with one.
    let (mut previous, mut kinds, mut end) = (DOT, 0, bytes.len());
    for (at, byte) in bytes.iter().enumerate() {
        let kind = KINDS[usize::from(*byte)];
        if kind == 0 {
            end = at;
            break;
        }
        if kind & previous & DOT != 0 {
            return None;
        }
        kinds |= kind;
        previous = kind;
    }
    Some((end, kinds & UPPER_CASE != 0))
}

/// The kinds of the bytes of a name.
const DOT: u8 = 1;
const UPPER_CASE: u8 = 2;
const OTHER: u8 = 4;

/// The kind of each byte, 0 if no name has it. A table, because every byte of every Host header is checked.
const KINDS: [u8; 256] = {
    let mut table = [0; 256];
    let allowed = b".ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_~";
    let mut at = 0;
    while at < allowed.len() {
        let byte = allowed[at];
        table[byte as usize] = match byte {
            b'.' => DOT,
            b'A'..=b'Z' => UPPER_CASE,
            _ => OTHER,
        };
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_compared_without_port_case_and_trailing_dot() {
        for (authority, host) in [
            ("api.example.com", "api.example.com"),
            ("API.Example.com.:8080", "api.example.com"),
            ("127.0.0.1:80", "127.0.0.1"),
            ("[::1]:80", "[::1]"),
            ("a:", "a"),
            ("a_b.c:65535", "a_b.c"),
        ] {
            assert_eq!(host_of(authority).as_deref(), Some(host));
        }
    }

    #[test]
    fn malformed_hosts_are_none() {
        let of_odd_names =
            ["a%2eb", "a%", "a,b", "a;b", "a=b", "a*", ".a", "a..b", ".", "..", "a..", "a:65536", "a:+1"];
        for wrong in ["", ":80", "a b", "a/b", "user@host", "a:8x", "[::1", "[zz]", "[::1]x", "a:b:c", "é"]
            .into_iter()
            .chain(of_odd_names)
        {
            assert_eq!(host_of(wrong), None, "{wrong}");
        }
        assert_eq!(host_of(&"a".repeat(256)), None);
    }

    #[test]
    fn patterns_cover_narrower_ones() {
        let pattern = |text| HostPattern::parse(text).unwrap();
        assert!(pattern("*.example.com").covers(&pattern("a.b.example.com")));
        assert!(pattern("*.example.com").covers(&pattern("*.b.example.com")));
        assert!(!pattern("*.example.com").covers(&pattern("example.com")));
        assert!(!pattern("*.example.com").covers(&pattern("badexample.com")));
        assert!(!pattern("a.example.com").covers(&pattern("*.example.com")));
        for wrong in ["*", "a.*", "*.", "a.example.com:80", "*.a:80", "http://a"] {
            assert_eq!(HostPattern::parse(wrong), None, "{wrong}");
        }
    }
}
