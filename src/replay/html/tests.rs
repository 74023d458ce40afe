//! The page of a small report, as text.

use roxmltree::Document;

use super::*;
use crate::limit::{Key, Quota, Rate};
use crate::replay::report::{
    BadLineReport, ConfigurationReport, DeniedKey, LimitReport, LineCounts, LogReport, MissingPartReport,
    RouteReport, SeriesReport,
};
use crate::replay::results::LogCounts;
use crate::replay::suggest::{Arrival, Histories, SuggestSettings, SuggestionSubject, suggest};
use crate::replay::tally::{Bin, Number};
use crate::time::{Micros, Timestamp};

const START: u64 = 1_767_571_200_000_000;
const SECOND: u64 = 1_000_000;
/// A text that would end the element or the attribute that it is in.
const HOSTILE: &str = "</svg></style></pre>\"'><script>x</script>&amp;";

fn series() -> SeriesReport {
    let bin = |number| Bin { start_us: START + number * 64 * SECOND, requests: 100 + number, denied: number };
    SeriesReport { bin_us: 64 * SECOND, bins: (0..50).map(bin).collect() }
}

fn limit(name: &str) -> LimitReport {
    let key = DeniedKey {
        name: HOSTILE.to_owned(),
        denied: 1_225,
        error: 0,
        first_us: START,
        last_us: START + 3_199 * SECOND,
        hours: std::array::from_fn(|hour| if hour == 0 { 1_225 } else { 0 }),
    };
    let missing = MissingPartReport {
        part: "header:x-api-key".to_owned(),
        requests: 7,
        of: 7,
        cure: Some("add \"<x>\" to the format".to_owned()),
    };
    LimitReport {
        name: name.to_owned(),
        algorithm: "token_bucket",
        numbers: "5/s".to_owned(),
        key: vec!["client_ip".to_owned()],
        mode: "enforce",
        requests: 6_225,
        denied: 1_225,
        keys: Number { count: 12_000, relative_error: 0.01 },
        denied_keys: Number::exact(1),
        exempt: 0,
        without_key: 0,
        missing: vec![missing],
        denied_keys_by_count: vec![key],
        worst: series().bins.last().copied(),
        series: series(),
    }
}

/// Suggestions for 200 clients, one of which sends ten times as much as the others.
fn suggestions() -> Vec<Suggestion> {
    let mut histories = Histories::new(1, 1 << 20);
    for second in 0..3_000_u64 {
        for client in (0..200_u64).filter(|client| *client == 0 || (second + client) % 10 == 0) {
            let arrival = Arrival { at: Timestamp(START + second * SECOND), cost: 1 };
            let key =
                Key(u128::from(client).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_le_bytes());
            histories.record(0, key, arrival, || Some(HOSTILE.into()));
        }
    }
    let subject = SuggestionSubject {
        name: "per-client".to_owned(),
        is_configured: true,
        key: vec!["client_ip".to_owned()],
        ..SuggestionSubject::default()
    };
    let present = Quota::token_bucket(Rate::new(5, Micros::SECOND).unwrap(), 5).unwrap();
    let settings = SuggestSettings { deny_at_most: 0.01, ..SuggestSettings::default() };
    histories
        .all()
        .iter()
        .filter_map(|history| suggest(history, subject.clone(), &settings, std::slice::from_ref(&present)))
        .collect()
}

fn route(name: &str) -> RouteReport {
    RouteReport { name: name.to_owned(), requests: 3_150, denied: 612 }
}

fn configuration(file: &str) -> ConfigurationReport {
    ConfigurationReport {
        file: Some(file.to_owned()),
        requests: LogCounts {
            all: 6_300,
            forwarded: 5_000,
            denied: 1_225,
            unrouted: 0,
            rejected: [("a <b> reason".to_owned(), 75)].into(),
            unplayed: std::collections::BTreeMap::default(),
        },
        period_us: Some((START, START + 3_200 * SECOND)),
        series: series(),
        routes: ["a", "<b>"].map(route).into(),
        only_client: None,
        limits: vec![limit("per-client"), limit("<i>")],
        suggestions: suggestions(),
        slots: Vec::new(),
        notes: vec!["<note>".to_owned()],
    }
}

fn report(files: &[&str]) -> ReplayReport {
    let bad = BadLineReport {
        log: "a<b>.log".to_owned(),
        line: 7,
        error: "no time".to_owned(),
        excerpt: Some(HOSTILE.to_owned()),
    };
    ReplayReport {
        logs: vec![LogReport { name: "a<b>.log".to_owned(), format: "combined" }],
        lines: LineCounts { all: 6_301, requests: 6_300, without_request: 0, malformed: 1, too_long: 0 },
        bad_lines: vec![bad],
        notes: vec!["times have no <fraction>".to_owned()],
        configurations: files.iter().map(|file| configuration(file)).collect(),
    }
}

/// The charts, each as XML.
fn charts(page: &str) -> impl Iterator<Item = Document<'_>> {
    page.split("<figure>").skip(1).map(|figure| {
        let (start, end) = (figure.find("<svg").unwrap(), figure.find("</figure>").unwrap());
        Document::parse(&figure[start..end]).unwrap()
    })
}

#[test]
fn texts_of_logs_are_escaped_everywhere() {
    let page = page(&report(&["<before>.toml", "after\".toml"]));
    assert!(
        !page.contains("<script")
            && !page.contains("<b>")
            && !page.contains("<i>")
            && !page.contains("<before>")
    );
    assert!(!page.contains(" style=") && !page.contains("://"));
    // Denied keys, denied clients and the bad line.
    let escaped = "&lt;/svg&gt;&lt;/style&gt;&lt;/pre&gt;&quot;'&gt;&lt;script&gt;x&lt;/script&gt;&amp;amp;";
    assert!(page.matches(escaped).count() >= 6, "{}", page.matches(escaped).count());
}

#[test]
fn the_policy_has_the_hash_of_the_style_sheet() {
    let page = page(&report(&["a.toml"]));
    let style = page.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
    let hash = BASE64_STANDARD.encode(digest(&SHA256, style.as_bytes()));
    let policy = format!(
        "content=\"default-src 'none'; style-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'\""
    );
    assert!(page.contains(&policy), "{}", &page[..400]);
    assert_eq!(page.matches("<style").count(), 1);
}

#[test]
fn charts_are_within_their_frame() {
    let page = page(&report(&["before.toml", "after.toml"]));
    let mut count = 0;
    for chart in charts(&page) {
        count += 1;
        let root = chart.root_element();
        assert!(root.attribute("aria-label").is_some_and(|name| name.len() > 10));
        for node in chart.descendants() {
            for name in ["x", "x1", "x2"] {
                let Some(percent) = node.attribute(name).and_then(|x| x.strip_suffix('%')) else { continue };
                let percent: f64 = percent.parse().unwrap();
                assert!((0.0..=100.0).contains(&percent), "{node:?}");
            }
        }
    }
    // Two of each configuration with those of its limits, six peaks and a curve, three that compare.
    assert_eq!(count, 2 * 3 + 7 + 3);
    assert!(!page.contains("NaN") && !page.contains("inf"));
}

#[test]
fn the_summary_says_what_would_have_been_denied_and_what_is_suggested() {
    let page = page(&report(&["a.toml"]));
    let summary = page.split_once("id=\"summary\"").unwrap().1.split_once("</section>").unwrap().0;
    for part in [
        "6,300 requests in 1 access log (combined), from 2026-01-05 00:00:00 to 2026-01-05 00:53:20: 53\u{a0}min 20\u{a0}s.",
        "1,225 of 6,300 requests (19.44\u{a0}%) would have been denied:",
        "(5/s, by client_ip) denies 1,225 requests of 1 of its about 12,000 keys; 100\u{a0}% of these have the key",
        "would deny at most 1\u{a0}% of clients. On the time that was held back they deny requests of",
    ] {
        assert!(summary.contains(part), "{part}: {summary}");
    }
}

#[test]
fn a_report_without_requests_is_a_page() {
    let mut empty = report(&["a.toml"]);
    let configuration = &mut empty.configurations[0];
    configuration.period_us = None;
    configuration.series.bins.clear();
    configuration.suggestions.clear();
    let page = page(&empty);
    assert!(page.contains("The logs have no requests."), "{page}");
}
