//! The demand for a key: how many units per second its requests need.

use crate::limit::Ahead;
use crate::time::{BootTime, Micros};

/// The time in which the weight of a request falls to 1/e, in seconds.
const DECAY: f64 = 0.5;
/// A key whose requests need fewer units in the span of a grant gets no grant: most of its units would lapse.
const MIN_WANTED: u64 = 8;
/// The most units that one grant request asks for.
const MAX_WANTED: f64 = 1_048_576.0;

/// Units per second that the requests of a key need: an exponentially weighted moving average.
#[derive(Clone, Copy, Debug)]
pub(super) struct DemandRate {
    units_per_second: f64,
    last: BootTime,
}

impl DemandRate {
    /// No demand yet.
    pub fn new(now: BootTime) -> Self {
        Self { units_per_second: 0.0, last: now }
    }

    /// Adds a request for `cost` units.
    pub fn add(&mut self, cost: u64, now: BootTime) {
        let since = now.since(self.last).max(Micros(1)).as_secs_f64();
        let cost = f64::from(u32::try_from(cost).unwrap_or(u32::MAX));
        let weight = (-since / DECAY).exp();
        self.units_per_second = self.units_per_second * weight + (1.0 - weight) * cost / since;
        self.last = self.last.max(now);
    }

    /// How many units to request: the demand in the span of a grant; zero if that is too little for a grant.
    pub fn wanted(&self, ahead: Ahead) -> u64 {
        let units = (self.units_per_second * ahead.span.as_secs_f64()).ceil().min(MAX_WANTED);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and MAX_WANTED"
        )]
        let units = units as u64;
        if units >= MIN_WANTED { units } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AHEAD: Ahead = Ahead { span: Micros::SECOND, share: Ahead::DEFAULT_SHARE };

    /// The rate after five seconds with a request of this cost each `interval` microseconds.
    fn steady(interval: u64, cost: u64) -> DemandRate {
        let mut rate = DemandRate::new(BootTime(0));
        (0..5_000_000 / interval).for_each(|number| rate.add(cost, BootTime(number * interval)));
        rate
    }

    #[test]
    fn a_steady_demand_is_measured() {
        assert!((99..=102).contains(&steady(10_000, 1).wanted(AHEAD)));
        assert!((1_980..=2_040).contains(&steady(1_000, 2).wanted(AHEAD)));
    }

    #[test]
    fn few_units_are_not_worth_a_grant() {
        assert_eq!(steady(200_000, 1).wanted(AHEAD), 0);
        assert_eq!(DemandRate::new(BootTime(0)).wanted(AHEAD), 0);
        assert!(steady(200_000, 1).wanted(Ahead { span: Micros(5_000_000), ..AHEAD }) >= MIN_WANTED);
    }

    #[test]
    fn a_burst_is_forgotten_within_seconds() {
        let mut rate = steady(1_000, 1);
        rate.add(1, BootTime(9_000_000));
        assert_eq!(rate.wanted(AHEAD), 0);
    }
}
