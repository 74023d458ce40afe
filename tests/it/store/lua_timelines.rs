//! The sliding log and the sliding window: the scripts must give the same responses, and write the same states,
//! as the code, bit for bit.

use std::fmt::Write as _;
use std::num::NonZeroU64;

use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use tidegate::limit::{Decision, Log, PartCounts, Rate, SlidingLog, SlidingWindow, Timeline};
use tidegate::time::{Micros, Timestamp};

use crate::support::RedisServer;

const START: u64 = 1_790_000_000_000_000;

/// The algorithms, and a loop that plays arrivals to one of them: ARGV[1] is its letter, ARGV[2] the first
/// state in hexadecimal, and each other argument "now cost numbers…".
const SCRIPT: &str = concat!(
    include_str!("../../../lua/constants.lua"),
    include_str!("../../../lua/shared.lua"),
    "local ALGORITHMS = {}\nALGORITHMS.l = function()\n",
    include_str!("../../../lua/timeline.lua"),
    include_str!("../../../lua/sliding_log.lua"),
    "end\nALGORITHMS.s = function()\n",
    include_str!("../../../lua/timeline.lua"),
    include_str!("../../../lua/sliding_window.lua"),
    "end\n",
    r#"
    local step, lines = ALGORITHMS[ARGV[1]](), {}
    local state = string.gsub(ARGV[2], "..", function(hex) return string.char(tonumber(hex, 16)) end)
    if state == "" then state = false end
    for i = 3, #ARGV do
        local given = {}
        for number in string.gmatch(ARGV[i], "%S+") do given[#given + 1] = tonumber(number) end
        local now, cost = table.remove(given, 1), table.remove(given, 1)
        local allowed, remaining, reset, retry, delay, after, lifetime = step(state, given, now, cost)
        local written = after and string.gsub(after, ".", function(c) return string.format("%02x", c:byte()) end)
        if not after then written, lifetime = "-", 0 end
        state = after or state
        lines[#lines + 1] = string.format(
            "%.0f %.0f %.0f %.0f %.0f %.0f %s", allowed, remaining, reset, retry, delay, lifetime, written)
    end
    return table.concat(lines, "\n")
    "#
);

/// One arrival: when, how much, and under which of the quotas.
type Arrival = (u64, u64, usize);

/// What the test asks of both algorithms.
trait Sliding {
    type State;
    const LETTER: &'static str;
    fn play(&self, state: Option<&Self::State>, now: Timestamp, cost: u64)
    -> (Decision, Option<Self::State>);
    fn life(&self, state: &Self::State, now: Timestamp) -> Micros;
    fn list(&self) -> Vec<u64>;
    fn bytes(state: &Self::State) -> Vec<u8>;
}

fn footer<const BITS: u32>(line: &Timeline<BITS>) -> impl Iterator<Item = u8> {
    [line.stamp.0, line.base].into_iter().flat_map(double)
}

#[allow(clippy::cast_precision_loss)]
fn double(number: u64) -> [u8; 8] {
    (number as f64).to_le_bytes()
}

fn words<const BITS: u32>(line: &Timeline<BITS>) -> impl Iterator<Item = u8> {
    line.words.iter().flat_map(|word| word.to_le_bytes())
}

impl Sliding for SlidingLog {
    type State = Log;
    const LETTER: &'static str = "l";

    fn play(&self, state: Option<&Log>, now: Timestamp, cost: u64) -> (Decision, Option<Log>) {
        let step = self.step(state, now, cost);
        (step.decision, step.next)
    }

    fn life(&self, state: &Log, now: Timestamp) -> Micros {
        self.lifetime(state, now)
    }

    fn list(&self) -> Vec<u64> {
        self.numbers().to_vec()
    }

    fn bytes(state: &Log) -> Vec<u8> {
        words(state).chain(footer(state)).collect()
    }
}

impl Sliding for SlidingWindow {
    type State = PartCounts;
    const LETTER: &'static str = "s";

    fn play(&self, state: Option<&PartCounts>, now: Timestamp, cost: u64) -> (Decision, Option<PartCounts>) {
        let step = self.step(state, now, cost);
        (step.decision, step.next)
    }

    fn life(&self, state: &PartCounts, now: Timestamp) -> Micros {
        self.lifetime(state, now)
    }

    fn list(&self) -> Vec<u64> {
        self.numbers().to_vec()
    }

    fn bytes(state: &PartCounts) -> Vec<u8> {
        let width = double(state.width.get());
        words(&state.timeline).chain(footer(&state.timeline)).chain(width).collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Plays the arrivals to both.
fn compare<Q: Sliding>(
    server: &RedisServer,
    quotas: &[Q],
    first: Option<Q::State>,
    arrivals: &[Arrival],
) -> Result<(), TestCaseError> {
    let state = first.as_ref().map_or(String::new(), |state| hex(&Q::bytes(state)));
    let mut arguments =
        vec!["eval".to_owned(), SCRIPT.to_owned(), "0".to_owned(), Q::LETTER.to_owned(), state];
    for &(now, cost, quota) in arrivals {
        let mut line = format!("{now} {cost}");
        quotas[quota % quotas.len()].list().iter().for_each(|number| write!(line, " {number}").unwrap());
        arguments.push(line);
    }
    let response = server.cli(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let mut lines = response.lines();
    let mut state = first;
    for &(now, cost, quota) in arrivals {
        let quota = &quotas[quota % quotas.len()];
        let (decision, next) = quota.play(state.as_ref(), Timestamp(now), cost);
        let retry = decision.retry_after.map_or("-1".to_owned(), |wait| wait.0.to_string());
        let lifetime = next.as_ref().map_or(0, |next| quota.life(next, Timestamp(now)).0);
        let expected = format!(
            "{} {} {} {retry} {} {lifetime} {}",
            u8::from(decision.allowed),
            decision.remaining,
            decision.reset_after.0,
            decision.delay.0,
            next.as_ref().map_or("-".to_owned(), |next| hex(&Q::bytes(next))),
        );
        prop_assert_eq!(lines.next().unwrap_or("nothing"), &expected);
        state = next.or(state);
    }
    prop_assert_eq!(lines.next(), None);
    Ok(())
}

fn any_arrivals(largest: u64) -> impl Strategy<Value = Vec<Arrival>> {
    let step = prop_oneof![
        4 => Just(0_i64),
        4 => 0..300_i64,
        4 => 0..400_000_i64,
        3 => 0..30_000_000_i64,
        1 => 0..1_i64 << 44,
        1 => -900_000..0_i64,
        1 => -50_000_000..-1_000_000_i64,
    ];
    let cost = prop_oneof![
        10 => Just(1_u64),
        1 => Just(0),
        4 => 0..10_u64,
        2 => 0..100_u64,
        2 => 0..largest,
        1 => Just(1 << 53),
    ];
    (any::<bool>(), prop::collection::vec((step, cost, 0..2_usize), 1..250)).prop_map(
        |(near_epoch, steps)| {
            let mut now = if near_epoch { 3 } else { START };
            let arrive = |(step, cost, quota)| {
                now = u64::saturating_add_signed(now, step);
                (now, cost, quota)
            };
            steps.into_iter().map(arrive).collect()
        },
    )
}

fn any_log() -> impl Strategy<Value = SlidingLog> {
    let units = prop_oneof![4 => 1..9_u64, 4 => 1..150_u64, 1 => 500_000..1_u64 << 19];
    let period = prop_oneof![
        Just(1_u64),
        2..500_u64,
        900_000..1_100_000_u64,
        Just(60_000_000),
        Just(3_600_000_000),
        Just(1 << 45)
    ];
    let rates = prop_oneof![
        prop::collection::vec((units.clone(), period.clone()), 1),
        prop::collection::vec((units, period), 2..6),
    ];
    rates.prop_map(|rates| {
        let rate = |(units, period)| Rate::new(units, Micros(period)).unwrap();
        SlidingLog::new(&rates.into_iter().map(rate).collect::<Vec<_>>()).unwrap()
    })
}

fn any_window(width: u64) -> impl Strategy<Value = SlidingWindow> {
    let largest = ((1 << 53) / width).min((1 << 47) - 1);
    let units = prop_oneof![4 => 1..9_u64, 4 => 1..300_u64, 2 => largest - 9..=largest];
    let buckets = prop_oneof![Just(1_u64), Just(3), Just(60), Just(10_000)];
    (units, buckets).prop_map(move |(units, buckets)| {
        SlidingWindow::new(Rate::new(units, Micros(width * buckets)).unwrap(), buckets).unwrap()
    })
}

fn any_windows() -> impl Strategy<Value = Vec<SlidingWindow>> {
    let width = || prop_oneof![1..9_u64, 2..500_u64, Just(16_667), Just(1_000_000), Just(60_000_000)];
    prop_oneof![
        width().prop_flat_map(|width| (any_window(width), any_window(width))),
        (width(), width()).prop_flat_map(|(a, b)| (any_window(a), any_window(b))),
    ]
    .prop_map(|(a, b)| vec![a, b])
}

/// A state of one entry of one unit that is about to wrap around, `left` units from now.
fn about_to_wrap<const BITS: u32>(at: u64, left: u64) -> Timeline<BITS> {
    let total = (u64::MAX >> BITS) - left;
    Timeline { stamp: Timestamp(at), base: total - 1, words: Box::new([(total << BITS) | ((1 << BITS) - 3)]) }
}

fn any_wrap() -> impl Strategy<Value = Option<u64>> {
    prop::option::of(prop_oneof![0..20_u64, 0..300_u64])
}

fn for_all<S: Strategy>(strategy: &S, property: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() };
    if let Err(failure) = TestRunner::new(config).run(strategy, property) {
        panic!("{failure}");
    }
}

#[test]
fn sliding_log_scripts_match_the_rust_code() {
    let server = RedisServer::start();
    let logs = (any_log(), any_log(), any_wrap(), any_arrivals(1 << 19));
    for_all(&logs, |(one, other, wraps, arrivals)| {
        let first = wraps.map(|left| about_to_wrap(arrivals[0].0, left));
        compare(&server, &[one, other], first, &arrivals)
    });
}

#[test]
fn sliding_window_scripts_match_the_rust_code() {
    let server = RedisServer::start();
    let windows = (any_windows(), any_wrap(), any_arrivals(1 << 47));
    for_all(&windows, |(windows, wraps, arrivals)| {
        let width = NonZeroU64::new(windows[0].numbers()[1]).unwrap();
        let first = wraps.map(|left| PartCounts { width, timeline: about_to_wrap(arrivals[0].0, left) });
        compare(&server, &windows, first, &arrivals)
    });
}

#[test]
fn states_of_another_size_are_ignored() {
    let server = RedisServer::start();
    let given = format!("{START} 1 5 1000000 1");
    for letter in ["l", "s"] {
        let fresh = server.cli(&["eval", SCRIPT, "0", letter, "", &given]);
        for length in [1, 8, 15, 16, 17, 23, 25, 31] {
            let state = "41".repeat(length);
            assert_eq!(server.cli(&["eval", SCRIPT, "0", letter, &state, &given]), fresh, "{length}");
        }
    }
}

#[test]
fn totals_may_wrap_around_within_a_window() {
    let server = RedisServer::start();
    let second = START - START % 1_000_000;
    let window = SlidingWindow::new(Rate::new(10, Micros(3_000_000)).unwrap(), 3).unwrap();
    let log = SlidingLog::new(&[Rate::new(10, Micros(3_000_000)).unwrap()]).unwrap();
    let mut arrivals: Vec<Arrival> =
        vec![(second, 2, 0), (second + 1_000_000, 4, 0), (second + 2_000_000, 3, 0)];
    arrivals.extend((1..=10).map(|cost| (second + 2_500_000, cost, 0)));
    for left in 0..12 {
        let line = about_to_wrap(second, left);
        let first = PartCounts { width: NonZeroU64::new(1_000_000).unwrap(), timeline: line };
        compare(&server, std::slice::from_ref(&window), Some(first), &arrivals).unwrap();
        compare(&server, std::slice::from_ref(&log), Some(about_to_wrap(second, left)), &arrivals).unwrap();
    }
}
