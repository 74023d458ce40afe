//! Logs with lines or bytes that can't be read.

use super::*;
use crate::replay::entry::LineError;

/// A log of these bytes.
fn raw(directory: &TempDir, name: &str, bytes: impl AsRef<[u8]>) -> [PathBuf; 1] {
    let path = directory.path().join(name);
    fs::write(&path, bytes).unwrap();
    [path]
}

#[test]
fn bad_lines_are_counted_and_do_not_stop() {
    let directory = TempDir::new().unwrap();
    let lines = [
        combined(0, "/a"),
        "nonsense\n".to_owned(),
        combined(0, "/b").replace("GET /b HTTP/1.1", "\\x16\\x03"),
        "\n".to_owned(),
        format!("{}\n", "x".repeat(1_100_000)),
        combined(1, "/c"),
    ];
    let path = log(&directory, "access.log", &lines);
    let (found, summary) = read(std::slice::from_ref(&path), &options());
    assert_eq!(targets(&found), "/a/c");
    assert_eq!((summary.lines, summary.entries), (5, 2));
    assert_eq!((summary.malformed, summary.without_request, summary.too_long), (1, 1, 1));
    let [bad] = &summary.examples[..] else { panic!("{summary:?}") };
    assert_eq!((&*bad.log, bad.number, bad.excerpt.as_str()), (&*path.to_string_lossy(), 2, "nonsense"));
    assert_eq!(bad.error, LineError::Column { column: 9, expected: "a date in brackets" });
}

#[test]
fn lines_that_a_container_runtime_has_divided_are_joined() {
    let directory = TempDir::new().unwrap();
    let of = |tag: &str, stream: &str, text: &str| format!("2026-11-22T12:00:00.1Z {stream} {tag} {text}\n");
    let long = combined(0, &format!("/{}", "a".repeat(40_000)));
    let [a, b, c] = [&long[..16_384], &long[16_384..32_768], long[32_768..].trim_end()];
    let half = "x".repeat(600_000);
    let lines = [
        of("P", "stdout", a),
        of("F", "stderr", "started"),
        of("P", "stdout", b),
        of("F", "stdout", c),
        of("F", "stdout", combined(1, "/b").trim_end()),
        of("P", "stdout", &half),
        of("F", "stdout", &half),
        of("F", "stdout", combined(2, "/c").trim_end()),
    ];
    let (found, summary) = read(&[log(&directory, "0.log", &lines)], &options());
    let lengths: Vec<usize> = found.iter().map(|(target, _)| target.len()).collect();
    assert_eq!(lengths, [40_001, 2, 2]);
    assert_eq!((summary.lines, summary.entries, summary.malformed, summary.too_long), (5, 3, 1, 1));
}

#[test]
fn a_log_that_is_cut_is_read_as_far_as_possible() {
    let directory = TempDir::new().unwrap();
    let lines: Vec<String> =
        (0..20_000).map(|second| combined(second / 100, &format!("/{second}"))).collect();
    let path = log(&directory, "access.log.gz", &lines);
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let (found, summary) = read(std::slice::from_ref(&path), &options());
    assert!(found.len() > 5_000 && found.len() < 20_000, "{}", found.len());
    assert_eq!(&*summary.broken[0].0, &*path.to_string_lossy());
}

#[test]
fn a_log_of_which_nothing_can_be_read_is_broken() {
    let directory = TempDir::new().unwrap();
    let good = log(&directory, "good.log", &[combined(0, "/a")]);
    let lines: Vec<String> = (0..9).map(|second| combined(second, "/b")).collect();
    let bytes = fs::read(log(&directory, "whole.log.gz", &lines)).unwrap();
    let zstd = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/logs/nginx-combined.log.zst"));
    let [small] = raw(&directory, "small.log.gz", &bytes[..30]);
    let [frame] = raw(&directory, "cut.log.zst", &zstd[..300]);
    let (found, summary) =
        read(&[directory.path().to_owned(), small.clone(), good, frame.clone()], &options());
    assert_eq!(targets(&found), "/a");
    let error = Arrivals::open(&[directory.path().to_owned()], &options()).err().unwrap().to_string();
    assert!(error.starts_with("can't read ") && error.contains("directory"), "{error}");
    let broken: Vec<&str> = summary.broken.iter().map(|(log, _)| &**log).collect();
    assert_eq!(
        broken,
        [directory.path().to_str().unwrap(), small.to_str().unwrap(), frame.to_str().unwrap()]
    );
}

#[test]
fn a_small_log_that_is_cut_is_read_as_far_as_possible() {
    let directory = TempDir::new().unwrap();
    let lines: Vec<String> = (0..9).map(|second| combined(second, &format!("/{second}"))).collect();
    let bytes = fs::read(log(&directory, "whole.log.gz", &lines)).unwrap();
    let path = raw(&directory, "access.log.gz", &bytes[..bytes.len() - 20]);
    let (found, summary) = read(&path, &options());
    assert!(targets(&found).starts_with("/0/1"), "{found:?}");
    assert_eq!((summary.broken.len(), summary.malformed), (1, 0));
}

#[test]
fn bytes_before_the_first_line_are_skipped() {
    let directory = TempDir::new().unwrap();
    let hole = vec![0; 5 * 1024 * 1024];
    for before in [&b"\xef\xbb\xbf"[..], b"\0\0\0", &hole] {
        let path = raw(&directory, "access.log", [before, combined(0, "/a").as_bytes()].concat());
        let (found, summary) = read(&path, &options());
        assert_eq!((targets(&found).as_str(), summary.lines, summary.malformed), ("/a", 1, 0));
    }
}

#[test]
fn a_log_may_begin_with_lines_of_another_program() {
    let directory = TempDir::new().unwrap();
    let good = [combined(0, "/a"), combined(1, "/b")].concat();
    let others = "the server has started\n".repeat(20_000);
    let path = raw(&directory, "access.log", others.clone() + &good);
    for format in [None, Some(Format::Combined)] {
        let (found, summary) = read(&path, &ReadOptions { format, ..options() });
        assert_eq!((targets(&found).as_str(), summary.malformed), ("/a/b", 20_000));
    }
    let path = raw(&directory, "access.log", "x".repeat(2_000_000) + "\n" + &good);
    let (found, summary) = read(&path, &options());
    assert_eq!((targets(&found).as_str(), summary.too_long), ("/a/b", 1));
    let path = raw(&directory, "access.log", others.repeat(10) + &good);
    assert!(matches!(Arrivals::open(&path, &options()), Err(OpenError::Format { .. })));
}

#[test]
fn logs_in_utf_16_are_errors() {
    let directory = TempDir::new().unwrap();
    let text: Vec<u16> = combined(0, "/a").encode_utf16().collect();
    let little: Vec<u8> = [0xfeff].iter().chain(&text).flat_map(|unit| unit.to_le_bytes()).collect();
    let big: Vec<u8> = [0xfeff].iter().chain(&text).flat_map(|unit| unit.to_be_bytes()).collect();
    for bytes in [little, big] {
        let error =
            Arrivals::open(&raw(&directory, "access.log", bytes), &options()).err().unwrap().to_string();
        assert!(error.contains("access.log: the log is in UTF-16: convert it"), "{error}");
    }
}

#[test]
fn dates_that_do_not_exist_are_named() {
    let directory = TempDir::new().unwrap();
    let invalid = combined(0, "/b").replace("22/Nov", "31/Feb");
    let path = raw(&directory, "access.log", combined(0, "/a") + &invalid);
    let (_, summary) = read(&path, &options());
    assert_eq!(summary.examples[0].error, LineError::Column { column: 16, expected: "a valid date" });
}
