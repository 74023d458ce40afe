//! Requests gathered into calls: while one call is on its way, those that come meanwhile wait for the next.
//!
//! There is no timer, so a lone request waits for nothing; and a call never waits for company. What does not fit
//! the queue is refused at once, and whoever has stopped waiting is not asked for any more.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::{mpsc, oneshot};

use super::line::Line;
use super::script::TAKE;
use super::wire::{self, Call};
use crate::limit::{Charge, Policy};
use crate::store::{Decisions, StoreError};

/// How many requests may wait for a call.
const MOST_WAITING: usize = 4_096;
/// How many charges go in one call: it must not keep the server from others, and Lua takes no more than some
/// thousand keys.
const MOST_CHARGES: usize = 512;

/// Where requests wait.
#[derive(Clone, Debug)]
pub(super) struct Queue(mpsc::Sender<Waiting>);

/// A request that waits.
#[derive(Debug)]
struct Waiting {
    policies: Arc<[Policy]>,
    charges: SmallVec<[Charge; 4]>,
    /// Whether each charge is a request by itself.
    apart: bool,
    reply: oneshot::Sender<Result<Decisions, StoreError>>,
}

impl Queue {
    /// A queue that is worked off over `line` for as long as a clone of it lives; within a runtime.
    pub fn over(line: Arc<Line>) -> Self {
        let (sender, waiting) = mpsc::channel(MOST_WAITING);
        tokio::spawn(work_off(line, waiting));
        Self(sender)
    }

    /// Sends charges with the next call, and waits for what it says of them.
    pub async fn ask(
        &self,
        policies: &Arc<[Policy]>,
        charges: &[Charge],
        apart: bool,
    ) -> Result<Decisions, StoreError> {
        let (reply, replied) = oneshot::channel();
        let (policies, charges) = (Arc::clone(policies), charges.into());
        let waiting = Waiting { policies, charges, apart, reply };
        self.0.try_send(waiting).map_err(|_| StoreError::Busy)?;
        // The other end is dropped only with the runtime.
        replied.await.unwrap_or(Err(StoreError::Lost))
    }
}

async fn work_off(line: Arc<Line>, mut queue: mpsc::Receiver<Waiting>) {
    let mut waiting = Vec::new();
    while queue.recv_many(&mut waiting, MOST_CHARGES).await > 0 {
        // Who has stopped waiting was told something else: to take for it now would be to charge for nothing.
        waiting.retain(|one| !one.reply.is_closed());
        while !waiting.is_empty() {
            let together = together(&waiting);
            send(&line, waiting.drain(..together)).await;
        }
    }
}

/// How many of the first go in one call.
fn together(waiting: &[Waiting]) -> usize {
    let mut charges = 0;
    let fits = |one: &&Waiting| {
        charges += one.charges.len();
        charges <= MOST_CHARGES && Arc::ptr_eq(&one.policies, &waiting[0].policies)
    };
    // One alone goes however large it is.
    waiting.iter().take_while(fits).count().max(1)
}

async fn send(line: &Line, requests: impl Iterator<Item = Waiting>) {
    let requests: Vec<Waiting> = requests.collect();
    let now = line.now();
    let mut call = Call::default();
    for Waiting { policies, charges, apart, .. } in &requests {
        if *apart {
            charges
                .iter()
                .for_each(|charge| call.add(line.prefix(), policies, std::slice::from_ref(charge), now));
        } else {
            call.add(line.prefix(), policies, charges, now);
        }
    }
    let (keys, arguments) = call.into_parts();
    let answered = line.eval(&TAKE, keys, arguments).await;
    let mut from = 0;
    for Waiting { policies, charges, reply, .. } in requests {
        let said = match &answered {
            Ok(bytes) => {
                let until = from + wire::reply_len(charges.len());
                let own = bytes.get(from..until).unwrap_or_default();
                from = until;
                wire::read(own, &policies, &charges)
            }
            Err(error) => Err(error.clone()),
        };
        // It may have stopped waiting.
        let _ = reply.send(said);
    }
}
