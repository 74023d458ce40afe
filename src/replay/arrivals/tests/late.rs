//! Requests that are behind later ones in a log.

use super::*;
use crate::replay::fields::FieldMap;

/// Lines of one short request per second, and of a long one per minute. They are logged at their ends, or at their arrivals.
fn with_polls(minutes: u32, took: f64, is_by_end: bool) -> Vec<String> {
    let mut requests: Vec<(f64, f64)> = (0..minutes * 60).map(|second| (f64::from(second), 0.1)).collect();
    requests.extend((0..minutes).map(|minute| (f64::from(minute) * 60.0 + 0.5, took)));
    let logged = |(arrival, took): &(f64, f64)| if is_by_end { arrival + took } else { *arrival };
    requests.sort_by(|a, b| logged(a).total_cmp(&logged(b)));
    let line = |(arrival, took)| {
        format!("{{\"t\":{},\"u\":\"/{arrival}\",\"d\":{took}}}\n", 1_795_348_800.0 + arrival)
    };
    requests.into_iter().map(line).collect()
}

/// The options for these lines.
fn poll_options() -> ReadOptions {
    let fields = FieldMap::parse("time=t,target=u,duration=d").unwrap();
    ReadOptions { format: Some(Format::JsonFields(fields)), ..options() }
}

#[test]
fn requests_that_took_longer_than_the_window_are_late() {
    let directory = TempDir::new().unwrap();
    let noon = 1_795_348_800.0;
    let lines = [caddy(noon, 0.0, "/a"), caddy(noon + 20.0, 0.0, "/b"), caddy(noon + 21.0, 20.0, "/c")];
    let path = [log(&directory, "caddy.log", &lines)];
    let window = Micros(10 * Micros::SECOND.0);
    let (found, summary) = read(&path, &ReadOptions { window: Some(window), ..options() });
    assert_eq!((targets(&found).as_str(), summary.late), ("/a/c/b", 1));
    assert_eq!(found[1].1, 1_795_348_810_000_000, "at the edge of the window");
    let (found, summary) = read(&path, &options());
    assert_eq!((found[1].1, summary.late), (1_795_348_801_000_000, 0));
}

#[test]
fn one_wrong_time_does_not_make_other_lines_late() {
    let directory = TempDir::new().unwrap();
    let noon = 1_795_348_800.0;
    let day = 86_400.0;
    let times = [
        ("/a", 0.0),
        ("/wrong", 900.0 * day),
        ("/b", 1.0),
        ("/c", 2.0 * day),
        ("/d", 2.0 * day + 1.0),
        ("/e", 2.0 * day + 30.0),
    ];
    let path = [log(&directory, "caddy.log", &times.map(|(target, after)| caddy(noon + after, 0.0, target)))];
    let (found, summary) = read(&path, &options());
    assert_eq!((targets(&found).as_str(), summary.late), ("/a/b/c/d/e/wrong", 0));
}

#[test]
fn a_few_wrong_times_in_a_row_do_not_make_other_lines_late() {
    let directory = TempDir::new().unwrap();
    let day = 86_400.0;
    let noon = 1_795_348_800.0;
    for after in [2.0 * day, 900.0 * day] {
        let wrong = (0..60).map(|second| caddy(noon + after + f64::from(second), 0.0, "/wrong"));
        let lines = |from: u32| (from..from + 9_000).map(|second| caddy(noon + f64::from(second), 0.0, "/"));
        let all: Vec<String> = lines(0).chain(wrong).chain(lines(9_000)).collect();
        let (found, summary) = read(&[log(&directory, "caddy.log", &all)], &options());
        let is_far = after > 7.0 * day;
        assert_eq!((summary.late, summary.far_dates.len()), (0, if is_far { 60 } else { 0 }));
        assert_eq!(found[17_999], ("/".to_owned(), 1_795_366_799_000_000));
        assert_eq!(found.len(), if is_far { 18_000 } else { 18_060 });
    }
}

#[test]
fn long_requests_do_not_make_others_late() {
    let directory = TempDir::new().unwrap();
    for (took, is_by_end, is_late) in [(60.0, false, false), (60.0, true, false), (400.0, true, true)] {
        let path = [log(&directory, "polls.jsonl", &with_polls(90, took, is_by_end))];
        let (found, summary) = read(&path, &poll_options());
        assert!(found.is_sorted_by_key(|(_, arrival)| *arrival));
        assert_eq!((summary.entries, summary.late > 0), (90 * 61, is_late), "{took} {is_by_end}");
        assert!(!summary.is_window_cut);
    }
}

#[test]
fn the_window_grows_with_the_first_long_request() {
    let directory = TempDir::new().unwrap();
    // The first long requests are not in the sample.
    let long = with_polls(400, 60.0, true).split_off(200 * 61 - 1);
    let path = [log(&directory, "polls.jsonl", &[with_polls(200, 0.2, true), long].concat())];
    let (found, summary) = read(&path, &poll_options());
    assert_eq!((found.len() > 20_000, summary.late, summary.is_unsorted()), (true, 1, false));
}

#[test]
fn logs_that_are_not_sorted_are_noticed() {
    let directory = TempDir::new().unwrap();
    let mut lines: Vec<String> = (0..60).map(|second| combined(second, "/")).collect();
    lines.reverse();
    let (found, summary) = read(&[log(&directory, "minute.log", &lines)], &options());
    let seconds: Vec<u64> = found.iter().map(|(_, arrival)| arrival / 1_000_000 - 1_795_348_800).collect();
    assert_eq!((seconds, summary.is_unsorted()), ((0..60).collect(), false));
    let mut lines: Vec<String> = (0..3_600).map(|second| combined(second, "/")).collect();
    lines.reverse();
    let (_, summary) = read(&[log(&directory, "hour.log", &lines)], &options());
    assert!(summary.is_unsorted(), "{summary:?}");
}

#[test]
fn a_first_line_with_a_wrong_time_does_not_make_others_late() {
    let directory = TempDir::new().unwrap();
    let wrong = combined(0, "/wrong").replace("2026", "2099");
    let path =
        [log(&directory, "access.log", &[wrong, combined(0, "/a"), combined(1, "/b"), combined(2, "/c")])];
    let (found, summary) = read(&path, &options());
    assert_eq!((targets(&found).as_str(), summary.late), ("/a/b/c/wrong", 0));
}
