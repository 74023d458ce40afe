//! Lingering close (RFC 9112 §9.6).
//!
//! If a socket is closed with unread input, or receives more, the kernel resets the connection, and the peer may lose what
//! was sent last. So a connection on which the peer may still be sending is shut down in one direction, and read for a while
//! before it is closed.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::timer::LazyTimer;
use crate::time::monotonic;

/// How long to read in total.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait for the next bytes.
const READ_TIMEOUT: Duration = Duration::from_secs(2);
/// The most bytes to read.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// A connection that was shut down in one direction, and is read until it can be closed.
#[derive(Debug)]
pub struct Lingering {
    deadline: Instant,
    last_read: Instant,
    /// Bytes that may still be read.
    remaining: usize,
    /// Whether to wait for more.
    peer_is_sending: bool,
}

impl Lingering {
    /// A connection that was just shut down. `peer_is_sending` says that the peer has not sent all of its message; otherwise
    /// only what was already received is read.
    #[must_use]
    pub fn start(peer_is_sending: bool) -> Self {
        let now = monotonic();
        Self { deadline: now + TOTAL_TIMEOUT, last_read: now, remaining: MAX_BYTES, peer_is_sending }
    }

    /// Reads with `read`, which discards the bytes and returns their number; ready when the socket can be closed.
    pub fn poll(
        &mut self,
        timer: &mut LazyTimer,
        cx: &mut Context<'_>,
        mut read: impl FnMut(&mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<()> {
        loop {
            match read(cx) {
                Poll::Ready(Ok(count @ 1..)) if count <= self.remaining => {
                    self.remaining -= count;
                    self.last_read = monotonic();
                    // The peer may send more.
                    self.peer_is_sending = true;
                }
                Poll::Pending if self.peer_is_sending => {
                    return timer.wait_until(self.deadline.min(self.last_read + READ_TIMEOUT), cx);
                }
                // The end, an error, or too much; or nothing, and nothing more is expected.
                Poll::Ready(_) | Poll::Pending => return Poll::Ready(()),
            }
        }
    }
}
