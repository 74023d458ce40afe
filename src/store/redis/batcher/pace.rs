//! When the next call to a server may go, by the round trips of those before it.
//!
//! If the server is far away, calls overlap, so that a request does not wait for the reply to an earlier one. They do not if
//! round trips take long because the server is busy: then more calls would only wait there, and fewer requests would share one.
//! A call that takes much longer than usual is the first sign of an outage, so no other follows it: only calls that were sent
//! before may be lost.

use std::time::Duration;

use tokio::time::Instant;

/// How many calls may be in flight at once.
const MAX_CALLS: u32 = 4;
/// The shortest time between two calls that overlap.
const MIN_GAP: Duration = Duration::from_micros(300);
/// The weight of the last round trip in the mean is one in this number.
const LAST_WEIGHT: u32 = 8;
/// How many times the mean a call may take before it is overdue, and how many times the shortest round trip the mean may be
/// before the server counts as busy.
const TOLERANCE: u32 = 2;
/// For how long the shortest round trip counts at least; twice as long at most.
const PERIOD: Duration = Duration::from_secs(10);

/// The round trips of calls to one server.
#[derive(Debug, Default)]
pub(super) struct RoundTrips {
    /// Zero before the first.
    mean: Duration,
    /// The shortest of the present period and of the one before.
    shortest: [Option<Duration>; 2],
    period_ends: Option<Instant>,
}

/// When the next call may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    Now,
    /// At this time, or after a reply.
    At(Instant),
    AfterReply,
}

impl RoundTrips {
    /// Records a call that had its reply at `now`.
    pub fn record(&mut self, took: Duration, now: Instant) {
        self.mean =
            if self.mean.is_zero() { took } else { (self.mean * (LAST_WEIGHT - 1) + took) / LAST_WEIGHT };
        if self.period_ends.is_none_or(|ends| ends <= now) {
            self.shortest = [None, self.shortest[0]];
            self.period_ends = Some(now + PERIOD);
        }
        self.shortest[0] = Some(self.shortest[0].map_or(took, |shortest| shortest.min(took)));
    }

    /// When the next call may go; `sent` has the times of the calls without a reply, the oldest first.
    pub fn pace(&self, sent: &[Instant], now: Instant) -> Pace {
        let (Some(oldest), Some(newest)) = (sent.first(), sent.last()) else { return Pace::Now };
        let is_overdue = now.saturating_duration_since(*oldest) >= TOLERANCE * self.mean;
        if is_overdue || sent.len() >= MAX_CALLS as usize || self.is_busy() {
            return Pace::AfterReply;
        }
        let due = *newest + MIN_GAP.max(self.mean / MAX_CALLS);
        if due <= now { Pace::Now } else { Pace::At(due) }
    }

    /// Whether round trips take much longer than the network does.
    fn is_busy(&self) -> bool {
        let shortest = self.shortest.into_iter().flatten().min();
        shortest.is_none_or(|shortest| self.mean > TOLERANCE * shortest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::monotonic;

    const MS: Duration = Duration::from_millis(1);

    /// The round trips of a server that has replied to some calls, each after `took`.
    fn after(took: Duration, start: Instant) -> RoundTrips {
        let mut trips = RoundTrips::default();
        (0..4).for_each(|_| trips.record(took, start));
        trips
    }

    #[test]
    fn calls_to_a_distant_server_overlap() {
        let start = monotonic();
        let trips = after(20 * MS, start);
        assert_eq!(trips.pace(&[], start), Pace::Now);
        assert_eq!(trips.pace(&[start], start + MS), Pace::At(start + 5 * MS));
        let sent = [0, 5, 10, 15].map(|ms| start + ms * MS);
        assert_eq!(trips.pace(&sent[..3], sent[3]), Pace::Now);
        assert_eq!(trips.pace(&sent, start + 20 * MS), Pace::AfterReply);
    }

    #[test]
    fn no_call_follows_one_that_is_overdue() {
        let start = monotonic();
        let trips = after(20 * MS, start);
        assert_eq!(trips.pace(&[start], start + 39 * MS), Pace::Now);
        assert_eq!(trips.pace(&[start], start + 40 * MS), Pace::AfterReply);
        assert_eq!(trips.pace(&[start, start + 39 * MS], start + 41 * MS), Pace::AfterReply);
    }

    #[test]
    fn calls_to_a_near_or_busy_server_do_not_overlap() {
        let start = monotonic();
        let first = RoundTrips::default();
        assert_eq!(first.pace(&[start], start + MS), Pace::AfterReply);
        let near = after(MS / 10, start);
        assert_eq!(near.pace(&[start], start + MIN_GAP), Pace::AfterReply);
        let mut busy = after(20 * MS, start);
        (0..16).for_each(|_| busy.record(60 * MS, start));
        assert_eq!(busy.pace(&[start], start + 20 * MS), Pace::AfterReply);
        // Round trips have become longer for good.
        (0..2).for_each(|period| busy.record(60 * MS, start + (1 + period) * PERIOD));
        assert_eq!(busy.pace(&[start], start + 20 * MS), Pace::Now);
    }
}
