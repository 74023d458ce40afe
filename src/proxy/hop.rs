//! Hop-by-hop headers, which belong to one connection and are not forwarded (RFC 9110 §7.6.1).

use http::Version;
use http::header::HeaderName;

use crate::http1::names::{
    CONNECTION, CONTENT_LENGTH, EXPECT, HOST, KEEP_ALIVE, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
    PROXY_CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use crate::http1::{FieldName, Fields, NameSet, content_length};
use crate::upstream::may_be_trailer;

/// Headers that are never forwarded, in either direction. `Trailer` is: it announces the fields after the body.
/// `Expect` is not, because the proxy itself has sent "100 Continue" by the time a body arrives.
pub(super) const HOP_BY_HOP: [FieldName<'static>; 9] = [
    CONNECTION,
    KEEP_ALIVE,
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    PROXY_CONNECTION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    EXPECT,
];

const HOP_BY_HOP_SET: NameSet = NameSet::of(&HOP_BY_HOP);

/// Writes the Content-Length of a message as one line and in its shortest form, which all servers read alike; returns
/// whether it is valid. Over HTTP/1.1 the parser has done so.
pub fn normalize_length(fields: &mut Fields, version: Version) -> bool {
    version != Version::HTTP_2 || content_length(fields, true).is_ok()
}

/// Removes hop-by-hop headers, among them those that `Connection` names, and names from `Trailer` that must not be
/// trailers.
pub fn remove_hop_by_hop(fields: &mut Fields) {
    if fields.contains_any(HOP_BY_HOP_SET) {
        if !fields.get_all(CONNECTION).all(is_keep_alive_or_close) {
            remove_named(fields);
        }
        fields.remove_all(HOP_BY_HOP_SET);
    }
    retain_announced_trailers(fields, |name| !may_be_trailer(name.as_str()));
}

/// Whether the sender accepts trailers (`TE: trailers`).
#[must_use]
pub fn takes_trailers(fields: &Fields) -> bool {
    fields.contains(TE) && fields.elements(TE).any(|coding| coding.eq_ignore_ascii_case(b"trailers"))
}

/// Whether a Connection value names no header, as nearly all do not.
fn is_keep_alive_or_close(value: &[u8]) -> bool {
    value.eq_ignore_ascii_case(b"keep-alive") || value.eq_ignore_ascii_case(b"close")
}

/// Removes the headers that `Connection` names, but not Host and Content-Length: these are never connection options,
/// and without them the server could read another request (request smuggling).
fn remove_named(fields: &mut Fields) {
    let list = fields.get_all(CONNECTION).collect::<Vec<_>>().join(&b","[..]).to_ascii_lowercase();
    let mut named: Vec<&[u8]> = list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).collect();
    // Sorted for binary search: a client may name thousands.
    named.sort_unstable();
    fields.retain(|field| {
        let is_kept = field.name == HOST || field.name == CONTENT_LENGTH;
        is_kept || named.binary_search(&field.name.as_bytes()).is_err()
    });
}

/// Removes unwanted names from `Trailer`.
pub(super) fn retain_announced_trailers(fields: &mut Fields, is_unwanted: impl Fn(&HeaderName) -> bool) {
    if !fields.contains(TRAILER) {
        return;
    }
    let announced: Vec<HeaderName> = fields
        .elements(TRAILER)
        .filter_map(|name| HeaderName::from_bytes(name).ok())
        .filter(|name| !is_unwanted(name))
        .collect();
    fields.remove(TRAILER);
    if !announced.is_empty() {
        let names: Vec<&str> = announced.iter().map(HeaderName::as_str).collect();
        fields.push(TRAILER, names.join(", ").as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(pairs: &[(&'static str, &'static str)]) -> Vec<(String, String)> {
        let mut fields: Fields = pairs.iter().copied().collect();
        remove_hop_by_hop(&mut fields);
        let text = |bytes: &[u8]| std::str::from_utf8(bytes).unwrap().to_owned();
        let mut left: Vec<(String, String)> =
            fields.iter().map(|field| (text(field.name.as_bytes()), text(field.value))).collect();
        left.sort();
        left
    }

    /// RFC 9110 §7.6.1.
    #[test]
    fn hop_by_hop_headers_are_removed() {
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
    fn every_hop_by_hop_header_is_removed() {
        for name in HOP_BY_HOP {
            assert!(HOP_BY_HOP_SET.contains(name) && after(&[(name.as_str(), "1")]).is_empty());
        }
        assert!(after(&[("connection", "Keep-Alive")]).is_empty());
        let left = after(&[("connection", "host, content-length, , X-A"), ("host", "a"), ("x-ab", "1")]);
        assert_eq!(left, [("host".into(), "a".into()), ("x-ab".into(), "1".into())]);
    }

    #[test]
    fn content_length_has_one_form_or_is_invalid() {
        let length = |values: &[&'static str]| {
            let mut fields: Fields = values.iter().map(|value| ("content-length", *value)).collect();
            let is_one = normalize_length(&mut fields, Version::HTTP_2);
            is_one.then(|| fields.get_str(CONTENT_LENGTH).map(str::to_owned))
        };
        for (values, written) in [
            (&[][..], None),
            (&["0"], Some("0")),
            (&["10"], Some("10")),
            (&["00"], Some("0")),
            (&["010"], Some("10")),
            (&["5, 5"], Some("5")),
            (&["5", "5"], Some("5")),
            (&["5", "05,5"], Some("5")),
        ] {
            assert_eq!(length(values), Some(written.map(str::to_owned)), "{values:?}");
        }
        for invalid in
            [&["5", "6"][..], &["5, 6"], &["+5"], &["5,"], &[""], &["x"], &["99999999999999999999"]]
        {
            assert_eq!(length(invalid), None, "{invalid:?}");
        }
    }

    /// RFC 9110 §6.5.1.
    #[test]
    fn trailer_names_only_fields_that_may_be_trailers() {
        let left = after(&[
            ("trailer", "X-Sum, Content-Length"),
            ("trailer", "host, X-Forwarded-For, X_Forwarded_For"),
        ]);
        assert_eq!(left, [("trailer".into(), "x-sum".into())]);
        assert!(after(&[("trailer", "Transfer-Encoding")]).is_empty());
    }

    #[test]
    fn trailers_are_accepted_with_te_trailers() {
        let mut fields = Fields::new();
        assert!(!takes_trailers(&fields));
        fields.push(TE, b"gzip;q=0.5, Trailers");
        assert!(takes_trailers(&fields));
    }
}
