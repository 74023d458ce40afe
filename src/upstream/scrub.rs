//! Headers that a server may take for another one.

use std::collections::HashSet;

use http::HeaderMap;
use http::header::HeaderName;

use super::{HeaderNames, may_trail};

/// Names of headers that have a meaning for the proxy: a limit, a route or an edit names them, or the proxy writes them.
///
/// A server that reads headers from variables, as CGI and its successors do, can't tell `X_Api_Key` from `X-Api-Key`
/// (RFC 3875 §4.1.18). So a header that differs from one of these names in nothing but underscores must not reach a
/// server, and no trailer may bring one of them back.
#[derive(Debug, Default)]
pub struct HeaderScrub {
    names: HashSet<HeaderName>,
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

    /// Whether this header is a twin: not one of the names, but the same as one of them to some servers.
    fn is_twin(&self, name: &HeaderName) -> bool {
        (self.has_underscores || has_underscore(name))
            && !self.names.contains(name)
            && self.hyphenated.contains(&hyphenated(name))
    }

    /// Removes the twins of the names from the head of a request.
    pub fn remove_twins(&self, headers: &mut HeaderMap) {
        // Next to no request has an underscore in a name.
        if !self.has_underscores && !headers.keys().any(has_underscore) {
            return;
        }
        let twins: Vec<HeaderName> = headers.keys().filter(|name| self.is_twin(name)).cloned().collect();
        for name in twins {
            headers.remove(name);
        }
    }

    /// Whether a trailer of a request may have this name: none of the names, and no twin of one.
    #[must_use]
    pub fn may_trail(&self, name: &HeaderName) -> bool {
        may_trail(name.as_str())
            && !self.removed.contains(name.as_str())
            && !self.hyphenated.contains(&hyphenated(name))
    }
}

impl FromIterator<HeaderName> for HeaderScrub {
    fn from_iter<I: IntoIterator<Item = HeaderName>>(names: I) -> Self {
        let names: HashSet<HeaderName> = names.into_iter().collect();
        let hyphenated = names.iter().map(hyphenated).collect();
        let has_underscores = names.iter().any(has_underscore);
        Self { names, hyphenated, has_underscores, removed: HeaderNames::default() }
    }
}

fn has_underscore(name: &HeaderName) -> bool {
    name.as_str().contains('_')
}

fn hyphenated(name: &HeaderName) -> String {
    name.as_str().replace('_', "-")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn left(names: &[&str], sent: &[&str]) -> Vec<String> {
        let scrub: HeaderScrub = names.iter().map(|name| name.parse::<HeaderName>().unwrap()).collect();
        let header = |name: &&str| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_static("1"));
        let mut headers: HeaderMap = sent.iter().map(header).collect();
        scrub.remove_twins(&mut headers);
        let mut left: Vec<String> = headers.keys().map(ToString::to_string).collect();
        left.sort();
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
