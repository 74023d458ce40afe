//! Batches requests into calls: while one call is in flight, the requests that arrive are queued for the next.
//!
//! There is no timer, so a single request is sent immediately. If the queue is full a request fails at once, and requests
//! that were dropped are left out of the next call. A request whose deadline passes knows whether it was sent, since only
//! then it may have been charged.
//!
//! With one server all requests share a lane, which has one call in flight. On a cluster, where a call may not have keys of
//! several slots, each tag has a lane, so that no request waits for a node that it does not need; and a call that takes
//! longer than a quarter of the deadline, as while its slot moves, no longer delays the next.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::client::RedisClient;
use super::script::TAKE;
use super::wire::{self, Call, MAX_CHARGES, Part};
use crate::limit::{Charge, Key, Policy};
use crate::store::types::{Decisions, StoreError};
use crate::time::monotonic;

/// How many requests may wait for a call or its reply.
const MAX_PENDING: usize = 4_096;
/// The lane of all requests to one server.
const ONE_LANE: Key = Key([0; 16]);

/// The queue of requests for calls over one client.
#[derive(Debug)]
pub(super) struct Batcher {
    client: Arc<RedisClient>,
    is_cluster: bool,
    lanes: Mutex<Lanes>,
}

#[derive(Debug, Default)]
struct Lanes {
    /// For each lane with a call in flight, the requests for the next.
    queues: HashMap<Key, VecDeque<QueuedRequest>>,
    /// Requests without a reply, in all lanes.
    pending: usize,
    /// The number of the last request.
    last: u64,
}

/// A request that waits for a call.
#[derive(Debug)]
struct QueuedRequest {
    /// Identifies the request in the queue.
    number: u64,
    deadline: Instant,
    policies: Arc<[Policy]>,
    charges: SmallVec<[Charge; 2]>,
    /// Whether each charge is decided independently.
    independent: bool,
    /// Receives the part of the script's reply that is about this request.
    reply: oneshot::Sender<Result<Part, StoreError>>,
}

impl Batcher {
    /// A queue for `client`; `is_cluster` says whether the keys are on several servers.
    pub fn new(client: Arc<RedisClient>, is_cluster: bool) -> Arc<Self> {
        Arc::new(Self { client, is_cluster, lanes: Mutex::default() })
    }

    /// Sends charges with the next call, and waits for their decisions until the deadline. On a cluster they must have one
    /// tag.
    pub async fn submit(
        self: &Arc<Self>,
        policies: &Arc<[Policy]>,
        charges: &[Charge],
        independent: bool,
    ) -> Result<Decisions, StoreError> {
        let (reply, replied) = oneshot::channel();
        let tag = charges.first().filter(|_| self.is_cluster).map_or(ONE_LANE, |charge| charge.key);
        let deadline = self.client.deadline();
        let request = QueuedRequest {
            number: 0,
            deadline,
            policies: Arc::clone(policies),
            charges: charges.into(),
            independent,
            reply,
        };
        let number = self.push(tag, request)?;
        let Ok(part) = tokio::time::timeout_at(deadline, replied).await else {
            // Refreshes the thread's cached time after the wait.
            let _ = monotonic();
            // A request that was still queued was not charged; one that was sent may have been.
            return Err(if self.withdraw(tag, number) { StoreError::Unsent } else { StoreError::Deadline });
        };
        // The sender is dropped without a reply only when the runtime shuts down.
        wire::read(&part.unwrap_or(Err(StoreError::Lost))?, policies, charges)
    }

    /// Adds a request to a lane; returns its number.
    fn push(self: &Arc<Self>, lane: Key, mut request: QueuedRequest) -> Result<u64, StoreError> {
        let mut lanes = self.lanes.lock();
        // Bounds memory and waits while Redis is slow; each limit follows its `on_store_failure`.
        if lanes.pending >= MAX_PENDING {
            return Err(StoreError::QueueFull);
        }
        lanes.pending += 1;
        lanes.last += 1;
        let number = lanes.last;
        request.number = number;
        match lanes.queues.entry(lane) {
            Entry::Occupied(mut queue) => queue.get_mut().push_back(request),
            Entry::Vacant(vacant) => {
                vacant.insert(VecDeque::from([request]));
                // The task runs after those that are ready now, so their requests join the same call.
                tokio::spawn(run_lane(Arc::clone(self), lane));
            }
        }
        Ok(number)
    }

    /// Removes a request that was not sent yet; returns whether it was in the queue.
    fn withdraw(&self, lane: Key, number: u64) -> bool {
        let lanes = &mut *self.lanes.lock();
        let Some(queue) = lanes.queues.get_mut(&lane) else { return false };
        let Some(index) = queue.iter().position(|one| one.number == number) else { return false };
        queue.remove(index);
        lanes.pending -= 1;
        true
    }

    /// Takes the requests of a lane's next call. If there are none, the lane is removed.
    fn next_batch(&self, lane: Key) -> Vec<QueuedRequest> {
        let lanes = &mut *self.lanes.lock();
        let Some(queue) = lanes.queues.get_mut(&lane) else { return Vec::new() };
        let before = queue.len();
        // A request that was dropped has another outcome already, and must not be charged.
        queue.retain(|one| !one.reply.is_closed());
        lanes.pending -= before - queue.len();
        let next: Vec<QueuedRequest> = queue.drain(..batch_len(queue)).collect();
        if next.is_empty() {
            lanes.queues.remove(&lane);
        }
        next
    }

    /// Whether requests are queued for a lane's next call.
    fn has_queued(&self, lane: Key) -> bool {
        self.lanes.lock().queues.get(&lane).is_some_and(|queue| !queue.is_empty())
    }

    /// Sends these requests in one call, and passes each its part of the reply.
    async fn call(self: Arc<Self>, requests: Vec<QueuedRequest>) {
        let count = requests.len();
        send(&self.client, requests).await;
        self.lanes.lock().pending -= count;
    }
}

/// Makes the calls of a lane one after the other, until no request is queued.
async fn run_lane(batcher: Arc<Batcher>, lane: Key) {
    loop {
        let requests = batcher.next_batch(lane);
        if requests.is_empty() {
            return;
        }
        let calling = Arc::clone(&batcher).call(requests);
        if batcher.is_cluster {
            // A call that follows its slot, or waits for it, takes several round trips; the next one need not wait for all.
            let _ = tokio::time::timeout(batcher.client.timeout() / 4, tokio::spawn(calling)).await;
        } else {
            calling.await;
        }
        if batcher.has_queued(lane) {
            // Connections that are readable now can add their requests to the queued ones.
            tokio::task::yield_now().await;
        }
    }
}

/// How many of the first requests are sent in one call.
fn batch_len(queue: &VecDeque<QueuedRequest>) -> usize {
    let mut charges = 0;
    // A call writes each policy once, by its id, so all of its requests must have the same policies.
    let fits = |one: &&QueuedRequest| {
        charges += one.charges.len();
        charges <= MAX_CHARGES && Arc::ptr_eq(&one.policies, &queue[0].policies)
    };
    // The first is sent even if it exceeds the bound by itself.
    queue.iter().take_while(fits).count().max(1).min(queue.len())
}

async fn send(client: &RedisClient, requests: Vec<QueuedRequest>) {
    let (clock, sent) = (client.clock(), monotonic());
    client.counts().record_batch(requests.len());
    let mut call = Call::with_capacity(requests.iter().map(|one| one.charges.len()).sum());
    for QueuedRequest { policies, charges, independent, deadline, .. } in &requests {
        // Each deadline is one timeout after the request was queued.
        client.counts().record_wait(client.timeout().saturating_sub(deadline.duration_since(sent)));
        if *independent {
            charges.chunks(1).for_each(|charge| call.add(client.prefix(), policies, charge, clock));
        } else {
            call.add(client.prefix(), policies, charges, clock);
        }
    }
    let (keys, arguments) = call.into_parts();
    // The earliest deadline, since no request may wait longer for the reply.
    let deadline = requests.iter().map(|one| one.deadline).min().unwrap_or_else(|| client.deadline());
    let replied = client.eval(&TAKE, keys, arguments, deadline).await;
    let mut from = 0;
    for QueuedRequest { charges, reply, .. } in requests {
        let until = from + wire::reply_len(charges.len());
        let part = match &replied {
            Ok(bytes) if until <= bytes.len() => {
                Ok(Part { decisions: bytes.slice(from..until), at: wire::time(bytes) })
            }
            // Too short: reading the decisions fails.
            Ok(bytes) => Ok(Part { decisions: Bytes::new(), at: wire::time(bytes) }),
            Err(error) => Err(error.clone()),
        };
        from = until;
        // The request may have been dropped.
        let _ = reply.send(part);
    }
}
