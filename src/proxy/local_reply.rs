//! Responses that the proxy itself makes. Every rejection becomes a response here.

use std::io::Write as _;

use bytes::Bytes;
use http::StatusCode;

use super::authorization::AuthorizationError;
use super::rate_headers::RateHeaderSource;
use super::rejection::Rejection;
use super::request_id::RequestId;
use super::response::ProxyResponse;
use super::response_body::BodySource;
use super::response_policy::CustomReply;
use super::route_action::RouteAction;
use super::template::TemplateField;
use super::upstream_failure::{self, describe_upstream_error};
use crate::consumers::ConsumerError;
use crate::gate::{CredentialSource, DenyStatus, Gate, MissingPart, RequestError, TokenRefusal};
use crate::http1::names::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use crate::http1::{ResponseHead, push_decimal};
use crate::limit::{Decision, DenyReason, binding};
use crate::limiter::{Denial, LimitStatus};
use crate::upstream::ForwardError;

/// The value of `{retry_after}`, in seconds, for a request that can never pass: a year.
const NEVER: u64 = 31_536_000;

/// The status under which a denial without a response is logged and counted, as in nginx.
const CLOSED: u16 = 444;

pub(super) const PROBLEM: &[u8] = b"application/problem+json";

/// The methods that the proxy serves, if a route does.
const METHODS: &[u8] = b"GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// A response whose body comes from the proxy itself.
pub(super) type LocalReply = ProxyResponse<BodySource>;

/// The response to an OPTIONS request for the proxy itself. It has no Allow header: only the upstream knows the methods of
/// its resources.
pub(super) fn options() -> LocalReply {
    LocalReply::new(ResponseHead::new(StatusCode::NO_CONTENT), BodySource::Local(Bytes::new()))
}

/// Announces that the connection is closed after this response.
fn set_connection_close(head: &mut ResponseHead) {
    head.fields.set(CONNECTION, b"close");
}

/// Where a request is rejected.
#[derive(Clone, Copy)]
pub(super) struct RejectionContext<'a> {
    pub gate: &'a Gate,
    /// The action of the matching route.
    pub action: Option<&'a RouteAction>,
    /// Whether the client may be left without a response.
    pub may_close: bool,
}

/// A rejected request, from which the response to its rejection follows.
pub(super) struct RejectedRequest<'a> {
    headers: RateHeaderSource<'a>,
    id: &'a RequestId,
    /// Where credentials of consumers are.
    credential: Option<&'a CredentialSource>,
    /// The status of the limit that denies it; none if a block does, and for other rejections.
    denied_by: Option<&'a LimitStatus>,
    /// What the client gets in place of the usual status: by the route, or else by the limit.
    deny_status: Option<DenyStatus>,
}

impl<'a> RejectedRequest<'a> {
    /// A request that is rejected for this reason.
    pub fn new(
        headers: RateHeaderSource<'a>,
        id: &'a RequestId,
        context: RejectionContext<'a>,
        rejection: &Rejection,
    ) -> Self {
        let RejectionContext { gate, action, may_close } = context;
        let credential = gate.consumers.as_ref().map(|rules| &rules.source);
        let statuses = headers.statuses;
        let denied_by = match rejection {
            // A block is no quota: its response names no limit and no time to retry.
            Rejection::Denied(Denial::Limited) if !statuses.iter().any(is_blocked) => {
                binding(statuses.iter().map(|status| &status.decision)).map(|index| &statuses[index])
            }
            _ => None,
        };
        let by_route = action.and_then(|action| action.deny_status);
        let by_limit = |status: &LimitStatus| gate.limit_rules[gate.limit_of(status.policy)].deny_status;
        let deny_status = match (rejection, denied_by) {
            (Rejection::BlockedByRoute, _) => by_route,
            (_, Some(status)) => by_route.or_else(|| by_limit(status)),
            (_, None) => None,
        };
        let deny_status = deny_status.filter(|status| may_close || *status != DenyStatus::Close);
        Self { headers, id, credential, denied_by, deny_status }
    }

    /// The seconds until a denied request may pass, if they are known. With jitter, each call has another result.
    pub fn wait(&self, rejection: &Rejection) -> Option<u64> {
        let wait = match rejection {
            Rejection::Denied(Denial::Unavailable { retry_after }) => Some(*retry_after),
            _ => self.denied_by.and_then(|status| status.decision.retry_after),
        };
        wait.map(|wait| self.headers.policy.wait(wait))
    }

    /// The response to a rejection; `wait` is the result of [`Self::wait`].
    pub fn response(&self, rejection: &Rejection, wait: Option<u64>) -> LocalReply {
        let response = match rejection {
            _ if self.deny_status == Some(DenyStatus::Close) => closed(),
            Rejection::Denied(denial) => self.denied(denial, wait),
            Rejection::Malformed(error) => self.malformed(error),
            Rejection::MissingKey(missing) => self.missing_key(missing),
            Rejection::Unidentified(error) => self.unidentified(*error),
            Rejection::Token(refusal) => self.refused_token(*refusal),
            Rejection::Unauthorized(refusal) => {
                LocalReply::new(refusal.head.clone(), BodySource::Local(refusal.body.clone()))
            }
            Rejection::AuthorizationFailed(error) => self.unauthorized(error),
            Rejection::ForwardAuth(error) => self.explained(error.status(), &error.to_string(), None),
            Rejection::NoRoute => {
                self.explained(StatusCode::NOT_FOUND, "no route matches this request", None)
            }
            Rejection::BlockedByRoute => {
                self.explained(StatusCode::FORBIDDEN, "such requests are blocked", None)
            }
            Rejection::MaxForwards => self.explained(
                StatusCode::BAD_REQUEST,
                "the request must have at most one Max-Forwards header, with digits only",
                None,
            ),
            Rejection::Trace => self.trace(),
            Rejection::OptionsAsterisk => options(),
            Rejection::Upstream(error) => self.upstream_error(error),
            Rejection::NotSwitched => self.explained(
                StatusCode::BAD_GATEWAY,
                "the upstream did not complete the WebSocket handshake: expected 101 Switching Protocols",
                None,
            ),
        };
        LocalReply { is_over_capacity: self.is_over_capacity(rejection), ..response }
    }

    /// Whether all slots of the limit that denies the request, or all connections of its upstream, are in use.
    fn is_over_capacity(&self, rejection: &Rejection) -> bool {
        match rejection {
            Rejection::Upstream(error)
            | Rejection::AuthorizationFailed(AuthorizationError::NoResponse(error)) => {
                error.is_over_capacity()
            }
            _ => self.denied_by.is_some_and(|status| self.headers.limits[status.policy].has_slots()),
        }
    }

    /// The response to a malformed or blocked request.
    fn malformed(&self, error: &RequestError) -> LocalReply {
        let mut response = self.explained(error.status(), &error.to_string(), None);
        if error.is_about_framing() {
            // The client may frame its messages differently, so what follows on this connection can't be trusted.
            set_connection_close(&mut response.head);
        }
        match error {
            RequestError::Connect => response.head.fields.push(ALLOW, METHODS),
            RequestError::NoBodyMemory => response.head.fields.push(RETRY_AFTER, b"1"),
            _ => {}
        }
        response
    }

    /// The response to a request that lacks a key part which a limit requires.
    fn missing_key(&self, missing: &MissingPart) -> LocalReply {
        let mut response = self.explained(missing.status, &missing.detail(), None);
        response.head.fields.push(CACHE_CONTROL, b"no-store");
        if let Some(challenge) = missing.challenge() {
            response.head.fields.push(WWW_AUTHENTICATE, challenge.as_bytes());
        }
        response
    }

    /// The response to a TRACE request with `Max-Forwards: 0`. The request is not echoed: it may hold credentials that a
    /// script in a browser must not see.
    fn trace(&self) -> LocalReply {
        let detail = "TRACE with Max-Forwards: 0 is not supported: this proxy echoes no requests";
        let mut response = self.explained(StatusCode::METHOD_NOT_ALLOWED, detail, None);
        response.head.fields.push(ALLOW, METHODS);
        response
    }

    /// The response when the upstream gave none, or none that is valid.
    fn upstream_error(&self, error: &ForwardError) -> LocalReply {
        let (status, detail) = describe_upstream_error(error);
        let wait = upstream_failure::retry_after(error);
        let mut response = self.explained(status, detail, wait);
        upstream_failure::set_fields(&mut response.head.fields, error, wait);
        if status.is_client_error() && !matches!(error, ForwardError::ClientLimit(..)) {
            // The rest of the request is still being received.
            set_connection_close(&mut response.head);
        }
        response
    }

    /// The response to a request that is not served as a consumer's.
    fn unidentified(&self, error: ConsumerError) -> LocalReply {
        let status = error.status();
        let detail = match (error, self.credential) {
            (ConsumerError::Missing, Some(source)) => source.missing_detail(),
            _ => error.to_string(),
        };
        let is_transient = matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS);
        let mut response = self.explained(status, &detail, is_transient.then_some(1));
        response.head.fields.push(CACHE_CONTROL, b"no-store");
        if let Some(source) = self.credential.filter(|_| status == StatusCode::UNAUTHORIZED) {
            response.head.fields.push(WWW_AUTHENTICATE, source.challenge().as_bytes());
        }
        if is_transient {
            response.head.fields.push(RETRY_AFTER, b"1");
        }
        response
    }

    /// The response to a request whose token the route refuses.
    fn refused_token(&self, refusal: TokenRefusal) -> LocalReply {
        let challenge = refusal.challenge();
        let wait = challenge.is_none().then_some(1);
        let mut response = self.explained(refusal.status(), &refusal.to_string(), wait);
        response.head.fields.push(CACHE_CONTROL, b"no-store");
        match challenge {
            Some(challenge) => response.head.fields.push(WWW_AUTHENTICATE, challenge.as_bytes()),
            None => response.head.fields.push(RETRY_AFTER, b"1"),
        }
        response
    }

    /// The response to a request on which an authorization server has decided nothing.
    fn unauthorized(&self, error: &AuthorizationError) -> LocalReply {
        let detail = "the authorization of this request can't be checked at the moment";
        let wait = upstream_failure::retry_after_authorization(error);
        let mut response = self.explained(StatusCode::SERVICE_UNAVAILABLE, detail, Some(wait));
        response.head.fields.push(CACHE_CONTROL, b"no-store");
        response.head.fields.push_with(RETRY_AFTER, |out| push_decimal(out, wait));
        response
    }

    fn denied(&self, denial: &Denial, wait: Option<u64>) -> LocalReply {
        let policy = self.headers.policy;
        let mut response = match (denial, self.denied_by) {
            (Denial::Limited, None) => {
                self.explained(StatusCode::FORBIDDEN, "the key of this client is blocked", wait)
            }
            (Denial::Limited, Some(status)) => self.quota_exceeded(status, wait),
            (Denial::Unavailable { .. }, _) => {
                let detail = "the limits of this route can't be checked at the moment";
                self.explained(StatusCode::SERVICE_UNAVAILABLE, detail, wait)
            }
        };
        // A cache must not return the denial of one client to another, or after it has ended.
        let fields = &mut response.head.fields;
        fields.push(CACHE_CONTROL, b"no-store");
        if let Some(wait) = wait {
            fields.push_with(RETRY_AFTER, |out| push_decimal(out, policy.retry_after(wait)));
        }
        response
    }

    /// A problem of the type `quota-exceeded` (draft-ietf-httpapi-ratelimit-headers). The body is written without a JSON
    /// library for speed: in an attack, most responses are denials.
    fn quota_exceeded(&self, binding: &LimitStatus, wait: Option<u64>) -> LocalReply {
        let RateHeaderSource { policy, limits, statuses, .. } = self.headers;
        let name = |status: &LimitStatus| &*limits[status.policy].name;
        if let Some(custom) = &policy.custom.denied {
            let mut detail = Vec::new();
            push_quota_detail(&mut detail, name(binding), &binding.decision, wait);
            let detail = String::from_utf8_lossy(&detail);
            let wait = Some(wait.unwrap_or(NEVER));
            return self.custom(custom, StatusCode::TOO_MANY_REQUESTS, &detail, wait);
        }
        let mut body = Vec::with_capacity(384);
        body.extend_from_slice(
            concat!(
                r#"{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","#,
                r#""title":"Request cannot be satisfied as assigned quota has been exceeded","#,
                r#""status":"#,
            )
            .as_bytes(),
        );
        let status = self.denial_status(StatusCode::TOO_MANY_REQUESTS);
        body.extend_from_slice(status.as_str().as_bytes());
        body.extend_from_slice(br#","detail":""#);
        push_quota_detail(&mut body, name(binding), &binding.decision, wait);
        body.extend_from_slice(br#"","violated-policies":["#);
        let mut separator = "";
        for status in statuses.iter().filter(|status| !status.decision.allowed) {
            // Names of limits have no characters that JSON escapes.
            for part in [separator, "\"", name(status), "\""] {
                body.extend_from_slice(part.as_bytes());
            }
            separator = ",";
        }
        body.extend_from_slice(b"]}\n");
        reply(status, PROBLEM, body)
    }

    /// The status of a denial that usually has this one.
    fn denial_status(&self, usual: StatusCode) -> StatusCode {
        if let Some(DenyStatus::Status(status)) = self.deny_status { status } else { usual }
    }

    /// A response with this status: the operator's own, or a problem.
    fn explained(&self, status: StatusCode, detail: &str, wait: Option<u64>) -> LocalReply {
        match self.headers.policy.custom.of(status) {
            Some(custom) => self.custom(custom, status, detail, wait),
            None => problem_reply(self.denial_status(status), detail),
        }
    }

    /// The operator's own response in place of one with this status.
    fn custom(
        &self,
        custom: &CustomReply,
        status: StatusCode,
        detail: &str,
        wait: Option<u64>,
    ) -> LocalReply {
        let status = self.denial_status(custom.status.unwrap_or(status));
        let statuses = self.headers.statuses;
        let shown = || binding(statuses.iter().map(|status| &status.decision)).map(|index| &statuses[index]);
        let decision = self.denied_by.or_else(shown).map(|status| &status.decision);
        // Always numbers, so that a JSON body stays valid.
        let body = custom.body.fill(|field| match field {
            TemplateField::Status => status.as_str().to_owned(),
            TemplateField::Detail => detail.to_owned(),
            TemplateField::Limit => decision.map_or(0, |decision| decision.limit).to_string(),
            TemplateField::Remaining => decision.map_or(0, |decision| decision.remaining).to_string(),
            TemplateField::Reset => decision.map_or(0, |decision| self.headers.reset(decision)).to_string(),
            TemplateField::RetryAfter => wait.unwrap_or(0).to_string(),
            TemplateField::RequestId => self.id.as_str().to_owned(),
        });
        reply(status, custom.content_type.as_bytes(), body)
    }
}

/// Writes why a limit denies a request. Names of limits have no characters that JSON escapes.
fn push_quota_detail(out: &mut Vec<u8>, limit: &str, decision: &Decision, wait: Option<u64>) {
    match wait {
        Some(wait) => {
            let unit = if wait == 1 { "second" } else { "seconds" };
            let state = match decision.reason {
                DenyReason::Ban => "bans this client for too many denied requests",
                DenyReason::Quota | DenyReason::Block => "is used up",
            };
            for part in ["the limit ", limit, " ", state, "; try again in "] {
                out.extend_from_slice(part.as_bytes());
            }
            push_decimal(out, wait);
            out.push(b' ');
            out.extend_from_slice(unit.as_bytes());
        }
        None => {
            // Writing to memory can't fail.
            let _ = write!(out, "this request costs more than the limit {limit} can ever allow");
        }
    }
}

/// Whether a block denies the request, not the quota.
fn is_blocked(status: &LimitStatus) -> bool {
    !status.decision.allowed && status.decision.reason == DenyReason::Block
}

/// Closes the connection instead of a response: the reply has only the status for logs and metrics.
fn closed() -> LocalReply {
    let status = StatusCode::from_u16(CLOSED).unwrap_or(StatusCode::TOO_MANY_REQUESTS);
    let response = LocalReply::new(ResponseHead::new(status), BodySource::Local(Bytes::new()));
    LocalReply { closes: true, ..response }
}

/// A problem+json response without a type of its own (RFC 9457).
fn problem_reply(status: StatusCode, detail: &str) -> LocalReply {
    let title = status.canonical_reason().unwrap_or("Error");
    // Escapes the detail for JSON: it may contain names from the request.
    let detail = serde_json::Value::from(detail);
    let body = format!(
        "{{\"type\":\"about:blank\",\"title\":\"{title}\",\"status\":{},\"detail\":{detail}}}\n",
        status.as_u16()
    );
    reply(status, PROBLEM, body)
}

/// A response from the proxy itself, with this body.
pub(super) fn reply(status: StatusCode, content_type: &[u8], body: impl Into<Bytes>) -> LocalReply {
    let mut head = ResponseHead::new(status);
    head.fields.push(CONTENT_TYPE, content_type);
    LocalReply::new(head, BodySource::Local(body.into()))
}
