//! Waits with deadlines that move, and for a server's SETTINGS.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::Instant;

use crate::socket::LazyTimer;
use crate::time::{cached_now, monotonic};

/// How often, and at which interval, to check a condition.
const MAX_CHECKS: u32 = 50;
const CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// Waits up to half a second until a condition on the server's SETTINGS holds; returns whether it does. It polls, because
/// hyper reports no event when SETTINGS arrive; they do soon after the connection is made.
pub(super) async fn settings_allow(condition: impl Fn() -> bool) -> bool {
    for _ in 0..MAX_CHECKS {
        if condition() {
            return true;
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
    false
}

/// Waits for a response until `deadline`; none if it has not arrived by then. The deadline may move without waking this
/// task, but never to less than `span` from the time of the move, so it is read again at least once every `span`.
pub(super) async fn wait_until<T>(
    span: Duration,
    deadline: impl Fn() -> Instant,
    response: impl Future<Output = T>,
) -> Option<T> {
    let mut response = pin!(response);
    let (mut timer, mut check_at) = (LazyTimer::default(), deadline().min(cached_now() + span));
    poll_fn(|cx| {
        if let Poll::Ready(response) = response.as_mut().poll(cx) {
            return Poll::Ready(Some(response));
        }
        while timer.wait_until(check_at, cx).is_ready() {
            let (now, deadline) = (monotonic(), deadline());
            if deadline <= now {
                return Poll::Ready(None);
            }
            check_at = deadline.min(now + span);
        }
        Poll::Pending
    })
    .await
}
