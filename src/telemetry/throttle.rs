//! What the log says again and again, but not each time that it happens.

use std::time::Duration;

use tokio::time::Instant;

use crate::time::monotonic;

/// How often at most.
const SELDOM: Duration = Duration::from_secs(10);

/// When something was last said that holds for a while, and happens many times meanwhile.
#[derive(Debug, Default)]
pub struct LogThrottle(Option<Instant>);

impl LogThrottle {
    /// Whether it is to be said now, because it was not in the last ten seconds; if so it counts as said.
    pub fn is_due(&mut self) -> bool {
        let now = monotonic();
        let is_due = self.0.is_none_or(|last| now - last >= SELDOM);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

/// Lines that were dropped, as far as the log has said so.
#[derive(Debug)]
pub struct DroppedLines {
    log: &'static str,
    reader: &'static str,
    told: u64,
    again: LogThrottle,
}

impl DroppedLines {
    /// Of lines of `log` that `reader` did not take.
    #[must_use]
    pub fn of(log: &'static str, reader: &'static str) -> Self {
        Self { log, reader, told: 0, again: LogThrottle::default() }
    }

    /// Says how many there are since they were last spoken of, if that was not a moment ago; `dropped` are all.
    pub fn tell(&mut self, dropped: u64) {
        let Self { log, reader, .. } = *self;
        if dropped > self.told && self.again.is_due() {
            let more = dropped - self.told;
            let (plural, were) = if more == 1 { ("", "was") } else { ("s", "were") };
            tracing::warn!("{more} line{plural} of the {log} {were} dropped: {reader} did not take them");
            self.told = dropped;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_is_due_every_ten_seconds() {
        let mut seldom = LogThrottle::default();
        for _ in 0..3 {
            assert_eq!([(); 2].map(|()| seldom.is_due()), [true, false]);
            tokio::time::advance(SELDOM / 2).await;
            assert!(!seldom.is_due());
            tokio::time::advance(SELDOM / 2).await;
        }
    }
}
