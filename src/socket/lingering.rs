//! Closed connections that are read on.
//!
//! A socket that is closed over bytes which were not read makes the kernel reset the connection, and the other side may
//! lose what was sent last. So a connection on which the other side may still send is closed in one direction, and read on
//! for a while.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::timer::LazyTimer;
use crate::time::monotonic;

/// How long a connection is read on, in all and between two reads.
const SPAN: Duration = Duration::from_secs(30);
const SILENT: Duration = Duration::from_secs(2);
/// How many bytes are read at most.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// A connection that is closed in one direction, and read on.
#[derive(Debug)]
pub struct Lingering {
    by: Instant,
    silent_since: Instant,
    /// Bytes that may still come.
    room: usize,
    /// Whether something more is waited for.
    is_sending: bool,
}

impl Lingering {
    /// A connection that has just been closed. `is_sending` says that the other side has not sent all of what it began;
    /// else only what is there is read.
    #[must_use]
    pub fn start(is_sending: bool) -> Self {
        let now = monotonic();
        Self { by: now + SPAN, silent_since: now, room: MAX_BYTES, is_sending }
    }

    /// Reads on by `read`, which throws away what comes and says how many bytes that were; ready when the socket can be
    /// closed.
    pub fn poll(
        &mut self,
        alarm: &mut LazyTimer,
        cx: &mut Context<'_>,
        mut read: impl FnMut(&mut Context<'_>) -> Poll<io::Result<usize>>,
    ) -> Poll<()> {
        loop {
            match read(cx) {
                Poll::Ready(Ok(count @ 1..)) if count <= self.room => {
                    self.room -= count;
                    self.silent_since = monotonic();
                    // There may be more.
                    self.is_sending = true;
                }
                Poll::Pending if self.is_sending => {
                    return alarm.wait_until(self.by.min(self.silent_since + SILENT), cx);
                }
                // The end, an error, too much; or nothing, and nothing is waited for.
                Poll::Ready(_) | Poll::Pending => return Poll::Ready(()),
            }
        }
    }
}
