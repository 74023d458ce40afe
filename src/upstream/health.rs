//! The health of an endpoint: health checks, outlier ejection and slow start decide whether it is available, and its share
//! of the requests.

pub(super) mod check;
pub(super) mod monitor;
mod resolver;

use std::time::Duration;

use tokio::time::Instant;

use super::spec::{EjectSpec, HealthSpec};

/// Consecutive ejections get longer, up to this multiple of the first.
const MAX_EJECTION_FACTOR: u32 = 10;
/// The number of steps in which a share grows during slow start.
const SLOW_START_STEPS: u32 = 50;

/// The health of one endpoint.
#[derive(Clone, Debug, Default)]
pub(super) struct HealthState {
    /// Whether health checks have failed.
    is_unhealthy: bool,
    /// Consecutive health checks that contradict `is_unhealthy`.
    contrary_checks: u32,
    /// The end of its ejection.
    ejected_until: Option<Instant>,
    /// Consecutive ejections, each soon after the one before.
    ejections: u32,
    /// When it was added or became available again; none if it was there from the start.
    available_since: Option<Instant>,
}

impl HealthState {
    /// The state of an endpoint that is added to others, with slow start.
    pub fn new(now: Instant) -> Self {
        Self { available_since: Some(now), ..Self::default() }
    }

    /// Clears states whose mechanism a reload has switched off, since nothing would clear them later.
    pub fn with_checks(mut self, is_checked: bool, is_ejected: bool) -> Self {
        if !is_checked {
            (self.is_unhealthy, self.contrary_checks) = (false, 0);
        }
        self.ejected_until = self.ejected_until.filter(|_| is_ejected);
        self
    }

    /// Whether the endpoint gets requests.
    pub fn is_available(&self) -> bool {
        !self.is_unhealthy && self.ejected_until.is_none()
    }

    /// Whether it is ejected.
    pub fn is_ejected(&self) -> bool {
        self.ejected_until.is_some()
    }

    /// Records the result of a health check; returns whether it changes `is_unhealthy`.
    pub fn record_check(&mut self, is_healthy: bool, spec: &HealthSpec, now: Instant) -> bool {
        if is_healthy != self.is_unhealthy {
            self.contrary_checks = 0;
            return false;
        }
        self.contrary_checks += 1;
        if self.contrary_checks < if is_healthy { spec.healthy_after } else { spec.unhealthy_after } {
            return false;
        }
        self.contrary_checks = 0;
        self.is_unhealthy = !is_healthy;
        if is_healthy {
            self.available_since = Some(now);
            // Since its ejection it has failed its checks and recovered, so the cause of the ejection is gone.
            self.ejected_until = None;
        }
        true
    }

    /// Ejects the endpoint; returns for how long, or none if it is ejected already.
    pub fn eject(&mut self, spec: &EjectSpec, now: Instant) -> Option<Duration> {
        if self.ejected_until.is_some() {
            return None;
        }
        let is_soon =
            self.available_since.is_some_and(|since| now.saturating_duration_since(since) <= spec.lasts);
        self.ejections = if is_soon { (self.ejections + 1).min(MAX_EJECTION_FACTOR) } else { 1 };
        let lasts = spec.lasts * self.ejections;
        self.ejected_until = Some(now + lasts);
        Some(lasts)
    }

    /// Ends an ejection whose time is over; returns whether it did.
    pub fn end_ejection(&mut self, now: Instant) -> bool {
        let is_over = self.ejected_until.is_some_and(|until| until <= now);
        if is_over {
            self.ejected_until = None;
            self.available_since = Some(now);
        }
        is_over
    }

    /// Its share of the requests for this weight: 0 while it is unavailable, and during slow start a part that grows
    /// linearly.
    pub fn share(&self, weight: u32, slow_start: Duration, now: Instant) -> u32 {
        if !self.is_available() {
            return 0;
        }
        let Some(age) = self.slow_start_age(slow_start, now) else { return weight };
        let part = u128::from(weight) * age.as_nanos() / slow_start.as_nanos().max(1);
        u32::try_from(part).unwrap_or(weight).max(1)
    }

    /// When its share changes next because of time.
    pub fn next_change(&self, slow_start: Duration, now: Instant) -> Option<Instant> {
        let step = (slow_start / SLOW_START_STEPS).max(Duration::from_millis(10));
        let growing =
            self.slow_start_age(slow_start, now).filter(|_| self.is_available()).map(|_| now + step);
        [self.ejected_until, growing].into_iter().flatten().min()
    }

    /// How long it has been available; none after slow start.
    fn slow_start_age(&self, slow_start: Duration, now: Instant) -> Option<Duration> {
        let age = now.saturating_duration_since(self.available_since?);
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
    fn only_consecutive_checks_change_the_state() {
        let (mut state, now) = (HealthState::default(), monotonic());
        let mut record = |is_healthy| {
            let changed = state.record_check(is_healthy, &health(), now);
            (changed, state.is_available())
        };
        assert_eq!([false, false, true, false, false].map(&mut record), [(false, true); 5]);
        assert_eq!(record(false), (true, false));
        assert_eq!([false, true, false, true].map(&mut record), [(false, false); 4]);
        assert_eq!(record(true), (true, true));
    }

    #[test]
    fn consecutive_ejections_last_longer() {
        let spec = EjectSpec { after: 5, lasts: 10 * SECOND };
        let (mut state, mut now) = (HealthState::default(), monotonic());
        for times in [1, 2, 3] {
            assert_eq!(state.eject(&spec, now), Some(times * 10 * SECOND));
            assert_eq!(state.eject(&spec, now), None);
            let end = now + times * 10 * SECOND;
            assert_eq!(state.next_change(Duration::ZERO, now), Some(end));
            assert!(!state.end_ejection(end - SECOND) && !state.is_available());
            assert!(state.end_ejection(end) && state.is_available());
            now = end + SECOND;
        }
        // The endpoint was available for a while.
        assert_eq!(state.eject(&spec, now + 10 * SECOND), Some(10 * SECOND));
    }

    #[test]
    fn a_recovery_in_checks_ends_an_ejection() {
        let eject = EjectSpec { after: 5, lasts: 100 * SECOND };
        let (mut state, now) = (HealthState::default(), monotonic());
        state.eject(&eject, now);
        // Checks that never failed don't detect the cause of the ejection.
        (0..9).for_each(|_| assert!(!state.record_check(true, &health(), now)));
        assert!(!state.is_available());
        let mut check = |is_healthy| state.record_check(is_healthy, &health(), now);
        assert_eq!([false, false, false, true, true].map(&mut check), [false, false, true, false, true]);
        assert!(state.is_available());
        // An ejection soon after that is consecutive.
        assert_eq!(state.eject(&eject, now + SECOND), Some(200 * SECOND));
    }

    #[test]
    fn the_share_of_a_new_endpoint_grows_linearly() {
        let start = monotonic();
        let state = HealthState::new(start);
        let share = |seconds: u32| state.share(1000, 10 * SECOND, start + seconds * SECOND);
        assert_eq!([0, 1, 5, 9, 10, 11].map(share), [1, 100, 500, 900, 1000, 1000]);
        assert!(state.next_change(10 * SECOND, start + 9 * SECOND).is_some());
        assert_eq!(state.next_change(10 * SECOND, start + 10 * SECOND), None);
        assert_eq!(HealthState::default().share(1000, 10 * SECOND, start), 1000);
    }

    #[test]
    fn the_share_grows_after_an_ejection() {
        let (mut state, start) = (HealthState::default(), monotonic());
        state.eject(&EjectSpec { after: 1, lasts: SECOND }, start);
        assert_eq!(state.share(1000, 10 * SECOND, start), 0);
        state.end_ejection(start + SECOND);
        assert_eq!(state.share(1000, 10 * SECOND, start + 6 * SECOND), 500);
    }
}
