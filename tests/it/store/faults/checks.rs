//! Delays and lines of the log, judged by how slow the machine itself was at the time.

use std::time::{Duration, Instant};

use super::load::Sample;
use super::{DEADLINE, Expected};
use crate::support::scaled;

/// How many requests may wait for the deadline before the breakers of both workers are open.
const MOST_WAITS: usize = 100;
/// For how long a missed deadline may keep a worker from using Redis: its breaker opens, and Redis is probed after half a
/// second.
const REOPENED: Duration = Duration::from_millis(600);

pub fn slowest(samples: &[Sample]) -> Duration {
    samples.iter().map(|sample| sample.took).max().unwrap()
}

/// For how long of the time `length` from `start` a worker may have been without Redis because the machine was slow: where a
/// canary took half a deadline, a call to Redis, which wakes up two more processes, may have missed all of it.
pub fn disturbed(canaries: &[Sample], start: Instant, length: Duration) -> Duration {
    let mut slow: Vec<(Duration, Duration)> = canaries
        .iter()
        .filter(|sample| sample.took >= DEADLINE / 2 && sample.at + sample.took + REOPENED > start)
        .map(|sample| {
            let begins = sample.at.saturating_duration_since(start);
            (begins, (sample.at + sample.took + REOPENED - start).min(length))
        })
        .collect();
    slow.sort_unstable();
    let mut counted = Duration::ZERO;
    let mut sum = Duration::ZERO;
    for (begins, ends) in slow {
        sum += ends.saturating_sub(begins.max(counted));
        counted = counted.max(ends);
    }
    sum
}

/// How many requests took about as long as `timeout`, the deadline of calls, while the machine was not slow: where a canary took half a deadline
/// shortly before or after, the machine may have delayed the call to Redis as well.
pub fn waits(samples: &[Sample], canaries: &[Sample], timeout: Duration) -> usize {
    let mut slow: Vec<Instant> =
        canaries.iter().filter(|canary| canary.took >= DEADLINE / 2).map(|canary| canary.at).collect();
    slow.sort_unstable();
    let is_disturbed = |sample: &Sample| {
        let next = slow.partition_point(|at| *at + REOPENED < sample.at);
        slow.get(next).is_some_and(|at| *at <= sample.at + sample.took + REOPENED)
    };
    samples.iter().filter(|sample| sample.took >= timeout * 9 / 10 && !is_disturbed(sample)).count()
}

/// Asserts that no request waits for longer than the deadline, and that only the requests before the breakers open wait at
/// all. The canaries measure what the machine adds; a mistake would add seconds, or a deadline to every request.
#[track_caller]
pub fn assert_waits(samples: &[Sample], canaries: &[Sample], timeout: Duration) {
    let (slowest, canary) = (slowest(samples), slowest(canaries));
    let most = timeout + scaled(canary.max(Duration::from_millis(100))) * 4;
    assert!(slowest <= most, "{slowest:?}, and the slowest canary {canary:?}");
    let waits = waits(samples, canaries, timeout);
    assert!(waits <= MOST_WAITS, "{waits} of {} requests waited for Redis", samples.len());
}

/// Asserts that there is one line for each change, with its reason. Where even a canary took half a deadline, the slow
/// machine may have been a fault of its own.
#[track_caller]
pub fn assert_log(lines: &[String], expected: &Expected, canary: Duration) {
    let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    let (down, up) = (count("the store is unavailable: "), count("the store is available again"));
    let partly = count("some calls to the store fail: ");
    assert_eq!(down + up + partly, lines.len(), "{lines:#?}");
    assert!(down == up && partly <= 1, "{lines:#?}");
    let has_reason =
        |line: &str, reasons: &[&str]| reasons.iter().any(|reason| line.contains(&format!(": {reason}")));
    // A missed deadline counts as the first failure, and the next error of Redis as the one that opens the breaker.
    let slow_machine = [
        "no reply within the deadline",
        "the connection closed before the reply",
        "not connected: Connection closed",
    ];
    let is_slow = |line: &str| canary >= DEADLINE / 2 && has_reason(line, &slow_machine);
    let warnings = || lines.iter().filter(|line| line.contains(" WARN "));
    for line in warnings() {
        assert!(has_reason(line, expected.reasons) || is_slow(line), "{line}");
    }
    let (least, most) = if expected.reasons.is_empty() { (0, 0) } else { (1, 3) };
    let without_slow = warnings().filter(|line| !is_slow(line)).count();
    assert!(warnings().count() >= least && without_slow <= most, "{lines:#?}");
}
