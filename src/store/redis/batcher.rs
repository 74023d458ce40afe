//! Requests gathered into calls: while one call is on its way, those that come meanwhile wait for the next.
//!
//! There is no timer, so a lone request waits for nothing; and a call never waits for company. What does not fit
//! the queue is refused at once, and requests that have stopped waiting are left out of the next call. A request whose
//! deadline passes knows whether it was sent, since only then it may have been charged.
//!
//! A call goes to one server. There all requests share a lane; on a cluster, where a call may not have keys of several
//! tags, each tag has one of its own, so that none waits for a node that it has nothing to do with; and a call that takes
//! a quarter of the deadline, as while its slot moves, keeps the next no longer.

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
use super::wire::{self, Call, Part};
use crate::limit::{Charge, Key, Policy};
use crate::store::{Decisions, StoreError};
use crate::time::monotonic;

/// How many requests may wait for a call or its reply.
const MOST_WAITING: usize = 4_096;
/// How many charges go in one call: it must not keep the server from others, and Lua takes no more than some
/// thousand keys.
const MOST_CHARGES: usize = 512;
/// The lane of all requests to one server.
const ONE_LANE: Key = Key([0; 16]);

/// Where requests wait.
#[derive(Debug)]
pub(super) struct Batcher {
    line: Arc<RedisClient>,
    is_cluster: bool,
    lanes: Mutex<Lanes>,
}

#[derive(Debug, Default)]
struct Lanes {
    /// Of each lane that has a call on its way: who waits for the next.
    waiting: HashMap<Key, VecDeque<Waiting>>,
    /// How many have no answer yet, in all lanes.
    unanswered: usize,
    /// The number of the last request.
    last: u64,
}

/// A request that waits.
#[derive(Debug)]
struct Waiting {
    /// Tells it from all others of the queue.
    number: u64,
    deadline: Instant,
    policies: Arc<[Policy]>,
    charges: SmallVec<[Charge; 2]>,
    /// Whether each charge is a request by itself.
    apart: bool,
    /// Gets the part of the script's reply that is about it.
    reply: oneshot::Sender<Result<Part, StoreError>>,
}

impl Batcher {
    /// A queue before `line`; `is_cluster` says whether keys lie on several servers.
    pub fn over(line: Arc<RedisClient>, is_cluster: bool) -> Arc<Self> {
        Arc::new(Self { line, is_cluster, lanes: Mutex::default() })
    }

    /// Sends charges with the next call, and waits for what it says of them, until the deadline. On a cluster they have one
    /// tag.
    pub async fn ask(
        self: &Arc<Self>,
        policies: &Arc<[Policy]>,
        charges: &[Charge],
        apart: bool,
    ) -> Result<Decisions, StoreError> {
        let (reply, replied) = oneshot::channel();
        let tag = charges.first().filter(|_| self.is_cluster).map_or(ONE_LANE, |charge| charge.key);
        let (policies_of_it, deadline) = (Arc::clone(policies), self.line.deadline());
        let request =
            Waiting { number: 0, deadline, policies: policies_of_it, charges: charges.into(), apart, reply };
        let number = self.push(tag, request)?;
        let Ok(said) = tokio::time::timeout_at(deadline, replied).await else {
            // It has waited: time has passed.
            let _ = monotonic();
            return Err(if self.withdraw(tag, number) { StoreError::Unsent } else { StoreError::Deadline });
        };
        // The other end is dropped only with the runtime.
        wire::read(&said.unwrap_or(Err(StoreError::Lost))?, policies, charges)
    }

    /// Adds a request to a lane; returns its number.
    fn push(self: &Arc<Self>, lane: Key, mut request: Waiting) -> Result<u64, StoreError> {
        let mut lanes = self.lanes.lock();
        if lanes.unanswered >= MOST_WAITING {
            return Err(StoreError::Busy);
        }
        lanes.unanswered += 1;
        lanes.last += 1;
        let number = lanes.last;
        request.number = number;
        match lanes.waiting.entry(lane) {
            Entry::Occupied(mut waiting) => waiting.get_mut().push_back(request),
            Entry::Vacant(place) => {
                place.insert(VecDeque::from([request]));
                // It runs when those have that are ready by now, so their requests go in the same call.
                tokio::spawn(work_off(Arc::clone(self), lane));
            }
        }
        Ok(number)
    }

    /// Takes a request back that was not sent yet; says whether it was there.
    fn withdraw(&self, lane: Key, number: u64) -> bool {
        let lanes = &mut *self.lanes.lock();
        let Some(waiting) = lanes.waiting.get_mut(&lane) else { return false };
        let Some(place) = waiting.iter().position(|one| one.number == number) else { return false };
        waiting.remove(place);
        lanes.unanswered -= 1;
        true
    }

    /// The requests that go in the next call of a lane. When there are none the lane is gone.
    fn next(&self, lane: Key) -> Vec<Waiting> {
        let lanes = &mut *self.lanes.lock();
        let Some(waiting) = lanes.waiting.get_mut(&lane) else { return Vec::new() };
        let before = waiting.len();
        // Who has stopped waiting was told something else: to take for it now would be to charge for nothing.
        waiting.retain(|one| !one.reply.is_closed());
        lanes.unanswered -= before - waiting.len();
        let next: Vec<Waiting> = waiting.drain(..together(waiting)).collect();
        if next.is_empty() {
            lanes.waiting.remove(&lane);
        }
        next
    }

    /// Whether somebody waits for the next call of a lane.
    fn has_waiting(&self, lane: Key) -> bool {
        self.lanes.lock().waiting.get(&lane).is_some_and(|waiting| !waiting.is_empty())
    }

    /// Makes a call of these requests, and tells each what was said of it.
    async fn call(self: Arc<Self>, requests: Vec<Waiting>) {
        let count = requests.len();
        send(&self.line, requests).await;
        self.lanes.lock().unanswered -= count;
    }
}

/// Makes one call of a lane after the other, until nobody waits.
async fn work_off(queue: Arc<Batcher>, lane: Key) {
    loop {
        let requests = queue.next(lane);
        if requests.is_empty() {
            return;
        }
        let calling = Arc::clone(&queue).call(requests);
        if queue.is_cluster {
            // One that has to follow its slot, or to wait for it, takes several ways; the next need not wait for all.
            let _ = tokio::time::timeout(queue.line.timeout() / 4, tokio::spawn(calling)).await;
        } else {
            calling.await;
        }
        if queue.has_waiting(lane) {
            // Whose requests have come by now goes along with those that wait.
            tokio::task::yield_now().await;
        }
    }
}

/// How many of the first go in one call.
fn together(waiting: &VecDeque<Waiting>) -> usize {
    let mut charges = 0;
    let fits = |one: &&Waiting| {
        charges += one.charges.len();
        charges <= MOST_CHARGES && Arc::ptr_eq(&one.policies, &waiting[0].policies)
    };
    // One alone goes however large it is.
    waiting.iter().take_while(fits).count().max(1).min(waiting.len())
}

async fn send(line: &RedisClient, requests: Vec<Waiting>) {
    let clock = line.clock();
    let mut call = Call::of(requests.iter().map(|one| one.charges.len()).sum());
    for Waiting { policies, charges, apart, .. } in &requests {
        if *apart {
            charges.chunks(1).for_each(|charge| call.add(line.prefix(), policies, charge, clock));
        } else {
            call.add(line.prefix(), policies, charges, clock);
        }
    }
    let (keys, arguments) = call.into_parts();
    let deadline = requests.iter().map(|one| one.deadline).min().unwrap_or_else(|| line.deadline());
    let answered = line.eval(&TAKE, keys, arguments, deadline).await;
    let mut from = 0;
    for Waiting { charges, reply, .. } in requests {
        let until = from + wire::reply_len(charges.len());
        let said = match &answered {
            Ok(bytes) if until <= bytes.len() => {
                Ok(Part { said: bytes.slice(from..until), at: wire::time(bytes) })
            }
            // Which cannot be read.
            Ok(bytes) => Ok(Part { said: Bytes::new(), at: wire::time(bytes) }),
            Err(error) => Err(error.clone()),
        };
        from = until;
        // It may have stopped waiting.
        let _ = reply.send(said);
    }
}
