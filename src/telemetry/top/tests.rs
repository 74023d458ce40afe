//! What is counted when, for which limit, and under which name.

use super::*;
use crate::limit::{Quota, Rate};
use crate::time::{Micros, monotonic};

fn policies(names: &[&str]) -> Vec<Policy> {
    let quota = || Quota::token_bucket(Rate::new(1, Micros::SECOND).unwrap(), 1).unwrap();
    names.iter().map(|name| Policy::new(name, quota())).collect()
}

const fn key(number: u8) -> Key {
    Key([number; 16])
}

fn event(number: u8, is_denied: bool) -> KeyEvent<'static> {
    KeyEvent { key: key(number), consumer: None, is_denied }
}

/// Keys and counts of the limit `a`.
fn top(top: &TopKeys, window: TopWindow, by: TopBy, now: Instant) -> Vec<(Key, u64)> {
    let summaries = top.summaries(["a"], (window, by), now);
    summaries[0].counters().iter().map(|counter| (counter.key, counter.count)).collect()
}

#[test]
fn events_leave_each_window_when_it_has_passed() {
    let start = monotonic();
    let keys = TopKeys::new(start);
    let recorder = keys.recorder(0, &policies(&["a"]), LogKeys::Hash);
    recorder.record(PolicyId(0), event(1, true), || None);
    let count = |window, seconds| {
        let now = start + Duration::from_secs(seconds);
        top(&keys, window, TopBy::Denials, now).first().map_or(0, |(_, count)| *count)
    };
    for (window, inside, outside) in
        [(TopWindow::Minute, 59, 60), (TopWindow::TenMinutes, 599, 600), (TopWindow::Hour, 3_599, 3_600)]
    {
        assert_eq!((count(window, inside), count(window, outside)), (1, 0), "{window:?}");
    }
}

#[test]
fn a_window_covers_at_least_its_length_less_a_slot() {
    let start = monotonic();
    let keys = TopKeys::new(start);
    let covered = |window, seconds| keys.covered(window, start + Duration::from_secs(seconds)).as_secs();
    assert_eq!(covered(TopWindow::Minute, 7), 7);
    assert_eq!(covered(TopWindow::Hour, 3_599), 3_599);
    assert_eq!((covered(TopWindow::Minute, 60), covered(TopWindow::Minute, 69)), (50, 59));
    assert_eq!((covered(TopWindow::TenMinutes, 600), covered(TopWindow::TenMinutes, 659)), (540, 599));
    assert_eq!((covered(TopWindow::Hour, 3_600), covered(TopWindow::Hour, 3_899)), (3_300, 3_599));
}

#[test]
fn denied_keys_of_the_last_minute_are_counted_once() {
    let start = monotonic();
    let keys = TopKeys::new(start);
    let policies = policies(&["a", "b", "c"]);
    let recorders = [0, 1].map(|worker| keys.recorder(worker, &policies, LogKeys::Hash));
    let denied = |seconds| keys.denied_keys(start + Duration::from_secs(seconds));
    for second in [0, 30] {
        keys.take(start + Duration::from_secs(second.into()));
        for recorder in &recorders {
            // The second slot has the keys 2 to 6, the first one 1 to 5.
            for number in 1..=5 {
                recorder.record(PolicyId(0), event(number + second / 30, true), || None);
            }
            recorder.record(PolicyId(1), event(1, second == 0), || None);
            recorder.record(PolicyId(2), event(1, false), || None);
        }
    }
    assert_eq!(denied(39), BTreeMap::from([("a".into(), 6), ("b".into(), 1)]));
    assert_eq!(denied(60), BTreeMap::from([("a".into(), 5)]));
    assert!(denied(90).is_empty());
}

#[test]
fn all_workers_and_slots_are_added_up() {
    let start = monotonic();
    let keys = TopKeys::new(start);
    let policies = policies(&["a"]);
    let recorders = [0, 1].map(|worker| keys.recorder(worker, &policies, LogKeys::Hash));
    for second in 0..600 {
        keys.take(start + Duration::from_secs(second));
        for recorder in &recorders {
            recorder.record(PolicyId(0), event(1, second % 2 == 0), || None);
            recorder.record(PolicyId(0), event(2, false), || None);
        }
        recorders[0].record(PolicyId(0), event(1, false), || None);
    }
    let now = start + Duration::from_secs(599);
    let of = |window, by| top(&keys, window, by, now);
    assert_eq!(of(TopWindow::TenMinutes, TopBy::Traffic), [(key(1), 1_800), (key(2), 1_200)]);
    assert_eq!(of(TopWindow::Hour, TopBy::Traffic), [(key(1), 1_800), (key(2), 1_200)]);
    assert_eq!(of(TopWindow::TenMinutes, TopBy::Denials), [(key(1), 600)]);
    // The last ten seconds have not ended.
    assert_eq!(of(TopWindow::Minute, TopBy::Traffic), [(key(1), 180), (key(2), 120)]);
}

#[test]
fn counts_belong_to_the_name_of_the_limit() {
    let start = monotonic();
    let keys = TopKeys::new(start);
    let names = policies(&["b", "a"]);
    let earlier = keys.recorder(0, &names, LogKeys::Hash);
    earlier.record(PolicyId(1), event(1, true), || None);
    keys.take(start);
    // A reload: the limit has another place in the file, and a tier.
    let next = policies(&["a", "c", "a"]);
    let recorder = keys.recorder(0, &next, LogKeys::Hash);
    keys.retain(&next);
    recorder.record(PolicyId(0), event(1, true), || None);
    recorder.record(PolicyId(2), event(1, true), || None);
    // A request that started before the reload.
    earlier.record(PolicyId(1), event(1, true), || None);
    assert_eq!(top(&keys, TopWindow::Minute, TopBy::Denials, start), [(key(1), 4)]);
    keys.retain(&policies(&["c"]));
    assert_eq!(top(&keys, TopWindow::Minute, TopBy::Denials, start), []);
}

#[test]
fn names_are_looked_up_only_if_they_are_shown() {
    let start = monotonic();
    let label = |keys: LogKeys, name: &str| {
        let top = TopKeys::new(start);
        let event = KeyEvent { consumer: Some("acme"), ..event(1, false) };
        let recorder = top.recorder(0, &policies(&["a"]), keys);
        recorder.record(PolicyId(0), event, || Some(name.to_owned()));
        let summaries = top.summaries(["a"], (TopWindow::Minute, TopBy::Traffic), start);
        KeyLabel::clone(summaries[0].counters()[0].label.as_ref().unwrap())
    };
    let consumer = KeyConsumer::One("acme".into());
    let named = |name: Option<&str>| KeyLabel { consumer: consumer.clone(), name: name.map(Into::into) };
    assert_eq!(label(LogKeys::Plain, "10.0.0.1"), named(Some("10.0.0.1")));
    assert_eq!(label(LogKeys::Plain, &"x".repeat(MAX_NAME + 1)), named(None));
    assert_eq!(label(LogKeys::Hash, "10.0.0.1"), named(None));
    assert_eq!(label(LogKeys::Off, "10.0.0.1"), named(None));
}

#[test]
fn the_history_of_a_key_covers_an_hour_without_gaps() {
    let start = monotonic();
    let keys = TopKeys::new(start);
    let recorder = keys.recorder(0, &policies(&["a"]), LogKeys::Hash);
    for second in (0..4_000).step_by(10) {
        let now = start + Duration::from_secs(second);
        keys.take(now);
        recorder.record(PolicyId(0), event(1, second % 20 == 0), || None);
        recorder.record(PolicyId(0), event(2, false), || None);
        let now = now + Duration::from_secs(9);
        let history = keys.key_history("a", key(1), now);
        let covered = history.slots.iter().map(|slot| slot.length).sum::<Duration>();
        assert_eq!(history.slots[0].start + covered, now, "{second}");
        for pair in history.slots.windows(2) {
            assert_eq!(pair[0].start + pair[0].length, pair[1].start, "{second}");
        }
        let (ticks, minutes) = (second / 10 + 1, covered.as_secs().div_ceil(60));
        assert!(
            ticks < 330 && minutes == (second + 9).div_ceil(60) || (55..=60).contains(&minutes),
            "{second}"
        );
        // The last ten minutes are shown in slots of a minute at most, and the last minute in slots of ten seconds.
        for slot in &history.slots {
            let age = now.duration_since(slot.start).as_secs();
            let longest = if age <= 50 {
                10
            } else if age <= 9 * 60 {
                60
            } else {
                300
            };
            assert!(slot.length.as_secs() <= longest, "{second}: {slot:?}");
        }
        assert!(history.slots.len() <= 27, "{second}: {}", history.slots.len());
        let requests: u64 = history.slots.iter().map(|slot| slot.traffic).sum();
        let denials: u64 = history.slots.iter().map(|slot| slot.denials).sum();
        assert_eq!((requests, denials), (covered.as_secs().div_ceil(10), requests.div_ceil(2)), "{second}");
        assert_eq!(history.max_error, 0);
    }
    let unknown = keys.key_history("b", key(1), start + Duration::from_secs(30));
    assert_eq!(unknown.slots.iter().map(|slot| slot.traffic).collect::<Vec<_>>(), [0; 4]);
}

#[test]
fn the_history_of_a_key_shows_how_far_it_may_be_off() {
    let start = monotonic();
    let keys = TopKeys::new(start);
    let recorder = keys.recorder(0, &policies(&["a"]), LogKeys::Hash);
    for number in 0..200 {
        recorder.record(PolicyId(0), event(number, true), || None);
    }
    let history = keys.key_history("a", key(0), start);
    assert_eq!((history.slots[0].traffic, history.max_error), (0, 2));
}
