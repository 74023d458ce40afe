//! Several logs as one sequence of requests.

mod damaged;
mod late;

use std::fs;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use tempfile::TempDir;

use super::*;
use crate::replay::arrivals::BackgroundReader;

/// A log in a temporary directory.
fn log(directory: &TempDir, name: &str, lines: &[String]) -> PathBuf {
    let path = directory.path().join(name);
    let text = lines.concat().into_bytes();
    if path.extension() == Some("gz".as_ref()) {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&text).unwrap();
        fs::write(&path, encoder.finish().unwrap()).unwrap();
    } else {
        fs::write(&path, text).unwrap();
    }
    path
}

/// A line of the combined format, some seconds after noon.
fn combined(second: u64, target: &str) -> String {
    let (minute, second) = (second / 60, second % 60);
    format!(
        "192.0.2.7 - - [22/Nov/2026:12:{minute:02}:{second:02} +0000] \"GET {target} HTTP/1.1\" 200 6 \"-\" \"-\"\n"
    )
}

/// A line of Caddy's log of a request that ended then.
fn caddy(end: f64, took: f64, target: &str) -> String {
    format!(
        "{{\"ts\":{end},\"request\":{{\"remote_ip\":\"::1\",\"method\":\"GET\",\"uri\":\"{target}\"}},\"duration\":{took},\"status\":200}}\n"
    )
}

fn options() -> ReadOptions {
    ReadOptions { zone: TimeZone::UTC, ..ReadOptions::default() }
}

/// The targets in the order of arrival, and their arrivals.
fn read(paths: &[PathBuf], options: &ReadOptions) -> (Vec<(String, u64)>, ReadSummary) {
    let mut arrivals = Arrivals::open(paths, options).unwrap();
    let found = arrivals.by_ref();
    let found = found.map(|entry| (String::from_utf8_lossy(&entry.target).into_owned(), entry.arrival.0));
    (found.collect(), arrivals.summary())
}

fn targets(found: &[(String, u64)]) -> String {
    found.iter().map(|(target, _)| target.as_str()).collect()
}

#[test]
fn rotated_logs_are_read_in_the_order_of_time() {
    let directory = TempDir::new().unwrap();
    let paths = [
        log(&directory, "access.log", &[combined(100, "/e"), combined(101, "/f")]),
        log(&directory, "access.log.1", &[combined(50, "/c"), combined(99, "/d")]),
        log(&directory, "access.log.2.gz", &[combined(0, "/a"), combined(1, "/b")]),
        log(&directory, "empty.log", &[]),
    ];
    let (found, summary) = read(&paths, &options());
    assert_eq!(targets(&found), "/a/b/c/d/e/f");
    assert_eq!((summary.lines, summary.entries, summary.late, summary.whole_seconds), (6, 6, 0, 6));
    let arrivals = Arrivals::open(&paths, &options()).unwrap();
    let sizes: u64 = paths.iter().map(|path| path.metadata().unwrap().len()).sum();
    assert_eq!((arrivals.progress().read(), arrivals.progress().total()), (0, sizes));
    let progress = Arc::clone(arrivals.progress());
    assert_eq!(arrivals.count(), 6);
    assert_eq!(progress.read(), sizes);
}

#[test]
fn logs_of_several_formats_are_merged() {
    let directory = TempDir::new().unwrap();
    let noon = 1_795_348_800.0;
    let paths = [
        log(
            &directory,
            "caddy.log",
            &[caddy(noon + 0.5, 0.1, "/b"), caddy(noon + 1.5, 1.4, "/a"), caddy(noon + 2.7, 0.1, "/e")],
        ),
        log(&directory, "nginx.log", &[combined(1, "/c"), combined(1, "/d"), combined(3, "/f")]),
    ];
    let (found, summary) = read(&paths, &options());
    assert_eq!(targets(&found), "/a/b/c/d/e/f");
    let micros: Vec<u64> = found.iter().map(|(_, arrival)| arrival - 1_795_348_800_000_000).collect();
    assert_eq!(micros, [100_000, 400_000, 1_000_000, 1_500_000, 2_600_000, 3_000_000]);
    assert_eq!(summary.whole_seconds, 3);
    let arrivals = Arrivals::open(&paths, &options()).unwrap();
    let formats: Vec<&Format> = arrivals.formats().iter().map(|(_, format)| format).collect();
    assert_eq!(formats, [&Format::CaddyJson, &Format::Combined]);
}

#[test]
fn unknown_logs_are_errors_at_once() {
    let directory = TempDir::new().unwrap();
    let good = log(&directory, "good.log", &[combined(0, "/a")]);
    let odd = log(&directory, "odd.log", &["odd\n".to_owned()]);
    let error =
        |paths: &[PathBuf], options: &ReadOptions| Arrivals::open(paths, options).err().unwrap().to_string();
    let unknown = error(&[good.clone(), odd], &options());
    assert!(unknown.contains("odd.log: the lines are in no known format"), "{unknown}");
    let missing = error(&[directory.path().join("none.log")], &options());
    assert!(missing.starts_with("can't read ") && missing.contains("none.log"), "{missing}");
    let named = ReadOptions { format: Some(Format::CaddyJson), ..options() };
    let wrong = error(&[good], &named);
    assert!(
        wrong.contains("not in the format `caddy-json`") && wrong.ends_with("but in `combined`"),
        "{wrong}"
    );
}

#[test]
fn a_thread_reads_the_same_requests() {
    let directory = TempDir::new().unwrap();
    let lines: Vec<String> = (0..3_000).map(|second| combined(second / 7, &format!("/{second}"))).collect();
    let path = [log(&directory, "access.log", &lines)];
    let (expected, expected_summary) = read(&path, &options());
    let background = BackgroundReader::start(Arrivals::open(&path, &options()).unwrap()).unwrap();
    let batches = std::iter::from_fn(|| background.next_batch());
    let found: Vec<_> = batches
        .flatten()
        .map(|entry| (String::from_utf8_lossy(&entry.target).into_owned(), entry.arrival.0))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(background.finish().unwrap(), expected_summary);
    // A player that stops early stops the thread.
    let background = BackgroundReader::start(Arrivals::open(&path, &options()).unwrap()).unwrap();
    assert!(background.next_batch().is_some());
    background.finish().unwrap();
}
