//! The body of a request over HTTP/1.1, from the connection that reads it to whatever takes it.
//!
//! The connection reads a part only when it is wanted, so no more than one waits. Both ends are on one thread, and for the
//! most part in one task, which is then not woken.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;

use super::body::BodyError;
use crate::socket::TransferRate;

/// The end of the connection that reads the body.
#[derive(Debug)]
pub struct BodySender(Rc<RefCell<Channel>>);

/// The end that takes the body.
#[derive(Debug)]
pub struct BodyReceiver(Rc<RefCell<Channel>>);

/// What the other end of a sender wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Nothing at the moment.
    None,
    /// The next part, by then if that is given.
    Next(Option<Instant>),
    /// Nothing any more.
    Closed,
}

#[derive(Debug)]
struct Channel {
    /// A part that waits to be taken.
    part: Option<Result<Frame<Bytes>, BodyError>>,
    /// Bytes that are still to come behind it, if that is known.
    remaining: Option<u64>,
    /// Whether nothing comes behind it.
    is_complete: bool,
    /// Whether anything was asked for.
    is_begun: bool,
    demand: Demand,
    /// By when all of it must have come, if that is given.
    limit: Option<Instant>,
    /// How fast the client sends it.
    rate: TransferRate,
    sender: Waker,
    receiver: Waker,
}

/// A body of so many bytes, if that is known, with a minimum rate.
#[must_use]
pub fn body_channel(length: Option<u64>, rate: TransferRate) -> (BodySender, BodyReceiver) {
    let channel = Rc::new(RefCell::new(Channel {
        part: None,
        remaining: length,
        is_complete: false,
        is_begun: false,
        demand: Demand::None,
        limit: None,
        rate,
        sender: Waker::noop().clone(),
        receiver: Waker::noop().clone(),
    }));
    (BodySender(Rc::clone(&channel)), BodyReceiver(channel))
}

impl BodySender {
    /// What the other end wants. The task is woken when that changes.
    #[must_use]
    pub fn demand(&self, cx: &Context<'_>) -> Demand {
        let mut channel = self.0.borrow_mut();
        if !channel.sender.will_wake(cx.waker()) {
            channel.sender.clone_from(cx.waker());
        }
        channel.demand
    }

    /// Whether anything was asked for.
    #[must_use]
    pub fn is_begun(&self) -> bool {
        self.0.borrow().is_begun
    }

    /// Hands over the part that was wanted. `remaining` says how many bytes are to come behind it, and `is_complete`
    /// whether nothing is.
    pub fn send(&self, part: Frame<Bytes>, remaining: Option<u64>, is_complete: bool) {
        self.put(Some(Ok(part)), remaining, is_complete);
    }

    /// The body has come to its end.
    pub fn finish(&self) {
        self.put(None, Some(0), true);
    }

    /// The rest of the body will not come.
    pub fn fail(&self, error: BodyError) {
        if !self.0.borrow().is_complete {
            self.put(Some(Err(error)), Some(0), true);
        }
    }

    /// Notes how fast the client sends.
    pub fn set_rate(&self, rate: TransferRate) {
        self.0.borrow_mut().rate = rate;
    }

    fn put(&self, part: Option<Result<Frame<Bytes>, BodyError>>, remaining: Option<u64>, is_complete: bool) {
        let mut channel = self.0.borrow_mut();
        if part.is_some() {
            channel.part = part;
        }
        (channel.remaining, channel.is_complete) = (remaining, is_complete);
        if channel.demand != Demand::Closed {
            channel.demand = Demand::None;
        }
        // A task that is both ends looks again by itself.
        if !channel.receiver.will_wake(&channel.sender) {
            channel.receiver.wake_by_ref();
        }
    }
}

impl BodyReceiver {
    /// The next part; none at the end.
    pub fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut channel = self.0.borrow_mut();
        channel.is_begun = true;
        if let Some(part) = channel.part.take() {
            return Poll::Ready(Some(part));
        }
        if channel.is_complete {
            return Poll::Ready(None);
        }
        channel.receiver.clone_from(cx.waker());
        channel.demand = Demand::Next(channel.limit);
        if !channel.sender.will_wake(cx.waker()) {
            channel.sender.wake_by_ref();
        }
        Poll::Pending
    }

    /// All of it must have come by then, if that is given.
    pub fn set_limit(&mut self, limit: Option<Instant>) {
        let mut channel = self.0.borrow_mut();
        channel.limit = limit;
        if let Demand::Next(_) = channel.demand {
            channel.demand = Demand::Next(limit);
        }
    }

    /// How much longer the client may be waited for with this grace; none without a minimum rate.
    #[must_use]
    pub fn allowance(&self, grace: Duration) -> Option<Duration> {
        self.0.borrow().rate.allowance(grace)
    }

    /// Whether all of it was taken.
    #[must_use]
    pub fn is_end(&self) -> bool {
        let channel = self.0.borrow();
        channel.is_complete && channel.part.is_none()
    }

    /// How long the rest of it is.
    #[must_use]
    pub fn size_hint(&self) -> SizeHint {
        let channel = self.0.borrow();
        let waiting = match &channel.part {
            Some(Ok(part)) => part.data_ref().map_or(0, Bytes::len) as u64,
            _ => 0,
        };
        channel
            .remaining
            .map_or_else(SizeHint::default, |remaining| SizeHint::with_exact(remaining + waiting))
    }
}

impl Drop for BodyReceiver {
    fn drop(&mut self) {
        let mut channel = self.0.borrow_mut();
        channel.demand = Demand::Closed;
        if !channel.is_complete {
            channel.sender.wake_by_ref();
        }
    }
}

impl Drop for BodySender {
    fn drop(&mut self) {
        // The connection has ended, and the body has not.
        self.fail(BodyError::BrokenOff);
    }
}
