//! Why the proxy itself responds to a request, in place of an upstream.

use http::{Method, StatusCode};

use super::authorization::{AuthorizationError, Refusal};
use super::forward_auth::ForwardAuthError;
use crate::consumers::ConsumerError;
use crate::gate::{MissingPart, RequestError, RequestPlan, TokenRefusal};
use crate::http1::RequestHead;
use crate::limit::PolicyId;
use crate::limiter::Denial;
use crate::telemetry::{LimitOutcome, Verdict};
use crate::upstream::ForwardError;

/// Why a request is rejected.
#[derive(Debug)]
pub(crate) enum Rejection {
    /// The request is malformed, or blocked before the limits are checked.
    Malformed(RequestError),
    /// A limit denies the request, or the limits can't be checked.
    Denied(Denial),
    /// A key part that a limit requires is missing.
    MissingKey(Box<MissingPart>),
    /// The request is not served as a consumer's.
    Unidentified(ConsumerError),
    /// The route refuses the token of the request, or the lack of one.
    Token(TokenRefusal),
    /// An authorization server refuses the request.
    Unauthorized(Box<Refusal>),
    /// An authorization server has decided nothing.
    AuthorizationFailed(AuthorizationError),
    /// An authorization request that gets no decision.
    ForwardAuth(ForwardAuthError),
    /// No route matches.
    NoRoute,
    /// The route refuses all of its requests.
    BlockedByRoute,
    /// `OPTIONS *` addresses the proxy itself.
    OptionsAsterisk,
    /// Max-Forwards is not a number.
    MaxForwards,
    /// TRACE with `Max-Forwards: 0`.
    Trace,
    /// The upstream gave no valid response.
    Upstream(ForwardError),
    /// The upstream has not switched protocols as requested.
    NotSwitched,
}

impl Rejection {
    /// The rejection of a request that matches no route; `OPTIONS *` addresses the proxy itself (RFC 9110 §9.3.7).
    pub fn no_route(head: &RequestHead) -> Self {
        let is_asterisk = head.method == Method::OPTIONS && head.uri.path() == "*";
        if is_asterisk { Self::OptionsAsterisk } else { Self::NoRoute }
    }

    /// The rejection of a request that its limits have admitted, for what its plan says of its credential, its token or its keys.
    pub fn of_plan(plan: &mut RequestPlan<'_>) -> Option<Self> {
        let identity = plan.identity.error.map(Self::Unidentified);
        let token = plan.refused.map(Self::Token);
        identity.or(token).or_else(|| plan.missing.take().map(Self::MissingKey))
    }

    /// The limit that rejects the request by its configuration, and the outcome to count for it. The limiter counts
    /// denials.
    pub fn decision(&self) -> Option<(PolicyId, LimitOutcome)> {
        match self {
            Self::Malformed(RequestError::Blocked(limit)) => Some((*limit, LimitOutcome::Blocked)),
            Self::MissingKey(missing) => Some((missing.limit, LimitOutcome::MissingKey)),
            _ => None,
        }
    }

    /// The error of a server as a word for the access log, if one is the reason.
    pub fn error_word(&self) -> Option<&'static str> {
        match self {
            Self::Upstream(error) => Some(error.word()),
            Self::AuthorizationFailed(error) => Some(error.word()),
            _ => None,
        }
    }

    /// How the request is decided by this; none if something else than its limits and its route rejects it.
    pub fn verdict(&self) -> Option<Verdict> {
        match self {
            Self::Unidentified(error) if error.status() == StatusCode::SERVICE_UNAVAILABLE => {
                Some(Verdict::Error)
            }
            Self::Token(refusal) if refusal.status() == StatusCode::SERVICE_UNAVAILABLE => {
                Some(Verdict::Error)
            }
            Self::Malformed(RequestError::Blocked(_))
            | Self::Denied(Denial::Limited)
            | Self::MissingKey(_)
            | Self::Unidentified(_)
            | Self::Token(_)
            | Self::Unauthorized(_)
            | Self::NoRoute
            | Self::BlockedByRoute => Some(Verdict::Denied),
            Self::Malformed(_)
            | Self::Denied(Denial::Unavailable { .. })
            | Self::AuthorizationFailed(_)
            | Self::ForwardAuth(_) => Some(Verdict::Error),
            Self::OptionsAsterisk
            | Self::MaxForwards
            | Self::Trace
            | Self::Upstream(_)
            | Self::NotSwitched => None,
        }
    }
}

impl From<RequestError> for Rejection {
    fn from(error: RequestError) -> Self {
        Self::Malformed(error)
    }
}

impl From<ForwardError> for Rejection {
    fn from(error: ForwardError) -> Self {
        Self::Upstream(error)
    }
}
