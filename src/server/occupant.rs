//! A client's connection as other workers see it: whether it is idle, and whether it has to close for a newcomer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use parking_lot::Mutex;

/// A client's connection.
#[derive(Debug, Default)]
pub(super) struct Occupant {
    is_idle: AtomicBool,
    is_evicted: AtomicBool,
    /// Wakes the connection's task.
    waker: Mutex<Option<Waker>>,
}

impl Occupant {
    /// Whether no request is under way.
    pub fn is_idle(&self) -> bool {
        self.is_idle.load(Ordering::Relaxed)
    }

    /// Notes whether a request is under way.
    pub fn set_idle(&self, is_idle: bool) {
        // Read first: a line that is not written stays in the cache of other cores.
        if self.is_idle() != is_idle {
            self.is_idle.store(is_idle, Ordering::Relaxed);
        }
    }

    /// Whether the connection has to close.
    pub fn is_evicted(&self) -> bool {
        self.is_evicted.load(Ordering::Relaxed)
    }

    /// Has the connection close as soon as its task is woken.
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
