//! The least burst for each rate.

use maud::{Markup, html};

use super::super::suggest::{CurvePoint, Role, SuggestedLimit, Suggestion};
use super::figure::{figure, legend, line, point};
use super::series::float;
use super::text::{grouped, percent};
use crate::plot::{Chart, ChartPanel, Curve, CurveForm, Scale};

/// The height of the chart, in pixels.
const HEIGHT: f64 = 230.0;
const MINUTE: f64 = 60_000_000.0;

/// The chart of rates and bursts, with its legend.
pub(super) fn curve(suggestion: &Suggestion) -> Markup {
    let few =
        format!("requests of at most {} of clients are denied", percent(suggestion.settings.refuse_at_most));
    let buckets: Vec<&SuggestedLimit> =
        suggestion.limits.iter().filter(|limit| limit.role != Role::Day).collect();
    let names: Vec<String> = buckets
        .iter()
        .map(|limit| format!("{} with a burst of {}", limit.rate, grouped(limit.burst)))
        .collect();
    let mut items = vec![line("clients", "no request is denied"), line("few", few)];
    if !names.is_empty() {
        items.push(point("mark", format!("suggested: {}", names.join("; "))));
    }
    html! {
        h3 { "Rate and burst" }
        p {
            "The least burst with which a token bucket of each rate denies none or few of these clients. A rate \
             with a burst above a line denies no more than the line says; below it, more."
        }
        (legend(&items))
        (figure(&chart(suggestion, &buckets), None))
    }
}

fn chart(suggestion: &Suggestion, buckets: &[&SuggestedLimit]) -> Chart {
    let marks: Vec<(f64, f64)> =
        buckets.iter().map(|limit| (per_minute(limit), float(limit.burst))).collect();
    let points = |burst: fn(&CurvePoint) -> u64| -> Vec<(f64, f64)> {
        let points = suggestion.curve.iter();
        points.map(|point| (float(point.per_minute), float(burst(point).max(1)))).collect()
    };
    let (for_all, few) = (points(|point| point.for_all), points(|point| point.at_most));
    let both = || for_all.iter().chain(&few).chain(&marks);
    let ends = |points: Option<&CurvePoint>| {
        points.map_or_else(String::new, |point| format!("with {} a burst of {}", point.rate, point.for_all))
    };
    Chart {
        name: format!("Least burst for each rate of {}", suggestion.subject.name),
        description: format!(
            "No request is denied {}, and {}.",
            ends(suggestion.curve.first()),
            ends(suggestion.curve.last())
        ),
        x: Scale::logarithmic(both().map(|(rate, _)| *rate)),
        x_title: "rate, requests per minute (60 are 1/s)".to_owned(),
        panels: vec![ChartPanel {
            title: "burst, requests".to_owned(),
            y: Scale::logarithmic(both().map(|(_, burst)| *burst)),
            height: HEIGHT,
            curves: vec![
                Curve { class: "few", form: CurveForm::Straight, points: few },
                Curve { class: "clients", form: CurveForm::Straight, points: for_all },
            ],
            lines: Vec::new(),
            points: marks.into_iter().map(|(rate, burst)| ("mark", rate, burst)).collect(),
        }],
    }
}

fn per_minute(limit: &SuggestedLimit) -> f64 {
    let rate = limit.numbers.rate;
    float(rate.units()) * MINUTE / float(rate.period().0)
}
