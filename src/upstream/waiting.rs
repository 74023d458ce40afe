//! Requests that wait because all connections that may be are in use.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::pool::Pool;
use super::room::{Grant, Place};
use super::wire::Wire;

/// What a request that needs a connection is given.
pub(super) enum Turn {
    /// One that has come free.
    Wire(Box<Wire>),
    /// Room for a new one.
    Place(Place),
}

/// A request in the line of one pool.
struct Waiting<'p> {
    pool: &'p Pool,
    number: u64,
    granted: oneshot::Receiver<Grant>,
}

/// Waits until one of these pools, all of one upstream, has a connection or room for one: which one it is, and what it
/// has. None if there was no turn by then, or too many wait already.
pub(super) async fn turn(pools: &[&Pool], by: Instant) -> Option<(usize, Turn)> {
    timeout_at(by, wait(pools)).await.ok().flatten()
}

async fn wait(pools: &[&Pool]) -> Option<(usize, Turn)> {
    loop {
        for (which, pool) in pools.iter().enumerate() {
            loop {
                if let Some(place) = pool.room().enter() {
                    return Some((which, Turn::Place(place)));
                }
                // Whoever wants a fresh one does not wait for what is kept.
                if !pool.close_kept() {
                    break;
                }
            }
        }
        let _pending = pools.first()?.pending()?;
        // In all lines at once: what comes second goes to the next one there.
        let mut waits: SmallVec<[Waiting<'_>; 4]> = pools.iter().map(|pool| Waiting::begin(pool)).collect();
        pools.first()?.ring_others();
        let (which, grant) = poll_fn(|cx| {
            let mut told =
                waits.iter_mut().map(|waiting| Pin::new(&mut waiting.granted).poll(cx)).enumerate();
            let first = told.find_map(|(which, told)| match told {
                Poll::Ready(grant) => Some((which, grant)),
                Poll::Pending => None,
            });
            first.map_or(Poll::Pending, Poll::Ready)
        })
        .await;
        let waiting = &waits[which];
        match grant {
            Ok(Grant::Place(place)) => return Some((which, Turn::Place(place))),
            Ok(Grant::Handed) => {
                if let Some(wire) = waiting.pool.take_handed(waiting.number) {
                    return Some((which, Turn::Wire(wire)));
                }
            }
            // Nobody drops the other end without a word.
            Err(_) => return None,
        }
    }
}

impl<'p> Waiting<'p> {
    fn begin(pool: &'p Pool) -> Self {
        let (number, granted) = pool.line_up();
        Self { pool, number, granted }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // Who goes away gets nothing more, and what it was given goes to the next.
        self.granted.close();
        if let Ok(Grant::Handed) = self.granted.try_recv()
            && let Some(wire) = self.pool.take_handed(self.number)
        {
            self.pool.give_back(wire);
        }
        self.pool.room().leave(self.number);
    }
}
