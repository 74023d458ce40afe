//! External authorization: what a route asks an authorization server, and what that can decide. `proxy::authorize` asks it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderName;
use http::{StatusCode, Uri};

use crate::gate::KeySpec;
use crate::http1::names::{
    FORWARDED, TRACEPARENT, TRACESTATE, VIA, X_FORWARDED_FOR, X_FORWARDED_HOST, X_FORWARDED_PROTO,
    X_REQUEST_ID,
};
use crate::http1::{FieldName, Fields, ResponseHead};
use crate::upstream::{ForwardError, ForwardPolicy, UpstreamId};

/// The headers with the method, and with the path and query, of the request that is to be authorized.
pub(super) static DESCRIBING: [HeaderName; 2] =
    [HeaderName::from_static("x-forwarded-method"), HeaderName::from_static("x-forwarded-uri")];

/// Headers of every request to an authorization server, which the proxy writes.
const ALWAYS_SENT: [FieldName<'static>; 8] = [
    FORWARDED,
    TRACEPARENT,
    TRACESTATE,
    VIA,
    X_FORWARDED_FOR,
    X_FORWARDED_HOST,
    X_FORWARDED_PROTO,
    X_REQUEST_ID,
];

/// How a route has its requests authorized.
#[derive(Clone, Debug)]
pub struct AuthorizationRule {
    /// The authorization server.
    pub upstream: UpstreamId,
    /// The path and query of requests to it.
    pub target: Uri,
    /// The headers that it is sent, besides those that the proxy writes.
    pub send: SentHeaders,
    /// The headers that it sets in the request. Those of the client are removed.
    pub copy: Arc<[HeaderName]>,
    /// How long it may take, and how often it is asked again.
    pub policy: ForwardPolicy,
    /// What happens to a request on which it decides nothing.
    pub on_failure: OnFailure,
    /// Whether it is asked before the limits are checked.
    pub order: AuthorizationOrder,
    /// How long its decisions hold; none if it is asked for every request.
    pub cache: Option<AuthorizationCaching>,
}

/// The headers of a request that an authorization server is sent.
#[derive(Clone, Debug)]
pub enum SentHeaders {
    /// All that do not belong to the connection or to the body, and make the request no conditional one.
    All,
    /// Those with these names.
    Named(Box<[HeaderName]>),
}

/// What happens to a request on which an authorization server decides nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// It is rejected.
    Deny,
    /// It is forwarded.
    Allow,
}

/// When an authorization server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizationOrder {
    /// Before limits are charged, which can count by the headers that it sets.
    BeforeLimits,
    /// For requests that the limits allow.
    AfterLimits,
}

/// How long positive decisions of an authorization server hold.
#[derive(Clone, Debug)]
pub struct AuthorizationCaching {
    /// The time from the decision.
    pub lasts: Duration,
    /// The requests with the same key have the same decision; those without a key are not cached.
    pub key: KeySpec,
}

/// The headers that an authorization server has set in a request.
#[derive(Clone, Debug)]
pub(super) struct CopiedHeaders {
    names: Arc<[HeaderName]>,
    fields: Rc<Fields>,
}

/// The response of an authorization server that refuses a request, for the client.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub head: ResponseHead,
    pub body: Bytes,
}

/// Why an authorization server has decided nothing on a request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthorizationError {
    /// There was no valid response.
    #[error(transparent)]
    NoResponse(ForwardError),
    /// The response has a status that decides nothing.
    #[error("it responded with {0}")]
    Status(StatusCode),
    /// The response refuses the request, but can't be sent to the client.
    #[error("it responded with {0}, {1}")]
    Unusable(StatusCode, &'static str),
}

impl AuthorizationRule {
    /// How long it may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        self.policy.response_timeout
    }

    /// Whether a request to the server keeps this header of the client's request.
    pub(super) fn sends(&self, name: FieldName<'_>) -> bool {
        if ALWAYS_SENT.contains(&name) {
            return true;
        }
        match &self.send {
            SentHeaders::Named(names) => names.iter().any(|sent| name == FieldName::from(sent)),
            SentHeaders::All => {
                // Some servers read `_` as `-`.
                let text = name.as_str().replace('_', "-");
                let prefixes = ["content-", "if-", "x-forwarded-", "x-original-", "x-ratelimit-"];
                !["connection", "range", "te", "trailer"].contains(&&*text)
                    && !prefixes.iter().any(|prefix| text.starts_with(prefix))
            }
        }
    }
}

impl CopiedHeaders {
    /// The most bytes that are kept for later requests.
    const MAX_KEPT: usize = 2 * 1024;

    /// The headers of a response with these names.
    pub fn new(names: Arc<[HeaderName]>, response: &Fields) -> Self {
        let mut fields = Fields::new();
        for name in &*names {
            response.get_all(name).for_each(|value| fields.push(name, value));
        }
        Self { names, fields: Rc::new(fields) }
    }

    /// Whether they are small enough to be kept.
    pub fn can_be_kept(&self) -> bool {
        self.fields.memory() <= Self::MAX_KEPT
    }

    /// Replaces these headers in a request.
    pub fn apply(&self, request: &mut Fields) {
        for name in &*self.names {
            request.remove(name);
        }
        request.extend(&self.fields);
    }
}

impl AuthorizationError {
    /// Whether `on_failure` says what happens to the request. It never applies to a refusal.
    pub fn is_failure(&self) -> bool {
        match self {
            Self::NoResponse(_) => true,
            Self::Status(status) => status.is_server_error(),
            Self::Unusable(..) => false,
        }
    }

    /// The error as a word for the access log.
    pub fn word(&self) -> &'static str {
        match self {
            Self::NoResponse(ForwardError::Connect { .. } | ForwardError::Unresolved(_)) => {
                "authorization_unreachable"
            }
            Self::NoResponse(ForwardError::ConnectTimeout(_) | ForwardError::ResponseTimeout(_)) => {
                "authorization_timeout"
            }
            Self::NoResponse(error) if error.is_over_capacity() => "authorization_overload",
            Self::NoResponse(_) | Self::Unusable(..) => "authorization_invalid_response",
            Self::Status(_) => "authorization_status",
        }
    }
}
