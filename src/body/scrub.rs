//! The headers and trailers that must not be forwarded, by their names.

use std::collections::HashSet;

use bytes::Bytes;
use http::HeaderMap;
use http::header::HeaderName;
use hyper::body::Frame;

use crate::http1::{FieldName, NameSet};

/// A set of header names and prefixes, compared without regard to case and with `_` equal to `-`: a server that reads
/// headers as variables, as CGI does, can't distinguish `X_Real_IP` from `X-Real-IP` (RFC 3875 §4.1.18).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderNames {
    /// In lower case, with `-`.
    names: Vec<Box<str>>,
    /// The entries that end in `*`, without it.
    prefixes: Vec<Box<str>>,
    /// A bit for the first byte of each entry modulo 64, which excludes most names without a comparison.
    first_bytes: u64,
    /// A bit for first byte and length of each of `names`, which excludes most of the others.
    shapes: u64,
    /// The names with an id that are in the set.
    known: NameSet,
}

/// The protected headers: those that a limit, a route or a header edit names, or that the proxy writes.
///
/// A server that reads headers from variables, as CGI does, can't distinguish `X_Api_Key` from `X-Api-Key` (RFC 3875
/// §4.1.18). So a header whose name differs from a protected one only in underscores must not reach a server, and no
/// trailer may have a protected name.
#[derive(Debug, Default)]
pub struct HeaderScrub {
    names: HashSet<String>,
    /// The protected names, with hyphens in place of underscores.
    hyphenated: HashSet<String>,
    /// Whether a protected name has an underscore, so that names without one may be variants.
    has_underscores: bool,
    /// Headers that are removed from requests, and from trailers as well.
    removed: HeaderNames,
}

impl HeaderNames {
    /// A set with these entries; one that ends in `*` is a prefix.
    #[must_use]
    pub fn new<'e>(entries: impl IntoIterator<Item = &'e str>) -> Self {
        let mut set = Self::default();
        set.extend(entries);
        set
    }

    /// Adds entries, as [`Self::new`] takes them.
    pub fn extend<'e>(&mut self, entries: impl IntoIterator<Item = &'e str>) {
        for entry in entries {
            let entry = entry.to_ascii_lowercase().replace('_', "-");
            self.first_bytes |= entry.bytes().next().map_or(0, bit);
            if let Some(prefix) = entry.strip_suffix('*') {
                self.prefixes.push(prefix.into());
            } else {
                self.shapes |= entry.bytes().next().map_or(0, |first| shape(first, entry.len()));
                self.names.push(entry.into());
            }
        }
        self.known = FieldName::known().filter(|name| self.contains(name.as_bytes())).collect();
    }

    /// Whether the name of a field is in the set.
    #[must_use]
    pub fn contains_field(&self, name: FieldName<'_>) -> bool {
        if name.is_known() { self.known.contains(name) } else { self.contains(name.as_bytes()) }
    }

    /// Whether a name, which is in lower case, is in the set.
    #[must_use]
    pub fn contains(&self, name: impl AsRef<[u8]>) -> bool {
        let name = name.as_ref();
        let Some(first) = name.first().map(|first| fold(*first)) else { return false };
        if self.first_bytes & bit(first) == 0 {
            return false;
        }
        let is_same = |entry: &str, name: &[u8]| entry.bytes().eq(name.iter().map(|byte| fold(*byte)));
        let has_name = || self.names.iter().any(|entry| entry.len() == name.len() && is_same(entry, name));
        self.shapes & shape(first, name.len()) != 0 && has_name()
            || self
                .prefixes
                .iter()
                .any(|prefix| name.get(..prefix.len()).is_some_and(|start| is_same(prefix, start)))
    }
}

fn shape(first: u8, length: usize) -> u64 {
    bit(first.wrapping_mul(5).wrapping_add(length.to_le_bytes()[0]))
}

fn bit(byte: u8) -> u64 {
    1 << (byte & 63)
}

fn fold(byte: u8) -> u8 {
    if byte == b'_' { b'-' } else { byte }
}

impl HeaderScrub {
    /// Forbids trailers with the names in `removed` as well.
    #[must_use]
    pub fn without(self, removed: HeaderNames) -> Self {
        Self { removed, ..self }
    }

    /// Whether a header is a variant of a protected one: its name differs only in underscores, which some servers ignore.
    #[must_use]
    pub fn is_variant(&self, name: FieldName<'_>) -> bool {
        self.may_be_variant(name.has_underscore()) && self.differs_in_underscores(name)
    }

    /// Whether a header may be a variant of a protected one, by whether its name has an underscore: hardly any has.
    #[must_use]
    pub fn may_be_variant(&self, has_underscore: bool) -> bool {
        self.has_underscores || has_underscore
    }

    /// Whether a header is a variant of a protected one, or of one that is removed.
    #[must_use]
    pub fn is_variant_of_any(&self, name: FieldName<'_>) -> bool {
        let is_other = || name.has_underscore() && !self.names.contains(name.as_str());
        self.is_variant(name) || is_other() && self.removed.contains(name.as_str())
    }

    fn differs_in_underscores(&self, name: FieldName<'_>) -> bool {
        !self.names.contains(name.as_str()) && self.hyphenated.contains(&hyphenated(name.as_str()))
    }

    /// Whether a trailer of a request may have this name: it is neither a protected name nor a variant of one.
    #[must_use]
    pub fn may_be_trailer(&self, name: &HeaderName) -> bool {
        may_be_trailer(name.as_str())
            && !self.removed.contains(name.as_str())
            && !self.hyphenated.contains(&hyphenated(name.as_str()))
    }
}

impl FromIterator<HeaderName> for HeaderScrub {
    fn from_iter<I: IntoIterator<Item = HeaderName>>(names: I) -> Self {
        let names: HashSet<String> = names.into_iter().map(|name| name.as_str().to_owned()).collect();
        let hyphenated = names.iter().map(|name| hyphenated(name)).collect();
        let has_underscores = names.iter().any(|name| name.contains('_'));
        Self { names, hyphenated, has_underscores, removed: HeaderNames::default() }
    }
}

fn hyphenated(name: &str) -> String {
    name.replace('_', "-")
}

/// Whether a header name is a token (RFC 9110 §5.1). The `http` crate lets only one forbidden character pass, a quote
/// over HTTP/2.
#[must_use]
pub fn is_token(name: &str) -> bool {
    !name.contains('"')
}

/// Whether a trailer may have this name. Fields that control routing, framing or the sender's identity are forbidden, in
/// any variant that a server may read as one of them (RFC 9110 §6.5.1).
#[must_use]
pub fn may_be_trailer(name: &str) -> bool {
    let name = &*name.replace('_', "-");
    is_token(name)
        && !name.starts_with("x-forwarded-")
        && !matches!(
            name,
            "transfer-encoding"
                | "content-length"
                | "host"
                | "connection"
                | "te"
                | "trailer"
                | "upgrade"
                | "content-encoding"
                | "content-type"
                | "content-range"
                | "authorization"
                | "cookie"
                | "expect"
                | "forwarded"
                | "proxy-authorization"
                | "cf-connecting-ip"
                | "front-end-https"
                | "proxy"
                | "true-client-ip"
                | "via"
                | "x-client-ip"
                | "x-cluster-client-ip"
                | "x-envoy-external-address"
                | "x-original-url"
                | "x-real-ip"
                | "x-rewrite-url"
                | "x-scheme"
                | "x-request-id"
                | "set-cookie"
                | "cache-control"
                | "max-forwards"
                | "keep-alive"
                | "proxy-connection"
        )
}

/// Removes the trailers of a frame that `may_be_trailer` forbids.
pub(crate) fn retain_trailers(frame: &mut Frame<Bytes>, may_be_trailer: impl Fn(&HeaderName) -> bool) {
    let Some(trailers) = frame.trailers_mut() else { return };
    if trailers.keys().all(&may_be_trailer) {
        return;
    }
    let mut kept = HeaderMap::new();
    for (name, value) in trailers.iter().filter(|(name, _)| may_be_trailer(name)) {
        kept.append(name, value.clone());
    }
    *trailers = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_matched_with_hyphens_and_underscores() {
        let set = HeaderNames::new(["X-Real-IP", "x_auth_*", "_odd"]);
        for name in
            ["x-real-ip", "x_real_ip", "x-real_ip", "x-auth-", "x_auth_name", "x-auth-a_b", "-odd", "_odd"]
        {
            assert!(set.contains(name) && set.contains_field(FieldName::new(name.as_bytes())), "{name}");
        }
        for name in ["x-real-i", "x-real-ipp", "x-auth", "x-author", "real-ip", "odd", "host", ""] {
            assert!(!set.contains(name) && !set.contains_field(FieldName::new(name.as_bytes())), "{name}");
        }
        let forwarded = HeaderNames::new(["x-forwarded-*", "host"]);
        for name in FieldName::known() {
            assert_eq!(forwarded.contains_field(name), forwarded.contains(name.as_bytes()), "{name:?}");
        }
        assert!(!HeaderNames::default().contains("x-real-ip"));
    }

    fn scrubbed<'s>(names: &[&str], sent: &[&'s str]) -> Vec<&'s str> {
        let scrub: HeaderScrub = names.iter().map(|name| name.parse::<HeaderName>().unwrap()).collect();
        let mut kept = sent.to_vec();
        kept.retain(|name| !scrub.is_variant(FieldName::new(name.as_bytes())));
        kept.sort_unstable();
        kept
    }

    #[test]
    fn variants_are_removed_and_protected_names_stay() {
        let sent = ["x-api-key", "x_api_key", "x-api_key", "x_free", "accept"];
        assert_eq!(scrubbed(&["x-api-key"], &sent), ["accept", "x-api-key", "x_free"]);
        assert_eq!(scrubbed(&["x_api_key"], &sent), ["accept", "x_api_key", "x_free"]);
        assert_eq!(
            scrubbed(&["x_api_key", "x-api-key"], &sent),
            ["accept", "x-api-key", "x_api_key", "x_free"]
        );
        assert_eq!(scrubbed(&[], &sent).len(), 5);
    }

    #[test]
    fn removed_headers_have_variants_too() {
        let protected = ["x-api-key", "x_real_ip"].map(HeaderName::from_static);
        let scrub =
            protected.into_iter().collect::<HeaderScrub>().without(HeaderNames::new(["x-real-ip", "x-a-*"]));
        for (name, is_variant) in [
            ("x_api_key", true),
            ("x-a_b", true),
            ("x-real_ip", true),
            ("x_real_ip", false),
            ("x-a-b", false),
            ("x_free", false),
        ] {
            assert_eq!(scrub.is_variant_of_any(FieldName::new(name.as_bytes())), is_variant, "{name}");
        }
    }

    #[test]
    fn protected_names_and_variants_are_forbidden_in_trailers() {
        let scrub: HeaderScrub = [HeaderName::from_static("x-api-key")].into_iter().collect();
        let may_be_trailer = |name| scrub.may_be_trailer(&HeaderName::from_static(name));
        assert!(may_be_trailer("x-sum") && may_be_trailer("x_sum"));
        assert!(
            !may_be_trailer("x-api-key") && !may_be_trailer("x_api-key") && !may_be_trailer("content-length")
        );
    }
}
