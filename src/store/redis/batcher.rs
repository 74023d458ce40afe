//! Batches requests into calls: while a call is in flight, the requests that arrive are queued for the next.
//!
//! A single request is sent immediately. If too many requests are pending a request fails at once, and requests that were
//! dropped are left out of the next call. A request whose deadline passes knows whether it was sent, since only then it may have
//! been charged.
//!
//! Each server has a lane of its own, so that no request waits for a server that it does not need.
//!
//! # Calls
//! ```text
//! requests of a worker                 RedisClient (fred)                     Redis
//! ────────────────────                 ──────────────────                     ─────
//! A ─► DenialCache ─► Breaker ─► Batcher ── one call: A ──────────────────►   EVALSHA take.lua
//! B ─►     │             │         │ B, C, D wait while it is on its way          TIME, MGET states
//! C ─►     │             │         │                                              decide request by request
//! D ─►     ▼ denied      ▼ open    │   ◄─────────────────────── A's reply ───     SET what changed, with TTL, or SETRANGE
//!       until retry_after  on_store_failure
//!                                  └── one call: B, C, D ─────────────────►   EVALSHA take.lua
//! ```
//!
//! All charges of a request are one `EVALSHA`. `store::redis::wire` packs keys, policies and costs into binary strings;
//! `take.lua` reads the server's clock once and all states with one `MGET`, decides, writes only what has changed, and returns
//! records of fixed size. One call can hold any number of requests; equal requests on consecutive keys are encoded once.
//!
//! `store::redis::batcher` has a queue for each server, a `Lane`. While a call is in flight, new requests wait for the next
//! one. A single request is sent immediately; before a further call the worker polls the tasks that are ready once, so that
//! their requests join it. A request that timed out in the queue is removed: its client already has a response. A call is
//! bounded by the weight of its charges (`batcher::call`), since a sliding log of a thousand entries occupies the server for
//! as long as ten buckets. The states of a lane:
//!
//! | state | a request that arrives | until |
//! | --- | --- | --- |
//! | idle: no call is in flight | starts the task of the lane, which sends it | |
//! | waiting | is queued | the next call may be sent (`batcher::pace`) |
//! | open: calls are in flight, and one more may be sent | is sent at once | |
//! | stalled: a call had no reply for a whole deadline | fails at once with `Unsent`, as the queued requests did | the server replies to a script without effect, or the connection is replaced |
//!
//! Calls to a distant server overlap: a quarter of the mean round trip apart, but at least 300 µs, and at most four at a time.
//! They do not overlap if the mean round trip is more than twice the shortest, since then the server is busy, and fewer and
//! larger calls cost it less. No call is sent while one has taken twice as long as the mean: requests without a reply may have
//! been charged, so there should be few. Calls share a connection, so a server runs them in their order.

mod call;
mod lane;
mod pace;

use std::sync::Arc;
use std::time::Duration;

use fred::interfaces::ClusterInterface as _;
use fred::types::cluster::ClusterRouting;
use fred::types::config::Server;
use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::Instant;

use self::call::QueuedRequest;
use self::lane::Lane;
use super::client::RedisClient;
use super::cluster;
use super::patience::wait_for_reply;
use super::reply::{self, ReplyPart};
use super::wire::ChargesWithGrants;
use crate::limit::{Charge, Policy};
use crate::store::types::{Granted, StoreError};
use crate::time::cached_now;

/// How many requests may wait for a call or its reply.
const MAX_PENDING: usize = 4_096;

/// The queues of requests for calls over one client.
#[derive(Debug)]
pub(super) struct Batcher {
    client: Arc<RedisClient>,
    routes: Routes,
    /// Bounds the pending requests: each has a permit.
    permits: Arc<Semaphore>,
}

impl Batcher {
    /// Queues for `client`; with `is_cluster` the keys are on several servers.
    pub fn new(client: Arc<RedisClient>, is_cluster: bool) -> Self {
        let routes = Routes::new(Arc::clone(&client), is_cluster);
        Self { client, routes, permits: Arc::new(Semaphore::new(MAX_PENDING)) }
    }

    /// The deadline of a request that is made now.
    pub fn deadline(&self) -> Instant {
        self.client.deadline()
    }

    /// Sends charges with a call, and waits for their decisions until the deadline. On a cluster they must have one tag.
    pub async fn submit(
        &self,
        policies: &Arc<[Policy]>,
        request: ChargesWithGrants<'_>,
        independent: bool,
        deadline: Instant,
    ) -> Result<Granted, StoreError> {
        let part = self.part(policies, request, independent, deadline).await?;
        reply::read(&part, policies, request.charges)
    }

    /// Queues a request, and waits for its part of the reply.
    async fn part(
        &self,
        policies: &Arc<[Policy]>,
        request: ChargesWithGrants<'_>,
        independent: bool,
        deadline: Instant,
    ) -> Result<ReplyPart, StoreError> {
        let ChargesWithGrants { charges, grant_requests } = request;
        // Bounds memory and waits while Redis is slow; each limit follows its `on_store_failure`.
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| StoreError::QueueFull)?;
        let (reply, replied) = oneshot::channel();
        let (lane, slot) = self.routes.route(charges);
        let request = QueuedRequest {
            number: 0,
            deadline,
            slot,
            policies: Arc::clone(policies),
            charges: charges.into(),
            grant_requests: (!grant_requests.is_empty()).then(|| grant_requests.into()),
            independent,
            reply,
            _permit: permit,
        };
        let number = lane.push(request)?;
        let Some(part) = wait_for_reply(deadline, replied).await else {
            // A request that was still queued was not charged; one that was sent may have been.
            return Err(if lane.withdraw(number) { StoreError::Unsent } else { StoreError::Deadline });
        };
        // The sender is dropped without a reply only when the runtime shuts down.
        part.unwrap_or(Err(StoreError::Lost))
    }
}

/// For how long a copy of the map of slots is used. A lane only gathers requests: fred sends a command by its own map, so that
/// an outdated copy costs a call at most.
const MAX_AGE: Duration = Duration::from_secs(1);

/// The lanes of all servers.
#[derive(Debug)]
enum Routes {
    OneServer(Arc<Lane>),
    Cluster { client: Arc<RedisClient>, nodes: Mutex<Nodes> },
}

/// The nodes of a cluster.
#[derive(Debug, Default)]
struct Nodes {
    /// A copy of fred's map of slots, and when it was made; none while that is unknown.
    map: Option<(ClusterRouting, Instant)>,
    /// By their nodes; `None` for slots whose node is unknown.
    lanes: HashMap<Option<Server>, Arc<Lane>>,
}

impl Routes {
    pub fn new(client: Arc<RedisClient>, is_cluster: bool) -> Self {
        if is_cluster {
            Self::Cluster { client, nodes: Mutex::default() }
        } else {
            Self::OneServer(Lane::new(client))
        }
    }

    /// The lane and the hash slot of charges, which all have the tag of the first.
    pub fn route(&self, charges: &[Charge]) -> (Arc<Lane>, u16) {
        match self {
            Self::OneServer(lane) => (Arc::clone(lane), 0),
            Self::Cluster { client, nodes } => {
                let slot = charges.first().map_or(0, |charge| cluster::slot(charge.key));
                (nodes.lock().lane(client, slot), slot)
            }
        }
    }
}

impl Nodes {
    fn lane(&mut self, client: &Arc<RedisClient>, slot: u16) -> Arc<Lane> {
        let now = cached_now();
        if self.map.as_ref().is_none_or(|(_, made)| now.saturating_duration_since(*made) >= MAX_AGE) {
            self.map = client.client().cached_cluster_state().map(|map| (map, now));
            if let Some((map, _)) = &self.map {
                // The task of a lane with requests keeps it until they are decided.
                let nodes = map.unique_primary_nodes();
                self.lanes.retain(|node, _| node.as_ref().is_none_or(|node| nodes.contains(node)));
            }
        }
        let node = self.map.as_ref().and_then(|(map, _)| map.get_server(slot));
        let lane = self.lanes.entry(node.cloned()).or_insert_with(|| Lane::new(Arc::clone(client)));
        Arc::clone(lane)
    }
}
