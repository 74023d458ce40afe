//! The status of a client's connection that other workers read and write.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use parking_lot::Mutex;

use super::head_budget::ClientHeads;

/// Whether a connection is idle, so that it can be evicted, and whether it was.
#[derive(Debug, Default)]
pub(super) struct ConnectionStatus {
    is_idle: AtomicBool,
    is_evicted: AtomicBool,
    /// Wakes the connection's task.
    waker: Mutex<Option<Waker>>,
    /// The heads of its client, once that is known and unless it is a trusted proxy.
    client_heads: OnceLock<Arc<ClientHeads>>,
}

impl ConnectionStatus {
    /// Records the heads of its client.
    pub fn set_client_heads(&self, heads: &Arc<ClientHeads>) {
        // A connection has one client.
        let _ = self.client_heads.set(Arc::clone(heads));
    }

    /// The heads of its client, unless it is a trusted proxy.
    pub fn client_heads(&self) -> Option<Arc<ClientHeads>> {
        self.client_heads.get().cloned()
    }

    /// Whether no request is in progress.
    pub fn is_idle(&self) -> bool {
        self.is_idle.load(Ordering::Relaxed)
    }

    /// Records whether no request is in progress.
    pub fn set_idle(&self, is_idle: bool) {
        // Read first: a cache line that is not written stays valid for other cores.
        if self.is_idle() != is_idle {
            self.is_idle.store(is_idle, Ordering::Relaxed);
        }
    }

    /// Whether the connection has to close for another client's.
    pub fn is_evicted(&self) -> bool {
        self.is_evicted.load(Ordering::Relaxed)
    }

    /// Makes the connection close as soon as its task is woken.
    pub fn evict(&self) {
        self.is_evicted.store(true, Ordering::Relaxed);
    }

    /// Sets the task that is woken.
    pub fn set_waker(&self, waker: &Waker) {
        *self.waker.lock() = Some(waker.clone());
    }

    /// Wakes the connection's task.
    pub fn wake(&self) {
        if let Some(waker) = &*self.waker.lock() {
            waker.wake_by_ref();
        }
    }
}
