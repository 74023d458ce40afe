//! How much clients do in each period, with what limits admit.

use maud::{Markup, html};

use super::super::suggest::{Suggestion, WindowPeaks};
use super::figure::{figure, legend, line};
use super::series::float;
use super::text::grouped;
use crate::plot::{Chart, ChartPanel, Curve, CurveForm, Scale};

/// The height of a chart, in pixels.
const HEIGHT: f64 = 130.0;
/// What a limit admits is drawn up to so many times the most of a client: beyond that, clients would be squeezed.
const FARTHEST: f64 = 20.0;

/// A chart for each period, with one legend.
pub(super) fn peaks(suggestion: &Suggestion) -> Markup {
    let has_present = suggestion.peaks.iter().any(|peaks| peaks.current.is_some());
    let mut items = vec![
        line("clients", "clients with at most so many requests"),
        line("suggested", "most that the suggested limits admit"),
    ];
    items.extend(has_present.then(|| line("present", "most that the present limit admits")));
    html! {
        h3 { "Clients by their peak rate" }
        p {
            "The most requests of a client in any period of each length; clients to the right of a line would have been \
             denied. The axis gives the few clients at the top as much room as all others."
        }
        (legend(&items))
        div.figures {
            @for peaks in &suggestion.peaks { (one(peaks, &suggestion.subject.name)) }
        }
    }
}

fn one(peaks: &WindowPeaks, subject: &str) -> Markup {
    let window = peaks.window;
    let quantiles = peaks.clients;
    let admitted = [("suggested", peaks.suggested), ("present", peaks.current)];
    let admitted = admitted.into_iter().filter_map(|(class, units)| units.map(|units| (class, units)));
    let admitted: Vec<(&'static str, u64)> = admitted.collect();
    let caption = html! {
        strong { "in " (window) } " "
        span.muted {
            "half of clients up to " (grouped(quantiles.p50)) ", 99\u{a0}% up to " (grouped(quantiles.p99))
            ", all up to " (grouped(quantiles.max))
            @for (name, units) in &admitted { "; " (name) ": " (grouped(*units)) }
        }
    };
    let near = |units: &u64| float(*units) <= FARTHEST * float(quantiles.max.max(1));
    let lines: Vec<(&'static str, f64)> = admitted
        .iter()
        .filter(|(_, units)| near(units))
        .map(|(class, units)| (*class, float(*units)))
        .collect();
    let values = lines.iter().map(|(_, units)| *units).chain([float(quantiles.max)]);
    let chart = Chart {
        name: format!("Clients of {subject} by their most requests in {window}"),
        description: format!(
            "Half of the clients make at most {} requests in {window}, 99 % at most {}, and all at most {}.",
            quantiles.p50, quantiles.p99, quantiles.max
        ),
        x: Scale::logarithmic(values),
        x_title: format!("most requests of a client in {window}"),
        panels: vec![ChartPanel {
            title: "share of clients".to_owned(),
            y: Scale::tail(float(clients(peaks))),
            height: HEIGHT,
            curves: vec![Curve { class: "clients", form: CurveForm::Steps, points: points(peaks) }],
            lines,
            points: Vec::new(),
        }],
    };
    figure(&chart, Some(&caption))
}

/// The share of clients with at most each number of requests.
fn points(peaks: &WindowPeaks) -> Vec<(f64, f64)> {
    let clients = float(clients(peaks).max(1));
    peaks.steps.iter().map(|(value, above)| (float(*value), 1.0 - float(*above) / clients)).collect()
}

/// How many clients there are.
fn clients(peaks: &WindowPeaks) -> u64 {
    peaks.steps.first().map_or(0, |(_, clients)| *clients)
}
