//! The wait for a connection while `max_connections` are in use.

use std::future::{Future as _, poll_fn};
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::RecvError;
use tokio::time::{Instant, timeout, timeout_at};

use super::connection_limit::{ConnectionPermit, Share, WaitResult};
use super::idle::IdleConnections;
use crate::time::monotonic;
use crate::upstream::http1::Http1Connection;
use crate::upstream::http2::Http2Pool;

/// How often a waiting request tries to reclaim a connection from a client that has too many.
const RECLAIM_INTERVAL: Duration = Duration::from_millis(250);

/// The result of a wait for a connection.
pub(in crate::upstream) enum Acquired {
    /// A connection that another request has released.
    Connection(Box<Http1Connection>),
    /// The permit for a new connection, or over HTTP/2 for a stream.
    Permit(ConnectionPermit),
}

/// A request in the queue of one endpoint; dropping it leaves the queue.
struct Acquire<'p> {
    connections: &'p IdleConnections,
    client: IpAddr,
    number: u64,
    granted: oneshot::Receiver<WaitResult>,
}

/// Waits until one of these endpoints, all of one upstream, has a connection or a permit for one. Returns the index of
/// the endpoint with it, or none if `deadline` passes first or the request is rejected because too many wait.
pub(in crate::upstream) async fn acquire(
    endpoints: &[&IdleConnections],
    client: IpAddr,
    deadline: Instant,
) -> Option<(usize, Acquired)> {
    timeout_at(deadline, wait(endpoints, client)).await.ok().flatten()
}

async fn wait(endpoints: &[&IdleConnections], client: IpAddr) -> Option<(usize, Acquired)> {
    loop {
        if let Some((index, permit)) = try_acquire(endpoints) {
            return Some((index, Acquired::Permit(permit)));
        }
        if exceeds_its_share(endpoints, client) {
            return None;
        }
        let first = endpoints.first()?;
        let displace = || endpoints.iter().any(|endpoint| endpoint.queue().displace(client));
        let _pending = first.start_pending(displace)?;
        // The request waits in all queues at once; a second grant goes to the next waiter when this one is dropped.
        let mut waits: SmallVec<[Acquire<'_>; 4]> =
            endpoints.iter().map(|endpoint| Acquire::start(endpoint, client)).collect();
        first.notify_other_workers();
        let (index, grant) = loop {
            endpoints.iter().filter_map(|endpoint| endpoint.http2()).for_each(Http2Pool::update_limit);
            let now = monotonic();
            // One is enough. If another request gets that connection, this one tries again.
            let _ = endpoints.iter().any(|endpoint| endpoint.queue().reclaim(client, now));
            let granted = poll_fn(|cx| poll_granted(&mut waits, cx));
            if let Ok(granted) = timeout(RECLAIM_INTERVAL, granted).await {
                break granted;
            }
        };
        let granted = &waits[index];
        match grant {
            Ok(WaitResult::Permit(permit)) => return Some((index, Acquired::Permit(permit))),
            Ok(WaitResult::Connection) => {
                if let Some(connection) = granted.connections.take_granted(granted.number) {
                    return Some((index, Acquired::Connection(connection)));
                }
            }
            // The request was displaced.
            Err(_) => return None,
        }
    }
}

/// Takes a free permit, if need be after closing an idle connection: a request that needs a new connection must not
/// wait for idle ones.
fn try_acquire(endpoints: &[&IdleConnections]) -> Option<(usize, ConnectionPermit)> {
    endpoints.iter().enumerate().find_map(|(index, endpoint)| {
        loop {
            if let Some(permit) = endpoint.queue().try_acquire() {
                return Some((index, permit));
            }
            if endpoint.http2().is_some() || !endpoint.close_idle() {
                return None;
            }
        }
    })
}

/// The first grant in any of these queues, with the index of the queue.
fn poll_granted(
    waits: &mut [Acquire<'_>],
    cx: &mut Context<'_>,
) -> Poll<(usize, Result<WaitResult, RecvError>)> {
    for (index, wait) in waits.iter_mut().enumerate() {
        if let Poll::Ready(grant) = Pin::new(&mut wait.granted).poll(cx) {
            return Poll::Ready((index, grant));
        }
    }
    Poll::Pending
}

/// Whether requests of other clients wait while this client uses more than a quarter of the connections. Its requests are
/// then rejected before those of others.
fn exceeds_its_share(endpoints: &[&IdleConnections], client: IpAddr) -> bool {
    let shares: SmallVec<[Share; 4]> =
        endpoints.iter().map(|endpoint| endpoint.queue().share(client)).collect();
    let (held, max) = shares.iter().fold((0, 0), |(held, max), share| (held + share.held, max + share.max));
    held * 4 > max && shares.iter().any(|share| share.others_wait)
}

impl<'p> Acquire<'p> {
    fn start(connections: &'p IdleConnections, client: IpAddr) -> Self {
        let (number, granted) = connections.enqueue(client);
        Self { connections, client, number, granted }
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        // A grant that was not taken goes to the next waiter.
        self.granted.close();
        if let Ok(WaitResult::Connection) = self.granted.try_recv()
            && let Some(connection) = self.connections.take_granted(self.number)
        {
            self.connections.release(connection);
        }
        self.connections.queue().dequeue(self.client, self.number);
    }
}
