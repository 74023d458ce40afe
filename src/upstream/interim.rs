//! Interim responses of a server, such as `103 Early Hints`, on their way to the client (RFC 9110 §15.2).

use std::cell::RefCell;
use std::task::Waker;

use crate::http1::ResponseHead;

/// The most interim responses of an attempt that are forwarded. Further ones are discarded.
pub(super) const MAX_FORWARDED: u8 = 16;
/// The most bytes of these interim responses.
pub(super) const MAX_FORWARDED_BYTES: usize = 64 * 1024;

/// Interim responses to a request that its client has not received yet.
#[derive(Debug, Default)]
pub struct InterimResponses {
    heads: RefCell<Vec<ResponseHead>>,
    /// The task that writes them, where another one reads them from the server.
    waker: RefCell<Option<Waker>>,
}

impl InterimResponses {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heads.borrow().is_empty()
    }

    /// Takes all of them.
    #[must_use]
    pub fn take(&self) -> Vec<ResponseHead> {
        self.heads.take()
    }

    pub(super) fn push(&self, head: ResponseHead) {
        self.heads.borrow_mut().push(head);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Has this task woken when there is one.
    pub(super) fn set_waker(&self, waker: &Waker) {
        self.waker.replace(Some(waker.clone()));
    }
}
