//! The report of a replay as tables.

use super::suggestion;
use crate::cli::output::aligned;
use crate::replay::{
    Bin, ConfigurationReport, DeniedKey, LimitReport, LogCounts, Number, ReplayReport, RouteReport,
    utc_second,
};
use crate::telemetry::escaped;
use crate::text::{counted, join_and};

/// How many routes are shown.
const SHOWN_ROUTES: usize = 20;
/// How many denied keys of a limit are shown.
const SHOWN_KEYS: usize = 5;

/// Of more lines than one in so many that can't be read, the end of the report warns.
const MANY_UNREAD: u64 = 100;

/// The lines of the report.
pub(super) fn lines(report: &ReplayReport) -> Vec<String> {
    let mut lines = vec![logs(report)];
    lines.extend(reading(report));
    for configuration in &report.configurations {
        lines.push(String::new());
        if let Some(file) = &configuration.file {
            lines.push(format!("{file}:"));
        }
        lines.extend(configuration_lines(configuration));
    }
    if let [one, other] = &*report.configurations {
        lines.push(String::new());
        lines.extend(comparison(one, other));
    }
    let unread = report.lines.malformed + report.lines.too_long;
    if unread * MANY_UNREAD > report.lines.all {
        lines.push(format!(
            "\nwarning: {unread} of {} lines can't be read, so these numbers are of the others",
            report.lines.all
        ));
    }
    lines.push(String::new());
    lines.dedup_by(|one, next| one.is_empty() && next.is_empty());
    lines
}

/// The lines about the reading of the logs.
pub(super) fn reading(report: &ReplayReport) -> Vec<String> {
    let mut lines = bad_lines(report);
    lines.extend(report.notes.iter().map(|note| format!("note: {note}")));
    lines
}

fn logs(report: &ReplayReport) -> String {
    let mut formats: Vec<&str> = report.logs.iter().map(|log| log.format).collect();
    formats.dedup();
    let count = usize::try_from(report.lines.requests).unwrap_or(usize::MAX);
    let period = report.configurations.first().and_then(|configuration| configuration.period_us);
    let period = period
        .map_or_else(String::new, |(first, last)| format!(", {} to {}", utc_second(first), utc_second(last)));
    let logs = counted(report.logs.len(), "log");
    format!("{} in {logs} ({}){period}", counted(count, "request"), join_and(&formats))
}

fn bad_lines(report: &ReplayReport) -> Vec<String> {
    let counts = report.lines;
    let mut lines = Vec::new();
    let mut add = |count: u64, what: &str| {
        if count > 0 {
            lines.push(format!("note: {count} of {} lines {what}", counts.all));
        }
    };
    add(counts.without_request, "are of connections without a valid request");
    add(counts.too_long, "are longer than 1 MiB");
    add(counts.malformed, "can't be read; the first are");
    for bad in &report.bad_lines {
        lines.push(format!("  {}:{}: {}", bad.log, bad.line, bad.error));
        lines.extend(bad.excerpt.as_ref().map(|excerpt| format!("    {}", escaped(excerpt))));
    }
    lines
}

fn configuration_lines(configuration: &ConfigurationReport) -> Vec<String> {
    let mut lines = Vec::new();
    let counts = &configuration.requests;
    if configuration.file.is_some() || counts.forwarded < counts.all {
        lines.extend(aligned(["REQUESTS", "COUNT", "SHARE"], requests(counts).into_iter()));
    }
    if configuration.routes.len() > 1 {
        lines.push(String::new());
        let routes = configuration.routes.iter().take(SHOWN_ROUTES).map(route_row);
        lines.extend(aligned(["ROUTE", "REQUESTS", "DENIED", "SHARE"], routes));
    }
    if !configuration.limits.is_empty() {
        lines.push(String::new());
        let header =
            ["LIMIT", "NUMBERS", "BY", "REQUESTS", "DENIED", "SHARE", "KEYS", "DENIED KEYS", "MOST DENIALS"];
        lines.extend(aligned(header, configuration.limits.iter().map(limit_row)));
    }
    lines.extend(configuration.limits.iter().flat_map(denied_keys));
    lines.extend(configuration.limits.iter().flat_map(undecided));
    lines.extend(configuration.limits.iter().flat_map(missing));
    lines.extend(configuration.notes.iter().map(|note| format!("\nnote: {note}")));
    lines.extend(configuration.suggestions.iter().flat_map(suggestion::lines));
    lines.extend(suggestion::slots(&configuration.slots));
    lines
}

fn requests(counts: &LogCounts) -> Vec<[String; 3]> {
    let row = |name: &str, count: u64| [name.to_owned(), count.to_string(), share(count, counts.all)];
    let mut rows = vec![row("all", counts.all), row("forwarded", counts.forwarded)];
    rows.push(row("denied by a limit", counts.denied));
    rows.extend((counts.unrouted > 0).then(|| row("without a route", counts.unrouted)));
    rows.extend(counts.rejected.iter().map(|(reason, count)| row(&format!("rejected: {reason}"), *count)));
    rows.extend(counts.unplayed.iter().map(|(reason, count)| row(&format!("not played: {reason}"), *count)));
    rows
}

fn route_row(route: &RouteReport) -> [String; 4] {
    let denied = share(route.denied, route.requests);
    [route.name.clone(), route.requests.to_string(), route.denied.to_string(), denied]
}

fn limit_row(limit: &LimitReport) -> [String; 9] {
    let mode = match limit.mode {
        "enforce" => String::new(),
        mode => format!(" ({mode})"),
    };
    [
        format!("{}{mode}", limit.name),
        limit.numbers.clone(),
        limit.key.join("|"),
        limit.requests.to_string(),
        limit.denied.to_string(),
        share(limit.denied, limit.requests),
        number(limit.keys),
        number(limit.denied_keys),
        limit.worst.map_or_else(String::new, |bin| worst(bin, limit.series.bin_us)),
    ]
}

fn worst(bin: Bin, width: u64) -> String {
    format!("{} in {} from {}", bin.denied, length(width), utc_second(bin.start_us))
}

fn denied_keys(limit: &LimitReport) -> Vec<String> {
    if limit.denied_keys_by_count.is_empty() {
        return Vec::new();
    }
    let row = |key: &DeniedKey| {
        let about = if key.error > 0 { "at most " } else { "" };
        [
            key.name.clone(),
            format!("{about}{}", key.denied),
            utc_second(key.first_us),
            utc_second(key.last_us),
            busiest_hours(&key.hours),
        ]
    };
    let mut lines = vec![String::new(), format!("Keys that {} denies most", limit.name)];
    let rows = limit.denied_keys_by_count.iter().take(SHOWN_KEYS).map(row);
    lines.extend(aligned(["KEY", "DENIED", "FIRST", "LAST", "MOST IN THE HOURS (UTC)"], rows));
    lines
}

/// The hours of the day that have most of the denials.
fn busiest_hours(hours: &[u64; 24]) -> String {
    let all: u64 = hours.iter().sum();
    let mut by_count: Vec<usize> = (0..24).collect();
    by_count.sort_by_key(|hour| std::cmp::Reverse(hours[*hour]));
    let mut sum = 0;
    let half = by_count.iter().take_while(|hour| {
        let is_needed = sum * 2 < all;
        sum += hours[**hour];
        is_needed
    });
    let mut half: Vec<usize> = half.copied().collect();
    if half.len() > 6 {
        return "all day".to_owned();
    }
    half.sort_unstable();
    half.iter().map(|hour| format!("{hour:02}")).collect::<Vec<_>>().join(" ")
}

/// Requests that the limit does not decide.
fn undecided(limit: &LimitReport) -> Vec<String> {
    let line = |count: u64, what: &str| {
        (count > 0).then(|| format!("\nnote: limit {}: {count} requests {what}", limit.name))
    };
    let exempt = line(limit.exempt, "are exempt by its allow list");
    let without_key = line(limit.without_key, "are denied, since they lack a part of its key");
    exempt.into_iter().chain(without_key).collect()
}

fn missing(limit: &LimitReport) -> Vec<String> {
    let line = |part: &crate::replay::MissingPartReport| {
        let cure = part.cure.as_ref().map_or_else(String::new, |cure| format!(": {cure}"));
        let what = if part.requests == part.of {
            format!("no request of the log has {}", part.part)
        } else {
            format!("{} of {} requests lack {}", part.requests, part.of, part.part)
        };
        format!("\nnote: limit {}: {what}{cure}", limit.name)
    };
    limit.missing.iter().map(line).collect()
}

fn comparison(one: &ConfigurationReport, other: &ConfigurationReport) -> Vec<String> {
    let name = |configuration: &ConfigurationReport| {
        configuration.file.clone().unwrap_or_else(|| "without a configuration".to_owned())
    };
    let (first, second) = (name(one), name(other));
    let counts = |name: &str, of: &dyn Fn(&LogCounts) -> u64| {
        let cell = |counts: &LogCounts| format!("{} ({})", of(counts), share(of(counts), counts.all));
        [name.to_owned(), cell(&one.requests), cell(&other.requests)]
    };
    let mut rows = vec![
        counts("forwarded", &|counts| counts.forwarded),
        counts("denied by a limit", &|counts| counts.denied),
        counts("not forwarded for other reasons", &|counts| counts.all - counts.forwarded - counts.denied),
    ];
    let mut names: Vec<&str> = one.limits.iter().chain(&other.limits).map(|limit| &*limit.name).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let cell = |configuration: &ConfigurationReport| {
            let limit = configuration.limits.iter().find(|limit| limit.name == name);
            limit.map_or_else(
                || "-".to_owned(),
                |limit| format!("{} of {} keys", limit.denied, number(limit.denied_keys)),
            )
        };
        rows.push([format!("denied by {name}"), cell(one), cell(other)]);
    }
    aligned(["COMPARISON", &first, &second], rows.into_iter())
}

/// A share of a whole, as text.
#[expect(clippy::cast_precision_loss, reason = "shown with two decimals")]
pub(super) fn share(part: u64, whole: u64) -> String {
    let percent = 100.0 * part as f64 / whole.max(1) as f64;
    if part > 0 && percent < 0.01 { "< 0.01 %".to_owned() } else { format!("{percent:.2} %") }
}

fn number(number: Number) -> String {
    if number.relative_error > 0.0 { format!("about {}", number.count) } else { number.count.to_string() }
}

fn length(micros: u64) -> String {
    humantime::format_duration(std::time::Duration::from_micros(micros)).to_string()
}
