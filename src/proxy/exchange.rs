//! The request pipeline: one request, from its head to its response.
//!
//! Steps, in order: normalize, begin, challenge, preflight, plan, admit, wait, authorize, dispatch, settle, finish; with
//! `order = "before_limits"` the step authorize is a part of plan. A step that ends the request early returns a [`Rejection`], which becomes a response in [`Exchange::reject`] and nowhere else. No rejections are a CORS
//! preflight, a route with `respond`, and an OPTIONS request whose Max-Forwards is used up: their responses are made in the
//! steps challenge, preflight and dispatch.

mod admission;
mod authorize;
mod unplanned;

use bytes::Bytes;
use http::{Method, StatusCode};

use super::cors::{CorsRequest, CorsRules};
use super::forward::{ForwardPlan, ForwardedRequest};
use super::inbound::accept_upgrade;
use super::local_reply::{self, RejectedRequest, RejectionContext};
use super::read_missing::{ReadParts, replan};
use super::response_body::{BodySource, ReplyBody, RequestTiming};
use super::settlement::{self, Pending, ResponseNeeds, SettledRequest};
use super::snapshot::Proxy;
use super::{client::ClientConnection, client_body::ClientBody, grpc_error::to_grpc_error, http2::Connect};
use super::{decision_counts, early_reply, grpc, http2, max_forwards, original_request, own_limits, tunnel};
use super::{log_entry::PlannedRequest, rate_headers::RateHeaderSource, response::ProxyResponse};
use super::{rejection::Rejection, request_decision::RequestDecision, request_id::RequestId};
use super::{request_record::RequestRecord, route_action::HeaderEdits, route_action::Target};
use crate::boxed::rare;
use crate::gate::{RequestError, RequestPlan, RouteId};
use crate::http1::{RequestHead, ResponseHead};
use crate::id_vec::Id as _;
use crate::limiter::{Admission, LimitStatuses, Permit, StatusSource};
use crate::telemetry::{DecisionSource, RequestCounts};
use crate::time::{Micros, Stopwatch};
use crate::upstream::AdmissionRequest;

/// One request and what is known of it, until its response is handed to the client's connection. If it is dropped before
/// that, the client has disconnected, which is counted and logged.
pub(super) struct Exchange<'p> {
    proxy: &'p Proxy,
    client: &'p ClientConnection,
    id: RequestId,
    stopwatch: Stopwatch,
    is_head: bool,
    is_grpc: bool,
    /// The body, until it is sent upstream.
    body: ClientBody,
    connect: Option<Connect>,
    decision: RequestDecision,
    route: Option<RouteId>,
    record: RequestRecord,
    /// For the CORS headers of the response, where there are any.
    cors: Option<Box<CorsRequest<'p>>>,
    /// The state of each limit that applies to the request.
    statuses: LimitStatuses,
    status_source: StatusSource,
    /// The `Retry-After` of a denial, in seconds.
    retry_after: Option<u64>,
    /// Units that limits reserve until the response is known.
    pending: Option<Box<Pending>>,
    is_finished: bool,
}

/// A request that the limits allow: where to forward it, and after which delay.
struct AdmittedRequest {
    plan: Option<ForwardPlan>,
    permit: Permit,
    delay: Micros,
}

/// Serves a request; `connect` is given for a CONNECT over HTTP/2.
pub async fn serve(
    proxy: &Proxy,
    client: &ClientConnection,
    mut head: Box<RequestHead>,
    body: ClientBody,
    connect: Option<Connect>,
) -> ProxyResponse {
    let normalized = http2::normalize(&mut head, connect.as_ref(), client.max_headers());
    let (forward_auth, is_head) =
        (original_request::settings(proxy, client, &head), head.method == Method::HEAD);
    let (mut refused, mut scheme) = (None, Some(client.scheme()));
    if forward_auth.is_some() && normalized.is_ok() {
        (scheme, refused) = original_request::restore(proxy, client, &mut head, connect.is_some());
    }
    let mut exchange = Exchange::begin(proxy, client, &head, scheme);
    (exchange.body, exchange.connect) = (body, connect);
    if let Some(settings) = forward_auth {
        exchange.set_authorization(settings, is_head);
    } else if early_reply::is_possible(proxy, client)
        && let Some(response) = early_reply::reply(proxy, client, &head).await
    {
        exchange.describe_match(&head, None);
        if exchange.has_unread_body(&response) {
            rare(std::mem::take(&mut exchange.body).drain()).await;
        }
        return exchange.finish(response);
    }
    let result = match refused {
        Some(rejection) => Err(exchange.rejected(&head, None, *rejection)),
        None => exchange.run(normalized, head).await,
    };
    let mut response = result.unwrap_or_else(|rejection| exchange.reject(&rejection));
    if let Some(pending) = exchange.pending.take()
        && !exchange.decision.is_served_elsewhere()
    {
        let settled = settlement::respond(pending, response, exchange.is_grpc, &mut exchange.statuses);
        let charged;
        (response, charged) = rare(settled).await;
        exchange.record.add_costs(&charged);
    }
    if exchange.has_unread_body(&response) {
        rare(std::mem::take(&mut exchange.body).drain()).await;
    }
    exchange.finish(response)
}

impl<'p> Exchange<'p> {
    /// Starts the request's record, and copies what is needed of the head after it has moved upstream.
    fn begin(
        proxy: &'p Proxy,
        client: &'p ClientConnection,
        head: &RequestHead,
        scheme: Option<&'static str>,
    ) -> Self {
        let id = RequestId::new(&head.fields, proxy.trusts(client.ip()));
        let record = RequestRecord::begin(proxy, client, (head, scheme), &id);
        let cors = proxy.snapshot.cors.as_deref().map(|rules| Box::new(CorsRequest::new(rules, head)));
        Self {
            proxy,
            client,
            id,
            stopwatch: Stopwatch::start(),
            is_head: head.method == Method::HEAD,
            is_grpc: grpc::is_call(head),
            body: ClientBody::None,
            connect: None,
            decision: RequestDecision::default(),
            route: None,
            record,
            cors,
            statuses: LimitStatuses::new(),
            status_source: StatusSource::Store,
            retry_after: None,
            pending: None,
            is_finished: false,
        }
    }

    /// Runs the steps from plan to dispatch.
    async fn run(
        &mut self,
        normalized: Result<(), RequestError>,
        mut head: Box<RequestHead>,
    ) -> Result<ProxyResponse<BodySource>, Rejection> {
        if let Err(error) = normalized {
            return Err(self.rejected(&head, None, error.into()));
        }
        if let Some(rules) = self.proxy.snapshot.cors.as_deref().filter(|_| self.cors.is_some())
            && let Some(response) = self.preflight(rules, &head)
        {
            return Ok(response);
        }
        let AdmittedRequest { plan, permit, delay } = {
            // The plan borrows the head, which moves upstream: it ends here, and its result is a `ForwardPlan`.
            let (proxy, mut fields) = (self.proxy, None);
            let parts: Box<ReadParts>;
            // A plan is large, so it stays where it is made.
            let mut planned = proxy.snapshot.gate.plan(self.client.identity(), &head, None);
            if let Ok(partial) = &planned
                && partial.is_partial
            {
                parts = Box::new(self.complete(&head, partial).await?);
                drop(planned);
                parts.set_headers(&mut head);
                planned = replan(proxy, self.client, &head, &parts);
                fields = parts.fields.as_ref();
            }
            let plan = planned.as_mut().map_err(|why| self.rejected(&head, fields, why.clone().into()))?;
            self.route = plan.matched.route;
            let admission = self.admission(&head, plan)?;
            let (permit, delay) = self.admit(&head, plan, admission).await?;
            if let Some(rejection) = Rejection::of_plan(plan) {
                return Err(rejection);
            }
            let plan = ForwardPlan::new(&self.proxy.snapshot, self.client, &head, plan, admission);
            AdmittedRequest { plan, permit, delay }
        };
        self.client.wait(delay, &self.proxy.counts).await;
        let Some(plan) = plan else { return Err(self.decision.no_route(&head)) };
        // Part of this function, because each layer of futures costs every request.
        let action = &self.proxy.snapshot.actions[plan.route];
        let mut response = match &action.target {
            _ if self.decision.is_authorization() => return rare(self.decide(action, &plan, head)).await,
            Target::Respond { status, body } => {
                local_reply::reply(*status, b"text/plain; charset=utf-8", body.clone())
            }
            Target::Redirect(to) => early_reply::of_route(to, (self.proxy, self.client), &head, plan.route),
            Target::Limits => own_limits::reply(&self.proxy.limiter, self.rate_headers(), self.status_source),
            Target::Block => return Err(Rejection::BlockedByRoute),
            Target::Decide(_) => return Err(Rejection::NoRoute),
            Target::Authorize(to) => rare(self.forward_authorized(permit, to, &plan, head)).await?,
            Target::Forward(target) => match max_forwards::decrement(&mut head)? {
                Some(reply) => reply,
                None => self.forwarded(permit, &action.request_headers).forward(target, &plan, head).await?,
            },
        };
        action.response_headers.apply(&mut response.head.fields);
        Ok(response)
    }

    /// The response to a CORS preflight, which no limit counts, and which browsers send without credentials.
    #[inline(never)]
    fn preflight(&mut self, rules: &CorsRules, head: &RequestHead) -> Option<ProxyResponse<BodySource>> {
        let preflight = rules.preflight(&self.proxy.snapshot.gate, self.client.identity(), head)?;
        self.cors = None;
        self.describe_match(head, preflight.matched.as_ref());
        let mut response =
            ProxyResponse::new(ResponseHead::new(StatusCode::NO_CONTENT), BodySource::Local(Bytes::new()));
        self.edit_local_reply(&mut response);
        preflight.write(head, &mut response.head.fields);
        Some(response)
    }

    /// Checks the limits, and rejects an authorization request without an original request. Returns the permit,
    /// and the delay of a limit that shapes traffic.
    async fn admit(
        &mut self,
        head: &RequestHead,
        plan: &RequestPlan<'_>,
        admission: Option<AdmissionRequest>,
    ) -> Result<(Permit, Micros), Rejection> {
        let settings = self.proxy.forward_auth(plan.matched.route);
        if let Some(settings) = settings.filter(|_| !self.decision.is_authorization()) {
            self.set_authorization(settings, self.is_head);
            return Err(original_request::missing(self.proxy, self.client, head, self.connect.is_some()));
        }
        let stopwatch = Stopwatch::start();
        let limits = self.limits(head, plan, admission);
        let admission = if own_limits::only_shows_limits(&self.proxy.snapshot, plan) {
            rare(self.proxy.limiter.show(&limits, &plan.charges)).await
        } else {
            self.proxy.limiter.decide(&limits, &plan.charges).await
        };
        self.record_admission(head, plan, admission, stopwatch)
    }

    /// Records the decision of the limits, for which `stopwatch` was started.
    #[inline]
    fn record_admission(
        &mut self,
        head: &RequestHead,
        plan: &RequestPlan<'_>,
        admission: Admission,
        stopwatch: Stopwatch,
    ) -> Result<(Permit, Micros), Rejection> {
        decision_counts::record(&self.proxy.counts, plan, stopwatch);
        let request = PlannedRequest { gate: &self.proxy.snapshot.gate, client: self.client, head, plan };
        decision_counts::record_keys(self.proxy, &request, &admission);
        self.record.describe(&request, &admission);
        self.decision.admit(&self.proxy.snapshot.gate.limits, &admission);
        let Admission { verdict, reservation, delay, .. } = admission;
        self.statuses = admission.statuses;
        self.status_source = admission.source;
        if let Some(reservation) = reservation {
            let request = SettledRequest::new(head, plan.body, self.stopwatch, self.is_head);
            self.pending = Some(Box::new(Pending::new(self.proxy, self.route, reservation, request)));
        }
        verdict.map(|permit| (permit, delay)).map_err(Rejection::Denied)
    }

    fn forwarded<'f>(&'f mut self, permit: Permit, edits: &'f HeaderEdits) -> ForwardedRequest<'f> {
        ForwardedRequest {
            proxy: self.proxy,
            client: self.client,
            id: &self.id,
            is_grpc: self.is_grpc,
            permit,
            edits,
            soft: self.decision.soft(),
            body: &mut self.body,
            needs: self.pending.as_deref().map(ResponseNeeds::of).unwrap_or_default(),
            received: self.pending.as_deref().map(|pending| pending.request.usage.received.clone()),
            log: self.record.attempts(self.pending.as_deref_mut().and_then(Pending::delivery_mut)),
        }
    }

    /// Makes the response to a rejected request. Status, headers, body, log and counters all follow from the rejection.
    fn reject(&mut self, rejection: &Rejection) -> ProxyResponse<BodySource> {
        let gate = &self.proxy.snapshot.gate;
        if let Some((limit, outcome)) = rejection.decision() {
            self.proxy.counts.record_decision(limit, outcome, DecisionSource::Config);
        }
        if let Rejection::Upstream(error) = rejection {
            let route = self.route.map_or("", |route| &gate.routes.get(route).name);
            tracing::debug!(route, "{error}");
        }
        self.refund(rejection);
        self.decision.reject(rejection);
        self.record.describe_rejection(gate, rejection);
        let may_close = !self.is_grpc && !self.decision.is_authorization();
        let context = RejectionContext { gate, action: self.proxy.snapshot.action(self.route), may_close };
        let request = RejectedRequest::new(self.rate_headers(), &self.id, context, rejection);
        let wait = request.wait(rejection);
        let mut response = request.response(rejection, wait);
        let retry_after = |wait| self.proxy.snapshot.response_policy.retry_after(wait);
        self.retry_after = self.retry_after.or(wait.map(retry_after));
        self.edit_local_reply(&mut response);
        response
    }

    /// Makes the changes of the route to a response of the proxy itself, if they apply to such responses.
    fn edit_local_reply(&self, response: &mut ProxyResponse<BodySource>) {
        if let Some(action) = self.proxy.snapshot.action(self.route) {
            action.edit_local_reply(&mut response.head.fields);
        }
    }

    /// Whether the body of the request has to be read before this response.
    fn has_unread_body(&self, response: &ProxyResponse<BodySource>) -> bool {
        // curl 7.88 misses a response without a body that arrives while it is still sending.
        !self.body.is_none() && response.body.is_empty() && !response.closes
    }

    /// Completes the response for the client. The record moves into the body, which finishes it at its end.
    fn finish(&mut self, mut response: ProxyResponse<BodySource>) -> ProxyResponse {
        self.rate_headers().write(&mut response.head.fields, self.retry_after);
        let edits = self.proxy.snapshot.action(self.route).map(|action| &action.response_headers);
        self.id.add_to(&mut response.head.fields, edits);
        if self.client.is_multiplexed() {
            http2::drop_forbidden_body(&mut response, self.is_head);
        }
        let stream = self.connect.take().map(|connect| connect.stream);
        let server = accept_upgrade(&mut response, stream.is_some()).unwrap_or_else(|rejection| {
            response = self.reject(&rejection);
            None
        });
        if let Some(cors) = &self.cors {
            cors.write(self.route, &mut response.head.fields);
        }
        self.is_finished = true;
        self.counts().record_response(response.head.status);
        self.record.set_status(response.head.status);
        // It lasts until the end of the body.
        let mut record = std::mem::take(&mut self.record);
        self.decision.finish(&self.proxy.counts, Some(&mut response.head));
        if self.is_grpc {
            to_grpc_error(&mut response);
        }
        let timeout = self.client.tunnel_timeout();
        let tunnel =
            server.and_then(|server| tunnel::start(*server, timeout, std::mem::take(&mut record), stream));
        let timing = RequestTiming { stopwatch: self.stopwatch, counts: self.counts().clone() };
        let ProxyResponse { head, body, is_over_capacity, closes, .. } = response;
        ProxyResponse { head, body: ReplyBody::new(body, record, timing), is_over_capacity, closes, tunnel }
    }

    fn rate_headers(&self) -> RateHeaderSource<'_> {
        RateHeaderSource::new(&self.proxy.snapshot, &self.statuses, &self.proxy.clock)
            .with_soft(self.decision.soft())
    }

    fn counts(&self) -> &RequestCounts {
        self.proxy.counts.requests(self.route.map(RouteId::index))
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        if let Some(pending) = &mut self.pending {
            pending.abandon();
            self.record.add_costs(&pending.charged());
        }
        self.decision.finish(&self.proxy.counts, None);
        self.counts().record_disconnect();
        self.record.finish(false);
    }
}
