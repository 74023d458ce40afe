//! The end of a connection.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::time::monotonic;

/// How long a connection may last: enough for its only request. An event stream extends it with each event that it sends.
const LIFETIME: Duration = Duration::from_secs(30);

/// When a connection is closed.
#[derive(Debug)]
pub(super) struct ConnectionDeadline(Mutex<Instant>);

impl ConnectionDeadline {
    /// That of a connection which starts now.
    pub fn new() -> Self {
        Self(Mutex::new(monotonic() + LIFETIME))
    }

    /// Moves it to that of a connection which starts now.
    pub fn extend(&self) {
        *self.0.lock() = monotonic() + LIFETIME;
    }

    /// Waits until it has passed.
    pub async fn passed(&self) {
        loop {
            let deadline = *self.0.lock();
            if deadline <= monotonic() {
                return;
            }
            tokio::time::sleep_until(deadline).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_makes_progress_is_kept() {
        let (deadline, start) = (ConnectionDeadline::new(), monotonic());
        let extend = async {
            for _ in 0..10 {
                tokio::time::sleep(LIFETIME / 2).await;
                deadline.extend();
            }
        };
        tokio::join!(deadline.passed(), extend);
        assert_eq!(start.elapsed(), LIFETIME * 6);
    }
}
