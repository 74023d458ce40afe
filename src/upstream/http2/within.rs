//! How long an answer may be waited for, and what comes before.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use crate::socket::LazyTimer;
use crate::time::{monotonic, recent};

/// How often, and at what intervals, it is looked whether a server's settings say something.
const LOOKS: u32 = 50;
const LOOK: Duration = Duration::from_millis(10);

/// Whether something is so by a server's settings. Nobody tells when these come, which is soon after the connection is
/// made.
pub(super) async fn turns_out(is_so: impl Fn() -> bool) -> bool {
    for _ in 0..LOOKS {
        if is_so() {
            return true;
        }
        tokio::time::sleep(LOOK).await;
    }
    false
}

/// Waits for an answer until it is due; none if it is not there by then. When it is due may change, and nobody is woken
/// by that: so it is looked at whenever `span` is over, since it is never due sooner after a change.
pub(super) async fn within<T>(
    span: Duration,
    due: impl Fn() -> Instant,
    answer: impl Future<Output = T>,
) -> Option<T> {
    let mut answer = pin!(answer);
    let (mut alarm, mut look_at) = (LazyTimer::default(), due().min(recent() + span));
    poll_fn(|cx| {
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            return Poll::Ready(Some(answer));
        }
        while alarm.wait_until(look_at, cx).is_ready() {
            let (now, due) = (monotonic(), due());
            if due <= now {
                return Poll::Ready(None);
            }
            look_at = due.min(now + span);
        }
        Poll::Pending
    })
    .await
}
