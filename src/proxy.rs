//! THE straight line of a request: admit, forward, stamp.

mod active;
mod call_body;
mod client;
mod client_body;
mod forwarded;
mod grpc;
mod hop;
mod http2;
mod inbound;
mod local_reply;
mod log_entry;
mod max_forwards;
mod outbound;
mod protected;
mod reply;
mod request_id;
mod response;
mod response_policy;
mod route_action;
mod stamp;
mod tunnel;
mod via;
mod websocket;

use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use http::Method;
use hyper::ext::Protocol;

pub use active::{ActiveProxy, ProxyConfig};
pub use client::{ClientConnection, ClientTimes};
pub use client_body::ClientBody;
pub use hop::{normalize_length, remove_hop_by_hop, takes_trailers};
pub use http2::Connect;
pub use protected::protected_headers;
pub use reply::ReplyBody;
pub use response::ProxyResponse;
pub use response_policy::{CustomDenied, Escaping, RateHeaders, ResponsePolicy, Template};
pub use route_action::{HeaderEdits, Rewrite, RouteAction, Target};
pub use tunnel::Tunnel;

use self::call_body::settle;
use self::inbound::{carried, returned};
use self::log_entry::LogEntry;
use self::outbound::Outgoing;
use self::reply::{BodySource, ResponseGuard, Timing};
use self::request_id::{RequestId, X_REQUEST_ID};
use crate::gate::{Gate, RequestPlan, RouteId};
use crate::http1::{RequestHead, ResponseHead, names};
use crate::id_vec::IdVec;
use crate::limiter::{Admission, Denial, LimitStatus, Limiter, Permit};
use crate::telemetry::{AccessWriter, Counts, Forwarding, Outcome};
use crate::time::{Clock, Micros, cached_now, monotonic};
use crate::upstream::{
    ForwardError, ForwardOptions, HeaderScrub, RequestBody, Upstream, UpstreamId, UpstreamRequest,
    UpstreamSpec,
};

/// Everything that a worker needs to serve: one snapshot of the configuration. Immutable.
#[derive(Debug)]
pub struct ConfigSnapshot {
    /// Who may pass.
    pub gate: Gate,
    /// What becomes of a request, by the route that it matches.
    pub treatments: IdVec<RouteId, RouteAction>,
    /// Where requests go.
    pub upstreams: IdVec<UpstreamId, UpstreamSpec>,
    /// What clients see.
    pub answers: ResponsePolicy,
    /// Headers that mean something to the proxy: their twins go to no server.
    pub protected: Arc<HeaderScrub>,
}

/// Where a request goes that was let pass.
struct ForwardPlan<'a> {
    route: RouteId,
    id: &'a RequestId,
    /// The client's whole address.
    client: IpAddr,
    /// Its normalized path, where that differs from what was sent.
    path: Option<String>,
    /// The number that chooses the server, where a key of the request does.
    choice: Option<u64>,
}

/// One worker's proxy, over one snapshot of the configuration.
#[derive(Debug)]
pub struct Proxy {
    site: Arc<ConfigSnapshot>,
    limiter: Limiter,
    upstreams: IdVec<UpstreamId, Rc<Upstream>>,
    access: Option<AccessWriter>,
    counts: Arc<Counts>,
    clock: Clock,
}

impl Proxy {
    /// Answers a request; over HTTP/2 `connect` says that it is a CONNECT.
    pub async fn handle(
        &self,
        peer: &ClientConnection,
        mut head: Box<RequestHead>,
        mut body: ClientBody,
        connect: Option<Connect>,
    ) -> ProxyResponse {
        let is_head = head.method == Method::HEAD;
        let is_call = grpc::is_call(&head);
        let protocol = connect.as_ref().and_then(|connect| connect.protocol.as_ref()).map(Protocol::as_str);
        let leveled = http2::normalize(&mut head, protocol, peer.max_headers());
        let id = RequestId::new(&head.fields, self.trusts(peer.ip()));
        let mut asked = ResponseGuard::new(self.entry(peer, &head, &id), &self.counts);
        let begun = cached_now();
        let mut response = match leveled {
            Ok(()) => {
                let (entry, route) = (asked.entry.as_deref_mut(), &mut asked.route);
                self.answer(peer, &id, head, &mut body, entry, route).await
            }
            Err(error) => {
                asked.route = self.note_malformed(peer, &head, &error, asked.entry.as_deref_mut());
                local_reply::malformed(&error).map(BodySource::Own)
            }
        };
        self.tell_id(&mut response.head, &id, asked.route);
        if let Some(reading) = body.read_on()
            && response.body.is_empty()
        {
            // curl 7.88 never notices a response without a body that comes while it still sends.
            reading.await;
        }
        if peer.is_multiplexed() {
            http2::cut_body(&mut response, is_head);
        }
        let (mut response, tunnel) = tunnel::switch(peer, response, connect, &mut asked.entry);
        let entry = asked.answer(response.head.status);
        if is_call {
            grpc::to_grpc_error(&mut response);
        }
        let timing = Timing { begun, counts: Arc::clone(&self.counts) };
        ProxyResponse { tunnel, ..response.map(|source| ReplyBody::new(source, entry, timing)) }
    }

    /// Tells the client what its request was called, unless a server or the route has something else to say there.
    fn tell_id(&self, head: &mut ResponseHead, id: &RequestId, route: Option<RouteId>) {
        let edits = route.map(|route| &self.site.treatments[route].response_headers);
        if !edits.is_some_and(|edits| edits.concern(&X_REQUEST_ID)) {
            head.fields.set_default(names::X_REQUEST_ID, id.as_bytes());
        }
    }

    /// Whether this address may speak for others.
    #[must_use]
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.site.gate.client_ip.is_trusted(address)
    }

    /// The client that connects from this address, as limits count it; none where it is a trusted proxy, behind which
    /// there may be many.
    #[must_use]
    pub fn client_at(&self, address: IpAddr) -> Option<IpAddr> {
        let client_ip = &self.site.gate.client_ip;
        (!client_ip.is_trusted(address)).then(|| client_ip.counted(address))
    }

    /// Closes connections to servers that are not needed any more.
    pub fn sweep(&self) {
        for upstream in &self.upstreams {
            upstream.sweep();
        }
    }

    /// Closes kept connections for which requests of other workers wait.
    pub fn make_room(&self) {
        for upstream in &self.upstreams {
            upstream.make_room();
        }
    }

    async fn answer(
        &self,
        peer: &ClientConnection,
        id: &RequestId,
        head: Box<RequestHead>,
        incoming: &mut ClientBody,
        mut entry: Option<&mut LogEntry>,
        route: &mut Option<RouteId>,
    ) -> ProxyResponse<BodySource> {
        let gate = &self.site.gate;
        let mut examined = match gate.plan(peer.caller(), &head) {
            Ok(examined) => examined,
            Err(error) => {
                *route = self.note_malformed(peer, &head, &error, entry);
                return local_reply::malformed(&error).map(BodySource::Own);
            }
        };
        *route = examined.route;
        examined.exempt.iter().for_each(|limit| self.counts.decided(*limit, Outcome::Exempt));
        let ruling = self.limiter.decide(&gate.limits, &examined.charges).await;
        if let Some(entry) = &mut entry {
            self.describe(&mut entry.record, &examined, &ruling);
        }
        let Admission { verdict, reservation, delay, mut standings, .. } = ruling;
        let permit = match verdict {
            Ok(permit) => permit,
            Err(denial) => return self.refuse(denial, &standings, id).map(BodySource::Own),
        };
        let missing = examined.missing.take();
        if delay > Micros::ZERO && missing.is_none() {
            // A shaped request waits for its delay. If the client disconnects meanwhile, nothing is forwarded.
            peer.set_queued(true);
            Box::pin(tokio::time::sleep(delay.into())).await;
            peer.set_queued(false);
            let _ = monotonic();
        }
        let way = self.plan(peer, &head, &examined, id);
        drop(examined);
        let is_call = reservation.is_some() && grpc::is_call(&head);
        let forwarding = entry.as_deref_mut().map(|entry| &mut entry.record.forwarding);
        let mut response = match (missing, way) {
            (Some(missing), _) => {
                self.counts.decided(missing.limit, Outcome::MissingKey);
                local_reply::missing_part(&missing).map(BodySource::Own)
            }
            (None, None) => without_route(&head).map(BodySource::Own),
            (None, Some(way)) => match self.dispatch(way, peer, head, incoming, permit, forwarding).await {
                Ok(response) => response,
                Err(error) => {
                    let name = route.map_or("", |route| &gate.routes.get(route).name);
                    tracing::debug!(route = name, "{error}");
                    if let Some(entry) = entry {
                        entry.record.error = Some(error.word());
                    }
                    local_reply::not_forwarded(&error).map(BodySource::Own)
                }
            },
        };
        if let Some(reservation) = reservation {
            // Boxed so that a reservation, which few requests have, does not enlarge every request's future.
            response = Box::pin(settle(reservation, response, is_call, &mut standings)).await;
        }
        self.stamp(&mut response.head, &standings, None);
        response
    }

    /// Does with an admitted request what its route says; an error means that no server gave an answer.
    async fn dispatch(
        &self,
        way: ForwardPlan<'_>,
        peer: &ClientConnection,
        mut head: Box<RequestHead>,
        incoming: &mut ClientBody,
        permit: Permit,
        forwarding: Option<&mut Forwarding>,
    ) -> Result<ProxyResponse<BodySource>, ForwardError> {
        let ForwardPlan { route, id, client, path, choice } = way;
        let treatment = &self.site.treatments[route];
        let mut response = match (&treatment.target, max_forwards::count_down(&mut head)) {
            (Target::Respond { status, body }, _) => {
                local_reply::own(*status, b"text/plain; charset=utf-8", body.clone()).map(BodySource::Own)
            }
            (Target::Forward { .. }, Some(answer)) => answer.map(BodySource::Own),
            (Target::Forward { upstream, rewrite, .. }, None) => {
                let (client_ip, edits) = (&self.site.gate.client_ip, &treatment.request_headers);
                let (handshake, is_call) = (websocket::asked(&head), grpc::is_call(&head));
                let (path, protected) = (path.as_deref(), &self.site.protected);
                Outgoing { peer, client, client_ip, id, route, path, rewrite, edits, protected }
                    .prepare(&mut head)?;
                if handshake.is_some() {
                    websocket::ask(&mut head.fields);
                }
                // Only a server that speaks HTTP/2 can take a gRPC call, which may be silent for as long as it lasts.
                let is_call = is_call && self.site.upstreams[*upstream].is_http2;
                let most = self.site.gate.routes.get(route).max_body;
                let body = match incoming.take(peer, is_call) {
                    Some(body) => {
                        let body = body.at_most(most).scrubbed(Arc::clone(&self.site.protected));
                        // Boxed so that its buffer does not enlarge the future of requests without a body.
                        Box::pin(carried(body, peer, is_call)).await?
                    }
                    None if handshake.is_some() => RequestBody::handshake(),
                    None => RequestBody::empty(),
                };
                let request = UpstreamRequest { head, body };
                let counted = client_ip.counted(client);
                // A connection over HTTP/1.1 sees by itself when its client takes nothing.
                let is_multiplexed = peer.is_multiplexed();
                let options = ForwardOptions {
                    client: counted,
                    host: &rewrite.host,
                    is_timed: is_multiplexed && peer.has_min_body_rate(),
                    polls_upload: !is_multiplexed,
                    hash_key: choice,
                };
                let upstream = &self.upstreams[*upstream];
                let answer = upstream.forward(permit, request, options, forwarding).await;
                let answer = answer.map_err(|failure| {
                    incoming.restore(failure.unread_body);
                    failure.error
                })?;
                returned(answer, handshake.as_deref())?
            }
        };
        treatment.response_headers.apply(&mut response.head.fields);
        Ok(response)
    }

    /// Where a request goes, if it matches a route.
    fn plan<'a>(
        &self,
        peer: &ClientConnection,
        head: &RequestHead,
        examined: &RequestPlan<'_>,
        id: &'a RequestId,
    ) -> Option<ForwardPlan<'a>> {
        let (route, client) = (examined.route?, examined.client);
        let path = examined.path.changed().map(str::to_owned);
        let choice = match &self.site.treatments[route].target {
            Target::Forward { key: Some(key), .. } => {
                // It was located before, but few routes need that again.
                let (gate, located) = (&self.site.gate, self.site.gate.match_route(head).ok()?);
                gate.balance_hash(key, &gate.subject(peer.caller(), head, &located))
            }
            _ => None,
        };
        Some(ForwardPlan { route, id, client, path, choice })
    }

    fn refuse(&self, denial: Denial, standings: &[LimitStatus], id: &RequestId) -> local_reply::LocalReply {
        let (answers, policies) = (&self.site.answers, &self.site.gate.limits.policies);
        let (mut response, wait) =
            local_reply::denied(denial, standings, answers, policies, id, || self.clock.now());
        self.stamp(&mut response.head, standings, wait);
        response
    }

    fn stamp(&self, head: &mut ResponseHead, standings: &[LimitStatus], retry_after: Option<u64>) {
        let policies = &self.site.gate.limits.policies;
        let now = || self.clock.now();
        stamp::stamp(&mut head.fields, &self.site.answers, policies, standings, retry_after, now);
    }
}

/// The answer where no route matches; `OPTIONS *` asks the proxy itself (RFC 9110 §9.3.7).
fn without_route(head: &RequestHead) -> local_reply::LocalReply {
    if head.method == Method::OPTIONS && head.uri.path() == "*" {
        return local_reply::options();
    }
    local_reply::no_route()
}
