//! How long an answer may be waited for.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use crate::socket::Alarm;
use crate::time::{monotonic, recent};

/// Waits for an answer, for so long after the request has been sent; none if it is not there by then. Whether it has
/// been sent is looked at only now and then, as nobody is woken by it.
pub(super) async fn within<T>(
    span: Duration,
    deadline: Option<Instant>,
    sent: &Cell<Option<Instant>>,
    answer: impl Future<Output = T>,
) -> Option<T> {
    let mut answer = pin!(answer);
    let by = |at: Instant| deadline.map_or(at, |deadline| at.min(deadline));
    let (mut alarm, mut look_at) = (Alarm::default(), by(recent() + span));
    poll_fn(|cx| {
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            return Poll::Ready(Some(answer));
        }
        while alarm.wait_until(look_at, cx).is_ready() {
            let now = monotonic();
            look_at = by(sent.get().unwrap_or(now) + span);
            if look_at <= now {
                return Poll::Ready(None);
            }
        }
        Poll::Pending
    })
    .await
}
