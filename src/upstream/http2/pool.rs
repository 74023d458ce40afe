//! One worker's HTTP/2 connections to one endpoint.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};

use super::connection::Http2Connection;
use super::open::open;
use super::stream::Http2Stream;
use crate::time::monotonic;
use crate::tls::Transport;
use crate::upstream::connection_limit::ConnectionPermit;

/// One worker's HTTP/2 connections to one endpoint.
#[derive(Debug, Default)]
pub(in crate::upstream) struct Http2Pool {
    connections: RefCell<Vec<Rc<Http2Connection>>>,
    /// Locked while a connection is opened, so that concurrent requests share the new one.
    connecting: Mutex<()>,
    /// Cloned into each connection, including those that only finish their requests.
    alive: Rc<()>,
}

impl Http2Pool {
    /// Locks the opening of connections: only one request at a time opens one.
    pub async fn lock_connecting(&self) -> MutexGuard<'_, ()> {
        self.connecting.lock().await
    }

    /// A stream in a connection with capacity.
    pub fn open_stream(&self) -> Option<Box<Http2Stream>> {
        self.find(Http2Connection::has_capacity)
    }

    /// A stream in any connection; its request may have to wait until others end.
    pub fn open_queued_stream(&self) -> Option<Box<Http2Stream>> {
        self.find(|_| true)
    }

    fn find(&self, is_suitable: impl Fn(&Http2Connection) -> bool) -> Option<Box<Http2Stream>> {
        let mut connections = self.connections.borrow_mut();
        connections.retain(|connection| connection.is_usable());
        let found = connections.iter().find(|connection| is_suitable(connection));
        found.map(|connection| Box::new(Http2Stream::new(Rc::clone(connection), true)))
    }

    /// Makes a connection over a transport, and opens the first stream in it.
    ///
    /// # Errors
    /// When the HTTP/2 handshake fails.
    pub async fn connect(
        &self,
        transport: Transport,
        permit: ConnectionPermit,
        response_timeout: Duration,
        stall_timeout: Duration,
    ) -> io::Result<Box<Http2Stream>> {
        let connection =
            open(transport, permit, Rc::clone(&self.alive), response_timeout, stall_timeout).await?;
        self.connections.borrow_mut().push(Rc::clone(&connection));
        Ok(Box::new(Http2Stream::new(connection, false)))
    }

    /// Whether there is no connection at all, not even one that finishes its requests.
    pub fn is_empty(&self) -> bool {
        Rc::strong_count(&self.alive) == 1
    }

    /// Whether there is a connection that can take requests.
    pub fn has_connection(&self) -> bool {
        self.connections.borrow().iter().any(|connection| connection.is_usable())
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
