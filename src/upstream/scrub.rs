//! Headers that a server may take for another one.

use std::collections::HashSet;

use http::header::HeaderName;

use super::{HeaderNames, may_trail};
use crate::http1::FieldName;

/// Names of headers that have a meaning for the proxy: a limit, a route or an edit names them, or the proxy writes them.
///
/// A server that reads headers from variables, as CGI and its successors do, can't tell `X_Api_Key` from `X-Api-Key`
/// (RFC 3875 §4.1.18). So a header that differs from one of these names in nothing but underscores must not reach a
/// server, and no trailer may bring one of them back.
#[derive(Debug, Default)]
pub struct HeaderScrub {
    names: HashSet<String>,
    /// The same names, with hyphens in place of underscores.
    hyphenated: HashSet<String>,
    /// Whether a name has an underscore itself, so that names without one may be twins.
    has_underscores: bool,
    /// Headers that no client may send, which no trailer may bring back either.
    removed: HeaderNames,
}

impl HeaderScrub {
    /// The same, which lets no trailer have a name of `removed` either.
    #[must_use]
    pub fn without(self, removed: HeaderNames) -> Self {
        Self { removed, ..self }
    }

    /// Whether the field is a twin: it has none of the names, but is the same as one of them to some servers.
    #[must_use]
    pub fn is_twin(&self, name: FieldName<'_>) -> bool {
        // Next to no request has an underscore in a name.
        (self.has_underscores || name.has_underscore())
            && !self.names.contains(name.as_str())
            && self.hyphenated.contains(&hyphenated(name.as_str()))
    }

    /// Whether a trailer of a request may have this name: none of the names, and no twin of one.
    #[must_use]
    pub fn may_trail(&self, name: &HeaderName) -> bool {
        may_trail(name.as_str())
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

    fn left<'s>(names: &[&str], sent: &[&'s str]) -> Vec<&'s str> {
        let scrub: HeaderScrub = names.iter().map(|name| name.parse::<HeaderName>().unwrap()).collect();
        let mut left = sent.to_vec();
        left.retain(|name| !scrub.is_twin(FieldName::new(name.as_bytes())));
        left.sort_unstable();
        left
    }

    #[test]
    fn twins_are_removed_and_the_names_themselves_stay() {
        let sent = ["x-api-key", "x_api_key", "x-api_key", "x_free", "accept"];
        assert_eq!(left(&["x-api-key"], &sent), ["accept", "x-api-key", "x_free"]);
        assert_eq!(left(&["x_api_key"], &sent), ["accept", "x_api_key", "x_free"]);
        assert_eq!(left(&["x_api_key", "x-api-key"], &sent), ["accept", "x-api-key", "x_api_key", "x_free"]);
        assert_eq!(left(&[], &sent).len(), 5);
    }

    #[test]
    fn no_name_and_no_twin_may_trail() {
        let scrub: HeaderScrub = [HeaderName::from_static("x-api-key")].into_iter().collect();
        let may_trail = |name| scrub.may_trail(&HeaderName::from_static(name));
        assert!(may_trail("x-sum") && may_trail("x_sum"));
        assert!(!may_trail("x-api-key") && !may_trail("x_api-key") && !may_trail("content-length"));
    }
}
