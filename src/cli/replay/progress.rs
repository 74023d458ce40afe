//! How much of the logs was read: a bar on a terminal, otherwise lines.

use std::io::{IsTerminal as _, stderr};
use std::sync::Arc;
use std::time::Duration;

use indicatif::{HumanBytes, HumanDuration, ProgressBar, ProgressStyle};
use tokio::time::Instant;

use crate::cli::output::complain;
use crate::replay::Progress;
use crate::time::monotonic;

/// A replay that is over sooner shows no progress.
const FIRST_SHOWN: Duration = Duration::from_secs(1);
/// The time between two lines where no terminal is.
const BETWEEN_LINES: Duration = Duration::from_secs(10);
const BAR: &str = "{bar:30} {percent:>3} %  {bytes} of {total_bytes}  {msg}  {eta} left";
const SPINNER: &str = "{spinner} {bytes}  {msg}";

/// Shows how much of the logs was read.
pub(super) struct ProgressDisplay {
    progress: Arc<Progress>,
    started: Instant,
    shown: Option<Instant>,
    bar: Option<ProgressBar>,
    requests: u64,
}

impl ProgressDisplay {
    pub fn new(progress: &Arc<Progress>) -> Self {
        let bar = stderr().is_terminal().then(|| bar(progress.total()));
        Self { progress: Arc::clone(progress), started: monotonic(), shown: None, bar, requests: 0 }
    }

    /// Counts requests, and shows the progress if it is time to.
    pub fn add(&mut self, requests: usize) {
        self.requests += requests as u64;
        let now = monotonic();
        let elapsed = now - self.started;
        let (read, total) = (self.progress.read(), self.progress.total());
        if elapsed < FIRST_SHOWN {
            return;
        }
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{} requests/s", rate(self.requests, elapsed)));
            bar.set_position(read);
        } else if now - self.shown.unwrap_or(self.started) >= BETWEEN_LINES {
            self.shown = Some(now);
            complain(line((read, total), self.requests, elapsed));
        }
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(total: u64) -> ProgressBar {
    // The templates are valid; without them the bar has its default style.
    let style =
        |template| ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    if total > 0 {
        ProgressBar::new(total).with_style(style(BAR))
    } else {
        ProgressBar::new_spinner().with_style(style(SPINNER))
    }
}

fn rate(requests: u64, elapsed: Duration) -> u64 {
    let micros = elapsed.as_micros().max(1);
    u64::try_from(u128::from(requests) * 1_000_000 / micros).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "shown in whole seconds")]
/// A line for logs: how much was read, at which rate, and how long the rest may take.
fn line((read, total): (u64, u64), requests: u64, elapsed: Duration) -> String {
    let rate = rate(requests, elapsed);
    if total == 0 {
        return format!("read {}: {requests} requests, {rate} requests/s", HumanBytes(read));
    }
    let percent = read.saturating_mul(100) / total;
    let rest = elapsed.as_secs_f64() * (total.saturating_sub(read)) as f64 / (read.max(1)) as f64;
    format!(
        "read {} of {} ({percent} %): {requests} requests, {rate} requests/s, about {} left",
        HumanBytes(read),
        HumanBytes(total),
        HumanDuration(Duration::from_secs_f64(rest.min(1e9)))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_rate_and_time_left() {
        let text = line((1 << 20, 4 << 20), 50_000, Duration::from_secs(10));
        assert_eq!(
            text,
            "read 1.00 MiB of 4.00 MiB (25 %): 50000 requests, 5000 requests/s, about 30 seconds left"
        );
        let text = line((1 << 20, 0), 50_000, Duration::from_secs(10));
        assert_eq!(text, "read 1.00 MiB: 50000 requests, 5000 requests/s");
    }

    #[test]
    fn templates_are_valid() {
        assert!(ProgressStyle::with_template(BAR).is_ok() && ProgressStyle::with_template(SPINNER).is_ok());
    }
}
