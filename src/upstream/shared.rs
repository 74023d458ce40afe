//! What all workers of a process know of one upstream: its endpoints, and how they stand.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::balance::Balancer;
use super::client_counts::{ClientCounts, ClientPermit};
use super::connection_limit::WorkerWaker;
use super::endpoint::Endpoint;
use super::error::ForwardError;
use super::health_state::HealthState;
use super::members::{self, Member};
use super::spec::{HealthSpec, ServerSpec, UpstreamSpec};
use crate::telemetry::{Attempt, ServerValues, UpstreamValues};
use crate::time::{cached_now, monotonic};

/// One upstream, as all workers share it. It can outlive a configuration in which it stays what it is.
#[derive(Debug)]
pub struct SharedUpstream {
    spec: UpstreamSpec,
    members: ArcSwap<Vec<Member>>,
    /// Held by whoever changes members or shares.
    judging: Mutex<()>,
    /// Whether too few are in, so that all are used.
    is_in_panic: AtomicBool,
    /// Rings when somebody was put out: the keeper must know when to readmit it.
    pub(super) ejected: Notify,
    /// Requests that wait for a connection.
    pending: AtomicUsize,
    clients: Arc<ClientCounts>,
    workers: Mutex<Vec<Weak<Notify>>>,
    /// How often addresses of each server were ejected, also those that it has no more.
    ejections: Box<[AtomicU64]>,
}

/// A request that waits for a connection.
#[derive(Debug)]
pub(super) struct Pending<'a>(&'a AtomicUsize);

impl SharedUpstream {
    /// An upstream nobody uses yet. Servers that are named by a name have no endpoints until that is resolved.
    #[must_use]
    pub fn new(spec: &UpstreamSpec) -> Arc<Self> {
        let shared = Self {
            spec: spec.clone(),
            members: ArcSwap::default(),
            judging: Mutex::default(),
            is_in_panic: AtomicBool::new(false),
            ejected: Notify::new(),
            pending: AtomicUsize::new(0),
            clients: Arc::default(),
            workers: Mutex::default(),
            ejections: spec.servers.iter().map(|_| AtomicU64::new(0)).collect(),
        };
        for (server, address) in
            spec.servers.iter().enumerate().filter_map(|(n, one)| Some((n, one.literal()?)))
        {
            shared.set_addresses(server, &[address], cached_now());
        }
        Arc::new(shared)
    }

    /// The upstream of this name in the next configuration, which says something else of it. Addresses stay as well
    /// or unwell as they are, as far as that is still asked, and those that come begin small. Ejections count on.
    #[must_use]
    pub fn after(earlier: &Self, spec: &UpstreamSpec) -> Arc<Self> {
        let (next, now) = (Self::new(spec), cached_now());
        for (server, host) in spec.servers.iter().enumerate().filter(|(_, server)| server.literal().is_none())
        {
            let is_same = |member: &&Member| {
                earlier.spec.servers.get(member.endpoint.server).is_some_and(|other| other.host == host.host)
            };
            let members = earlier.members();
            let known = members.iter().filter(is_same);
            let known: Vec<IpAddr> = known.flat_map(Member::addresses).collect();
            next.set_addresses(server, &known, now);
        }
        for known in earlier.levels().servers {
            let place = spec.servers.iter().position(|server| *known.label == server.label());
            if let Some(ejections) = place.and_then(|place| next.ejections.get(place)) {
                ejections.store(known.ejections, Ordering::Relaxed);
            }
        }
        let (earlier, is_checked) = (earlier.members(), spec.health.is_some());
        let is_ejected = spec.eject.is_some() && next.has_choice();
        for Member { endpoint, .. } in next.members().iter() {
            let same = earlier.iter().find(|member| member.endpoint.is_same(endpoint));
            let standing = same.map(|same| same.endpoint.health.lock().clone());
            *endpoint.health.lock() = standing.map_or_else(
                || HealthState::new(now),
                |standing| standing.with_checks(is_checked, is_ejected),
            );
        }
        next.update_shares(now);
        next
    }

    /// What it is.
    #[must_use]
    pub fn spec(&self) -> &UpstreamSpec {
        &self.spec
    }

    /// Whether there can be more than one endpoint.
    pub(super) fn has_choice(&self) -> bool {
        self.spec.servers.len() > 1 || self.spec.servers.iter().any(|server| server.literal().is_none())
    }

    /// The place of the server that a key finds while all are well; none where names are to be resolved before.
    #[must_use]
    pub fn found_by(&self, key: u64) -> Option<usize> {
        let members = self.members();
        let are_all_known = self.spec.servers.iter().all(|server| server.literal().is_some());
        let endpoints: Vec<Arc<Endpoint>> =
            members.iter().map(|member| Arc::clone(&member.endpoint)).collect();
        let place = Balancer::new(self.spec.balance).pick(&endpoints, &[], Some(key));
        place.filter(|_| are_all_known).map(|place| endpoints[place].server)
    }

    /// Its endpoints at present, in the order of its servers.
    pub(super) fn members(&self) -> Arc<Vec<Member>> {
        self.members.load_full()
    }

    /// Names the worker whose kept connections others may wait for.
    pub(super) fn register_worker(&self, worker: &WorkerWaker) {
        let mut workers = self.workers.lock();
        workers.retain(|known| known.strong_count() > 0);
        workers.push(Arc::downgrade(worker));
    }

    /// Asks the other workers for connections that they keep and others wait for.
    pub(super) fn notify_other_workers(&self, own: &WorkerWaker) {
        for worker in self.workers.lock().iter().filter_map(Weak::upgrade) {
            if !Arc::ptr_eq(&worker, own) {
                worker.notify_one();
            }
        }
    }

    /// Counts a request that has to wait for a connection; none if too many do, and `displace` makes no room among them.
    pub(super) fn start_pending(&self, displace: impl FnOnce() -> bool) -> Option<Pending<'_>> {
        let waiting = Pending(&self.pending);
        let others = self.pending.fetch_add(1, Ordering::Relaxed);
        (others < self.spec.max_pending || displace()).then_some(waiting)
    }

    /// Counts a request of this client, if those are bounded.
    ///
    /// # Errors
    /// When the client has as many requests under way as it may.
    pub(super) fn admit_client(&self, client: IpAddr) -> Result<Option<ClientPermit>, ForwardError> {
        let Some(max) = self.spec.max_requests_per_client else { return Ok(None) };
        let admitted = self.clients.acquire(client, max);
        admitted.map(Some).ok_or(ForwardError::ClientLimit(max))
    }

    /// Takes up the addresses that a server's name has now; says whether they are others than before. Those that
    /// were there before stay what they are, and no addresses at all change nothing. Nor do the same ones: workers would
    /// begin their turns anew with each look at a name.
    pub(super) fn set_addresses(&self, server: usize, addresses: &[IpAddr], now: Instant) -> bool {
        let judging = self.judging.lock();
        let Some(members) = members::with_addresses(&self.members(), &self.spec, server, addresses, now)
        else {
            return false;
        };
        if *self.members() == members {
            return false;
        }
        let is_same = members::are_same(&self.members(), &members);
        self.members.store(Arc::new(members));
        drop(judging);
        self.update_shares(now);
        self.ejected.notify_one();
        !is_same
    }

    /// Takes the outcome of a check of one endpoint.
    pub(super) fn record_check(
        &self,
        endpoint: &Endpoint,
        outcome: Result<(), String>,
        spec: &HealthSpec,
        now: Instant,
    ) {
        if !endpoint.health.lock().checked(outcome.is_ok(), spec, now) {
            return;
        }
        // What the log says is so already.
        self.update_shares(now);
        self.ejected.notify_one();
        let (name, address) = (self.spec.label(), endpoint.address);
        match outcome {
            Ok(()) => tracing::info!("upstream {name}: {address} is healthy again"),
            Err(reason) => tracing::warn!("upstream {name}: {address} is unhealthy: {reason}"),
        }
    }

    /// A request has failed at an endpoint, which may be too often in a row.
    pub(super) fn record_failure(&self, endpoint: &Endpoint) {
        let Some(spec) = self.spec.eject.as_ref().filter(|_| self.has_choice()) else { return };
        if endpoint.failures.fetch_add(1, Ordering::Relaxed) + 1 < spec.after {
            return;
        }
        let now = cached_now();
        let Some(lasts) = endpoint.health.lock().eject(spec, now) else { return };
        if let Some(ejections) = self.ejections.get(endpoint.server) {
            ejections.fetch_add(1, Ordering::Relaxed);
        }
        // On trial when it comes back: one more failure, and it is out again.
        endpoint.failures.store(spec.after - 1, Ordering::Relaxed);
        self.update_shares(now);
        self.ejected.notify_one();
        let (name, address, after) = (self.spec.label(), endpoint.address, spec.after);
        tracing::warn!("upstream {name}: {address} is out for {lasts:?}, after {after} failures in a row");
    }

    /// A request has got no response from an endpoint: the log says so when that begins.
    pub(super) fn log_failure(&self, endpoint: &Endpoint, server: &ServerSpec, error: &ForwardError) {
        let is_failure = error.attempt().is_some_and(|attempt| attempt != Attempt::Abandoned);
        if is_failure && endpoint.failure_log.record_failure(monotonic()) {
            let hint = error.hint(server);
            tracing::warn!("upstream {}: {} fails: {error}{hint}", self.spec.label(), endpoint.address);
        }
    }

    /// Has the log say that an endpoint responds again, if it does.
    pub(super) fn log_recovery(&self, endpoint: &Endpoint) {
        if endpoint.failure_log.check_recovery(monotonic()) {
            tracing::info!("upstream {}: {} responds again", self.spec.label(), endpoint.address);
        }
    }

    /// Gives each endpoint its share; says when that has to be done again because time has passed.
    pub(super) fn update_shares(&self, now: Instant) -> Option<Instant> {
        let _judging = self.judging.lock();
        let members = self.members.load();
        let (mut are_in, mut due): (usize, Option<Instant>) = (0, None);
        for Member { endpoint, .. } in members.iter() {
            let mut standing = endpoint.health.lock();
            if standing.readmit(now) {
                tracing::info!("upstream {}: {} gets requests again", self.spec.label(), endpoint.address);
            }
            are_in += usize::from(standing.is_in());
            due = [due, standing.due(self.spec.slow_start, now)].into_iter().flatten().min();
        }
        let is_in_panic = self.has_too_few(are_in, members.len());
        for Member { endpoint, weight, .. } in members.iter() {
            let share = endpoint.health.lock().share(*weight, self.spec.slow_start, now);
            endpoint.set_share(if is_in_panic { *weight } else { share });
        }
        if is_in_panic != self.is_in_panic.swap(is_in_panic, Ordering::Relaxed) {
            let (name, all) = (self.spec.label(), members.len());
            if is_in_panic {
                tracing::warn!("upstream {name}: only {are_in} of {all} are well: requests go to all");
            } else {
                tracing::info!("upstream {name}: {are_in} of {all} are well: requests go to those");
            }
        }
        due
    }

    /// Whether so few are in that all must be used. Where there is one only, nothing else could be.
    #[allow(clippy::cast_precision_loss)] // Nobody has that many servers.
    fn has_too_few(&self, are_in: usize, all: usize) -> bool {
        all > 1 && are_in < all && (are_in == 0 || (are_in as f64) < self.spec.panic_threshold * all as f64)
    }

    /// What there is to measure at the moment.
    #[must_use]
    pub fn levels(&self) -> UpstreamValues {
        let members = self.members();
        let mut servers: Vec<ServerValues> = Vec::new();
        for (place, spec) in self.spec.servers.iter().enumerate() {
            let label = spec.label();
            let known = servers.iter().position(|server| *server.label == label);
            let mut levels = known.map_or_else(ServerValues::default, |known| servers.swap_remove(known));
            for Member { endpoint, .. } in members.iter().filter(|member| member.endpoint.server == place) {
                levels.addresses += 1;
                levels.healthy += usize::from(endpoint.health.lock().is_in());
                levels.connections += endpoint.connection_limit.open_connections();
            }
            levels.ejections += self.ejections.get(place).map_or(0, |count| count.load(Ordering::Relaxed));
            servers.push(ServerValues { label: label.into(), ..levels });
        }
        let pending = self.pending.load(Ordering::Relaxed);
        UpstreamValues { label: self.spec.label().into(), pending, servers }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
