//! Rate-limited log messages.

use std::time::Duration;

use tokio::time::Instant;

use crate::time::monotonic;

/// The minimum interval between messages.
const INTERVAL: Duration = Duration::from_secs(10);

/// Limits the rate of one log message.
#[derive(Debug, Default)]
pub struct LogThrottle(Option<Instant>);

impl LogThrottle {
    /// Whether the message may be logged now: once in ten seconds.
    pub fn is_due(&mut self) -> bool {
        let now = monotonic();
        let is_due = self.0.is_none_or(|last| now - last >= INTERVAL);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

/// Reports dropped lines of a log.
#[derive(Debug)]
pub struct DroppedLines {
    log: &'static str,
    reader: &'static str,
    /// The dropped lines that were reported.
    reported: u64,
    throttle: LogThrottle,
}

impl DroppedLines {
    /// Those of the access log and of the log, as they are written by default.
    #[must_use]
    pub fn of_logs() -> [Self; 2] {
        [Self::new("access log", "standard output"), Self::new("log", "standard error")]
    }

    /// Reports lines of `log`, which is written to `reader`.
    #[must_use]
    pub fn new(log: &'static str, reader: &'static str) -> Self {
        Self { log, reader, reported: 0, throttle: LogThrottle::default() }
    }

    /// Logs how many lines were dropped since the last report, if the throttle allows it. `dropped` is their number since
    /// the start.
    pub fn report(&mut self, dropped: u64) {
        let Self { log, reader, .. } = *self;
        if dropped > self.reported && self.throttle.is_due() {
            let more = dropped - self.reported;
            let (plural, were) = if more == 1 { ("", "was") } else { ("s", "were") };
            tracing::warn!(
                "{more} line{plural} of the {log} {were} dropped: {reader} is blocked or too slow"
            );
            self.reported = dropped;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_message_is_due_every_ten_seconds() {
        let mut throttle = LogThrottle::default();
        for _ in 0..3 {
            assert_eq!([(); 2].map(|()| throttle.is_due()), [true, false]);
            tokio::time::advance(INTERVAL / 2).await;
            assert!(!throttle.is_due());
            tokio::time::advance(INTERVAL / 2).await;
        }
    }
}
