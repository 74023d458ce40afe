//! Headers that belong to one connection and go no further (RFC 9110 §7.6.1).

use http::header::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::{HeaderMap, HeaderValue};

use crate::upstream::may_trail;

const KINDS: usize = 9;

/// What is never passed on, in either direction. `Trailer` stays: it announces what comes after the body.
/// `Expect` goes no further than us: we have said "100 Continue" ourselves by the time a body flows.
pub(super) static HOP_BY_HOP: [HeaderName; KINDS] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    EXPECT,
];

/// The place of `Connection` in it.
const AT_CONNECTION: usize = 0;
/// The place of `TE` in it.
const AT_TE: usize = 5;

/// The place of a name in [`HOP_BY_HOP`].
fn hop_by_hop(name: &HeaderName) -> Option<usize> {
    Some(match name.as_str() {
        "connection" => AT_CONNECTION,
        "keep-alive" => 1,
        "proxy-authenticate" => 2,
        "proxy-authorization" => 3,
        "proxy-connection" => 4,
        "te" => AT_TE,
        "transfer-encoding" => 6,
        "upgrade" => 7,
        "expect" => 8,
        _ => return None,
    })
}

/// Whether the sender takes trailers.
fn takes_trailers(headers: &HeaderMap) -> bool {
    headers
        .get_all(TE)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.split(',').any(|coding| coding.trim().eq_ignore_ascii_case("trailers")))
}

/// What is known of a message whose head was made fit to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passing {
    /// Whether the sender takes trailers.
    pub takes_trailers: bool,
    /// Whether there is one Content-Length at most. Where there are several that differ, or one that is no
    /// number, they stay as they were.
    pub has_one_length: bool,
}

/// Removes what belongs to this connection, also what `Connection` names, cuts `Trailer` to what may come there,
/// and spells Content-Length in the one way in which nobody reads it differently.
pub fn remove_hop_by_hop(headers: &mut HeaderMap) -> Passing {
    // One look at every name, because most messages have next to nothing to remove.
    let mut found = [false; KINDS];
    let (mut has_trailer, mut lengths, mut is_length_plain) = (false, 0, true);
    for (name, value) in &*headers {
        match hop_by_hop(name) {
            Some(place) => found[place] = true,
            None if name == CONTENT_LENGTH => {
                lengths += 1;
                is_length_plain &= is_plain_number(value.as_bytes());
            }
            None => has_trailer |= name == TRAILER,
        }
    }
    let has_one_length = (lengths <= 1 && is_length_plain) || respell_length(headers);
    let takes_trailers = found[AT_TE] && takes_trailers(headers);
    if found[AT_CONNECTION] && !is_plain(headers.get_all(CONNECTION).iter()) {
        remove_named(headers);
    }
    for (name, _) in HOP_BY_HOP.iter().zip(found).filter(|(_, found)| *found) {
        headers.remove(name);
    }
    if has_trailer {
        cut_trailer(headers);
    }
    Passing { takes_trailers, has_one_length }
}

/// Whether a number is written as everybody writes it, and surely fits: some read a leading zero as the sign of an
/// octal one.
fn is_plain_number(digits: &[u8]) -> bool {
    match digits {
        [b'0'] => true,
        [b'1'..=b'9', rest @ ..] => rest.len() < 19 && rest.iter().all(u8::is_ascii_digit),
        _ => false,
    }
}

/// Makes one Content-Length of several that say the same; false if they don't (RFC 9112 §6.3).
fn respell_length(headers: &mut HeaderMap) -> bool {
    let values = headers.get_all(CONTENT_LENGTH);
    let mut numbers =
        values.iter().flat_map(|value| value.as_bytes().split(|&byte| byte == b',')).map(number);
    let first = numbers.next().flatten();
    let Some(length) = first.filter(|_| numbers.all(|other| other == first)) else { return false };
    headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    true
}

/// A number that has nothing but digits; unlike Rust's own it has no sign.
fn number(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.trim_matches([' ', '\t']);
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Whether a Connection header names no other header, as nearly all do.
fn is_plain<'v>(mut values: impl Iterator<Item = &'v HeaderValue>) -> bool {
    let plain =
        |value: &[u8]| value.eq_ignore_ascii_case(b"keep-alive") || value.eq_ignore_ascii_case(b"close");
    values.all(|value| plain(value.as_bytes()))
}

/// Removes what `Connection` names. Host and Content-Length are no options of a connection: who names them
/// there means to change what the next one reads.
fn remove_named(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .filter_map(|option| HeaderName::from_bytes(option.trim_ascii()).ok())
        .filter(|name| *name != HOST && *name != CONTENT_LENGTH)
        .collect();
    for name in named {
        headers.remove(name);
    }
}

fn cut_trailer(headers: &mut HeaderMap) {
    unannounce(headers, |name| !may_trail(name.as_str()));
}

/// Cuts names from `Trailer`; what is not announced there is not passed on after the body.
pub(super) fn unannounce(headers: &mut HeaderMap, is_unwanted: impl Fn(&HeaderName) -> bool) {
    if !headers.contains_key(TRAILER) {
        return;
    }
    let announced: Vec<HeaderName> = headers
        .get_all(TRAILER)
        .iter()
        .flat_map(|value| value.as_bytes().split(|&byte| byte == b','))
        .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
        .filter(|name| !is_unwanted(name))
        .collect();
    headers.remove(TRAILER);
    let names: Vec<&str> = announced.iter().map(HeaderName::as_str).collect();
    if let Ok(value) = HeaderValue::from_str(&names.join(", "))
        && !names.is_empty()
    {
        headers.insert(TRAILER, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(pairs: &[(&'static str, &'static str)]) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_static(value));
        }
        remove_hop_by_hop(&mut headers);
        let mut left: Vec<(String, String)> =
            headers.iter().map(|(n, v)| (n.to_string(), v.to_str().unwrap().to_owned())).collect();
        left.sort();
        left
    }

    #[test]
    fn what_belongs_to_the_connection_goes() {
        let left = after(&[
            ("connection", "close, X-Secret, host"),
            ("connection", "x-other"),
            ("host", "a"),
            ("x-secret", "1"),
            ("x-other", "2"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("te", "gzip"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("accept", "*/*"),
        ]);
        assert_eq!(left, [("accept".into(), "*/*".into()), ("host".into(), "a".into())]);
    }

    #[test]
    fn places_and_names_agree() {
        for (place, name) in HOP_BY_HOP.iter().enumerate() {
            assert_eq!(hop_by_hop(name), Some(place));
        }
        assert!(after(&[("connection", "Keep-Alive")]).is_empty());
    }

    #[test]
    fn a_length_has_one_spelling_or_none() {
        let length = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(CONTENT_LENGTH, HeaderValue::from_static(value));
            }
            let found = remove_hop_by_hop(&mut headers);
            found
                .has_one_length
                .then(|| headers.get(CONTENT_LENGTH).map(|it| it.to_str().unwrap().to_owned()))
        };
        for (values, spelled) in [
            (&[][..], None),
            (&["0"], Some("0")),
            (&["10"], Some("10")),
            (&["00"], Some("0")),
            (&["010"], Some("10")),
            (&["5, 5"], Some("5")),
            (&["5", "5"], Some("5")),
            (&["5", "05,5"], Some("5")),
        ] {
            assert_eq!(length(values), Some(spelled.map(str::to_owned)), "{values:?}");
        }
        for odd in [&["5", "6"][..], &["5, 6"], &["+5"], &["5,"], &[""], &["x"], &["99999999999999999999"]] {
            assert_eq!(length(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn trailer_announces_only_what_may_trail() {
        let left = after(&[
            ("trailer", "X-Sum, Content-Length"),
            ("trailer", "host, X-Forwarded-For, X_Forwarded_For"),
        ]);
        assert_eq!(left, [("trailer".into(), "x-sum".into())]);
        assert!(after(&[("trailer", "Transfer-Encoding")]).is_empty());
    }

    #[test]
    fn trailers_are_taken_by_who_says_so() {
        let mut headers = HeaderMap::new();
        assert!(!takes_trailers(&headers));
        headers.insert(TE, HeaderValue::from_static("gzip;q=0.5, Trailers"));
        assert!(takes_trailers(&headers));
    }
}
