//! Waiting: deadlines that follow the speed of the machine.

use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The longest that a test waits for anything on a machine that is quiet and as fast as those of the developers.
const PATIENCE: Duration = Duration::from_secs(10);

/// What [`work`] takes on such a machine.
const WORK: Duration = Duration::from_millis(2);

/// The longest that a test waits for anything.
pub fn patience() -> Duration {
    scaled(PATIENCE)
}

/// A time that suffices on a quiet machine, and longer as this one is slower and has more to do.
pub fn scaled(time: Duration) -> Duration {
    time.mul_f64(slowness() * load())
}

/// How many times as long as a quiet machine this one needs for the same work, at least once. It is measured once, by the shortest of
/// several attempts: the others were interrupted.
fn slowness() -> f64 {
    static SLOWNESS: OnceLock<f64> = OnceLock::new();
    *SLOWNESS.get_or_init(|| {
        let attempts = (0..10).map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        });
        attempts.min().unwrap().div_duration_f64(WORK).max(1.0)
    })
}

/// How many processes share a CPU at present, besides one of ours.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let average = text.split(' ').next().and_then(|average| average.parse::<f64>().ok()).unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    1.0 + average / f64::from(u32::try_from(cpus).unwrap())
}

/// A fixed piece of work.
fn work() {
    let mut value = 1_u64;
    for number in 0..100_000 {
        value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(number));
    }
}

/// Waits until a condition holds.
#[track_caller]
pub fn eventually(condition: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        let waited = start.elapsed();
        assert!(waited < patience(), "still not so after {waited:?}: {condition}");
        // Without a pause, polling would take the processor from the process that it waits for.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits in a task until a condition is true, and lets other tasks run meanwhile.
pub async fn eventually_async(condition: &str, mut holds: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !holds().await {
        let waited = start.elapsed();
        assert!(waited < patience(), "still not so after {waited:?}: {condition}");
        // A pause between two attempts, as in `eventually`.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until a counter stops, and returns its value.
pub fn settled(count: &AtomicUsize) -> usize {
    steady(|| count.load(Ordering::SeqCst))
}

/// Waits until a value no longer changes, and returns it.
pub fn steady<T: Default + PartialEq>(mut read: impl FnMut() -> T) -> T {
    let mut last = T::default();
    let mut unchanged = 0;
    eventually("the value no longer changes", || {
        let now = read();
        unchanged = if now == last && now != T::default() { unchanged + 1 } else { 0 };
        last = now;
        // `eventually` polls every few milliseconds: this is half a second without a change.
        unchanged >= 100
    });
    last
}

/// Whether one of many attempts takes less than `bound`. A busy machine delays most of them.
pub fn is_within(bound: Duration, mut attempt: impl FnMut() -> Duration) -> bool {
    let start = Instant::now();
    std::iter::repeat_with(|| attempt() < bound)
        .take_while(|_| start.elapsed() < patience())
        .any(|is_fast| is_fast)
}

/// Whether a time is at least so many milliseconds, and less than so many on a quiet machine.
pub fn is_between(time: Duration, least: u64, most: u64) -> bool {
    time >= Duration::from_millis(least) && time < scaled(Duration::from_millis(most))
}
