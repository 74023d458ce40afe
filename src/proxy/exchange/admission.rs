//! The admission of a request to an upstream with `overload`, as far as its limits are concerned: they are not asked about a
//! request that is refused at once, and give back what they have charged for one that is refused after it has waited.

use std::borrow::Cow;

use http::Method;

use super::Exchange;
use crate::gate::{ClassInput, RequestPlan};
use crate::http1::RequestHead;
use crate::http1::names::MAX_FORWARDS;
use crate::limiter::Limits;
use crate::overload::Arrival;
use crate::proxy::authorization::{AuthorizationError, AuthorizationOrder};
use crate::proxy::rejection::Rejection;
use crate::proxy::route_action::{AuthorizedTarget, ForwardTarget, Target};
use crate::upstream::{AdmissionRequest, ForwardError};

impl<'p> Exchange<'p> {
    /// How the request is admitted to its upstream, if that has `overload`. Rejects it if it would be refused at once.
    #[inline]
    pub(super) fn admission(
        &mut self,
        head: &RequestHead,
        plan: &RequestPlan<'_>,
    ) -> Result<Option<AdmissionRequest>, Rejection> {
        let action = self.proxy.snapshot.action(plan.matched.route);
        match action.and_then(|action| action.target.forwarding()) {
            Some(target) if target.admission.is_some() => self.admission_to(target, head, plan),
            _ => Ok(None),
        }
    }

    fn admission_to(
        &mut self,
        target: &ForwardTarget,
        head: &RequestHead,
        plan: &RequestPlan<'_>,
    ) -> Result<Option<AdmissionRequest>, Rejection> {
        // Such requests are not forwarded.
        let is_rejected = plan.identity.error.is_some() || plan.refused.is_some() || plan.missing.is_some();
        let rule = target.admission.as_deref().filter(|_| !is_rejected && !self.decision.is_authorization());
        let Some(rule) = rule else { return Ok(None) };
        let (proxy, gate) = (self.proxy, &self.proxy.snapshot.gate);
        let Arrival { class, key } = rule.arrival(gate, self.client.identity(), head, plan);
        let request = AdmissionRequest { key, class, route: rule.route };
        if head.fields.contains(MAX_FORWARDS) && matches!(head.method, Method::OPTIONS | Method::TRACE) {
            // The proxy itself may respond.
            return Ok(Some(request));
        }
        let refused = proxy.upstreams[target.upstream].refuse_at_once(request, || self.record.attempts(None));
        if let Err(error) = refused {
            self.describe_match(head, Some(&plan.matched));
            return Err(Rejection::Upstream(error));
        }
        Ok(Some(request))
    }

    /// The limits of the request; all of its units can be refunded if it may have to wait for its admission to an upstream after they
    /// were charged.
    #[inline]
    pub(super) fn limits(
        &self,
        head: &RequestHead,
        plan: &RequestPlan<'_>,
        admission: Option<AdmissionRequest>,
    ) -> Cow<'p, Limits> {
        let limits = &self.proxy.snapshot.gate.limits;
        let target = self.proxy.snapshot.action(plan.matched.route).map(|action| &action.target);
        let waits = match (target, admission) {
            (Some(Target::Forward(target)), Some(admission)) => {
                self.proxy.upstreams[target.upstream].may_have_to_wait(admission.class)
            }
            (Some(Target::Authorize(target)), _) => self.may_wait_if_authorized(target, head, plan),
            _ => false,
        };
        if waits { Cow::Owned(limits.refundable()) } else { Cow::Borrowed(limits) }
    }

    /// Whether a request may have to wait for its admission to its upstream, or to an authorization server that is asked after its
    /// limits.
    fn may_wait_if_authorized(
        &self,
        AuthorizedTarget { rule, target }: &AuthorizedTarget,
        head: &RequestHead,
        plan: &RequestPlan<'_>,
    ) -> bool {
        let gate = &self.proxy.snapshot.gate;
        let (class, _) = gate.class(&ClassInput {
            route: plan.matched.route.map(|id| gate.routes.get(id)),
            peer: self.client.identity().address,
            head,
            consumer: plan.identity.consumer.as_deref(),
        });
        let waits = |upstream| self.proxy.upstreams[upstream].may_have_to_wait(class);
        waits(target.upstream) || rule.order == AuthorizationOrder::AfterLimits && waits(rule.upstream)
    }

    /// Has the charges of the request given back if it was refused after they were made.
    pub(super) fn refund(&mut self, rejection: &Rejection) {
        if let Rejection::Upstream(ForwardError::Overloaded(_))
        | Rejection::AuthorizationFailed(AuthorizationError::NoResponse(ForwardError::Overloaded(_))) =
            rejection
            && let Some(pending) = &mut self.pending
        {
            pending.refuse();
        }
    }
}
