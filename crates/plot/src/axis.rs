//! The time axis.

use super::drawing::{LEFT, RIGHT, float};
use super::scale::{DAY, HOUR, MINUTE, SECOND, STEPS};
use tidegate_limit::time::{Micros, Timestamp, format_seconds};

/// The maximum number of ticks, not counting the first.
const TICKS: u64 = 10;
/// If the start is more than this many spans after the epoch, ticks count from the start.
const FAR: u64 = 10;

/// Maps times to x coordinates, and computes the ticks.
pub(super) struct Axis {
    start: Timestamp,
    end: Timestamp,
    /// The time that ticks count from, in microseconds.
    origin: u64,
    step: u64,
}

impl Axis {
    /// An axis between two times; `end` is moved to be after `start`.
    pub fn new(start: Timestamp, end: Timestamp) -> Self {
        let end = end.max(start.after(Micros(1)));
        let span = end.0 - start.0;
        let origin = if start.0 / FAR > span { start.0 } else { 0 };
        Self { start, end, origin, step: step(span) }
    }

    /// The x coordinate of a time.
    pub fn x(&self, at: Timestamp) -> f64 {
        let elapsed = float(at.0.clamp(self.start.0, self.end.0) - self.start.0);
        LEFT + elapsed / float(self.end.0 - self.start.0) * (RIGHT - LEFT)
    }

    /// The x coordinates and labels of the ticks.
    pub fn ticks(&self) -> impl Iterator<Item = (f64, String)> + '_ {
        let first = (self.start.0 - self.origin).div_ceil(self.step);
        let last = (self.end.0 - self.origin) / self.step;
        (first..=last).map(|number| {
            let passed = number * self.step;
            (self.x(Timestamp(self.origin + passed)), label(passed, self.step))
        })
    }

    /// The note that says what the ticks count from, unless it is the epoch.
    pub fn origin(&self) -> Option<String> {
        (self.origin > 0).then(|| format!("time since {} s", format_seconds(Micros(self.origin))))
    }
}

fn step(span: u64) -> u64 {
    let fits = |step: &u64| span / step <= TICKS;
    let tens = |unit: u64, from: u32| {
        (from..12).flat_map(move |power| [1, 2, 5].map(|digit| digit * 10_u64.pow(power) * unit))
    };
    let below = tens(1, 0).take_while(|step| *step < SECOND);
    // Shorter and longer steps are 1, 2 or 5 times a power of ten.
    below.chain(STEPS).chain(tens(DAY, 0)).find(fits).unwrap_or(span)
}

fn label(passed: u64, step: u64) -> String {
    for (unit, name) in [(DAY, "d"), (HOUR, "h"), (MINUTE, "min")] {
        if step.is_multiple_of(unit) {
            return format!("{} {name}", passed / unit);
        }
    }
    format!("{} s", format_seconds(Micros(passed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(start: u64, end: u64) -> Vec<String> {
        Axis::new(Timestamp(start), Timestamp(end)).ticks().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_few_and_at_round_times() {
        assert_eq!(labels(0, 3_000_000), ["0 s", "0.5 s", "1 s", "1.5 s", "2 s", "2.5 s", "3 s"]);
        assert_eq!(labels(0, 150_000_000), ["0 s", "30 s", "60 s", "90 s", "120 s", "150 s"]);
        assert_eq!(labels(HOUR, 3 * HOUR), ["60 min", "90 min", "120 min", "150 min", "180 min"]);
        assert_eq!(labels(0, 0), ["0 s", "0.000001 s"]);
        for span in (0..53).map(|power| 1 << power) {
            assert!((1..=12).contains(&labels(0, span).len()), "{span}: {:?}", labels(0, span));
        }
    }

    #[test]
    fn a_start_far_from_the_epoch_is_noted_once() {
        let axis = Axis::new(Timestamp(1_790_000_000_250_000), Timestamp(1_790_000_002_250_000));
        assert_eq!(axis.origin().unwrap(), "time since 1790000000.25 s");
        assert_eq!(axis.ticks().next(), Some((LEFT, "0 s".to_owned())));
    }
}
