//! Clocks, and time as the limiter counts it: whole microseconds since the Unix epoch.
//!
//! This is the only module that reads a clock. Everything else gets the time as an argument or from a [`Clock`], so that
//! tests and tools can simulate any history.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use crate::text::plural;

/// How long a formatted date is reused.
const MAX_DATE_AGE: Duration = Duration::from_millis(250);

/// The clock whose time goes on in suspension: that of Linux; the monotonic clock of other systems does so itself.
#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT_CLOCK: rustix::time::ClockId = rustix::time::ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT_CLOCK: rustix::time::ClockId = rustix::time::ClockId::Monotonic;

thread_local! {
    static CACHED_NOW: Cell<Option<Instant>> = const { Cell::new(None) };
    /// The same time in nanoseconds since `BASE`, once it is needed.
    static CACHED_NANOS: Cell<Option<NonZeroU64>> = const { Cell::new(None) };
    static DATE: Cell<Option<(Instant, [u8; 29])>> = const { Cell::new(None) };
}

/// The time from which a [`Stopwatch`] counts: a second before the first, since its time was read earlier than this.
static BASE: LazyLock<std::time::Instant> = LazyLock::new(|| {
    let now = std::time::Instant::now();
    now.checked_sub(Duration::from_secs(1)).unwrap_or(now)
});

/// The current time of the monotonic clock, for timeouts and ages. A test runtime can move this clock.
#[must_use]
pub fn monotonic() -> Instant {
    let now = Instant::now();
    CACHED_NOW.set(Some(now));
    CACHED_NANOS.set(None);
    now
}

/// An interval whose ticks coincide with those of others of this period, or of a multiple of it: what is done periodically on
/// a thread wakes it once. Missed ticks are skipped.
#[must_use]
pub fn periodic(period: Duration) -> Interval {
    let base = Instant::from_std(*BASE);
    let past = Instant::now().saturating_duration_since(base).div_duration_f64(period).ceil();
    let mut interval = interval_at(base + period.mul_f64(past), period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    interval
}

/// The last result of [`monotonic`] on this thread, without a read of the clock. Everything that waits (sockets, calls to
/// the store) calls [`monotonic`] when it continues, so that on a worker the cached time is never older than the event that
/// is being handled.
#[must_use]
pub fn cached_now() -> Instant {
    CACHED_NOW.get().unwrap_or_else(monotonic)
}

/// Measures the time since it was started, by [`cached_now`]. One word, for values that are part of every request.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(NonZeroU64);

impl Stopwatch {
    /// Starts now.
    #[must_use]
    pub fn start() -> Self {
        Self(cached_nanos())
    }

    /// The time since the start.
    #[must_use]
    pub fn elapsed(self) -> Nanos {
        Nanos(cached_nanos().get().saturating_sub(self.0.get()))
    }
}

fn cached_nanos() -> NonZeroU64 {
    CACHED_NANOS.get().unwrap_or_else(|| {
        let since = cached_now().into_std().saturating_duration_since(*BASE);
        let nanos = NonZeroU64::MIN.saturating_add(Nanos::from(since).0);
        CACHED_NANOS.set(Some(nanos));
        nanos
    })
}

/// The current time in the format of the `Date` field (RFC 9110 §6.6.1), at most a quarter of a second old.
#[must_use]
pub fn http_date() -> [u8; 29] {
    let now = cached_now();
    if let Some((formatted_at, date)) = DATE.get()
        && now.saturating_duration_since(formatted_at) < MAX_DATE_AGE
    {
        return date;
    }
    let mut date = [b' '; 29];
    // The format has a fixed length.
    for (target, byte) in date.iter_mut().zip(httpdate::fmt_http_date(SystemTime::now()).bytes()) {
        *target = byte;
    }
    DATE.set(Some((now, date)));
    date
}

/// A point in time: microseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

/// A point in time: microseconds since the machine has started, including the time for which it was suspended. For what
/// must not outlive its time in another process, such as a grant of the store: a machine that was suspended, or a process
/// that was stopped, must not use it afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(pub u64);

/// A length of time in whole nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

/// A length of time in whole microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Timestamp {
    /// Parses a time of RFC 3339, or a date, which is its start in UTC; none for other texts, and for times before 1970.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let time: jiff::Timestamp = match text.parse::<jiff::civil::Date>() {
            Ok(date) if text.len() == "2027-01-31".len() => format!("{date}T00:00:00Z").parse().ok()?,
            _ => text.parse().ok()?,
        };
        u64::try_from(time.as_microsecond()).ok().map(Self)
    }

    /// The time as RFC 3339 writes it, in UTC and in whole seconds.
    #[must_use]
    pub fn rfc3339(self) -> String {
        let time = UNIX_EPOCH.checked_add(Duration::from_micros(self.0));
        time.map_or_else(String::new, |time| humantime::format_rfc3339_seconds(time).to_string())
    }

    /// This time plus `span`, saturating.
    #[must_use]
    pub fn after(self, span: Micros) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The time since `earlier`; zero if that is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }
}

impl BootTime {
    /// The present; always read from the system, since a cached time would be older than a suspension.
    #[must_use]
    pub fn now() -> Self {
        let now = rustix::time::clock_gettime(BOOT_CLOCK);
        // The clock starts at zero, so neither number is negative.
        let part = |number: i64| u64::try_from(number).unwrap_or(0);
        Self(part(now.tv_sec).saturating_mul(1_000_000) + part(now.tv_nsec) / 1_000)
    }

    /// This time plus `span`, saturating.
    #[must_use]
    pub fn after(self, span: Micros) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The time since `earlier`; zero if that is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }
}

impl Micros {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// One second.
    pub const SECOND: Self = Self(1_000_000);

    /// This span in seconds, rounded up.
    #[must_use]
    pub fn ceil_secs(self) -> u64 {
        self.0.div_ceil(Self::SECOND.0)
    }

    /// This span in seconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        Duration::from(self).as_secs_f64()
    }
}

/// Times before 1970 become the epoch.
impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        Self(Micros::from(time.duration_since(UNIX_EPOCH).unwrap_or_default()).0)
    }
}

impl From<Duration> for Nanos {
    fn from(span: Duration) -> Self {
        Self(span.as_secs().saturating_mul(1_000_000_000).saturating_add(span.subsec_nanos().into()))
    }
}

impl From<Nanos> for Duration {
    fn from(span: Nanos) -> Self {
        Self::from_nanos(span.0)
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

/// Formats a span in seconds, with as few decimals as possible.
#[must_use]
pub fn format_seconds(span: Micros) -> String {
    let (seconds, micros) = (span.0 / Micros::SECOND.0, span.0 % Micros::SECOND.0);
    if micros == 0 {
        return seconds.to_string();
    }
    let text = format!("{seconds}.{micros:06}");
    text.trim_end_matches('0').to_owned()
}

/// Formats a span for people, in days and shorter units, since months and years have no fixed length.
#[must_use]
pub fn format_duration(span: Duration) -> String {
    let days = span.as_secs() / 86_400;
    let rest = span.saturating_sub(Duration::from_hours(24 * days));
    let days = format!("{days}day{}", plural(days));
    match (span == rest, rest.is_zero()) {
        (true, _) => humantime::format_duration(rest).to_string(),
        (false, true) => days,
        (false, false) => format!("{days} {}", humantime::format_duration(rest)),
    }
}

/// The source of the current time: a clock of the system, or one that a test or a tool moves.
#[derive(Debug, Default)]
pub enum Clock {
    /// The system's wall clock, which can be set forward and back.
    #[default]
    System,
    /// The wall time when the process first read this clock, plus the monotonic time since. It can't be set, and it stops
    /// while the machine is suspended. All clocks of this kind in the process show the same time.
    Monotonic,
    /// A clock that moves only when it is set, and a wall clock beside it.
    Manual {
        /// The time of the clock.
        now: AtomicU64,
        /// The time of the wall clock.
        wall: AtomicU64,
    },
}

/// When this process first read [`Clock::Monotonic`], and the wall time then.
static ANCHOR: LazyLock<(std::time::Instant, Timestamp)> =
    LazyLock::new(|| (std::time::Instant::now(), wall_time()));

/// The system's wall time.
fn wall_time() -> Timestamp {
    SystemTime::now().into()
}

impl Clock {
    /// A clock that shows `now` until [`Clock::set`] moves it.
    #[must_use]
    pub fn manual(now: Timestamp) -> Self {
        Self::Manual { now: AtomicU64::new(now.0), wall: AtomicU64::new(now.0) }
    }

    /// The current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match self {
            Self::System => wall_time(),
            Self::Monotonic => {
                let (started, wall) = *ANCHOR;
                wall.after(started.elapsed().into())
            }
            Self::Manual { now, .. } => Timestamp(now.load(Ordering::Relaxed)),
        }
    }

    /// The current time of the wall clock, for calendar windows. It differs from [`Clock::now`] of a monotonic clock once
    /// the wall clock has been set.
    #[must_use]
    pub fn wall(&self) -> Timestamp {
        match self {
            Self::System | Self::Monotonic => wall_time(),
            Self::Manual { wall, .. } => Timestamp(wall.load(Ordering::Relaxed)),
        }
    }

    /// Sets a manual clock and its wall clock, forwards or back. The clocks of the system are not changed.
    pub fn set(&self, to: Timestamp) {
        if let Self::Manual { now, .. } = self {
            now.store(to.0, Ordering::Relaxed);
        }
        self.set_wall(to);
    }

    /// Sets only the wall clock of a manual clock, as an operator or NTP would.
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

    #[tokio::test(start_paused = true)]
    async fn a_stopwatch_measures_by_the_cached_time() {
        let _ = monotonic();
        let stopwatch = Stopwatch::start();
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(stopwatch.elapsed(), Nanos(0));
        let _ = monotonic();
        assert_eq!(Duration::from(stopwatch.elapsed()), Duration::from_secs(5));
    }

    #[test]
    fn long_spans_are_formatted_in_days() {
        let formatted = |seconds| format_duration(Duration::from_secs(seconds));
        assert_eq!([0, 90, 86_400].map(formatted), ["0s", "1m 30s", "1day"]);
        assert_eq!([86_461, 31_536_000].map(formatted), ["1day 1m 1s", "365days"]);
    }

    #[test]
    fn seconds_have_only_the_decimals_that_they_need() {
        assert_eq!(
            [600_000, 3_000_000, 1].map(|span| format_seconds(Micros(span))),
            ["0.6", "3", "0.000001"]
        );
    }

    #[test]
    fn the_boot_clock_runs_forward() {
        let first = BootTime::now();
        assert!(first.0 > 0 && BootTime::now() >= first);
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
    fn setting_the_wall_clock_does_not_move_the_monotonic_one() {
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
