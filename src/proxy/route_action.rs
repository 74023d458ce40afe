//! The action of a route on the requests that match it.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use http::header::HeaderName;
use http::{HeaderValue, StatusCode};

use super::admission_rule::AdmissionRule;
use super::authorization::{AuthorizationOrder, AuthorizationRule};
use super::forward_auth::ForwardAuth;
use super::header_template::{HeaderFacts, HeaderTemplate};
use super::redirect::Redirect;
use crate::gate::{DenyStatus, KeySpec, PathPattern, strip_prefix};
use crate::http1::{FieldName, Fields, RequestHead};
use crate::upstream::{ForwardPolicy, HostRule, UpstreamId};

/// The action of a route on its requests.
#[derive(Clone, Debug)]
pub struct RouteAction {
    /// Whether they are forwarded.
    pub target: Target,
    /// What a client gets whose request a limit or the route itself denies, whatever the limit says.
    pub deny_status: Option<DenyStatus>,
    /// Changes to the headers of forwarded requests.
    pub request_headers: HeaderEdits,
    /// Changes to the headers of responses.
    pub response_headers: HeaderEdits,
    /// Whether they also apply to responses that the proxy makes itself to requests that it rejects.
    pub edits_local_replies: bool,
}

impl RouteAction {
    /// Makes the changes to a response of the proxy itself, if they apply to such responses.
    pub(super) fn edit_local_reply(&self, fields: &mut Fields) {
        if self.edits_local_replies {
            self.response_headers.apply(fields);
        }
    }
}

/// Where a route sends its requests.
#[derive(Clone, Debug)]
pub enum Target {
    /// To an upstream.
    Forward(ForwardTarget),
    /// To an upstream, if an authorization server allows it.
    Authorize(Box<AuthorizedTarget>),
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
    /// Where it forwards its requests, if it does.
    #[must_use]
    pub fn forwarding(&self) -> Option<&ForwardTarget> {
        match self {
            Self::Forward(target) => Some(target),
            Self::Authorize(authorized) => Some(&authorized.target),
            _ => None,
        }
    }

    fn forwarding_mut(&mut self) -> Option<&mut ForwardTarget> {
        match self {
            Self::Forward(target) => Some(target),
            Self::Authorize(authorized) => Some(&mut authorized.target),
            _ => None,
        }
    }

    /// How requests are admitted to its upstream, with that, if it has `overload`.
    pub(super) fn admission_mut(&mut self) -> Option<(UpstreamId, &mut AdmissionRule)> {
        let target = self.forwarding_mut()?;
        Some((target.upstream, target.admission.as_deref_mut()?))
    }

    /// How it has its requests authorized, if it does.
    #[must_use]
    pub fn authorization(&self) -> Option<&AuthorizationRule> {
        if let Self::Authorize(authorized) = self { Some(&authorized.rule) } else { None }
    }

    /// The headers that an authorization server sets before the limits are decided, if one decides then.
    #[must_use]
    pub fn awaited_headers(&self) -> Option<Arc<[HeaderName]>> {
        let rule = self.authorization().filter(|rule| rule.order == AuthorizationOrder::BeforeLimits)?;
        Some(Arc::clone(&rule.copy))
    }

    /// How decisions are returned, if the requests are authorization requests.
    pub(super) fn forward_auth(&self) -> Option<ForwardAuth> {
        if let Self::Decide(settings) = self { Some(*settings) } else { None }
    }
}

/// The upstream of a route whose requests an authorization server has to allow.
#[derive(Clone, Debug)]
pub struct AuthorizedTarget {
    /// How they are authorized.
    pub rule: AuthorizationRule,
    /// Where they are forwarded then.
    pub target: ForwardTarget,
}

/// The upstream of a route.
#[derive(Clone, Debug)]
pub struct ForwardTarget {
    /// The upstream.
    pub upstream: UpstreamId,
    /// Changes to the request's target.
    pub rewrite: Rewrite,
    /// The key that selects the server, if the upstream balances by a hash.
    pub key: Option<KeySpec>,
    /// Timeouts and retries: those of the route, or else of the upstream.
    pub policy: ForwardPolicy,
    /// The protocols to which clients may upgrade.
    pub upgrades: Upgrades,
    /// How its requests are admitted, if the upstream has `overload`.
    pub admission: Option<Box<AdmissionRule>>,
}

/// Changes to a request's target.
#[derive(Clone, Debug, Default)]
pub struct Rewrite {
    /// Whole segments that are removed from the start of the path, such as `/v1`, in the normal form for matching and
    /// without a trailing slash.
    pub strip_prefix: Option<Box<str>>,
    /// Whole segments that are put before the path then, in the same form.
    pub add_prefix: Option<Box<str>>,
    /// The path, in place of the changes above.
    pub template: Option<PathTemplate>,
    /// The Host header that the upstream gets.
    pub host: HostRule,
    /// Whether headers of responses that name the server's own address get the client's view of it.
    pub location: bool,
}

/// The protocols to which the clients of a route may upgrade.
#[derive(Clone, Debug)]
pub struct Upgrades {
    /// Whether WebSocket is one of them.
    pub websocket: bool,
    /// The others, such as `tcp` or `SPDY/3.1`.
    pub others: Box<[Box<str>]>,
}

impl Default for Upgrades {
    fn default() -> Self {
        Self { websocket: true, others: Box::default() }
    }
}

/// Headers to remove, and then headers to set.
#[derive(Clone, Debug, Default)]
pub struct HeaderEdits {
    /// Headers to set, replacing any value.
    pub set: Vec<(HeaderName, HeaderValue)>,
    /// Headers of requests to set to parts of the request.
    pub filled: Vec<(HeaderName, HeaderTemplate)>,
    /// Headers to remove.
    pub remove: Vec<HeaderName>,
}

/// A path made of parts of the path that the pattern of a route matches.
#[derive(Clone, Debug)]
pub struct PathTemplate(Box<[PathPart]>);

#[derive(Clone, Debug)]
enum PathPart {
    Text(Box<str>),
    /// The segment of this parameter.
    Param(Box<str>),
    /// What the `*` at the end of the pattern matches.
    Rest,
}

impl PathTemplate {
    /// Parses a path such as `/v2/{id}/*`, whose parts are those of the pattern; its text is in the normal form. Returns the name of
    /// a parameter, or `*`, if the pattern has no such part.
    ///
    /// # Errors
    /// The part that the pattern does not have.
    pub fn parse<'t>(text: &'t str, pattern: &PathPattern) -> Result<Self, &'t str> {
        let (body, has_rest) = text.strip_suffix('*').map_or((text, false), |body| (body, true));
        if has_rest && !pattern.has_rest() {
            return Err("*");
        }
        let mut parts = Vec::new();
        for (number, part) in body.split(['{', '}']).enumerate() {
            // Between braces.
            if number % 2 == 1 {
                pattern.params().find(|name| *name == part).ok_or(part)?;
                parts.push(PathPart::Param(part.into()));
            } else if !part.is_empty() {
                parts.push(PathPart::Text(part.into()));
            }
        }
        parts.extend(has_rest.then_some(PathPart::Rest));
        Ok(Self(parts.into()))
    }

    /// The path for one that the pattern matches; none if it does not match, or if the path would have dot segments: `/a*` also
    /// matches `/a../b`.
    fn fill(&self, path: &str, pattern: &PathPattern) -> Option<String> {
        let part = |part: &'_ PathPart| match part {
            PathPart::Text(text) => Some(text.to_string()),
            PathPart::Param(name) => pattern.param(name, path).map(str::to_owned),
            PathPart::Rest => pattern.rest(path).map(str::to_owned),
        };
        let filled: String = self.0.iter().map(part).collect::<Option<_>>()?;
        (!filled.split('/').any(|segment| matches!(segment, "." | ".."))).then_some(filled)
    }
}

impl Rewrite {
    /// Whether paths are sent to the server as they are.
    #[inline]
    pub(super) fn keeps_paths(&self) -> bool {
        self.template.is_none() && self.strip_prefix.is_none() && self.add_prefix.is_none()
    }

    /// The path for the server. One that does not start with the prefix to remove, as whole segments, keeps it.
    #[must_use]
    pub fn path<'p>(&self, path: &'p str, pattern: &PathPattern) -> Cow<'p, str> {
        if let Some(template) = &self.template {
            return template.fill(path, pattern).map_or(Cow::Borrowed(path), Cow::Owned);
        }
        let cut = match self.strip_prefix.as_deref().and_then(|prefix| strip_prefix(path, prefix)) {
            Some("") => "/",
            Some(rest) if rest.starts_with('/') => rest,
            _ => path,
        };
        match &self.add_prefix {
            // `OPTIONS *` has no path.
            Some(prefix) if cut.starts_with('/') => Cow::Owned(format!("{prefix}{cut}")),
            _ => Cow::Borrowed(cut),
        }
    }
}

impl HeaderEdits {
    /// Whether this header is set or removed.
    #[must_use]
    pub fn affects(&self, name: &HeaderName) -> bool {
        self.names().any(|known| known == name)
    }

    /// These changes, after those which keep headers of a request that an authorization server has set: a client could have
    /// them removed by naming them in `Connection`.
    #[must_use]
    pub fn keeping(&self, names: &[HeaderName], fields: &Fields) -> Self {
        let mut edits = Self { set: Vec::new(), ..self.clone() };
        for name in names.iter().filter(|name| !self.affects(name)) {
            let values: Vec<&[u8]> = fields.get_all(name).collect();
            match HeaderValue::from_bytes(&values.join(&b", "[..])) {
                Ok(value) if !values.is_empty() => edits.set.push((name.clone(), value)),
                _ => edits.remove.push(name.clone()),
            }
        }
        edits.set.extend(self.set.iter().cloned());
        edits
    }

    /// The names of the headers that are removed or set.
    pub fn names(&self) -> impl Iterator<Item = &HeaderName> {
        self.remove.iter().chain(self.set_names())
    }

    /// The names of the headers that are set.
    pub fn set_names(&self) -> impl Iterator<Item = &HeaderName> {
        let of_parts = self.filled.iter().map(|(name, _)| name);
        self.set.iter().map(|(name, _)| name).chain(of_parts)
    }

    /// The values of the headers that are made of parts of the request. A header whose value the request lacks is removed.
    pub(super) fn fill(
        &self,
        facts: &HeaderFacts,
        head: &RequestHead,
    ) -> Vec<(&HeaderName, Option<Vec<u8>>)> {
        self.filled.iter().map(|(name, template)| (name, template.fill(facts, head))).collect()
    }

    /// Makes the changes whose values are constant.
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
    fn whole_segments_are_removed_and_added() {
        let pattern = PathPattern::parse("/*").unwrap();
        let rewrite = Rewrite { strip_prefix: Some("/v1".into()), ..Rewrite::default() };
        assert_eq!(rewrite.path("/v1/a", &pattern), "/a");
        assert_eq!(rewrite.path("/v1", &pattern), "/");
        assert_eq!(rewrite.path("/v10", &pattern), "/v10");
        assert_eq!(Rewrite::default().path("/v1/a", &pattern), "/v1/a");
        let rewrite = Rewrite { add_prefix: Some("/base".into()), ..rewrite };
        assert_eq!(rewrite.path("/v1/a", &pattern), "/base/a");
        assert_eq!(rewrite.path("/v1", &pattern), "/base/");
        assert_eq!(rewrite.path("*", &pattern), "*");
    }

    #[test]
    fn a_path_is_made_of_parts_of_the_path() {
        let rewritten = |pattern: &str, template: &str, path: &str| {
            let pattern = PathPattern::parse(pattern).unwrap();
            let template = Some(PathTemplate::parse(template, &pattern).unwrap());
            Rewrite { template, ..Rewrite::default() }.path(path, &pattern).into_owned()
        };
        assert_eq!(rewritten("/users/{id}/*", "/v2/{id}/all/*", "/users/7/a/b%2Fc"), "/v2/7/all/a/b%2Fc");
        assert_eq!(rewritten("/users/{id}", "/u", "/users/7"), "/u");
        assert_eq!(rewritten("/a*", "/b*", "/a"), "/b");
        assert_eq!(rewritten("/a*", "/b*", "/a/c"), "/b/c");
        assert_eq!(rewritten("/a*", "/b*", "/ac"), "/bc");
        assert_eq!(rewritten("/a*", "/", "/ac"), "/");
        assert_eq!(rewritten("/a*", "/*", "/a/c"), "//c");
        assert_eq!(rewritten("/a:*", "/*", "/a%3Ac"), "/c");
        // These would be paths outside of the rewritten one.
        assert_eq!(rewritten("/a*", "/b/*", "/a../c"), "/a../c");
        assert_eq!(rewritten("/a*", "/b/*", "/a."), "/a.");
        assert_eq!(rewritten("/a*", "/b/*", "/a..."), "/b/...");
        let pattern = PathPattern::parse("/users/{id}").unwrap();
        assert_eq!(PathTemplate::parse("/{name}", &pattern).unwrap_err(), "name");
        assert_eq!(PathTemplate::parse("/*", &pattern).unwrap_err(), "*");
    }
}
