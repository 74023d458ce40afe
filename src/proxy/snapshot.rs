//! A snapshot of the configuration, and one worker's proxy over it.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::header::HeaderName;
use tokio::sync::watch;

use super::authorization_cache::AuthorizationCache;
use super::consumer_forwarding::ConsumerForwarding;
use super::cors::CorsRules;
use super::forward_auth::ForwardAuth;
use super::response_policy::ResponsePolicy;
use super::route_action::RouteAction;
use super::settlement::SettleWarnings;
use crate::acme::HttpChallenges;
use crate::gate::{Gate, RouteId};
use crate::id_vec::{Id as _, IdVec};
use crate::limiter::{Limiter, SentLimits, SharedState};
use crate::store::{Servers, StoreSpec};
use crate::telemetry::{AccessWriter, Counts, LogThrottle, TopRecorder, Tracer, UpstreamCounts};
use crate::time::Clock;
use crate::upstream::{HeaderScrub, SharedUpstream, Upstream, UpstreamId, UpstreamSpec, WorkerWaker};

/// Everything that requests are served with: one snapshot of the configuration. Immutable.
#[derive(Debug)]
pub struct ConfigSnapshot {
    /// Routes, clients and limits.
    pub gate: Gate,
    /// The action of each route, by [`RouteId`].
    pub actions: IdVec<RouteId, RouteAction>,
    /// The upstreams, by [`UpstreamId`].
    pub upstreams: IdVec<UpstreamId, UpstreamSpec>,
    /// How responses show limits.
    pub response_policy: ResponsePolicy,
    /// What upstreams learn about consumers, if there is a `[consumers]`.
    pub consumer_forwarding: Option<ConsumerForwarding>,
    /// Which web pages may read responses, if CORS is configured.
    pub cors: Option<Box<CorsRules>>,
    /// Headers of requests that the access log has.
    pub logged_headers: Box<[HeaderName]>,
    /// Headers that have a meaning for the proxy: variants of them with underscores are not forwarded.
    pub protected_headers: Arc<HeaderScrub>,
}

impl ConfigSnapshot {
    /// Gives each route the index under which its upstream knows its latencies. `upstreams` are those of the configuration, by
    /// [`UpstreamId`]; they may be older than it.
    pub fn number_routes(&mut self, upstreams: &[Arc<SharedUpstream>]) {
        for id in self.actions.ids() {
            let rule = self.actions.get_mut(id).and_then(|action| action.target.admission_mut());
            if let Some((upstream, rule)) = rule
                && let Some(shared) = upstreams.get(upstream.index())
            {
                rule.route = shared.route_index(&self.gate.routes.get(id).name);
            }
        }
    }

    /// The action of the route that matches a request, if one does.
    pub(super) fn action(&self, route: Option<RouteId>) -> Option<&RouteAction> {
        route.map(|route| &self.actions[route])
    }
}

/// The parts of one worker's proxy.
#[derive(Debug)]
pub struct ProxyConfig {
    /// The configuration.
    pub snapshot: Arc<ConfigSnapshot>,
    /// The store that counts limits.
    pub store: StoreSpec,
    /// The upstreams, by [`UpstreamId`], with their counters. A worker keeps its connections to an upstream that the
    /// earlier configuration had too.
    pub upstreams: Vec<(Arc<SharedUpstream>, UpstreamCounts)>,
    /// The state that all workers share about each server of the store. A worker keeps its connections if this stays the same.
    pub shared: Servers<SharedState>,
    /// Where requests are counted.
    pub counts: Arc<Counts>,
    /// Counts the keys of requests, if there is an admin interface.
    pub top: Option<TopRecorder>,
    /// The access log, if it is on.
    pub access: Option<AccessWriter>,
    /// Starts the traces of requests, if tracing is on.
    pub tracer: Option<Tracer>,
    /// The requests of an ACME server that validates names, if certificates are obtained so.
    pub challenges: Option<Arc<HttpChallenges>>,
}

/// One worker's proxy, over one snapshot of the configuration.
#[derive(Debug)]
pub struct Proxy {
    pub(super) snapshot: Arc<ConfigSnapshot>,
    pub(super) limiter: Limiter,
    pub(super) sent_limits: SentLimits,
    pub(super) upstreams: IdVec<UpstreamId, Rc<Upstream>>,
    pub(super) access: Option<AccessWriter>,
    pub(super) tracer: Option<Tracer>,
    pub(super) counts: Arc<Counts>,
    pub(super) top: Option<TopRecorder>,
    pub(super) clock: Clock,
    pub(super) is_ready: watch::Receiver<bool>,
    pub(super) challenges: Option<Arc<HttpChallenges>>,
    /// Decisions of authorization servers that hold for a time.
    pub(super) authorizations: AuthorizationCache,
    /// Whether a route is for authorization requests.
    pub(super) has_decisions: bool,
    /// Of rejected authorization requests, and of authorization servers that fail.
    pub(super) warnings: RefCell<LogThrottle>,
    /// Of responses whose cost is unknown.
    pub(super) settle_warnings: Rc<SettleWarnings>,
}

impl Proxy {
    /// Counts how long a connection is not read after a refused request.
    pub fn record_pause(&self, pause: Duration) {
        self.counts.record_pause(pause);
    }

    /// A proxy with this configuration. `earlier` upstreams that it still has keep their connections.
    pub(super) fn new(
        config: ProxyConfig,
        limiter: &Limiter,
        earlier: &[Rc<Upstream>],
        waker: &WorkerWaker,
        is_ready: watch::Receiver<bool>,
    ) -> Self {
        let ProxyConfig { snapshot, upstreams, counts, top, access, tracer, challenges, .. } = config;
        let upstream = |(shared, counts)| {
            let kept = earlier.iter().find(|upstream| upstream.is_client_of(&shared));
            kept.map_or_else(|| Rc::new(Upstream::new(shared, counts, waker)), Rc::clone)
        };
        let upstreams = upstreams.into_iter().map(upstream).collect();
        let limiter = limiter.with_counts(&counts);
        let has_decisions = snapshot.actions.iter().any(|action| action.target.forward_auth().is_some());
        Self {
            snapshot,
            limiter,
            sent_limits: SentLimits::default(),
            upstreams,
            access,
            tracer,
            counts,
            top,
            clock: Clock::System,
            is_ready,
            challenges,
            authorizations: AuthorizationCache::default(),
            has_decisions,
            warnings: RefCell::default(),
            settle_warnings: Rc::default(),
        }
    }

    /// How decisions are returned, if a route is for authorization requests.
    #[inline]
    pub(super) fn forward_auth(&self, route: Option<RouteId>) -> Option<ForwardAuth> {
        let route = route.filter(|_| self.has_decisions)?;
        self.snapshot.actions[route].target.forward_auth()
    }

    /// Whether the client's address is taken from the headers of requests from this address.
    #[must_use]
    pub fn trusts(&self, address: IpAddr) -> bool {
        self.snapshot.gate.client_ip.is_trusted(address)
    }

    /// The client that connects from this address, as limits count it; none for a trusted proxy, which may have many
    /// clients.
    #[must_use]
    pub fn client_at(&self, address: IpAddr) -> Option<IpAddr> {
        let client_ip = &self.snapshot.gate.client_ip;
        (!client_ip.is_trusted(address)).then(|| client_ip.counted(address))
    }

    /// The routes and limits.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.snapshot.gate
    }

    /// The limiter.
    #[must_use]
    pub fn limiter(&self) -> &Limiter {
        &self.limiter
    }

    /// The limits with numbers that clients have sent.
    #[must_use]
    pub fn sent_limits(&self) -> &SentLimits {
        &self.sent_limits
    }

    /// Whether the process is ready: not any more once it stops.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        *self.is_ready.borrow()
    }

    /// Whether the process is ready, with a notification when that changes.
    #[must_use]
    pub fn readiness(&self) -> watch::Receiver<bool> {
        self.is_ready.clone()
    }

    /// Where requests are counted by their keys; none without the admin interface.
    #[must_use]
    pub fn top_keys(&self) -> Option<&TopRecorder> {
        self.top.as_ref()
    }

    /// Where requests are counted.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Closes server connections that have been idle for too long.
    pub fn close_expired_connections(&self) {
        for upstream in &self.upstreams {
            upstream.sweep();
        }
    }

    /// Whether there are connections to servers, also in use.
    pub(super) fn has_upstream_connections(&self) -> bool {
        self.upstreams.iter().any(|upstream| upstream.has_connections())
    }

    /// Adopts changes of endpoints, and closes idle connections for which requests of other workers wait.
    pub(super) fn adopt_changes(&self) {
        for upstream in &self.upstreams {
            upstream.adopt_changes();
        }
    }
}
