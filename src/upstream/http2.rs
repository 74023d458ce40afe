//! HTTP/2 connections to a server, each shared by many requests.
//!
//! Unlike an HTTP/1.1 connection, a separate task drives such a connection, since no request can drive the others. Each
//! request has timeouts of its own.

mod cancel;
mod connection;
mod stream;
mod upload;

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};

use self::connection::{Http2Connection, open, settings_allow};
pub(super) use self::stream::Http2Stream;
use super::pool::connection_limit::{ConnectionLimit, ConnectionPermit};
use crate::time::monotonic;
use crate::tls::Transport;

/// One worker's HTTP/2 connections to one endpoint.
#[derive(Debug)]
pub(in crate::upstream) struct Http2Pool {
    connections: RefCell<Vec<Rc<Http2Connection>>>,
    /// The streams of the connections, and the requests that wait for one. Its limit is set before a request waits.
    streams: Arc<ConnectionLimit>,
    /// Locked while a connection is opened, so that concurrent requests share the new one.
    connecting: Mutex<()>,
    /// Cloned into each connection, including those that only finish their requests.
    alive: Rc<()>,
}

impl Default for Http2Pool {
    fn default() -> Self {
        let streams = ConnectionLimit::new(0);
        Self { connections: RefCell::default(), streams, connecting: Mutex::default(), alive: Rc::default() }
    }
}

impl Http2Pool {
    /// Locks the opening of connections: only one request at a time opens one.
    pub async fn lock_connecting(&self) -> MutexGuard<'_, ()> {
        self.connecting.lock().await
    }

    /// The streams of the connections, and the requests that wait for one.
    pub fn streams(&self) -> &Arc<ConnectionLimit> {
        &self.streams
    }

    /// A stream in a connection with capacity, for a request that was `granted` it or finds no other waiting.
    pub fn open_stream(&self, granted: Option<ConnectionPermit>) -> Option<Box<Http2Stream>> {
        if granted.is_none() && self.streams.has_waiters() {
            return None;
        }
        let mut connections = self.connections.borrow_mut();
        connections.retain(|connection| connection.is_usable());
        let connection = connections.iter().find(|connection| connection.capacity() > 0)?;
        let permit = granted.unwrap_or_else(|| self.streams.acquire_over_limit());
        Some(Box::new(Http2Stream::new(Rc::clone(connection), permit, true)))
    }

    /// Whether a request need not wait for a stream.
    pub fn has_capacity(&self) -> bool {
        let connections = self.connections.borrow();
        let has_room = |connection: &Rc<Http2Connection>| connection.is_usable() && connection.capacity() > 0;
        !self.streams.has_waiters() && connections.iter().any(has_room)
    }

    /// Limits the streams to those that the present connections allow, and serves waiting requests with the free ones.
    pub fn update_limit(&self) {
        let connections = self.connections.borrow();
        let usable = connections.iter().filter(|connection| connection.is_usable());
        let free: usize = usable.map(|connection| connection.capacity()).sum();
        self.streams.set_max(self.streams.open_connections() + free);
    }

    /// Waits for the SETTINGS of a new connection, if there is one.
    pub async fn wait_for_settings(&self) {
        let is_settled =
            |connection: &Rc<Http2Connection>| !connection.is_usable() || connection.is_settled();
        settings_allow(|| self.connections.borrow().iter().all(is_settled)).await;
    }

    /// Makes a connection over a transport, each write of which may take `stall_timeout`, and opens the first stream in it.
    pub async fn connect(
        &self,
        transport: Transport,
        permit: ConnectionPermit,
        stall_timeout: Duration,
    ) -> io::Result<Box<Http2Stream>> {
        let connection = open(transport, permit, Rc::clone(&self.alive), stall_timeout).await?;
        self.connections.borrow_mut().push(Rc::clone(&connection));
        Ok(Box::new(Http2Stream::new(connection, self.streams.acquire_over_limit(), false)))
    }

    /// Whether there is no connection at all, not even one that finishes its requests.
    pub fn is_empty(&self) -> bool {
        Rc::strong_count(&self.alive) == 1
    }

    /// Closes a connection without requests; returns whether there was one.
    pub fn close_idle(&self) -> bool {
        let mut connections = self.connections.borrow_mut();
        let idle = connections.iter().position(|connection| connection.requests.get() == 0);
        idle.map(|index| connections.swap_remove(index)).is_some()
    }

    /// Removes all connections: each closes after the requests that it has.
    pub fn retire(&self) {
        let _ = self.connections.take();
    }

    /// Closes connections that have been without requests for `idle_timeout`, and removes those that have ended.
    pub fn sweep(&self, idle_timeout: Duration) {
        self.connections.borrow_mut().retain(|connection| {
            let is_idle = connection.requests.get() == 0;
            connection.is_usable() && !(is_idle && monotonic() - connection.idle_since.get() >= idle_timeout)
        });
    }
}
