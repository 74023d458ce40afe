//! The state of one upstream that all workers share: its endpoints and their health.

use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::client_counts::{ClientCounts, ClientKey, ClientPermits};
use super::endpoint::Endpoint;
use super::error::{Counted, ForwardError};
use super::health::HealthState;
use super::overload::Overload;
use super::pool::connection_limit::WorkerWaker;
use super::selection::balance::{Balancer, SharedLoad};
use super::selection::members::{self, Member, Members};
use super::server::{ServerPeer, ServerSpec};
use super::spec::{HealthSpec, UpstreamSpec};
use crate::telemetry::{AdmissionValues, AttemptOutcome, ServerValues, UpstreamValues};
use crate::time::{cached_now, monotonic};

/// One upstream, shared by all workers. A reload that does not change its spec keeps it.
#[derive(Debug)]
pub struct SharedUpstream {
    spec: UpstreamSpec,
    members: ArcSwap<Members>,
    /// What the load balancers of all workers share.
    pub(super) load: Arc<SharedLoad>,
    /// Locked while members or shares are changed.
    updating: Mutex<()>,
    /// Whether fewer endpoints than the panic threshold are available, so that all get requests.
    is_in_panic: AtomicBool,
    /// Notifies the health monitor of changes: it must know when to end ejections and to raise shares.
    pub(super) health_changed: Notify,
    /// The number of requests that wait for a connection.
    pending: AtomicUsize,
    /// The requests and tunnels of each client, with those that began before a reload.
    clients: Arc<ClientCounts>,
    /// The admission of requests, if there is one.
    pub(super) overload: Option<Arc<Overload>>,
    workers: Mutex<Vec<Weak<Notify>>>,
    /// Ejections by server, including those of addresses that the server no longer has.
    ejections: Box<[AtomicU64]>,
}

/// Counts a request that waits for a connection until the value is dropped.
#[derive(Debug)]
pub(super) struct Pending<'a>(&'a AtomicUsize);

impl SharedUpstream {
    /// A new upstream. Servers with a host name have no endpoints until it is resolved.
    #[must_use]
    pub fn new(spec: &UpstreamSpec) -> Arc<Self> {
        Self::counting(spec, spec.overload.as_ref().map(Overload::new), Arc::default())
    }

    /// A new upstream that counts requests here.
    fn counting(
        spec: &UpstreamSpec,
        overload: Option<Arc<Overload>>,
        clients: Arc<ClientCounts>,
    ) -> Arc<Self> {
        let now = cached_now();
        let shared = Self {
            spec: spec.clone(),
            members: ArcSwap::from_pointee(Members::fixed(spec, now)),
            load: Arc::default(),
            updating: Mutex::default(),
            is_in_panic: AtomicBool::new(false),
            health_changed: Notify::new(),
            pending: AtomicUsize::new(0),
            clients,
            overload,
            workers: Mutex::default(),
            ejections: spec.servers.iter().map(|_| AtomicU64::new(0)).collect(),
        };
        shared.update_shares(now);
        Arc::new(shared)
    }

    /// The successor of an upstream whose spec a reload has changed. Endpoints that are in both keep their health, as far
    /// as the spec still checks it; new ones have a slow start. The counts of ejections and of the requests and
    /// tunnels of clients continue, and the limit of requests in flight starts from what was learned.
    #[must_use]
    pub fn after(previous: &Self, spec: &UpstreamSpec) -> Arc<Self> {
        let overload = spec.overload.as_ref().map(|spec| match &previous.overload {
            Some(previous) => Overload::after(previous, spec),
            None => Overload::new(spec),
        });
        let next = Self::counting(spec, overload, Arc::clone(&previous.clients));
        let now = cached_now();
        let named = spec.servers.iter().enumerate().filter(|(_, server)| server.dns_name().is_some());
        for (index, server) in named {
            let is_of_server = |member: &&Member| {
                let servers = &previous.spec.servers;
                servers.get(member.endpoint.server).is_some_and(|other| other.has_addresses_of(server))
            };
            let mut known: Vec<ServerPeer> = previous
                .members()
                .iter()
                .filter(is_of_server)
                .map(|member| member.peer().with_port_of(server))
                .collect();
            // Servers that differed in their port only.
            known.sort_unstable_by(|a, b| a.address.cmp(&b.address));
            known.dedup_by(|later, first| later.address == first.address);
            next.set_peers(index, &known, now);
        }
        for values in previous.values().servers {
            let index = spec.servers.iter().position(|server| *values.label == server.label());
            if let Some(ejections) = index.and_then(|index| next.ejections.get(index)) {
                ejections.store(values.ejections, Ordering::Relaxed);
            }
        }
        let (previous, is_checked) = (previous.members(), spec.health.is_some());
        let is_ejected = spec.eject.is_some() && next.has_alternatives();
        for Member { endpoint, .. } in next.members().iter() {
            let same = previous.iter().find(|member| member.endpoint.is_same(endpoint));
            let health = same.map(|same| same.endpoint.health.lock().clone());
            *endpoint.health.lock() = health
                .map_or_else(|| HealthState::new(now), |health| health.with_checks(is_checked, is_ejected));
        }
        next.update_shares(now);
        next
    }

    /// The configuration of the upstream.
    #[must_use]
    pub fn spec(&self) -> &UpstreamSpec {
        &self.spec
    }

    /// Whether there can be more than one endpoint.
    pub(super) fn has_alternatives(&self) -> bool {
        self.spec.servers.len() > 1 || self.spec.servers.iter().any(|server| server.dns_name().is_some())
    }

    /// The index of the server for the hash of a key if all servers are healthy; none if names have to be resolved first.
    #[must_use]
    pub fn server_for_key(&self, hash_key: u64) -> Option<usize> {
        let members = self.members();
        let are_all_fixed = self.spec.servers.iter().all(|server| server.dns_name().is_none());
        let index = self.balancer(&members).pick(&[], Some(hash_key));
        index.filter(|_| are_all_fixed).map(|index| members[index].endpoint.server)
    }

    /// A load balancer for one worker over the present endpoints.
    #[must_use]
    pub fn present_balancer(&self) -> Balancer {
        self.balancer(&self.members())
    }

    /// A load balancer for one worker over these endpoints.
    pub(super) fn balancer(&self, members: &Arc<Members>) -> Balancer {
        let UpstreamSpec { balance, hash_balance_factor, .. } = self.spec;
        Balancer::new(balance, hash_balance_factor, Arc::clone(members), &self.load)
    }

    /// The present endpoints, in the order of the servers.
    pub(super) fn members(&self) -> Arc<Members> {
        self.members.load_full()
    }

    /// Registers a worker, which is notified of changed endpoints, and whose idle connections requests of other workers may
    /// need.
    pub(super) fn register_worker(&self, worker: &WorkerWaker) {
        let mut workers = self.workers.lock();
        workers.retain(|known| known.strong_count() > 0);
        workers.push(Arc::downgrade(worker));
    }

    /// Makes the other workers close idle connections for waiting requests.
    pub(super) fn notify_other_workers(&self, own: &WorkerWaker) {
        for worker in self.workers.lock().iter().filter_map(Weak::upgrade) {
            if !Arc::ptr_eq(&worker, own) {
                worker.notify_one();
            }
        }
    }

    /// The index under which the admission knows the latencies of a route; 0 without `overload`.
    #[must_use]
    pub fn route_index(&self, route: &str) -> u32 {
        self.overload.as_ref().map_or(0, |overload| overload.route_index(route))
    }

    /// Counts a request that has to wait for a connection; none if `max_pending` wait, and `displace` rejects none of
    /// them.
    pub(super) fn start_pending(&self, displace: impl FnOnce() -> bool) -> Option<Pending<'_>> {
        let pending = Pending(&self.pending);
        let others = self.pending.fetch_add(1, Ordering::Relaxed);
        (others < self.spec.max_pending || displace()).then_some(pending)
    }

    /// Counts a request, and the tunnel that it asks for, if there are bounds for each client. A tunnel counts by the fair key if
    /// there is one. Fails when the client has reached a bound.
    pub(super) fn admit_client(
        &self,
        client: IpAddr,
        fair_key: Option<u64>,
        is_handshake: bool,
    ) -> Result<ClientPermits, ForwardError> {
        let UpstreamSpec { max_requests_per_client, max_tunnels_per_client, .. } = self.spec;
        let client = ClientKey::Address(client);
        let acquire = |counted, client, max| self.clients.acquire((counted, client), max);
        let request = max_requests_per_client.map(|max| acquire(Counted::Requests, client, max));
        let owner = fair_key.map_or(client, ClientKey::Fair);
        let max_tunnels = max_tunnels_per_client.filter(|_| is_handshake);
        let tunnel = max_tunnels.map(|max| acquire(Counted::Tunnels, owner, max));
        Ok(ClientPermits {
            request: request.transpose()?.map(Rc::new),
            tunnel: tunnel.transpose()?.map(Box::new),
        })
    }

    /// Sets the addresses of a server; returns whether its endpoints have changed. Endpoints that existed before
    /// keep their state. An empty list changes nothing, and neither does an unchanged one: otherwise each lookup would
    /// restart the round robin of every worker.
    pub(super) fn set_peers(&self, server: usize, peers: &[ServerPeer], now: Instant) -> bool {
        let updating = self.updating.lock();
        let Some(members) = members::with_peers(&self.members(), &self.spec, server, peers, now) else {
            return false;
        };
        if **self.members() == *members {
            return false;
        }
        let is_same = members::are_same(&self.members(), &members);
        self.members.store(Arc::new(Members::new(members)));
        drop(updating);
        self.update_shares(now);
        self.health_changed.notify_one();
        self.workers.lock().iter().filter_map(Weak::upgrade).for_each(|worker| worker.notify_one());
        !is_same
    }

    /// Records the result of a health check of an endpoint.
    pub(super) fn record_check(
        &self,
        endpoint: &Endpoint,
        outcome: Result<(), String>,
        spec: &HealthSpec,
        now: Instant,
    ) {
        if !endpoint.health.lock().record_check(outcome.is_ok(), spec, now) {
            return;
        }
        // The shares change before the message, so that readers of the log can rely on it.
        self.update_shares(now);
        self.health_changed.notify_one();
        let (name, address) = (self.spec.label(), &endpoint.address);
        match outcome {
            Ok(()) => tracing::info!("upstream {name}: {address} is healthy again"),
            Err(reason) => tracing::warn!("upstream {name}: {address} is unhealthy: {reason}"),
        }
    }

    /// Records a failed request at an endpoint, and ejects the endpoint after too many consecutive ones.
    pub(super) fn record_failure(&self, endpoint: &Endpoint) {
        let Some(spec) = self.spec.eject.as_ref().filter(|_| self.has_alternatives()) else { return };
        if endpoint.failures.fetch_add(1, Ordering::Relaxed) + 1 < spec.after {
            return;
        }
        let now = cached_now();
        let Some(lasts) = endpoint.health.lock().eject(spec, now) else { return };
        if let Some(ejections) = self.ejections.get(endpoint.server) {
            ejections.fetch_add(1, Ordering::Relaxed);
        }
        // After the ejection a single failure ejects the endpoint again.
        endpoint.failures.store(spec.after - 1, Ordering::Relaxed);
        self.update_shares(now);
        self.health_changed.notify_one();
        let (name, address, after) = (self.spec.label(), &endpoint.address, spec.after);
        tracing::warn!(
            "upstream {name}: {address} is ejected for {lasts:?} after {after} consecutive failures"
        );
    }

    /// Logs the first of a series of requests without a response from an endpoint.
    pub(super) fn log_failure(&self, endpoint: &Endpoint, server: &ServerSpec, error: &ForwardError) {
        let is_failure = error.attempt().is_some_and(|attempt| attempt != AttemptOutcome::Abandoned);
        if is_failure && endpoint.failure_log.record_failure(monotonic()) {
            let hint = error.hint(server).map_or_else(String::new, |hint| format!("; {hint}"));
            tracing::warn!("upstream {}: {} fails: {error}{hint}", self.spec.label(), &endpoint.address);
        }
    }

    /// Logs that an endpoint responds again, if it does.
    pub(super) fn log_recovery(&self, endpoint: &Endpoint) {
        if endpoint.failure_log.check_recovery(monotonic()) {
            tracing::info!("upstream {}: {} responds again", self.spec.label(), &endpoint.address);
        }
    }

    /// Updates the share of each endpoint; returns when time changes a share next.
    pub(super) fn update_shares(&self, now: Instant) -> Option<Instant> {
        let _updating = self.updating.lock();
        let members = self.members.load();
        let mut next: Option<Instant> = None;
        let mut is_available = Vec::with_capacity(members.len());
        for Member { endpoint, .. } in members.iter() {
            let mut health = endpoint.health.lock();
            if health.end_ejection(now) {
                tracing::info!("upstream {}: {} is no longer ejected", self.spec.label(), &endpoint.address);
            }
            is_available.push(health.is_available());
            let change = health.next_change(self.spec.slow_start, now);
            next = [next, change].into_iter().flatten().min();
        }
        let is_in_use = members::in_use(&members, &is_available);
        let all = is_in_use.iter().filter(|used| **used).count();
        let available = is_in_use.iter().zip(&is_available).filter(|(used, is)| **used && **is).count();
        let is_in_panic = members.len() > 1 && self.is_below_panic_threshold(available, all);
        let mut is_changed = false;
        for (Member { endpoint, weight, .. }, is_in_use) in members.iter().zip(is_in_use) {
            let share = endpoint.health.lock().share(*weight, self.spec.slow_start, now);
            let share = if is_in_panic { *weight } else { share };
            is_changed |= endpoint.set_share(if is_in_use { share } else { 0 });
        }
        if is_changed {
            self.load.shares_changed();
        }
        if is_in_panic != self.is_in_panic.swap(is_in_panic, Ordering::Relaxed) {
            let name = self.spec.label();
            if is_in_panic {
                tracing::warn!(
                    "upstream {name}: {available} of {all} addresses are healthy, below the panic threshold: \
                     balancing over all"
                );
            } else {
                tracing::info!(
                    "upstream {name}: {available} of {all} addresses are healthy: balancing over those"
                );
            }
        }
        next
    }

    /// Whether so few endpoints are available that all get requests.
    #[expect(clippy::cast_precision_loss, reason = "the numbers of endpoints are far below 2^53")]
    fn is_below_panic_threshold(&self, available: usize, all: usize) -> bool {
        let threshold = self.spec.panic_threshold * all as f64;
        available < all && (available == 0 || (available as f64) < threshold)
    }

    /// The present values for the metrics.
    #[must_use]
    pub fn values(&self) -> UpstreamValues {
        let mut servers: Vec<ServerValues> = Vec::new();
        // Servers that differ only in their base path share a label.
        let mut labels: HashMap<Box<str>, usize> = HashMap::new();
        let places: Vec<usize> = self
            .spec
            .servers
            .iter()
            .zip(&self.ejections)
            .map(|(spec, ejections)| {
                let label: Box<str> = spec.label().into();
                let place = *labels.entry(label.clone()).or_insert(servers.len());
                if place == servers.len() {
                    servers.push(ServerValues { label, ..ServerValues::default() });
                }
                servers[place].ejections += ejections.load(Ordering::Relaxed);
                place
            })
            .collect();
        for Member { endpoint, .. } in self.members().iter() {
            let values = &mut servers[places[endpoint.server]];
            values.addresses += 1;
            let health = endpoint.health.lock();
            values.healthy += usize::from(health.is_available());
            values.ejected += usize::from(health.is_ejected());
            drop(health);
            values.connections += endpoint.connection_limit.open_connections();
        }
        let (mut pending, mut admission) = (self.pending.load(Ordering::Relaxed), None);
        if let Some(counts) = self.overload.as_ref().map(|overload| overload.counts()) {
            pending += counts.waiting_total() as usize;
            admission = Some(AdmissionValues {
                limit: counts.limit.into(),
                in_flight: counts.in_flight_total().into(),
                above_limit: counts.above_limit,
            });
        }
        UpstreamValues { label: self.spec.label().into(), pending, admission, servers }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
