//! Requests that wait because all connections that may be are in use.

use std::future::{Future as _, poll_fn};
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::oneshot::{self, error::RecvError};
use tokio::time::{Instant, timeout, timeout_at};

use super::connection_limit::{ConnectionPermit, Grant, Share};
use super::http1::Http1Connection;
use super::pool::Pool;
use crate::time::monotonic;

/// How often a waiting request looks for a slow client whose connection it can have.
const RECLAIM_EVERY: Duration = Duration::from_millis(250);

/// What a request that needs a connection is given.
pub(super) enum Acquired {
    /// One that has come free.
    Connection(Box<Http1Connection>),
    /// Room for a new one.
    Place(ConnectionPermit),
}

/// A request in the line of one pool.
struct Acquire<'p> {
    pool: &'p Pool,
    number: u64,
    granted: oneshot::Receiver<Grant>,
}

/// Waits until one of these pools, all of one upstream, has a connection or room for one: which one it is, and what it
/// has. None if there was no turn by then, or too many wait already.
pub(super) async fn turn(pools: &[&Pool], client: IpAddr, by: Instant) -> Option<(usize, Acquired)> {
    timeout_at(by, wait(pools, client)).await.ok().flatten()
}

async fn wait(pools: &[&Pool], client: IpAddr) -> Option<(usize, Acquired)> {
    loop {
        for (which, pool) in pools.iter().enumerate() {
            loop {
                if let Some(place) = pool.room().enter() {
                    return Some((which, Acquired::Place(place)));
                }
                // Whoever wants a fresh one does not wait for what is kept.
                if !pool.close_kept() {
                    break;
                }
            }
        }
        if has_its_share(pools, client) {
            return None;
        }
        let first = pools.first()?;
        let displace = || pools.iter().any(|pool| pool.room().displace(client));
        let _pending = first.pending(displace)?;
        // In all lines at once: what comes second goes to the next one there.
        let mut waits: SmallVec<[Acquire<'_>; 4]> =
            pools.iter().map(|pool| Acquire::begin(pool, client)).collect();
        first.ring_others();
        let (which, grant) = loop {
            let now = monotonic();
            // One is enough; if it goes to another request, there is a next time.
            let _ = pools.iter().any(|pool| pool.room().reclaim(client, now));
            if let Ok(granted) = timeout(RECLAIM_EVERY, poll_fn(|cx| poll_granted(&mut waits, cx))).await {
                break granted;
            }
        };
        let waiting = &waits[which];
        match grant {
            Ok(Grant::Place(place)) => return Some((which, Acquired::Place(place))),
            Ok(Grant::Handed) => {
                if let Some(connection) = waiting.pool.take_handed(waiting.number) {
                    return Some((which, Acquired::Connection(connection)));
                }
            }
            // It was displaced.
            Err(_) => return None,
        }
    }
}

/// The first grant in any of these lines, and in which.
fn poll_granted(waits: &mut [Acquire<'_>], cx: &mut Context<'_>) -> Poll<(usize, Result<Grant, RecvError>)> {
    let mut told = waits.iter_mut().map(|waiting| Pin::new(&mut waiting.granted).poll(cx)).enumerate();
    let first = told.find_map(|(which, told)| match told {
        Poll::Ready(grant) => Some((which, grant)),
        Poll::Pending => None,
    });
    first.map_or(Poll::Pending, Poll::Ready)
}

/// Whether requests of other clients wait, and this one's use more than a quarter of the connections: then it is refused
/// before any of the others.
fn has_its_share(pools: &[&Pool], client: IpAddr) -> bool {
    let shares: SmallVec<[Share; 4]> = pools.iter().map(|pool| pool.room().share(client)).collect();
    let (held, most) =
        shares.iter().fold((0, 0), |(held, most), share| (held + share.held, most + share.most));
    held * 4 > most && shares.iter().any(|share| share.others_wait)
}

impl<'p> Acquire<'p> {
    fn begin(pool: &'p Pool, client: IpAddr) -> Self {
        let (number, granted) = pool.line_up(client);
        Self { pool, number, granted }
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        // Who goes away gets nothing more, and what it was given goes to the next.
        self.granted.close();
        if let Ok(Grant::Handed) = self.granted.try_recv()
            && let Some(connection) = self.pool.take_handed(self.number)
        {
            self.pool.give_back(connection);
        }
        self.pool.room().leave(self.number);
    }
}
