//! What a worker serves with, and how it goes from one configuration to the next.
//!
//! A request keeps the proxy that it began with. What outlives a configuration goes from one proxy to the next: the
//! connection to the store with its breaker and its slots, and the connections to servers.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::{ConfigSnapshot, Proxy};
use crate::limiter::{Limiter, Shared};
use crate::store::{Store, StoreSpec};
use crate::telemetry::{AccessWriter, Counts, UpstreamCounts};
use crate::time::Clock;
use crate::upstream::{SharedUpstream, Upstream, WorkerWaker};

/// What makes one worker's proxy of a configuration.
#[derive(Debug)]
pub struct ProxyConfig {
    /// The configuration.
    pub site: Arc<ConfigSnapshot>,
    /// Where limits are counted.
    pub store: StoreSpec,
    /// Where requests go, in the places of the configuration, and where that is counted. A worker that has one
    /// already keeps its connections.
    pub upstreams: Vec<(Arc<SharedUpstream>, UpstreamCounts)>,
    /// What all workers know of that store. A worker that has the same already keeps its connection.
    pub shared: Shared,
    /// Where requests are counted.
    pub counts: Arc<Counts>,
    /// Where requests are logged, if they are.
    pub access: Option<AccessWriter>,
}

/// A worker's proxy as it is at the moment.
#[derive(Debug)]
pub struct ActiveProxy {
    now: RefCell<Rc<Proxy>>,
    /// What limiters do beside requests: the present one, and earlier ones until nobody needs them.
    keeping: RefCell<JoinSet<()>>,
    /// Rings when other workers wait for connections that this one keeps.
    bell: WorkerWaker,
}

impl ActiveProxy {
    /// The first proxy of a worker, within its runtime; ready in half a second at most, whether the store is or not.
    pub async fn new(first: ProxyConfig) -> Self {
        let mut keeping = JoinSet::new();
        let limiter = limiter(&first, &mut keeping).await;
        let bell = WorkerWaker::default();
        let proxy = Proxy::new(first, &limiter, &[], &bell);
        Self { now: RefCell::new(Rc::new(proxy)), keeping: RefCell::new(keeping), bell }
    }

    /// The proxy of a request that begins now.
    #[must_use]
    pub fn now(&self) -> Rc<Proxy> {
        Rc::clone(&self.now.borrow())
    }

    /// Takes up another configuration, in half a second at most. Requests that begin then begin with that.
    pub async fn apply(&self, next: ProxyConfig) {
        let earlier = self.now();
        let limiter = if earlier.limiter.uses_same_store(&next.shared) {
            earlier.limiter.clone()
        } else {
            let mut keeping = self.keeping.take();
            let limiter = limiter(&next, &mut keeping).await;
            self.keeping.replace(keeping);
            limiter
        };
        let next = Rc::new(Proxy::new(next, &limiter, &earlier.upstreams, &self.bell));
        let stays = |upstream: &&Rc<Upstream>| next.upstreams.iter().any(|it| Rc::ptr_eq(it, upstream));
        for gone in earlier.upstreams.iter().filter(|upstream| !stays(upstream)) {
            gone.retire();
        }
        self.now.replace(next);
    }

    /// Waits until other workers want room for connections ([`Proxy::make_room`]).
    pub async fn room_is_wanted(&self) {
        self.bell.notified().await;
    }

    /// Gives back the slots that the last requests had.
    pub async fn finish(&self) {
        self.now().limiter.give_back_slots().await;
    }
}

/// A limiter over a connection of its own, and what it does beside requests.
async fn limiter(generation: &ProxyConfig, keeping: &mut JoinSet<()>) -> Limiter {
    let shared = generation.shared.clone();
    let limiter = Limiter::new(Store::open(&generation.store, &shared.alone), shared);
    limiter.connect().await;
    keeping.spawn_local(limiter.clone().run_maintenance());
    limiter
}

impl Proxy {
    /// A proxy of `generation`, which takes over what it can of the `earlier` upstreams.
    fn new(generation: ProxyConfig, limiter: &Limiter, earlier: &[Rc<Upstream>], bell: &WorkerWaker) -> Self {
        let ProxyConfig { site, upstreams, counts, access, .. } = generation;
        let upstream = |(shared, counts)| {
            let kept = earlier.iter().find(|upstream| upstream.is_of(&shared));
            kept.map_or_else(|| Rc::new(Upstream::new(shared, counts, bell)), Rc::clone)
        };
        let upstreams = upstreams.into_iter().map(upstream).collect();
        let limiter = limiter.counting(Arc::clone(&counts));
        Self { site, limiter, upstreams, access, counts, clock: Clock::System }
    }
}
