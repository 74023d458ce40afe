//! The requests for one server, and the task that sends them in calls.
//!
//! While a call is in flight, the requests that arrive are queued for the next, which goes when `pace` says so. After a whole
//! deadline without a reply the server is stalled: the queued requests fail, and those that arrive fail at once, until the
//! server replies or its connection is replaced. None of them was sent, so none was charged.
//!
//! A command that was not run because its slot is being moved is no call in flight any more, since the server has replied. It is
//! sent again meanwhile; further requests for its slot wait for it, for at most a quarter of the deadline, and no others do.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::call::{CallOutcome, Delayed, EndedCall, MAX_WEIGHT, QueuedRequest, call};
use super::pace::{Pace, RoundTrips};
use crate::store::redis::client::RedisClient;
use crate::store::types::StoreError;
use crate::time::monotonic;

/// The requests for one server.
pub(super) struct Lane {
    client: Arc<RedisClient>,
    queue: Mutex<Queue>,
    /// Wakes the task when a request arrives in the state `Open`.
    arrival: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    state: State,
    requests: VecDeque<QueuedRequest>,
    round_trips: RoundTrips,
    /// The number of the last request.
    last: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// No call is in flight, and there is no task.
    #[default]
    Idle,
    /// The next call can't go yet, or is about to go: requests wait for it.
    Waiting,
    /// Calls are in flight, and the next request may go in another one.
    Open,
    /// A call had no reply for a whole deadline: requests fail at once.
    Stalled,
}

/// The next step of the task of a lane.
enum Step {
    Send(Vec<QueuedRequest>),
    /// Wait for a reply.
    AwaitReply,
    /// Wait for a reply until this time.
    AwaitReplyUntil(Instant),
    /// Wait for a reply or a request.
    AwaitRequest,
    /// Nothing is queued or in flight.
    End,
}

/// The calls of a lane.
#[derive(Default)]
struct Calls {
    events: FuturesUnordered<Pin<Box<dyn Future<Output = Event> + Send>>>,
    /// When those without a reply were sent, the oldest first.
    sent: SmallVec<[Instant; 4]>,
    /// Slots whose requests wait for a delayed command.
    held: SmallVec<[u16; 2]>,
}

enum Event {
    Ended(EndedCall),
    /// Requests for this slot need not wait any longer.
    Released(u16),
}

impl Lane {
    pub fn new(client: Arc<RedisClient>) -> Arc<Self> {
        Arc::new(Self { client, queue: Mutex::default(), arrival: Notify::new() })
    }

    /// Adds a request; returns its number.
    pub fn push(self: &Arc<Self>, mut request: QueuedRequest) -> Result<u64, StoreError> {
        let queue = &mut *self.queue.lock();
        if queue.state == State::Stalled {
            return Err(StoreError::Unsent);
        }
        queue.last += 1;
        let number = queue.last;
        request.number = number;
        queue.requests.push_back(request);
        match std::mem::replace(&mut queue.state, State::Waiting) {
            // The task runs after those that are ready now, so their requests join the same call.
            State::Idle => drop(tokio::spawn(run(Arc::clone(self)))),
            State::Open => self.arrival.notify_one(),
            State::Waiting | State::Stalled => {}
        }
        Ok(number)
    }

    /// Removes a request that was not sent yet; returns whether it was in the queue.
    pub fn withdraw(&self, number: u64) -> bool {
        let queue = &mut *self.queue.lock();
        let index = queue.requests.iter().position(|one| one.number == number);
        index.and_then(|index| queue.requests.remove(index)).is_some()
    }

    fn next_step(&self, calls: &Calls) -> Step {
        let queue = &mut *self.queue.lock();
        queue.state = State::Waiting;
        match queue.round_trips.pace(&calls.sent, monotonic()) {
            Pace::AfterReply => return Step::AwaitReply,
            Pace::At(time) => return Step::AwaitReplyUntil(time),
            Pace::Now => {}
        }
        let requests = queue.next_batch(&calls.held);
        if !requests.is_empty() {
            return Step::Send(requests);
        }
        if calls.events.is_empty() {
            queue.state = State::Idle;
            return Step::End;
        }
        queue.state = State::Open;
        Step::AwaitRequest
    }

    async fn handle(&self, event: Event, calls: &mut Calls) {
        if let Some(ended) = calls.record(event, &self.client) {
            match ended.outcome {
                CallOutcome::Replied => {
                    let now = monotonic();
                    self.queue.lock().round_trips.record(now - ended.sent, now);
                }
                CallOutcome::Failed => {}
                CallOutcome::Silent => self.stall(ended.slot, calls).await,
            }
        }
        if !self.queue.lock().requests.is_empty() {
            // Connections that are readable now can add their requests to the queued ones.
            tokio::task::yield_now().await;
        }
    }

    /// Fails all requests until the server replies to something, or its connection is replaced. `slot` is one of its slots.
    async fn stall(&self, slot: u16, calls: &mut Calls) {
        let queued = {
            let mut queue = self.queue.lock();
            queue.state = State::Stalled;
            std::mem::take(&mut queue.requests)
        };
        for request in queued {
            // The request may have been dropped.
            let _ = request.reply.send(Err(StoreError::Unsent));
        }
        let mut replied = pin!(self.client.wait_for_reply(slot));
        loop {
            let event = tokio::select! {
                () = &mut replied => break,
                Some(event) = calls.events.next() => event,
            };
            let ended = calls.record(event, &self.client);
            if ended.is_some_and(|ended| ended.outcome != CallOutcome::Silent) {
                break;
            }
        }
        self.queue.lock().state = State::Waiting;
    }
}

impl Queue {
    /// Takes the requests of the next call: as many as weigh no more than a call may, without those for a slot in `held`.
    fn next_batch(&mut self, held: &[u16]) -> Vec<QueuedRequest> {
        // A request that was dropped has another outcome already, and must not be charged.
        self.requests.retain(|one| !one.reply.is_closed());
        let (mut batch, mut skipped, mut weight) = (Vec::<QueuedRequest>::new(), VecDeque::new(), 0);
        while let Some(request) = self.requests.pop_front() {
            if held.contains(&request.slot) {
                skipped.push_back(request);
                continue;
            }
            weight += request.weight();
            // The first is sent even if it exceeds the bound by itself. A command writes each policy once, by its id, so all
            // of its requests must have the same policies.
            let fits = |first: &QueuedRequest| {
                weight <= MAX_WEIGHT && Arc::ptr_eq(&request.policies, &first.policies)
            };
            if batch.first().is_none_or(fits) {
                batch.push(request);
            } else {
                self.requests.push_front(request);
                break;
            }
        }
        while let Some(request) = skipped.pop_back() {
            self.requests.push_front(request);
        }
        batch
    }
}

impl Calls {
    fn send(&mut self, client: &Arc<RedisClient>, requests: Vec<QueuedRequest>) {
        let sent = monotonic();
        self.sent.push(sent);
        let calling = call(Arc::clone(client), requests, sent);
        self.events.push(Box::pin(async move { Event::Ended(calling.await) }));
    }

    /// Records an event; returns the call that has ended.
    fn record(&mut self, event: Event, client: &RedisClient) -> Option<EndedCall> {
        match event {
            Event::Released(slot) => {
                if let Some(index) = self.held.iter().position(|held| *held == slot) {
                    self.held.remove(index);
                }
                None
            }
            Event::Ended(mut ended) => {
                if let Some(index) = self.sent.iter().position(|sent| *sent == ended.sent) {
                    self.sent.remove(index);
                }
                for Delayed { slot, delivery } in ended.delayed.drain(..) {
                    self.held.push(slot);
                    let patience = client.timeout() / 4;
                    self.events.push(Box::pin(async move {
                        let _ = tokio::time::timeout(patience, tokio::spawn(delivery)).await;
                        Event::Released(slot)
                    }));
                }
                Some(ended)
            }
        }
    }
}

/// Makes the calls of a lane, until no request is queued.
async fn run(lane: Arc<Lane>) {
    let mut calls = Calls::default();
    loop {
        let event = match lane.next_step(&calls) {
            Step::Send(requests) => {
                calls.send(&lane.client, requests);
                continue;
            }
            Step::AwaitReply => calls.events.next().await,
            Step::AwaitReplyUntil(time) => {
                tokio::time::timeout_at(time, calls.events.next()).await.ok().flatten()
            }
            Step::AwaitRequest => tokio::select! {
                biased;
                event = calls.events.next() => event,
                () = lane.arrival.notified() => None,
            },
            Step::End => return,
        };
        if let Some(event) = event {
            lane.handle(event, &mut calls).await;
        }
    }
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lane").field("queue", &self.queue).finish_non_exhaustive()
    }
}
