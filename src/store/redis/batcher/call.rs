//! Calls: requests that are sent together, in one command for each hash slot, which are written at once; and the requests
//! that wait for one.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use hashbrown::HashMap;
use smallvec::SmallVec;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use crate::limit::{Charge, GrantRequest, Policy, Quota};
use crate::store::redis::client::{Evaluated, RedisClient};
use crate::store::redis::reply::{self, ReplyPart};
use crate::store::redis::wire::{Call, ChargesWithGrants};
use crate::store::types::StoreError;

/// A call whose commands all have ended, or are delayed.
pub(super) struct EndedCall {
    pub sent: Instant,
    pub outcome: CallOutcome,
    /// The slot of its first command.
    pub slot: u16,
    pub delayed: Vec<Delayed>,
}

/// How a call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallOutcome {
    /// It was run.
    Replied,
    /// The server has replied with an error, or there is no connection.
    Failed,
    /// There was no reply at all within the deadline.
    Silent,
}

/// A command that was not run, since its slot is being moved, and is sent again.
pub(super) struct Delayed {
    pub slot: u16,
    /// Waits for its reply and passes it on.
    pub delivery: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// How a command has ended.
enum EndedCommand {
    Ended(CallOutcome),
    Delayed(Delayed),
}

/// Sends these requests, of which there is one at least, in one call; passes each its part of the reply.
pub(super) async fn call(client: Arc<RedisClient>, requests: Vec<QueuedRequest>, sent: Instant) -> EndedCall {
    let slot = requests.first().map_or(0, |request| request.slot);
    let commands = by_slot(requests);
    let ended = join_all(commands.into_iter().map(|requests| send(&client, requests, sent))).await;
    let (mut outcomes, mut delayed) = (Vec::with_capacity(ended.len()), Vec::new());
    for command in ended {
        match command {
            EndedCommand::Ended(outcome) => outcomes.push(outcome),
            EndedCommand::Delayed(command) => delayed.push(command),
        }
    }
    let all = |outcome| delayed.is_empty() && outcomes.iter().all(|one| *one == outcome);
    let outcome = [CallOutcome::Replied, CallOutcome::Silent].into_iter().find(|outcome| all(*outcome));
    let outcome = outcome.unwrap_or(CallOutcome::Failed);
    EndedCall { sent, outcome, slot, delayed }
}

/// The requests of each slot, in their order.
fn by_slot(requests: Vec<QueuedRequest>) -> Vec<Vec<QueuedRequest>> {
    if requests.windows(2).all(|pair| pair[0].slot == pair[1].slot) {
        return vec![requests];
    }
    let mut indices = HashMap::with_capacity(requests.len());
    let mut commands: Vec<Vec<QueuedRequest>> = Vec::new();
    for request in requests {
        let index = *indices.entry(request.slot).or_insert(commands.len());
        match commands.get_mut(index) {
            Some(command) => command.push(request),
            None => commands.push(vec![request]),
        }
    }
    commands
}

/// Sends requests of one slot in one command.
async fn send(client: &Arc<RedisClient>, requests: Vec<QueuedRequest>, sent: Instant) -> EndedCommand {
    let clock = client.clock();
    client.counts().record_batch(requests.len());
    let mut call = Call::with_capacity(requests.iter().map(|one| one.charges.len()).sum());
    for one in &requests {
        // Each deadline is one timeout after the request was made.
        client.counts().record_wait(client.timeout().saturating_sub(one.deadline.duration_since(sent)));
        let (policies, request) = (&one.policies, one.charges_with_grants());
        if one.independent {
            request.chunks(1).for_each(|request| call.add(client.prefix(), policies, request, clock));
        } else {
            call.add(client.prefix(), policies, request, clock);
        }
    }
    // The earliest deadline, since no request may wait longer for the reply.
    let deadline = requests.iter().map(|one| one.deadline).min().unwrap_or_else(|| client.deadline());
    match client.take(call, deadline).await {
        Evaluated::Ended(reply) => {
            let outcome = match &reply {
                Ok(_) => CallOutcome::Replied,
                Err(StoreError::Deadline) => CallOutcome::Silent,
                Err(_) => CallOutcome::Failed,
            };
            deliver(requests, &reply);
            EndedCommand::Ended(outcome)
        }
        Evaluated::Delayed(again) => {
            let slot = requests.first().map_or(0, |request| request.slot);
            let delivery = Box::pin(async move { deliver(requests, &again.await) });
            EndedCommand::Delayed(Delayed { slot, delivery })
        }
    }
}

/// Passes each request its part of the reply.
fn deliver(requests: Vec<QueuedRequest>, replied: &Result<Bytes, StoreError>) {
    let mut from = 0;
    for QueuedRequest { charges, reply, .. } in requests {
        let until = from + reply::length(&charges);
        let part = match replied {
            Ok(bytes) if until <= bytes.len() => {
                Ok(ReplyPart { decisions: bytes.slice(from..until), at: reply::time(bytes) })
            }
            // Too short: reading the decisions fails.
            Ok(bytes) => Ok(ReplyPart { decisions: Bytes::new(), at: reply::time(bytes) }),
            Err(error) => Err(error.clone()),
        };
        from = until;
        // The request may have been dropped.
        let _ = reply.send(part);
    }
}

/// The greatest total weight of the requests of a call, so that a call does not occupy the server for long. Since each charge
/// weighs at least one, it also bounds the number of charges.
pub(super) const MAX_WEIGHT: usize = crate::store::redis::wire::MAX_CHARGES;
/// A sliding log takes the server about as long as one charge of a token bucket for each of this number of entries.
const ENTRIES: u64 = 100;
/// The slots of a concurrency limit that take the server as long as one charge of a token bucket.
const SLOTS: u64 = 20;

/// A request that waits for a call.
#[derive(Debug)]
pub(super) struct QueuedRequest {
    /// Identifies the request in its lane.
    pub number: u64,
    pub deadline: Instant,
    /// The hash slot of its keys; 0 if there is only one server.
    pub slot: u16,
    pub policies: Arc<[Policy]>,
    pub charges: SmallVec<[Charge; 2]>,
    /// Those of the charges of the kind `Grant`; most requests have none.
    pub grant_requests: Option<Box<[GrantRequest]>>,
    /// Whether each charge is decided independently.
    pub independent: bool,
    /// Receives the part of the script's reply that is about this request.
    pub reply: oneshot::Sender<Result<ReplyPart, StoreError>>,
    /// Counts the request among the pending ones.
    pub _permit: OwnedSemaphorePermit,
}

impl QueuedRequest {
    /// The charges, with their grant requests.
    pub fn charges_with_grants(&self) -> ChargesWithGrants<'_> {
        let grant_requests = self.grant_requests.as_deref().unwrap_or_default();
        ChargesWithGrants { charges: &self.charges, grant_requests }
    }

    /// About how long it takes the server, in charges of a token bucket.
    pub fn weight(&self) -> usize {
        self.charges.iter().map(|charge| weight(&self.policies[charge.policy].quota)).sum()
    }
}

fn weight(quota: &Quota) -> usize {
    let weight = match quota {
        Quota::SlidingLog(log) => log.max_entries() / ENTRIES,
        Quota::Concurrency(slots) => slots.limit() / SLOTS,
        _ => 1,
    };
    usize::try_from(weight).unwrap_or(MAX_WEIGHT).clamp(1, MAX_WEIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Rate;
    use crate::time::Micros;

    #[test]
    fn charges_that_take_longer_weigh_more() {
        let log = |units| Quota::sliding_log(&[Rate::new(units, Micros::SECOND).unwrap()]).unwrap();
        let slots = |slots| Quota::concurrency(slots, Micros(60_000_000)).unwrap();
        let bucket = Quota::token_bucket(Rate::new(1, Micros::SECOND).unwrap(), 1_000_000).unwrap();
        let weights = [log(60), log(1_000), slots(10), slots(1_000), bucket].map(|quota| weight(&quota));
        assert_eq!(weights, [1, 10, 1, 50, 1]);
    }
}
