//! The step authorize: an authorization server allows a request before its limits are decided, or after them.

use futures_util::future::LocalBoxFuture;

use super::Exchange;
use crate::gate::RequestPlan;
use crate::http1::RequestHead;
use crate::limiter::{Denial, Permit};
use crate::proxy::authorization::{AuthorizationOrder, AuthorizationRule, CopiedHeaders};
use crate::proxy::authorize::Authorization;
use crate::proxy::client_body::ClientBody;
use crate::proxy::forward::ForwardPlan;
use crate::proxy::forward_auth::ForwardAuth;
use crate::proxy::local_reply::LocalReply;
use crate::proxy::max_forwards;
use crate::proxy::read_missing::{ReadParts, Unread, check_in_process, read_missing};
use crate::proxy::rejection::Rejection;
use crate::proxy::request_decision::RequestDecision;
use crate::proxy::route_action::{AuthorizedTarget, RouteAction, Target};

impl Exchange<'_> {
    /// Makes this the decision on an original request, which the trusted proxy serves if it is allowed. Method and body are those
    /// of the authorization request, and the response is for the trusted proxy.
    #[cold]
    pub(super) fn set_authorization(&mut self, settings: ForwardAuth, is_head: bool) {
        self.decision = RequestDecision::of_authorization(settings);
        (self.is_head, self.is_grpc, self.cors, self.body) = (is_head, false, None, ClientBody::None);
        self.record.set_interface(self.decision.interface());
    }

    /// Has the request authorized, if that comes before its limits, and then reads what its plan lacks. In a box, because few
    /// requests wait for it.
    pub(super) fn complete<'f>(
        &'f mut self,
        head: &'f RequestHead,
        partial: &'f RequestPlan<'_>,
    ) -> LocalBoxFuture<'f, Result<ReadParts, Rejection>> {
        Box::pin(async move {
            let read = match self.authorize_first(head, partial).await {
                Ok(copied) => {
                    let read = read_missing(self.proxy, self.client, (head, &mut self.body), partial).await;
                    read.map(|read| read.with_headers(copied))
                }
                Err(why) => Err(why),
            };
            read.map_err(|why| self.unread(head, partial, why))
        })
    }

    /// Records what is known of a request that is rejected before all that its plan needs is read.
    #[cold]
    fn unread(&mut self, head: &RequestHead, partial: &RequestPlan<'_>, why: Unread) -> Rejection {
        let denied = match why {
            Unread::Rejected(rejection) => {
                self.describe_match(head, Some(&partial.matched));
                return rejection;
            }
            Unread::Denied(admission, stopwatch) => {
                self.route = partial.matched.route;
                self.record_admission(head, partial, *admission, stopwatch)
            }
        };
        denied.err().unwrap_or(Rejection::Denied(Denial::Limited))
    }

    /// Has the request authorized, if that comes before its limits and those that its head decides do not deny it.
    async fn authorize_first(
        &mut self,
        head: &RequestHead,
        partial: &RequestPlan<'_>,
    ) -> Result<Option<CopiedHeaders>, Unread> {
        let snapshot = &self.proxy.snapshot;
        let rule = snapshot.action(partial.matched.route).and_then(|action| action.target.authorization());
        let Some(rule) = rule.filter(|rule| rule.order == AuthorizationOrder::BeforeLimits) else {
            return Ok(None);
        };
        check_in_process(self.proxy, partial)?;
        let Some(plan) = ForwardPlan::new(snapshot, self.client, head, partial, None) else {
            return Ok(None);
        };
        self.authorize(rule, &plan, head).await.map(Some).map_err(Unread::Rejected)
    }

    async fn authorize(
        &mut self,
        rule: &AuthorizationRule,
        plan: &ForwardPlan,
        head: &RequestHead,
    ) -> Result<CopiedHeaders, Rejection> {
        let (proxy, client) = (self.proxy, self.client);
        let trace = self.record.attempts(None).trace;
        Authorization { proxy, client, id: &self.id, plan, trace }.run(rule, head).await
    }

    /// Has the request authorized, if that comes after its limits, and sets the headers of the decision in it.
    async fn authorize_last(
        &mut self,
        rule: &AuthorizationRule,
        plan: &ForwardPlan,
        head: &mut RequestHead,
    ) -> Result<(), Rejection> {
        if rule.order == AuthorizationOrder::AfterLimits {
            self.authorize(rule, plan, head).await?.apply(&mut head.fields);
        }
        Ok(())
    }

    /// Forwards a request if it is authorized.
    pub(super) async fn forward_authorized(
        &mut self,
        permit: Permit,
        AuthorizedTarget { rule, target }: &AuthorizedTarget,
        plan: &ForwardPlan,
        mut head: Box<RequestHead>,
    ) -> Result<LocalReply, Rejection> {
        self.authorize_last(rule, plan, &mut head).await?;
        if let Some(reply) = max_forwards::decrement(&mut head)? {
            return Ok(reply);
        }
        let of_route = &self.proxy.snapshot.actions[plan.route].request_headers;
        let edits = of_route.keeping(&rule.copy, &head.fields);
        self.forwarded(permit, &edits).forward(target, plan, head).await
    }

    /// The decision on an original request, which the trusted proxy forwards: with the headers that the authorization server
    /// sets. One that it does not set is empty, so that a proxy which copies it replaces that of its client.
    pub(super) async fn decide(
        &mut self,
        action: &RouteAction,
        plan: &ForwardPlan,
        mut head: Box<RequestHead>,
    ) -> Result<LocalReply, Rejection> {
        let Target::Authorize(authorized) = &action.target else {
            return self.decision.decide(self.proxy, action, plan);
        };
        self.authorize_last(&authorized.rule, plan, &mut head).await?;
        let mut response = self.decision.decide(self.proxy, action, plan)?;
        for name in &*authorized.rule.copy {
            let values: Vec<&[u8]> = head.fields.get_all(name).collect();
            response.head.fields.set(name, &values.join(&b", "[..]));
        }
        Ok(response)
    }
}
