//! Time as the limiter knows it: whole microseconds since the Unix epoch.
//!
//! This is the only module that reads a clock; everything else is told what time it is, so that
//! tests and tools can play any history on a clock of their own.

use std::cell::Cell;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// How old the text of a date may be.
const DATE_AGE: Duration = Duration::from_millis(250);

thread_local! {
    static RECENT: Cell<Option<Instant>> = const { Cell::new(None) };
    static DATE: Cell<Option<(Instant, [u8; 29])>> = const { Cell::new(None) };
}

/// The present on the clock that never runs backwards, for waits and ages; a test's runtime can move it.
#[must_use]
pub fn monotonic() -> Instant {
    let now = Instant::now();
    RECENT.set(Some(now));
    now
}

/// What [`monotonic`] last said on this thread: the present, but for what has been done since. Whatever
/// waits reads the clock when it goes on (sockets, and the call to the store), so a worker's is never older
/// than the event that it is working on.
#[must_use]
pub fn recent() -> Instant {
    RECENT.get().unwrap_or_else(monotonic)
}

/// The present as a Date header has it (RFC 9110 §6.6.1), a quarter of a second late at most.
#[must_use]
pub fn http_date() -> [u8; 29] {
    let now = recent();
    if let Some((made, date)) = DATE.get()
        && now.saturating_duration_since(made) < DATE_AGE
    {
        return date;
    }
    let mut date = [b' '; 29];
    // It always has this length.
    for (place, byte) in date.iter_mut().zip(httpdate::fmt_http_date(SystemTime::now()).bytes()) {
        *place = byte;
    }
    DATE.set(Some((now, date)));
    date
}

/// An instant: microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

/// A length of time in whole microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Timestamp {
    /// This instant plus `span`, at most the largest instant there is.
    #[must_use]
    pub fn after(self, span: Micros) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// How long after `earlier` this is; zero if it is not.
    #[must_use]
    pub fn since(self, earlier: Self) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }
}

impl Micros {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// One second.
    pub const SECOND: Self = Self(1_000_000);

    /// The whole seconds in which this span has passed: rounded up.
    #[must_use]
    pub fn ceil_secs(self) -> u64 {
        self.0.div_ceil(Self::SECOND.0)
    }
}

impl From<Duration> for Micros {
    fn from(span: Duration) -> Self {
        Self(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
    }
}

impl From<Micros> for Duration {
    fn from(span: Micros) -> Self {
        Self::from_micros(span.0)
    }
}

/// A length of time for people, in days and shorter units: months and years have no one length.
#[must_use]
pub fn spelled(span: Duration) -> String {
    let days = span.as_secs() / 86_400;
    let rest = span.saturating_sub(Duration::from_hours(24 * days));
    let days = format!("{days}day{}", if days == 1 { "" } else { "s" });
    match (span == rest, rest.is_zero()) {
        (true, _) => humantime::format_duration(rest).to_string(),
        (false, true) => days,
        (false, false) => format!("{days} {}", humantime::format_duration(rest)),
    }
}

/// Where "now" comes from: a clock of the system, or one that a test or a tool moves by hand.
#[derive(Debug, Default)]
pub enum Clock {
    /// The system's wall clock, which can be set forward and back.
    #[default]
    System,
    /// The wall time when the process first read this clock, plus the monotonic time that has passed since. It can't
    /// be set, and it stops while the machine is suspended. It is the same throughout the process.
    Monotonic,
    /// A clock that stands still until it is set, and the wall clock beside it.
    Manual {
        /// What it shows.
        now: AtomicU64,
        /// What the wall clock shows.
        wall: AtomicU64,
    },
}

/// When this process first looked at [`Clock::Monotonic`], and the wall time then.
static ANCHOR: LazyLock<(std::time::Instant, Timestamp)> =
    LazyLock::new(|| (std::time::Instant::now(), wall_time()));

/// The system's wall time. Before 1970 it reads as the epoch.
fn wall_time() -> Timestamp {
    Timestamp(Micros::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()).0)
}

impl Clock {
    /// A clock that stands at `now` until [`Clock::set`] moves it.
    #[must_use]
    pub fn manual(now: Timestamp) -> Self {
        Self::Manual { now: AtomicU64::new(now.0), wall: AtomicU64::new(now.0) }
    }

    /// The present instant.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => wall_time(),
            Self::Monotonic => {
                let (began, wall) = *ANCHOR;
                wall.after(began.elapsed().into())
            }
            Self::Manual { now, .. } => Timestamp(now.load(Ordering::Relaxed)),
        }
    }

    /// The present instant by the wall clock, which calendars follow. It differs from [`Clock::now`] of a monotonic
    /// clock once the wall clock has been set.
    #[must_use]
    pub fn wall(&self) -> Timestamp {
        match self {
            Self::System | Self::Monotonic => wall_time(),
            Self::Manual { wall, .. } => Timestamp(wall.load(Ordering::Relaxed)),
        }
    }

    /// Moves a manual clock and its wall clock, forwards or back; the system's are left alone.
    pub fn set(&self, to: Timestamp) {
        if let Self::Manual { now, .. } = self {
            now.store(to.0, Ordering::Relaxed);
        }
        self.set_wall(to);
    }

    /// Sets the wall clock of a manual clock alone, as an operator or NTP does it.
    pub fn set_wall(&self, to: Timestamp) {
        if let Self::Manual { wall, .. } = self {
            wall.store(to.0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_round_up() {
        assert_eq!(Micros(0).ceil_secs(), 0);
        assert_eq!(Micros(1).ceil_secs(), 1);
        assert_eq!(Micros(1_000_000).ceil_secs(), 1);
        assert_eq!(Micros(1_000_001).ceil_secs(), 2);
    }

    #[test]
    fn long_times_are_spelled_in_days() {
        let spelled = |seconds| spelled(Duration::from_secs(seconds));
        assert_eq!([0, 90, 86_400].map(spelled), ["0s", "1m 30s", "1day"]);
        assert_eq!([86_461, 31_536_000].map(spelled), ["1day 1m 1s", "365days"]);
    }

    #[test]
    fn a_manual_clock_moves_both_ways() {
        let clock = Clock::manual(Timestamp(5));
        clock.set(Timestamp(9));
        assert_eq!(clock.now(), Timestamp(9));
        clock.set(Timestamp(3));
        assert_eq!(clock.now(), Timestamp(3));
    }

    #[test]
    fn setting_the_wall_clock_does_not_move_the_other() {
        let clock = Clock::manual(Timestamp(5));
        clock.set_wall(Timestamp(9));
        assert_eq!((clock.now(), clock.wall()), (Timestamp(5), Timestamp(9)));
    }

    #[test]
    fn the_monotonic_clock_shows_wall_time_and_never_runs_backwards() {
        let apart = |a: Timestamp, b: Timestamp| a.0.abs_diff(b.0);
        let first = Clock::Monotonic.now();
        assert!(apart(first, Clock::System.now()) < 60_000_000);
        assert!(first <= Clock::Monotonic.now());
    }
}
