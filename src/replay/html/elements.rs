//! Elements of the page: tables, figures with a caption and a legend, charts of requests and denials over time, and small
//! pictures of the hours of the day.

use maud::{Markup, PreEscaped, html};

use super::text::{grouped, minute};
use crate::plot::{Chart, ChartPanel, Curve, CurveForm, Scale, bars, short};
use crate::replay::report::SeriesReport;
use crate::replay::tally::Bin;
use crate::time::Timestamp;

/// A column.
#[derive(Clone, Debug)]
pub(super) struct Column {
    title: String,
    is_number: bool,
}

/// A column of texts.
pub(super) fn text(title: &str) -> Column {
    Column { title: title.to_owned(), is_number: false }
}

/// A column of numbers.
pub(super) fn number(title: &str) -> Column {
    Column { title: title.to_owned(), is_number: true }
}

/// A table. The first cell of each row is its heading.
pub(super) fn table(caption: &str, columns: &[Column], rows: &[Vec<Markup>]) -> Markup {
    let class = |column: &Column| column.is_number.then_some("number");
    html! {
        // Outside of the box that scrolls, so that all of it can be read.
        h3 { (caption) }
        div.scroll role="region" aria-label=(caption) tabindex="0" {
            table aria-label=(caption) {
                thead { tr {
                    @for column in columns { th scope="col" class=[class(column)] { (column.title) } }
                } }
                tbody {
                    @for row in rows { tr {
                        @for (index, (column, cell)) in columns.iter().zip(row).enumerate() {
                            @if index == 0 { th scope="row" class=[class(column)] { (cell) } }
                            @else { td class=[class(column)] { (cell) } }
                        }
                    } }
                }
            }
        }
    }
}

/// A cell with a plain text.
pub(super) fn cell(text: impl AsRef<str>) -> Markup {
    html! { (text.as_ref()) }
}

/// A cell with the name of a key or another text that a client may have written.
pub(super) fn key(name: &str) -> Markup {
    html! { span.key { (name) } }
}

/// What a colour and form of line mean.
#[derive(Clone, Debug)]
pub(super) struct LegendItem {
    /// The class of the line.
    pub class: &'static str,
    /// Whether it is a marked point in place of a line.
    pub is_point: bool,
    /// The meaning.
    pub text: String,
}

/// An item for a line.
pub(super) fn line(class: &'static str, text: impl Into<String>) -> LegendItem {
    LegendItem { class, is_point: false, text: text.into() }
}

/// An item for a marked point.
pub(super) fn point(class: &'static str, text: impl Into<String>) -> LegendItem {
    LegendItem { class, is_point: true, text: text.into() }
}

/// The meaning of lines and points.
pub(super) fn legend(items: &[LegendItem]) -> Markup {
    html! {
        ul.legend {
            @for item in items { li {
                svg width="26" height="12" aria-hidden="true" {
                    @if item.is_point { path class=(item.class) d="M13 0l6 6-6 6-6-6z" {} }
                    @else { path class={ "curve " (item.class) } d="M1 6h24" {} }
                }
                (item.text)
            } }
        }
    }
}

/// A chart, with a caption unless the heading above it says enough.
pub(super) fn figure(chart: &Chart, caption: Option<&Markup>) -> Markup {
    html! {
        figure {
            @if let Some(caption) = caption { figcaption { (caption) } }
            (PreEscaped(chart.draw()))
        }
    }
}

/// A picture of how many `what` there are in each hour of the day.
pub(super) fn hours(counts: &[u64; 24], what: &str) -> Markup {
    let most = counts.iter().enumerate().max_by_key(|(hour, count)| (**count, std::cmp::Reverse(*hour)));
    let name = match most {
        Some((hour, count)) if *count > 0 => {
            format!("{what} by hour of the day: most from {hour} to {} h, {}", hour + 1, grouped(*count))
        }
        _ => format!("no {what}"),
    };
    html! { span class={ "hours " (what) } { (PreEscaped(bars(counts, &name))) } }
}

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
