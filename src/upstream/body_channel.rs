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

use super::error::BodyError;
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
        channel.demand = Demand::None;
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
        channel.demand = Demand::None;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(length: Option<u64>) -> (BodySender, BodyReceiver, Context<'static>) {
        let (sender, receiver) = body_channel(length, TransferRate::new(None));
        (sender, receiver, Context::from_waker(Waker::noop()))
    }

    fn data(text: &'static str) -> Frame<Bytes> {
        Frame::data(Bytes::from_static(text.as_bytes()))
    }

    fn text(polled: Poll<Option<Result<Frame<Bytes>, BodyError>>>) -> Option<Bytes> {
        let Poll::Ready(part) = polled else { panic!("nothing has come") };
        part.map(|part| part.unwrap().into_data().unwrap())
    }

    #[test]
    fn a_part_is_wanted_only_when_it_is_polled_for() {
        let (sender, mut receiver, mut cx) = channel(Some(5));
        assert_eq!((sender.demand(&cx), sender.is_begun()), (Demand::None, false));
        assert_eq!(receiver.size_hint().exact(), Some(5));
        assert!(receiver.poll_part(&mut cx).is_pending());
        assert_eq!((sender.demand(&cx), sender.is_begun()), (Demand::Next(None), true));
        sender.send(data("abc"), Some(2), false);
        assert_eq!((sender.demand(&cx), receiver.size_hint().exact()), (Demand::None, Some(5)));
        assert_eq!(text(receiver.poll_part(&mut cx)).unwrap(), "abc");
        assert!(receiver.poll_part(&mut cx).is_pending() && !receiver.is_end());
        sender.send(data("de"), Some(0), true);
        assert_eq!(text(receiver.poll_part(&mut cx)).unwrap(), "de");
        assert!(receiver.is_end() && text(receiver.poll_part(&mut cx)).is_none());
        drop(sender);
        assert!(text(receiver.poll_part(&mut cx)).is_none(), "it was complete");
    }

    #[test]
    fn a_sender_that_is_gone_leaves_an_error() {
        let (sender, mut receiver, mut cx) = channel(None);
        drop(sender);
        assert!(matches!(receiver.poll_part(&mut cx), Poll::Ready(Some(Err(BodyError::BrokenOff)))));
        assert!(text(receiver.poll_part(&mut cx)).is_none());
        let (sender, receiver, cx) = channel(None);
        drop(receiver);
        assert_eq!(sender.demand(&cx), Demand::None);
    }

    #[test]
    fn a_limit_goes_along_with_what_is_wanted() {
        let (sender, mut receiver, mut cx) = channel(None);
        let limit = crate::time::cached_now();
        receiver.set_limit(Some(limit));
        assert_eq!(sender.demand(&cx), Demand::None);
        assert!(receiver.poll_part(&mut cx).is_pending());
        assert_eq!(sender.demand(&cx), Demand::Next(Some(limit)));
        receiver.set_limit(None);
        assert_eq!(sender.demand(&cx), Demand::Next(None));
    }
}
