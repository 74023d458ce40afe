//! Forwarding a request: from the head of the client to a response that is valid for the client. What forwarding needs of the
//! request's plan is owned: the plan borrows the head, which moves upstream.

use std::net::IpAddr;
use std::sync::Arc;

use super::client::ClientConnection;
use super::client_body::ClientBody;
use super::inbound::prepare_response;
use super::outbound::OutboundHead;
use super::rejection::Rejection;
use super::request_id::RequestId;
use super::response::ProxyResponse;
use super::response_body::BodySource;
use super::route_action::{ForwardTarget, HeaderEdits};
use super::settlement::{ResponseNeeds, hide_costs};
use super::snapshot::{ConfigSnapshot, Proxy};
use super::soft_headers::SoftHeaders;
use super::upgrade::Upgrade;
use super::{location, outbound};
use crate::body::ByteCount;
use crate::boxed::rare;
use crate::consumers::Consumer;
use crate::gate::{ClientLocation, RequestPlan, RouteId};
use crate::http1::RequestHead;
use crate::limiter::Permit;
use crate::upstream::{AdmissionRequest, AttemptLog, ForwardOptions, RequestBody, UpstreamRequest};

/// What a request takes upstream besides its head.
pub(super) struct ForwardedRequest<'e> {
    pub proxy: &'e Proxy,
    pub client: &'e ClientConnection,
    pub id: &'e RequestId,
    pub is_grpc: bool,
    pub permit: Permit,
    /// The changes to its headers.
    pub edits: &'e HeaderEdits,
    /// The headers of soft limits, if the configuration has any.
    pub soft: Option<&'e SoftHeaders>,
    /// The body. On failure, its unread part is put back.
    pub body: &'e mut ClientBody,
    /// What the settlement of its limits needs of the response.
    pub needs: ResponseNeeds,
    /// Counts the bytes of the body, if a settlement may need them.
    pub received: Option<ByteCount>,
    /// Where the attempts are recorded.
    pub log: AttemptLog<'e>,
}

impl ForwardedRequest<'_> {
    /// Forwards the request to an upstream.
    pub async fn forward(
        self,
        target: &ForwardTarget,
        plan: &ForwardPlan,
        mut head: Box<RequestHead>,
    ) -> Result<ProxyResponse<BodySource>, Rejection> {
        let Self { proxy, client, permit, .. } = self;
        let ForwardTarget { upstream, rewrite, upgrades, .. } = target;
        let is_http2 = proxy.snapshot.upstreams[*upstream].is_http2;
        // Over HTTP/2 servers know WebSockets alone, whose handshake has no body.
        let upgrade = Upgrade::requested(&head, upgrades).filter(|upgrade| {
            !is_http2 || matches!(upgrade, Upgrade::WebSocket { .. }) && self.body.is_none()
        });
        let outbound = OutboundHead {
            client,
            client_ip: &proxy.snapshot.gate.client_ip,
            plan,
            id: self.id,
            rewrite,
            pattern: &proxy.snapshot.gate.routes.get(plan.route).path,
            edits: self.edits,
            consumers: proxy.snapshot.consumer_forwarding.as_ref(),
            soft: self.soft,
            is_traced: proxy.tracer.is_some(),
            trace: self.log.trace.as_deref(),
            protected: &proxy.snapshot.protected_headers,
        };
        outbound.prepare(&mut head)?;
        self.needs.request(&mut head.fields);
        let upgrade = upgrade.inspect(|upgrade| upgrade.set_fields(&mut head.fields));
        // gRPC needs an upstream with HTTP/2. Its calls may be idle for long, so other timeouts apply to them.
        let is_grpc = self.is_grpc && is_http2;
        let body = match self.body.take(client, is_grpc) {
            Some(body) => {
                let body = outbound::limit_body(&proxy.snapshot, plan.route, body);
                rare(outbound::buffer_small_body(body, client, is_grpc)).await?
            }
            None => RequestBody::empty(),
        };
        let options = plan.options(proxy, client, target);
        let body = if upgrade.is_some() { body.of_upgrade() } else { body };
        let body = if let Some(received) = &self.received { body.counted(received) } else { body };
        let request = UpstreamRequest { interim: client.interim_of(&head).cloned(), head, body };
        let response = proxy.upstreams[*upstream].forward::<false>(permit, request, options, self.log).await;
        let mut response = response.map_err(Rejection::Upstream)?;
        location::apply(rewrite, &proxy.snapshot.upstreams[*upstream].servers, &mut response);
        let mut response = prepare_response(response, upgrade.as_ref())?;
        if self.received.is_none() {
            hide_costs(proxy, plan.route, &mut response);
        }
        Ok(response)
    }
}

/// Where an admitted request goes.
#[derive(Debug)]
pub(super) struct ForwardPlan {
    pub route: RouteId,
    /// The client's whole address.
    pub client: IpAddr,
    /// The normalized path, where it differs from the path as sent.
    pub path: Option<String>,
    /// The consumer, if there is one.
    pub consumer: Option<Arc<Consumer>>,
    /// The hash that selects the server, where the upstream balances by a key.
    pub balance_hash: Option<u64>,
    /// How the request is admitted, where the upstream has `overload`.
    pub admission: Option<AdmissionRequest>,
}

impl ForwardPlan {
    /// How the request is sent to this target.
    #[inline]
    fn options<'t>(
        &'t self,
        proxy: &Proxy,
        client: &ClientConnection,
        target: &'t ForwardTarget,
    ) -> ForwardOptions<'t> {
        // Over HTTP/1.1 the client's connection itself enforces the minimum rate and polls the upload.
        ForwardOptions {
            client: proxy.snapshot.gate.client_ip.counted(self.client),
            host: &target.rewrite.host,
            policy: &target.policy,
            is_reclaimable: client.is_multiplexed() && client.has_min_body_rate(),
            polls_upload: !client.is_multiplexed(),
            hash_key: self.balance_hash,
            admission: self.admission.as_ref(),
        }
    }

    /// The plan of a request that matches a route.
    #[inline]
    pub fn new(
        snapshot: &ConfigSnapshot,
        client: &ClientConnection,
        head: &RequestHead,
        plan: &RequestPlan<'_>,
        admission: Option<AdmissionRequest>,
    ) -> Option<Self> {
        let route = plan.matched.route?;
        let balance_hash = match snapshot.actions[route].target.forwarding() {
            Some(ForwardTarget { key: Some(key), .. }) => {
                let gate = &snapshot.gate;
                let location = ClientLocation::new(plan.client, gate.geo.as_deref());
                key.balance_hash(
                    &gate.planned_subject(client.identity(), head, plan, &location),
                    &gate.hasher,
                )
            }
            _ => None,
        };
        let path = plan.matched.path.changed().map(str::to_owned);
        let consumer = plan.identity.consumer.clone();
        Some(Self { route, client: plan.client, path, consumer, balance_hash, admission })
    }
}
