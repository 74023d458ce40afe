//! How long an answer may be waited for.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use tokio::time::Instant;

use crate::socket::Alarm;
use crate::time::monotonic;

/// Waits for an answer until it is due; none if it is not there by then. When it is due may change, and is looked at
/// only now and then, as nobody is woken by that.
pub(super) async fn within<T>(due: impl Fn() -> Instant, answer: impl Future<Output = T>) -> Option<T> {
    let mut answer = pin!(answer);
    let (mut alarm, mut look_at) = (Alarm::default(), due());
    poll_fn(|cx| {
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            return Poll::Ready(Some(answer));
        }
        while alarm.wait_until(look_at, cx).is_ready() {
            look_at = due();
            if look_at <= monotonic() {
                return Poll::Ready(None);
            }
        }
        Poll::Pending
    })
    .await
}
