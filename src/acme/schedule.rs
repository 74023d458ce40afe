//! When certificates are renewed, and when a failed attempt is repeated.

use std::time::Duration;

use super::status::{ErrorKind, ObtainError};
use crate::time::{Micros, Timestamp};

/// The part of its lifetime that remains when a certificate is renewed.
const REMAINING: u64 = 3;
/// The part of the lifetime by which renewals are spread, so that certificates of the same age are not renewed at once.
const SPREAD: u64 = 100;
/// The first wait after the ACME server was unavailable, and the longest.
const UNAVAILABLE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(10));
/// The first wait after it has refused, and the longest. Let's Encrypt allows five failed validations an hour: with this
/// wait the sixth is after more than an hour.
const REJECTED: (Duration, Duration) = (Duration::from_mins(2), Duration::from_hours(6));
/// The part of a wait by which it is longer at random, so that many proxies do not repeat at the same time.
const JITTER: f64 = 0.2;
/// The longest wait that an ACME server may ask for.
const MAX_RETRY_AFTER: Duration = Duration::from_hours(24 * 7);

/// When an ACME server suggests to renew a certificate (ARI, RFC 9773).
pub(super) struct SuggestedWindow {
    pub window: (Timestamp, Timestamp),
    /// When to ask again.
    pub ask_again: Duration,
}

/// When a certificate is to be renewed; `random` is from 0 to 1.
pub(super) fn renewal(not_before: Timestamp, not_after: Timestamp, random: f64) -> Timestamp {
    let lifetime = not_after.since(not_before).0;
    let early = lifetime / REMAINING + part(lifetime / SPREAD, random);
    Timestamp(not_after.0.saturating_sub(early))
}

/// When the ACME server is asked for the first time when it suggests to renew a certificate.
pub(super) fn first_question(not_before: Timestamp, not_after: Timestamp) -> Timestamp {
    not_before.after(Micros(not_after.since(not_before).0 / SPREAD))
}

/// A time within the window that the ACME server suggests (ARI, RFC 9773 §4.2); `random` is from 0 to 1.
pub(super) fn within((start, end): (Timestamp, Timestamp), random: f64) -> Timestamp {
    start.after(Micros(part(end.since(start).0, random)))
}

/// How long to wait after so many failures in a row, of which this is the last; `random` is from 0 to 1.
pub(super) fn backoff(failures: u32, error: &ObtainError, random: f64) -> Duration {
    let (first, longest) = match error.kind {
        ErrorKind::Unavailable | ErrorKind::UnknownAccount => UNAVAILABLE,
        ErrorKind::Rejected => REJECTED,
    };
    let doublings = failures.saturating_sub(1).min(20);
    first.saturating_mul(1 << doublings).min(longest).mul_f64(1.0 + JITTER * random)
}

/// How long the ACME server asks to wait: at most a week.
pub(super) fn asked_wait(error: &ObtainError) -> Option<Duration> {
    error.retry_after.map(|asked| asked.min(MAX_RETRY_AFTER))
}

/// A share of a whole number.
fn part(whole: u64, share: f64) -> u64 {
    // The numbers are microseconds of some years at most, which a float holds exactly.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let part = (whole as f64 * share) as u64;
    part
}

/// The time until `later`; zero if it has passed.
pub(super) fn until(later: Timestamp, now: Timestamp) -> Duration {
    let Micros(micros) = later.since(now);
    Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000_000;

    #[test]
    fn a_third_of_the_lifetime_remains_at_a_renewal() {
        let (from, to) = (Timestamp(10 * DAY), Timestamp(100 * DAY));
        assert_eq!(renewal(from, to, 0.0), Timestamp(70 * DAY));
        assert_eq!(renewal(from, to, 1.0), Timestamp(70 * DAY - DAY * 9 / 10));
        // A certificate that is malformed in its times is renewed at once, and does no harm.
        assert_eq!(renewal(to, from, 1.0), from);
    }

    #[test]
    fn a_suggested_window_is_used_as_a_whole() {
        let window = (Timestamp(DAY), Timestamp(3 * DAY));
        let times = [0.0, 0.5, 1.0].map(|random| within(window, random));
        assert_eq!(times, [Timestamp(DAY), Timestamp(2 * DAY), Timestamp(3 * DAY)]);
        assert_eq!(within((window.1, window.0), 0.5), window.1);
    }

    #[test]
    fn waits_double_up_to_a_bound() {
        let wait = |failures, error: &ObtainError| backoff(failures, error, 0.0).as_secs();
        let unavailable = ObtainError::unavailable("");
        assert_eq!([1, 2, 3, 9, u32::MAX].map(|n| wait(n, &unavailable)), [5, 10, 20, 600, 600]);
        let rejected = ObtainError::rejected("");
        assert_eq!([1, 2, 3, 9, u32::MAX].map(|n| wait(n, &rejected)), [120, 240, 480, 21_600, 21_600]);
        // The sixth attempt is more than an hour after the first.
        assert!((1..=5).map(|n| wait(n, &rejected)).sum::<u64>() > 3_600);
        assert_eq!(backoff(1, &rejected, 1.0).as_secs(), 144);
    }

    #[test]
    fn the_server_can_ask_for_a_wait() {
        let asked = |seconds| ObtainError {
            retry_after: Some(Duration::from_secs(seconds)),
            ..ObtainError::rejected("")
        };
        let waits = [1, 3_600, u64::MAX].map(|seconds| asked_wait(&asked(seconds)).unwrap());
        assert_eq!(waits.map(|wait| wait.as_secs()), [1, 3_600, 7 * 86_400]);
        assert_eq!(asked_wait(&ObtainError::rejected("")), None);
    }
}
