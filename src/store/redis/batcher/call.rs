//! Calls: requests that are sent together, in one command for each hash slot, which are written at once.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use hashbrown::HashMap;
use tokio::time::Instant;

use super::request::QueuedRequest;
use crate::store::redis::client::{Evaluated, RedisClient};
use crate::store::redis::reply::{self, Part};
use crate::store::redis::wire::Call;
use crate::store::types::StoreError;

/// A call whose commands all have ended, or are delayed.
pub(super) struct EndedCall {
    pub sent: Instant,
    pub outcome: Outcome,
    /// The slot of its first command.
    pub slot: u16,
    pub delayed: Vec<Delayed>,
}

/// How a call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
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
    Ended(Outcome),
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
    let outcome = [Outcome::Replied, Outcome::Silent].into_iter().find(|outcome| all(*outcome));
    let outcome = outcome.unwrap_or(Outcome::Failed);
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
                Ok(_) => Outcome::Replied,
                Err(StoreError::Deadline) => Outcome::Silent,
                Err(_) => Outcome::Failed,
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
                Ok(Part { decisions: bytes.slice(from..until), at: reply::time(bytes) })
            }
            // Too short: reading the decisions fails.
            Ok(bytes) => Ok(Part { decisions: Bytes::new(), at: reply::time(bytes) }),
            Err(error) => Err(error.clone()),
        };
        from = until;
        // The request may have been dropped.
        let _ = reply.send(part);
    }
}
