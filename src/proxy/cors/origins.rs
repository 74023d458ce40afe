//! Origins of web pages, and which of them may read responses.

/// The origins that may read responses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origins {
    /// Every origin.
    Any,
    /// Those that one of the patterns matches.
    Listed(Vec<OriginPattern>),
}

/// A pattern of origins in the form that browsers send (RFC 6454 §6.1): in lower case, and without a default port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginPattern {
    /// Exactly this origin.
    Exact(Box<str>),
    /// `https://*.example.com`: one or more labels between the prefix `https://` and the suffix `.example.com`.
    Subdomains {
        /// The scheme and `://`.
        prefix: Box<str>,
        /// The dot and what follows it, with the port if there is one.
        suffix: Box<str>,
    },
}

impl Origins {
    /// Whether the list has an origin, as a browser sends it.
    #[must_use]
    pub fn contains(&self, origin: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(patterns) => patterns.iter().any(|pattern| pattern.matches(origin)),
        }
    }
}

impl OriginPattern {
    fn matches(&self, origin: &str) -> bool {
        match self {
            Self::Exact(exact) => **exact == *origin,
            Self::Subdomains { prefix, suffix } => {
                let labels = origin.strip_prefix(&**prefix).and_then(|rest| rest.strip_suffix(&**suffix));
                labels.is_some_and(are_labels)
            }
        }
    }
}

/// Whether a text is one or more labels of a host. Other text, such as `evil.example/` or `user@`, would make the origin
/// one of another host.
fn are_labels(text: &str) -> bool {
    let is_label = |label: &str| {
        !label.is_empty()
            && label
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte))
    };
    text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subdomains_are_whole_labels_of_the_same_scheme_and_port() {
        let pattern = |prefix: &str, suffix: &str| {
            Origins::Listed(vec![OriginPattern::Subdomains { prefix: prefix.into(), suffix: suffix.into() }])
        };
        let origins = pattern("https://", ".example.com");
        for origin in ["https://a.example.com", "https://a-1.b.example.com"] {
            assert!(origins.contains(origin), "{origin}");
        }
        for origin in [
            "https://example.com",
            "https://.example.com",
            "https://badexample.com",
            "http://a.example.com",
            "https://a.example.com:8443",
            "https://evil.test/.example.com",
            "https://evil.test:1.example.com",
            "https://evil@a.example.com",
            "https://A.example.com",
            "https://a..example.com",
            "https://a.example.com.evil.test",
            "null",
            "",
        ] {
            assert!(!origins.contains(origin), "{origin}");
        }
        assert!(pattern("http://", ".localhost:3000").contains("http://a.localhost:3000"));
    }

    #[test]
    fn exact_origins_are_compared_whole() {
        let origins = Origins::Listed(vec![OriginPattern::Exact("https://app.example.com".into())]);
        assert!(origins.contains("https://app.example.com"));
        for origin in ["https://app.example.com:444", "https://app.example.com.evil.test", "null"] {
            assert!(!origins.contains(origin), "{origin}");
            assert!(Origins::Any.contains(origin));
        }
    }
}
