//! Lines of access logs, invented and damaged.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use jiff::tz::TimeZone;
use proptest::prelude::*;
use proptest::sample::Index;
use tidegate::replay::{Arrivals, LineReader, ReadOptions, detect_format};

use super::{bodies, line};

/// The lines of each log in `tests/logs`, which are damaged.
static LOGS: LazyLock<Vec<Vec<Vec<u8>>>> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs");
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension() == Some("log".as_ref()));
    // A failed case is repeated by its numbers.
    paths.sort();
    paths.iter().map(|path| lines(&fs::read(path).unwrap())).collect()
});

fn lines(log: &[u8]) -> Vec<Vec<u8>> {
    log.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect()
}

/// A change of a line: the position, a byte, and the kind.
type Damage = (Index, u8, u8);

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    // Bytes that mean something to readers are more likely than others.
    let byte = prop_oneof![any::<u8>(), prop::sample::select(&b" \"\\[]{}:,/.-+#=0129\0"[..])];
    prop::collection::vec((any::<Index>(), byte, 0..4_u8), 1..4)
}

fn damage(line: &mut Vec<u8>, damages: Vec<Damage>) {
    for (at, byte, kind) in damages {
        let at = at.index(line.len() + 1);
        match kind {
            0 => line[..at].iter_mut().rev().take(1).for_each(|damaged| *damaged = byte),
            1 => line.truncate(at),
            2 => drop(line.drain(at.saturating_sub(usize::from(byte)).min(at)..at)),
            _ => line.insert(at, byte),
        }
    }
}

#[test]
fn every_format_has_lines_that_are_damaged() {
    for format in bodies::formats() {
        let mut reader = LineReader::new(format.clone(), TimeZone::UTC);
        let mut can_read = |log: &&Vec<Vec<u8>>| log.iter().any(|line| reader.read(line).is_ok());
        let own = |log: &&Vec<Vec<u8>>| {
            detect_format(log, &TimeZone::UTC).map_or(format.name() == "json", |found| found == format)
        };
        assert!(LOGS.iter().filter(own).any(|log| can_read(&log)), "{format}");
    }
}

proptest! {
    #[test]
    fn invented_lines_of_logs_satisfy_their_properties(bytes in line(r#"[-a-c0-9 "\\\[\]{}|#:/+.,TZ=<>u]{0,120}"#)) {
        bodies::log(&bytes);
    }
}

proptest! {
    // Each case is a line of one of more than twenty logs.
    #![proptest_config(ProptestConfig::with_cases(1_024))]

    #[test]
    fn damaged_lines_of_logs_satisfy_their_properties(log in any::<Index>(), line in any::<Index>(), damages in damages()) {
        let mut line = line.get(log.get(LOGS.as_slice()).as_slice()).clone();
        damage(&mut line, damages);
        bodies::log(&line);
    }
}

proptest! {
    // Each case writes a file.
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn damaged_logs_are_read_in_the_order_of_time(
        log in any::<Index>(),
        damages in prop::collection::vec((any::<Index>(), damages()), 1..6),
    ) {
        let mut lines = log.get(LOGS.as_slice()).clone();
        for (line, damages) in damages {
            let index = line.index(lines.len());
            damage(&mut lines[index], damages);
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        fs::write(&path, lines.join(&b'\n')).unwrap();
        let options = ReadOptions { zone: TimeZone::UTC, ..ReadOptions::default() };
        // A log of which all lines are damaged may be in no format.
        if let Ok(mut arrivals) = Arrivals::open(&[path], &options) {
            let entries: Vec<_> = arrivals.by_ref().collect();
            let summary = arrivals.summary();
            prop_assert!(entries.is_sorted_by_key(|entry| entry.arrival));
            prop_assert_eq!(entries.len() as u64, summary.entries);
            prop_assert_eq!(summary.entries + summary.without_request + summary.malformed, summary.lines);
        }
    }
}
