//! The action of a route on the requests that match it.

use bytes::Bytes;
use http::header::HeaderName;
use http::{HeaderValue, StatusCode};

use super::forward_auth::ForwardAuth;
use super::redirect::Redirect;
use crate::gate::{KeySpec, strip_prefix};
use crate::http1::{FieldName, Fields};
use crate::upstream::{HostRule, UpstreamId};

/// The action of a route on its requests.
#[derive(Clone, Debug)]
pub struct RouteAction {
    /// Whether they are forwarded.
    pub target: Target,
    /// Changes to the headers of forwarded requests.
    pub request_headers: HeaderEdits,
    /// Changes to the headers of responses.
    pub response_headers: HeaderEdits,
    /// Whether they also apply to responses that the proxy makes itself to requests that it rejects.
    pub edits_local_replies: bool,
}

/// Where a route sends its requests.
#[derive(Clone, Debug)]
pub enum Target {
    /// To an upstream.
    Forward {
        /// The upstream.
        upstream: UpstreamId,
        /// Changes to the request's target.
        rewrite: Rewrite,
        /// The key that selects the server, if the upstream balances by a hash.
        key: Option<KeySpec>,
    },
    /// Nowhere: the route responds by itself.
    Respond {
        /// The status code.
        status: StatusCode,
        /// The body.
        body: Bytes,
    },
    /// Nowhere: the route sends the client elsewhere.
    Redirect(Box<Redirect>),
    /// Nowhere: the route responds with the limits of the client, which are not charged.
    Limits,
    /// Nowhere: the route refuses them with 403.
    Block,
    /// Nowhere: they are authorization requests, decided by the original requests that they describe.
    Decide(ForwardAuth),
}

impl Target {
    /// How decisions are returned, if the requests are authorization requests.
    pub(super) fn forward_auth(&self) -> Option<ForwardAuth> {
        if let Self::Decide(settings) = self { Some(*settings) } else { None }
    }
}

/// Changes to a request's target.
#[derive(Clone, Debug, Default)]
pub struct Rewrite {
    /// Whole segments that are removed from the start of the path, such as `/v1`, in the normal form for matching and
    /// without a trailing slash.
    pub strip_prefix: Option<Box<str>>,
    /// The Host header that the upstream gets.
    pub host: HostRule,
}

/// Headers to remove, and then headers to set.
#[derive(Clone, Debug, Default)]
pub struct HeaderEdits {
    /// Headers to set, replacing any value.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Headers to remove.
    pub remove: Vec<HeaderName>,
}

impl Rewrite {
    /// A path without the prefix; a path that does not start with it, as whole segments, is unchanged.
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
    fn only_whole_segments_are_removed() {
        let rewrite = Rewrite { strip_prefix: Some("/v1".into()), ..Rewrite::default() };
        assert_eq!(rewrite.path("/v1/a"), "/a");
        assert_eq!(rewrite.path("/v1"), "/");
        assert_eq!(rewrite.path("/v10"), "/v10");
        assert_eq!(Rewrite::default().path("/v1/a"), "/v1/a");
    }
}
