//! Suggested limits: why, their numbers, what they deny, and lines for the configuration; suggested numbers of limits on
//! concurrency.

use maud::{Markup, html};

use super::elements::{cell, figure, float, hours, key, legend, line, number, point, table, text};
use super::text::{counted, grouped, instant, percent, share};
use crate::plot::{Chart, ChartPanel, Curve, CurveForm, Scale};
use crate::replay::suggest::{
    Check, CurvePoint, ListedClient, Role, SlotsSuggestion, SuggestedLimit, Suggestion, WindowPeaks,
};
use crate::text::join_and;

/// The parts of the section about a suggestion.
pub(super) fn suggestion(suggestion: &Suggestion) -> Markup {
    html! {
        p { (basis(suggestion)) }
        @if !suggestion.warnings.is_empty() {
            ul.warnings { @for warning in &suggestion.warnings { li { (warning) } } }
        }
        (peaks(suggestion))
        (curve(suggestion))
        @if !suggestion.limits.is_empty() {
            (limits(suggestion))
            pre tabindex="0" { code { (suggestion.toml) } }
            (checks(suggestion))
            p.muted { (settings_text(suggestion)) }
        }
        (listed(suggestion))
    }
}

/// The limits in a sentence, without a subject.
pub(super) fn numbers(suggestion: &Suggestion) -> String {
    let numbers: Vec<String> = suggestion
        .limits
        .iter()
        .map(|limit| {
            let has_burst = limit.numbers.rate.units() != limit.burst;
            let burst = has_burst.then(|| format!(" with a burst of {}", grouped(limit.burst)));
            format!("{}{}", limit.rate, burst.unwrap_or_default())
        })
        .collect();
    join_and(&numbers)
}

/// What a check found, in a sentence, without a subject.
pub(super) fn denied_clients(check: &Check) -> String {
    format!(
        "{} of {} ({}; with 95\u{a0}% confidence at most {})",
        grouped(check.denied_clients),
        counted(check.clients, "client"),
        percent(check.client_share()),
        percent(check.clients_upper_bound)
    )
}

fn settings_text(suggestion: &Suggestion) -> String {
    let settings = &suggestion.settings;
    format!(
        "The limits were chosen from the first {} of the time with requests, so that they deny at most {} of {}, times {} as \
         headroom and rounded up. The share of denied clients in traffic of this kind is at most the bound, with a confidence of \
         95\u{a0}%.",
        percent(settings.fit),
        percent(settings.deny_at_most),
        settings.of.name(),
        settings.headroom
    )
}

fn basis(suggestion: &Suggestion) -> String {
    let about = if suggestion.clients.relative_error > 0.0 { "about " } else { "" };
    let subject = &suggestion.subject;
    let place = match (&subject.route, subject.is_configured) {
        (_, true) => format!("The limit {} counts by {}", subject.name, join_and(&subject.key)),
        (Some(route), false) => {
            format!("The route {route} has no limit; counted by {}", join_and(&subject.key))
        }
        (None, false) => format!("These requests match no route; counted by {}", join_and(&subject.key)),
    };
    format!(
        "{place}: {} of {about}{}.",
        counted(suggestion.requests, "request"),
        counted(suggestion.clients.keys, "client")
    )
}

fn all_of_the_log(suggestion: &Suggestion) -> String {
    let time = suggestion.time;
    format!("all of the log, {} to {}", instant(time.from.0), instant(time.until.0))
}

fn limits(suggestion: &Suggestion) -> Markup {
    let columns = [text("Limit"), number("Rate"), number("Burst"), number("Clients need")];
    let row = |limit: &SuggestedLimit| {
        vec![cell(&limit.name), cell(&limit.rate), cell(grouped(limit.burst)), cell(grouped(limit.least))]
    };
    let rows: Vec<Vec<Markup>> = suggestion.limits.iter().map(row).collect();
    let part = suggestion.fit.part;
    let caption =
        format!("Suggested limits, chosen from {} to {}", instant(part.from.0), instant(part.until.0));
    table(&caption, &columns, &rows)
}

fn checks(suggestion: &Suggestion) -> Markup {
    let columns = [
        text("Time"),
        number("Clients"),
        number("Denied"),
        number("Share"),
        number("Bound, 95\u{a0}%"),
        number("Requests"),
        number("Denied"),
        number("Share"),
    ];
    let row = |name: &str, check: &Check| {
        vec![
            html! { (name) br; span.muted.whole { (instant(check.part.from.0)) " to" }
            br; span.muted.whole { (instant(check.part.until.0)) } },
            cell(grouped(check.clients)),
            cell(grouped(check.denied_clients)),
            cell(percent(check.client_share())),
            cell(percent(check.clients_upper_bound)),
            cell(grouped(check.requests)),
            cell(grouped(check.denied_requests)),
            cell(percent(check.request_share())),
        ]
    };
    let rows = [
        Some(row("chosen from", &suggestion.fit)),
        suggestion.held_back.as_ref().map(|check| row("held back", check)),
        suggestion.current.as_ref().map(|check| row("held back, with the present limit", check)),
    ];
    let rows: Vec<Vec<Markup>> = rows.into_iter().flatten().collect();
    table("Requests and clients that they deny", &columns, &rows)
}

fn listed(suggestion: &Suggestion) -> Markup {
    let peak = suggestion.peaks.get(2).map_or("1 min", |peaks: &WindowPeaks| peaks.window);
    let columns = [
        text("Client"),
        number("Requests"),
        number("Denied"),
        number("Share"),
        number(&format!("Most in {peak}")),
        text("Shape"),
        text("Why"),
        text("User agent"),
        text("Consumer"),
        number("Requests by hour, 0 to 24 h"),
    ];
    let row = |client: &ListedClient| {
        vec![
            key(&client.name),
            cell(grouped(client.requests)),
            cell(grouped(client.denied)),
            cell(share(client.denied, client.requests)),
            cell(grouped(client.peaks[2])),
            html! { span.whole { (client.shape.kind.name()) } },
            html! { span.reason { (client.shape.reason) } },
            key(client.user_agent.as_deref().unwrap_or("–")),
            key(client.consumer.as_deref().unwrap_or("–")),
            hours(&client.shape.hours, "requests"),
        ]
    };
    let rows: Vec<Vec<Markup>> = suggestion.listed.iter().map(row).collect();
    let caption = format!(
        "Clients with the most denied requests or the busiest minutes, in {}",
        all_of_the_log(suggestion)
    );
    table(&caption, &columns, &rows)
}

/// The table of the requests that clients have in flight, with notes on the requests that were not counted.
pub(super) fn slots(suggestions: &[SlotsSuggestion]) -> Markup {
    let columns = [
        text("Limit"),
        number("Half of clients"),
        number("99\u{a0}%"),
        number("99.9\u{a0}%"),
        number("All"),
        number("Present"),
        number("Exceeded by"),
        number("Suggested"),
        number("Exceeded by"),
    ];
    let row = |of: &SlotsSuggestion| {
        let exceeded = |clients: u64| html! { (grouped(clients)) " of " (counted(of.clients, "client")) };
        vec![
            cell(&of.name),
            cell(grouped(of.peaks.p50)),
            cell(grouped(of.peaks.p99)),
            cell(grouped(of.peaks.p99_9)),
            cell(grouped(of.peaks.max)),
            cell(grouped(of.current)),
            exceeded(of.current_exceeded_by),
            cell(of.suggested.map_or_else(|| "–".to_owned(), grouped)),
            exceeded(of.exceeded_by),
        ]
    };
    let rows: Vec<Vec<Markup>> = suggestions.iter().map(row).collect();
    let note = |name: &str, requests: u64, why: &str| {
        html! {
            @if requests > 0 { li { "limit " (name) ": " (counted(requests, "request")) " left out, since " (why) } }
        }
    };
    html! {
        (table("Most requests of a client in flight at once", &columns, &rows))
        @if suggestions.iter().any(|of| of.without_duration + of.left_out > 0) {
            ul.warnings {
                @for of in suggestions {
                    (note(&of.name, of.without_duration, "the logs do not have how long they took"))
                    (note(&of.name, of.left_out, "there are too many keys"))
                }
            }
        }
    }
}

/// The height of the chart, in pixels.
const CURVE_HEIGHT: f64 = 230.0;
const MINUTE: f64 = 60_000_000.0;

/// The chart of rates and bursts, with its legend.
pub(super) fn curve(suggestion: &Suggestion) -> Markup {
    let few =
        format!("requests of at most {} of clients are denied", percent(suggestion.settings.deny_at_most));
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
        h3 { "Rate and burst, in " (all_of_the_log(suggestion)) }
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
            height: CURVE_HEIGHT,
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

/// The height of a chart, in pixels.
const PEAKS_HEIGHT: f64 = 130.0;
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
        h3 { "Clients by their peak rate, in " (all_of_the_log(suggestion)) }
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
            height: PEAKS_HEIGHT,
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
