//! Through which interface a request came, and how it is decided.

use super::forward::ForwardPlan;
use super::forward_auth::ForwardAuth;
use super::local_reply::LocalReply;
use super::original_request;
use super::rejection::Rejection;
use super::route_action::RouteAction;
use super::snapshot::Proxy;
use super::soft_headers::SoftHeaders;
use crate::http1::{RequestHead, ResponseHead};
use crate::limiter::{Admission, Limits};
use crate::telemetry::{Counts, Interface, Verdict};

/// Through which interface a request came, and how it is decided.
#[derive(Debug, Default)]
pub(super) struct RequestDecision {
    /// How the decision is returned, if this is an authorization request.
    forward_auth: Option<ForwardAuth>,
    is_authorization: bool,
    /// None before the decision, and for a request that needs none.
    verdict: Option<Verdict>,
    /// The headers of soft limits, if the configuration has any and the limits allow the request.
    soft: Option<Box<SoftHeaders>>,
}

impl RequestDecision {
    /// Of an authorization request.
    pub fn of_authorization(settings: ForwardAuth) -> Self {
        Self { forward_auth: Some(settings), is_authorization: true, ..Self::default() }
    }

    /// The interface through which the request came.
    pub fn interface(&self) -> Interface {
        if self.is_authorization { Interface::ForwardAuth } else { Interface::Proxy }
    }

    /// Whether this is an authorization request, which gets the decision and is not served.
    pub fn is_authorization(&self) -> bool {
        self.is_authorization
    }

    /// Whether the trusted proxy serves the request now, so that its final status stays unknown.
    pub fn is_served_elsewhere(&self) -> bool {
        self.is_authorization && self.verdict == Some(Verdict::Allowed)
    }

    /// Records whether limits allow the request.
    #[inline]
    pub fn admit(&mut self, limits: &Limits, admission: &Admission) {
        self.verdict = admission.verdict.is_ok().then_some(Verdict::Allowed);
        self.soft = SoftHeaders::of(limits, admission);
    }

    /// The headers of soft limits, if the configuration has any and the limits allow the request.
    pub fn soft(&self) -> Option<&SoftHeaders> {
        self.soft.as_deref()
    }

    /// Records a rejection.
    pub fn reject(&mut self, rejection: &Rejection) {
        self.verdict = rejection.verdict().or(self.verdict);
        if let Rejection::ForwardAuth(_) = rejection {
            // This is no decision, so it has its own status.
            self.forward_auth = None;
        }
    }

    /// The rejection of a request that matches no route.
    #[cold]
    pub fn no_route(&self, head: &RequestHead) -> Rejection {
        // The trusted proxy may forward `OPTIONS *` to a server.
        if self.is_authorization { Rejection::NoRoute } else { Rejection::no_route(head) }
    }

    /// The decision on a request that its limits allow. Rejects a route that denies its requests.
    #[cold]
    pub fn decide(
        &mut self,
        proxy: &Proxy,
        action: &RouteAction,
        plan: &ForwardPlan,
    ) -> Result<LocalReply, Rejection> {
        let forwarding = proxy.snapshot.consumer_forwarding.as_ref();
        let mut response = original_request::decide(action, forwarding, plan.consumer.as_deref())?;
        if !response.head.status.is_success() {
            self.verdict = Some(Verdict::Denied);
        }
        if let Some(soft) = self.soft.take() {
            soft.add_to_decision(&mut response.head.fields);
        }
        action.response_headers.apply(&mut response.head.fields);
        Ok(response)
    }

    /// Counts the request, and completes the response to an authorization request that is denied.
    pub fn finish(&self, counts: &Counts, response: Option<&mut ResponseHead>) {
        let Some(verdict) = self.verdict else { return };
        counts.record_request(self.interface(), verdict);
        if let (Some(settings), Some(head)) = (self.forward_auth, response)
            && verdict != Verdict::Allowed
        {
            settings.deny(head);
        }
    }
}
