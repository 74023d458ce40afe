//! Whether an address of a server is in, and what share of the requests it gets: what checks and failures say of
//! it, over time.

use std::time::Duration;

use tokio::time::Instant;

use super::spec::{EjectSpec, HealthSpec};

/// Ejections in a row last longer and longer, up to so many times the first.
const LONGEST: u32 = 10;
/// A share that grows does so in this many steps.
const STEPS: u32 = 50;

/// How one address stands.
#[derive(Clone, Debug, Default)]
pub(super) struct HealthState {
    /// Whether checks say that it is unwell.
    is_unhealthy: bool,
    /// Checks in a row that say otherwise.
    contrary: u32,
    /// Until when it is ejected.
    out_until: Option<Instant>,
    /// Ejections in a row, each soon after the one before.
    ejections: u32,
    /// When it came, or came back; none if it was there from the beginning.
    since: Option<Instant>,
}

impl HealthState {
    /// One that has come just now, beside others.
    pub fn new(now: Instant) -> Self {
        Self { since: Some(now), ..Self::default() }
    }

    /// The same where it is no longer checked, or no longer ejected: whoever has put it out for that would not let it in
    /// again.
    pub fn with_checks(mut self, is_checked: bool, is_ejected: bool) -> Self {
        if !is_checked {
            (self.is_unhealthy, self.contrary) = (false, 0);
        }
        self.out_until = self.out_until.filter(|_| is_ejected);
        self
    }

    /// Whether it is to get requests.
    pub fn is_in(&self) -> bool {
        !self.is_unhealthy && self.out_until.is_none()
    }

    /// Takes the outcome of a check; says whether that changes what is thought of it.
    pub fn checked(&mut self, is_well: bool, spec: &HealthSpec, now: Instant) -> bool {
        if is_well != self.is_unhealthy {
            self.contrary = 0;
            return false;
        }
        self.contrary += 1;
        if self.contrary < if is_well { spec.healthy_after } else { spec.unhealthy_after } {
            return false;
        }
        self.contrary = 0;
        self.is_unhealthy = !is_well;
        if is_well {
            self.since = Some(now);
            // It has failed its checks since, and recovered: what it was ejected for is over.
            self.out_until = None;
        }
        true
    }

    /// Puts it out; says for how long, or nothing if it is out already.
    pub fn eject(&mut self, spec: &EjectSpec, now: Instant) -> Option<Duration> {
        if self.out_until.is_some() {
            return None;
        }
        let is_soon = self.since.is_some_and(|since| now.saturating_duration_since(since) <= spec.lasts);
        self.ejections = if is_soon { (self.ejections + 1).min(LONGEST) } else { 1 };
        let lasts = spec.lasts * self.ejections;
        self.out_until = Some(now + lasts);
        Some(lasts)
    }

    /// Ends an ejection whose time is over; says whether one has ended.
    pub fn readmit(&mut self, now: Instant) -> bool {
        let is_over = self.out_until.is_some_and(|until| until <= now);
        if is_over {
            self.out_until = None;
            self.since = Some(now);
        }
        is_over
    }

    /// Its share if its weight is this: nothing while it is out, and for a while after it came a part that grows
    /// evenly.
    pub fn share(&self, weight: u32, slow_start: Duration, now: Instant) -> u32 {
        if !self.is_in() {
            return 0;
        }
        let Some(age) = self.growing(slow_start, now) else { return weight };
        let part = u128::from(weight) * age.as_nanos() / slow_start.as_nanos().max(1);
        u32::try_from(part).unwrap_or(weight).max(1)
    }

    /// When its share changes by itself.
    pub fn due(&self, slow_start: Duration, now: Instant) -> Option<Instant> {
        let step = (slow_start / STEPS).max(Duration::from_millis(10));
        let growing = self.growing(slow_start, now).filter(|_| self.is_in()).map(|_| now + step);
        [self.out_until, growing].into_iter().flatten().min()
    }

    /// How long it has been there, while its share still grows.
    fn growing(&self, slow_start: Duration, now: Instant) -> Option<Duration> {
        let age = now.saturating_duration_since(self.since?);
        (age < slow_start).then_some(age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::monotonic;

    const SECOND: Duration = Duration::from_secs(1);

    fn health() -> HealthSpec {
        let path = "/".into();
        HealthSpec { path, interval: SECOND, timeout: SECOND, healthy_after: 2, unhealthy_after: 3 }
    }

    #[test]
    fn it_takes_checks_in_a_row_to_change_a_mind() {
        let (mut standing, now) = (HealthState::default(), monotonic());
        let mut said = |is_well| {
            let changed = standing.checked(is_well, &health(), now);
            (changed, standing.is_in())
        };
        assert_eq!([false, false, true, false, false].map(&mut said), [(false, true); 5]);
        assert_eq!(said(false), (true, false));
        assert_eq!([false, true, false, true].map(&mut said), [(false, false); 4]);
        assert_eq!(said(true), (true, true));
    }

    #[test]
    fn ejections_end_and_last_longer_each_time_in_a_row() {
        let spec = EjectSpec { after: 5, lasts: 10 * SECOND };
        let (mut standing, mut now) = (HealthState::default(), monotonic());
        for times in [1, 2, 3] {
            assert_eq!(standing.eject(&spec, now), Some(times * 10 * SECOND));
            assert_eq!(standing.eject(&spec, now), None);
            let end = now + times * 10 * SECOND;
            assert_eq!(standing.due(Duration::ZERO, now), Some(end));
            assert!(!standing.readmit(end - SECOND) && !standing.is_in());
            assert!(standing.readmit(end) && standing.is_in());
            now = end + SECOND;
        }
        // It has held out for a while.
        assert_eq!(standing.eject(&spec, now + 10 * SECOND), Some(10 * SECOND));
    }

    #[test]
    fn one_that_checks_have_found_well_again_is_back() {
        let eject = EjectSpec { after: 5, lasts: 100 * SECOND };
        let (mut standing, now) = (HealthState::default(), monotonic());
        standing.eject(&eject, now);
        // It never failed a check: they don't see what is wrong with it.
        (0..9).for_each(|_| assert!(!standing.checked(true, &health(), now)));
        assert!(!standing.is_in());
        let mut check = |is_well| standing.checked(is_well, &health(), now);
        assert_eq!([false, false, false, true, true].map(&mut check), [false, false, true, false, true]);
        assert!(standing.is_in());
        // What comes soon after still counts as the next in a row.
        assert_eq!(standing.eject(&eject, now + SECOND), Some(200 * SECOND));
    }

    #[test]
    fn the_share_of_one_that_came_grows_evenly() {
        let start = monotonic();
        let standing = HealthState::new(start);
        let share = |seconds: u32| standing.share(1000, 10 * SECOND, start + seconds * SECOND);
        assert_eq!([0, 1, 5, 9, 10, 11].map(share), [1, 100, 500, 900, 1000, 1000]);
        assert!(standing.due(10 * SECOND, start + 9 * SECOND).is_some());
        assert_eq!(standing.due(10 * SECOND, start + 10 * SECOND), None);
        assert_eq!(HealthState::default().share(1000, 10 * SECOND, start), 1000);
    }

    #[test]
    fn one_that_comes_back_grows_too() {
        let (mut standing, start) = (HealthState::default(), monotonic());
        standing.eject(&EjectSpec { after: 1, lasts: SECOND }, start);
        assert_eq!(standing.share(1000, 10 * SECOND, start), 0);
        standing.readmit(start + SECOND);
        assert_eq!(standing.share(1000, 10 * SECOND, start + 6 * SECOND), 500);
    }
}
