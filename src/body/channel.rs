//! A channel for the body of a request over HTTP/1.1, from the connection that reads it to the consumer.
//!
//! The connection reads a part only on demand, so at most one part is buffered. Both ends are on one thread, and mostly in
//! one task, which is then not woken.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;

use super::error::{BodyError, PolledFrame};
use crate::socket::TransferRate;

/// The end of the channel for the connection that reads the body.
#[derive(Debug)]
pub struct BodySender(Rc<RefCell<Channel>>);

/// The end of the channel for the consumer of the body.
#[derive(Debug)]
pub struct BodyReceiver(Rc<RefCell<Channel>>);

/// The consumer's demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Nothing at present.
    None,
    /// The next part, by this deadline if there is one.
    Next(Option<Instant>),
}

#[derive(Debug)]
struct Channel {
    /// The part that has not been taken yet.
    part: Option<Result<Frame<Bytes>, BodyError>>,
    /// The number of bytes after `part`, if that is known.
    remaining: Option<u64>,
    /// Whether nothing follows `part`.
    is_complete: bool,
    /// Whether the consumer has demanded anything.
    is_started: bool,
    demand: Demand,
    /// By when the whole body must have arrived.
    deadline: Option<Instant>,
    /// The rate at which the client sends the body.
    rate: TransferRate,
    sender: Waker,
    receiver: Waker,
}

/// A channel for a body of this length, if that is known, with a minimum rate.
#[must_use]
pub fn body_channel(length: Option<u64>, rate: TransferRate) -> (BodySender, BodyReceiver) {
    let channel = Rc::new(RefCell::new(Channel {
        part: None,
        remaining: length,
        is_complete: false,
        is_started: false,
        demand: Demand::None,
        deadline: None,
        rate,
        sender: Waker::noop().clone(),
        receiver: Waker::noop().clone(),
    }));
    (BodySender(Rc::clone(&channel)), BodyReceiver(channel))
}

impl BodySender {
    /// The consumer's demand. The task is woken when that changes.
    #[must_use]
    pub fn demand(&self, cx: &Context<'_>) -> Demand {
        let mut channel = self.0.borrow_mut();
        if !channel.sender.will_wake(cx.waker()) {
            channel.sender.clone_from(cx.waker());
        }
        channel.demand
    }

    /// Whether the consumer has demanded anything.
    #[must_use]
    pub fn is_started(&self) -> bool {
        self.0.borrow().is_started
    }

    /// Sends the part that was demanded. `remaining` is the number of bytes after it, if known; `is_complete` says that
    /// nothing follows.
    pub fn send(&self, part: Frame<Bytes>, remaining: Option<u64>, is_complete: bool) {
        self.put(Some(Ok(part)), remaining, is_complete);
    }

    /// Ends the body.
    pub fn finish(&self) {
        self.put(None, Some(0), true);
    }

    /// Ends the body with an error, unless it is complete.
    pub fn fail(&self, error: BodyError) {
        if !self.0.borrow().is_complete {
            self.put(Some(Err(error)), Some(0), true);
        }
    }

    /// Updates the rate at which the client sends.
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
        // No wake-up if both ends are in one task: it polls the receiver again in any case.
        if !channel.receiver.will_wake(&channel.sender) {
            channel.receiver.wake_by_ref();
        }
    }
}

impl BodyReceiver {
    /// Polls the next part; none at the end.
    pub fn poll_part(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let mut channel = self.0.borrow_mut();
        channel.is_started = true;
        if let Some(part) = channel.part.take() {
            return Poll::Ready(Some(part));
        }
        if channel.is_complete {
            return Poll::Ready(None);
        }
        channel.receiver.clone_from(cx.waker());
        channel.demand = Demand::Next(channel.deadline);
        if !channel.sender.will_wake(cx.waker()) {
            channel.sender.wake_by_ref();
        }
        Poll::Pending
    }

    /// Sets by when the whole body must have arrived.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        let mut channel = self.0.borrow_mut();
        channel.deadline = deadline;
        if let Demand::Next(_) = channel.demand {
            channel.demand = Demand::Next(deadline);
        }
    }

    /// The time that the client has for the next part if it may be `grace` behind its minimum rate; none without such a rate.
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

    /// The length of the rest of the body.
    #[must_use]
    pub fn size_hint(&self) -> SizeHint {
        let channel = self.0.borrow();
        let buffered = match &channel.part {
            Some(Ok(part)) => part.data_ref().map_or(0, Bytes::len) as u64,
            _ => 0,
        };
        channel
            .remaining
            .map_or_else(SizeHint::default, |remaining| SizeHint::with_exact(remaining + buffered))
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
        // The client's connection has ended before the body.
        self.fail(BodyError::Aborted);
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

    fn text(polled: PolledFrame) -> Option<Bytes> {
        let Poll::Ready(part) = polled else { panic!("no part was sent") };
        part.map(|part| part.unwrap().into_data().unwrap())
    }

    #[test]
    fn a_part_is_demanded_only_when_the_receiver_is_polled() {
        let (sender, mut receiver, mut cx) = channel(Some(5));
        assert_eq!((sender.demand(&cx), sender.is_started()), (Demand::None, false));
        assert_eq!(receiver.size_hint().exact(), Some(5));
        assert!(receiver.poll_part(&mut cx).is_pending());
        assert_eq!((sender.demand(&cx), sender.is_started()), (Demand::Next(None), true));
        sender.send(data("abc"), Some(2), false);
        assert_eq!((sender.demand(&cx), receiver.size_hint().exact()), (Demand::None, Some(5)));
        assert_eq!(text(receiver.poll_part(&mut cx)).unwrap(), "abc");
        assert!(receiver.poll_part(&mut cx).is_pending() && !receiver.is_end());
        sender.send(data("de"), Some(0), true);
        assert_eq!(text(receiver.poll_part(&mut cx)).unwrap(), "de");
        assert!(receiver.is_end() && text(receiver.poll_part(&mut cx)).is_none());
        drop(sender);
        assert!(text(receiver.poll_part(&mut cx)).is_none(), "the body was complete");
    }

    #[test]
    fn a_dropped_sender_ends_the_body_with_an_error() {
        let (sender, mut receiver, mut cx) = channel(None);
        drop(sender);
        assert!(matches!(receiver.poll_part(&mut cx), Poll::Ready(Some(Err(BodyError::Aborted)))));
        assert!(text(receiver.poll_part(&mut cx)).is_none());
        let (sender, receiver, cx) = channel(None);
        drop(receiver);
        assert_eq!(sender.demand(&cx), Demand::None);
    }

    #[test]
    fn the_demand_carries_the_deadline() {
        let (sender, mut receiver, mut cx) = channel(None);
        let deadline = crate::time::cached_now();
        receiver.set_deadline(Some(deadline));
        assert_eq!(sender.demand(&cx), Demand::None);
        assert!(receiver.poll_part(&mut cx).is_pending());
        assert_eq!(sender.demand(&cx), Demand::Next(Some(deadline)));
        receiver.set_deadline(None);
        assert_eq!(sender.demand(&cx), Demand::Next(None));
    }
}
