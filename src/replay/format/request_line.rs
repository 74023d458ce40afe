//! Request lines, targets and addresses in logs.

use std::borrow::Cow;
use std::net::IpAddr;

use memchr::{memchr, memchr2, memrchr};

use crate::replay::entry::{LineError, LogText, LoggedRequest};

/// Sets method, target, host and protocol from a request line. The target may contain spaces, as some servers accept.
pub(super) fn set_request<'l>(entry: &mut LoggedRequest<'l>, line: LogText<'l>) -> Result<(), LineError> {
    let (Some(first), Some(last)) = (memchr(b' ', &line), memrchr(b' ', &line)) else {
        return Err(LineError::NoRequest);
    };
    let is_method = first > 0 && line[..first].iter().all(|byte| is_token(*byte));
    if !is_method || first + 1 >= last || !line[last + 1..].starts_with(b"HTTP/") || &line[..first] == b"-" {
        return Err(LineError::NoRequest);
    }
    match line {
        Cow::Borrowed(line) => {
            entry.method = Cow::Borrowed(&line[..first]);
            entry.protocol = Some(Cow::Borrowed(&line[last + 1..]));
            set_target(entry, Cow::Borrowed(&line[first + 1..last]));
        }
        Cow::Owned(line) => {
            entry.method = Cow::Owned(line[..first].to_vec());
            entry.protocol = Some(Cow::Owned(line[last + 1..].to_vec()));
            set_target(entry, Cow::Owned(line[first + 1..last].to_vec()));
        }
    }
    Ok(())
}

/// Sets the target. The authority of an absolute one becomes the host (RFC 9112 §3.2.2).
pub(super) fn set_target<'l>(entry: &mut LoggedRequest<'l>, target: LogText<'l>) {
    let Some(start) = authority_start(&target) else {
        entry.target = target;
        return;
    };
    let end = memchr2(b'/', b'?', &target[start..]).map_or(target.len(), |length| start + length);
    let (host, rest) = match target {
        Cow::Borrowed(target) => (Cow::Borrowed(&target[start..end]), Cow::Borrowed(&target[end..])),
        Cow::Owned(target) => (Cow::Owned(target[start..end].to_vec()), Cow::Owned(target[end..].to_vec())),
    };
    entry.host = Some(host);
    entry.target = match rest.first() {
        None => Cow::Borrowed(b"/"),
        Some(b'/') => rest,
        Some(_) => Cow::Owned([b"/", &*rest].concat()),
    };
}

/// Where the authority of an absolute target begins.
fn authority_start(target: &[u8]) -> Option<usize> {
    let is_prefix =
        |scheme: &[u8]| target.get(..scheme.len()).is_some_and(|s| s.eq_ignore_ascii_case(scheme));
    let schemes: [&[u8]; 4] = [b"http://", b"https://", b"ws://", b"wss://"];
    if target.first() == Some(&b'/') {
        return None;
    }
    schemes.into_iter().find(|scheme| is_prefix(scheme)).map(<[u8]>::len)
}

/// Whether a byte may be part of a method (RFC 9110 §5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// An IP address, perhaps in brackets. IPv4-mapped ones are IPv4, as a listener for both families logs them.
pub(in crate::replay) fn address(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().map(|address: IpAddr| address.to_canonical())
}

/// The IP address of `ADDRESS:PORT`, where an IPv6 address need not be in brackets.
pub(in crate::replay) fn address_with_port(text: &[u8]) -> Option<IpAddr> {
    let colon = memrchr(b':', text)?;
    address(&text[..colon])
}

/// The last address of X-Forwarded-For: the client that the server itself has seen.
pub(super) fn last_forwarded(value: &[u8]) -> Option<IpAddr> {
    value.rsplit(|byte| *byte == b',').next().map(<[u8]>::trim_ascii).and_then(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Option<(String, String, Option<String>)> {
        let mut entry = LoggedRequest::default();
        let text = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
        set_request(&mut entry, Cow::Borrowed(line.as_bytes())).ok()?;
        Some((text(&entry.method), text(&entry.target), entry.host.as_deref().map(text)))
    }

    #[test]
    fn request_lines_have_three_parts() {
        for (line, method, target, host) in [
            ("GET / HTTP/1.1", "GET", "/", None),
            ("GET /a b HTTP/1.0", "GET", "/a b", None),
            ("OPTIONS * HTTP/1.1", "OPTIONS", "*", None),
            ("GET http://a.example:80/x?y HTTP/1.1", "GET", "/x?y", Some("a.example:80")),
            ("GET HTTPS://a.example HTTP/2.0", "GET", "/", Some("a.example")),
            ("GET https://a.example?q HTTP/2.0", "GET", "/?q", Some("a.example")),
            ("GET //http://x HTTP/2.0", "GET", "//http://x", None),
        ] {
            let expected = (method.to_owned(), target.to_owned(), host.map(str::to_owned));
            assert_eq!(parsed(line), Some(expected), "{line}");
        }
        for line in ["", "-", "GET", "GET /", "GET  HTTP/1.1", "\u{16}\u{3} / HTTP/1.1", "- http://x:80- -"] {
            assert_eq!(parsed(line), None, "{line}");
        }
    }

    #[test]
    fn addresses_may_have_brackets_and_ports() {
        for (text, expected) in [
            ("192.0.2.7:80", Some("192.0.2.7")),
            ("[2001:db8::1]:80", Some("2001:db8::1")),
            ("::1:48080", Some("::1")),
            ("::ffff:192.0.2.7:80", Some("192.0.2.7")),
            ("unix:1", None),
            ("-", None),
        ] {
            assert_eq!(address_with_port(text.as_bytes()), expected.map(|a| a.parse().unwrap()), "{text}");
        }
        assert_eq!(last_forwarded(b"10.0.0.1, 192.0.2.7"), Some([192, 0, 2, 7].into()));
        assert_eq!(last_forwarded(b""), None);
    }
}
