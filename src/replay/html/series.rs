//! Charts of requests and denials over time.

use super::text::minute;
use crate::plot::{Chart, ChartPanel, Curve, CurveForm, Scale, short};
use crate::replay::report::SeriesReport;
use crate::replay::tally::Bin;
use crate::time::Timestamp;

/// The units of rates, with their lengths in microseconds.
const UNITS: [(&str, u64); 3] = [("s", 1_000_000), ("min", 60_000_000), ("h", 3_600_000_000)];

/// The height of the panel of requests and of denials, in pixels.
const HEIGHTS: (f64, f64) = (120.0, 70.0);

/// A rate over time.
#[derive(Debug)]
pub(super) struct RateCurve {
    /// The class of its elements.
    pub class: &'static str,
    /// How it is drawn.
    pub form: CurveForm,
    /// What is counted, in which bins.
    pub counts: Vec<(u64, u64)>,
    /// The length of a bin, in microseconds.
    pub bin: u64,
}

/// The rate of requests. `period` has the first and the last time in microseconds.
pub(super) fn requests_chart(name: &str, series: &SeriesReport, period: (u64, u64)) -> Chart {
    let requests = RateCurve::of("requests", series, |bin| bin.requests);
    Chart {
        name: name.to_owned(),
        description: requests.description("requests"),
        x: Scale::time(Timestamp(period.0), Timestamp(period.1)),
        x_title: String::new(),
        panels: vec![panel("requests", HEIGHTS.0, &[requests])],
    }
}

/// The rate of requests above that of denials.
pub(super) fn chart(name: &str, series: &SeriesReport, period: (u64, u64)) -> Chart {
    let denials = RateCurve::of("denied", series, |bin| bin.denied);
    let mut chart = requests_chart(name, series, period);
    chart.description = format!("{} {}", chart.description, denials.description("denials"));
    chart.panels.push(panel("would-be denials", HEIGHTS.1, &[denials]));
    chart
}

/// A panel of rates in the same unit.
pub(super) fn panel(what: &str, height: f64, curves: &[RateCurve]) -> ChartPanel {
    let largest = curves.iter().map(RateCurve::largest).max_by(f64::total_cmp).unwrap_or_default();
    let shortest = curves.iter().map(|curve| curve.bin).min().unwrap_or_default();
    // A rate in a unit that is longer than a bin would be more than was counted.
    let fits = |(_, length): &&(&str, u64)| *length <= shortest.max(UNITS[0].1);
    let is_readable = |(_, length): &&(&str, u64)| largest * float(*length) >= 10.0;
    let fitting: Vec<&(&str, u64)> = UNITS.iter().filter(fits).collect();
    let readable = fitting.iter().copied().find(is_readable).or(fitting.last().copied());
    let (unit, length) = *readable.unwrap_or(&UNITS[0]);
    let of_unit = |curve: &RateCurve| Curve {
        class: curve.class,
        form: curve.form,
        points: curve.points().into_iter().map(|(at, rate)| (at, rate * float(length))).collect(),
    };
    ChartPanel {
        title: format!("{what} per {unit}"),
        y: Scale::linear(largest * float(length)),
        height,
        curves: curves.iter().map(of_unit).collect(),
        lines: Vec::new(),
        points: Vec::new(),
    }
}

impl RateCurve {
    /// The rate of what `count` counts.
    pub fn of(class: &'static str, series: &SeriesReport, count: impl Fn(&Bin) -> u64) -> Self {
        let counts = series.bins.iter().map(|bin| (bin.start_us, count(bin))).collect();
        Self { class, form: CurveForm::Area, counts, bin: series.bin_us.max(1) }
    }

    /// This curve, drawn in another form.
    pub fn with_form(self, form: CurveForm) -> Self {
        Self { form, ..self }
    }

    /// The highest rate in words.
    pub fn description(&self, what: &str) -> String {
        let most = self.counts.iter().max_by_key(|(_, count)| *count).filter(|(_, count)| *count > 0);
        match most {
            Some((at, count)) => {
                let seconds = self.bin / 1_000_000;
                format!("Most {what}: {} in {seconds} s from {}.", short(float(*count)), minute(*at))
            }
            None => format!("No {what}."),
        }
    }

    /// The most in a microsecond.
    fn largest(&self) -> f64 {
        let most = self.counts.iter().map(|(_, count)| *count).max().unwrap_or_default();
        float(most) / float(self.bin)
    }

    /// The rate by microsecond from each time on, down to zero after the last.
    fn points(&self) -> Vec<(f64, f64)> {
        let rate = |count: u64| float(count) / float(self.bin);
        let end = self.counts.last().map(|(start, count)| (float(start + self.bin), rate(*count)));
        let points = self.counts.iter().map(|(start, count)| (float(*start), rate(*count)));
        points.chain(end).collect()
    }
}

/// Numbers of requests and times are far below 2^53.
#[expect(clippy::cast_precision_loss, reason = "an error of 2^-53 is no pixel")]
pub(super) fn float(number: u64) -> f64 {
    number as f64
}
