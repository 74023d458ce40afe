//! Removal of headers that a server may confuse with protected ones.

use std::collections::HashSet;

use http::header::HeaderName;

use super::{HeaderNames, may_be_trailer};
use crate::http1::FieldName;

/// The protected headers: those that a limit, a route or a header edit names, or that the proxy writes.
///
/// A server that reads headers from variables, as CGI does, can't distinguish `X_Api_Key` from `X-Api-Key` (RFC 3875
/// §4.1.18). So a header whose name differs from a protected one only in underscores must not reach a server, and no
/// trailer may have a protected name.
#[derive(Debug, Default)]
pub struct HeaderScrub {
    names: HashSet<String>,
    /// The same names, with hyphens in place of underscores.
    hyphenated: HashSet<String>,
    /// Whether a protected name has an underscore, so that names without one may be variants.
    has_underscores: bool,
    /// Headers that are removed from requests, and from trailers as well.
    removed: HeaderNames,
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

#[cfg(test)]
mod tests {
    use super::*;

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
