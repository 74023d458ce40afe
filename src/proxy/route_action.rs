//! What becomes of a request that matches a route.

use bytes::Bytes;
use http::header::HeaderName;
use http::{HeaderValue, StatusCode};

use crate::gate::{KeySpec, strip_prefix};
use crate::http1::{FieldName, Fields};
use crate::upstream::{HostRule, UpstreamId};

/// What a route does with its requests.
#[derive(Clone, Debug)]
pub struct RouteAction {
    /// Where they go.
    pub target: Target,
    /// Changes to what goes upstream.
    pub request_headers: HeaderEdits,
    /// Changes to what goes back.
    pub response_headers: HeaderEdits,
}

/// Where a route's requests go.
#[derive(Clone, Debug)]
pub enum Target {
    /// To an upstream.
    Forward {
        /// Which.
        upstream: UpstreamId,
        /// With which changes.
        rewrite: Rewrite,
        /// The key that chooses the server, where the upstream balances by a hash.
        key: Option<KeySpec>,
    },
    /// Nowhere: the route answers by itself.
    Respond {
        /// The status of the answer.
        status: StatusCode,
        /// Its body.
        body: Bytes,
    },
}

/// Changes to a request's target.
#[derive(Clone, Debug, Default)]
pub struct Rewrite {
    /// Whole segments cut from the front of the path, such as `/v1`, in the spelling that paths are matched in; no slash
    /// at the end.
    pub strip_prefix: Option<Box<str>>,
    /// The Host header upstream.
    pub host: HostRule,
}

/// Headers to remove and to set, in this order.
#[derive(Clone, Debug, Default)]
pub struct HeaderEdits {
    /// Set to these values, whatever was there.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Removed.
    pub remove: Vec<HeaderName>,
}

impl Rewrite {
    /// A path without its prefix; what does not start with it, as whole segments, stays as it is.
    #[must_use]
    pub fn path<'p>(&self, path: &'p str) -> &'p str {
        match self.strip_prefix.as_deref().and_then(|prefix| strip_prefix(path, prefix)) {
            Some("") => "/",
            Some(rest) if rest.starts_with('/') => rest,
            _ => path,
        }
    }
}

impl HeaderEdits {
    /// Whether this header is set or removed.
    #[must_use]
    pub fn affects(&self, name: &HeaderName) -> bool {
        self.remove.contains(name) || self.set.iter().any(|(set, _)| set == name)
    }

    /// Makes the changes.
    pub fn apply(&self, fields: &mut Fields) {
        for name in &self.remove {
            fields.remove(name);
        }
        for (name, value) in &self.set {
            let name = FieldName::from(name);
            fields.remove(name);
            if value.is_sensitive() {
                fields.push_sensitive(name, value.as_bytes());
            } else {
                fields.push(name, value.as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_segments_are_cut() {
        let rewrite = Rewrite { strip_prefix: Some("/v1".into()), ..Rewrite::default() };
        assert_eq!(rewrite.path("/v1/a"), "/a");
        assert_eq!(rewrite.path("/v1"), "/");
        assert_eq!(rewrite.path("/v10"), "/v10");
        assert_eq!(Rewrite::default().path("/v1/a"), "/v1/a");
    }
}
