//! Strategies for random limits and arrivals, with many edge cases.

use std::num::NonZeroU64;

use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use tidegate::limit::{
    Align, Ban, Calendar, CalendarUnit, Charge, ChargeKind, Decision, Holder, Key, MAX_TICKS, Policy,
    PolicyId, Quota, Rate, ReservedShare,
};
use tidegate::store::Memory;
use tidegate::time::{Clock, Micros, Timestamp};

use super::model::Model;
use super::rules::{Entries, Grid, Pace, Rule, Shares, Spacing, Ticks, Tokens, Windows};

/// Somewhere in 2026: 2026-09-21 13:33:20 UTC, a Monday.
pub const START: u64 = 1_790_000_000_000_000;

/// How far clocks may differ.
pub const SECOND: u64 = 1_000_000;

const DAY: u64 = 86_400_000_000;

/// The numbers of a limit.
#[derive(Clone, Debug)]
pub enum Numbers {
    Token(Pace, u64),
    Interval(Pace, u64),
    Gcra(Pace, u64),
    Leaky(Pace, u64),
    Fixed(Pace),
    First(Pace),
    Calendar(u64, CalendarUnit, &'static str),
    Log(Vec<Pace>),
    Sliding(Pace, u64),
    Slots(u64, u64),
}

impl Pace {
    fn rate(self) -> Rate {
        Rate::new(self.units, Micros(self.period)).unwrap()
    }
}

impl Numbers {
    /// The quota of the limiter, unless the numbers are invalid.
    pub fn try_quota(&self) -> Option<Quota> {
        match self {
            Self::Token(pace, burst) => Quota::token_bucket(pace.rate(), *burst).ok(),
            Self::Interval(pace, burst) => Quota::interval_bucket(pace.rate(), *burst).ok(),
            Self::Gcra(pace, burst) => Quota::gcra(pace.rate(), *burst).ok(),
            Self::Leaky(pace, queue) => Quota::leaky_bucket(pace.rate(), *queue).ok(),
            Self::Fixed(pace) => Quota::fixed_window(pace.rate(), Align::Clock).ok(),
            Self::First(pace) => Quota::fixed_window(pace.rate(), Align::FirstRequest).ok(),
            Self::Calendar(units, unit, zone) => {
                let rate = Rate::new(*units, Micros(nominal(*unit))).unwrap();
                Quota::fixed_window(rate, Align::Calendar(Calendar::new(*unit, zone).unwrap())).ok()
            }
            Self::Log(paces) => {
                Quota::sliding_log(&paces.iter().map(|pace| pace.rate()).collect::<Vec<_>>()).ok()
            }
            Self::Sliding(pace, buckets) => Quota::sliding_window(pace.rate(), *buckets).ok(),
            Self::Slots(limit, lease) => Quota::concurrency(*limit, Micros(*lease)).ok(),
        }
    }

    pub fn quota(&self) -> Quota {
        self.try_quota().unwrap_or_else(|| panic!("{self:?} is refused"))
    }

    pub fn policy(&self, name: &str) -> Policy {
        Policy::new(name, self.quota())
    }

    /// The model of a limit. Slots have a model of their own.
    pub fn model(&self) -> Model {
        let spacing = |pace: &Pace, early: u64, waits| Spacing { pace: *pace, early, arrival: 0, waits };
        let windows = |pace: Pace, grid| Windows { pace, grid, last: None };
        let rule: Box<dyn Rule> = match self {
            Self::Token(pace, burst) => Box::new(Tokens::full(*pace, *burst)),
            Self::Interval(pace, burst) => Box::new(Ticks { pace: *pace, capacity: *burst, grid: None }),
            Self::Gcra(pace, burst) => Box::new(spacing(pace, *burst, false)),
            Self::Leaky(pace, queue) => Box::new(spacing(pace, *queue, true)),
            Self::Fixed(pace) => Box::new(windows(*pace, Grid::Multiples)),
            Self::First(pace) => Box::new(windows(*pace, Grid::FirstCharge)),
            Self::Calendar(units, unit, zone) => {
                let pace = Pace { units: *units, period: nominal(*unit) };
                Box::new(windows(pace, Grid::Calendar(edges(*unit, zone))))
            }
            Self::Log(rates) => Box::new(Entries { rates: rates.clone(), made: Vec::new() }),
            Self::Sliding(pace, buckets) => {
                Box::new(Shares { pace: *pace, buckets: *buckets, parts: std::collections::BTreeMap::new() })
            }
            Self::Slots(..) => unreachable!("slots are not a matter of time"),
        };
        Model::new(rule)
    }

    /// About the time of a full refill.
    pub fn period(&self) -> u64 {
        match self {
            Self::Token(pace, _) | Self::Interval(pace, _) | Self::Gcra(pace, _) | Self::Leaky(pace, _) => {
                pace.period
            }
            Self::Fixed(pace) | Self::First(pace) | Self::Sliding(pace, _) => pace.period,
            Self::Calendar(_, unit, _) => nominal(*unit),
            Self::Log(paces) => paces[0].period,
            Self::Slots(_, lease) => *lease,
        }
    }
}

fn nominal(unit: CalendarUnit) -> u64 {
    DAY * match unit {
        CalendarUnit::Day => 1,
        CalendarUnit::Week => 7,
        CalendarUnit::Month => 30,
        CalendarUnit::Year => 365,
    }
}

/// The edges of calendar windows, computed without a library.
fn edges(unit: CalendarUnit, zone: &str) -> super::rules::Edges {
    use super::models::calendar::{days_in_berlin, days_in_utc, months_in_utc, weeks_in_berlin};
    match (unit, zone) {
        (CalendarUnit::Day, "UTC") => days_in_utc,
        (CalendarUnit::Day, _) => days_in_berlin,
        (CalendarUnit::Week, _) => weeks_in_berlin,
        _ => months_in_utc,
    }
}

/// Nothing divides evenly.
fn any_pace() -> impl Strategy<Value = Pace> {
    let units = prop_oneof![1..20_u64, Just(97), Just(1_000_003)];
    let period = prop_oneof![
        Just(1_u64),
        1..5_000_u64,
        Just(1_000_000),
        Just(999_983),
        Just(60_000_000),
        Just(7 * DAY),
        Just(365 * DAY - 1)
    ];
    (units, period).prop_map(|(units, period)| Pace { units, period })
}

/// Numbers that can be counted exactly: the largest if `most` is set.
fn fitting(make: impl Fn(u64) -> Numbers, wanted: u64, most: bool) -> Numbers {
    if !most && make(wanted).try_quota().is_some() {
        return make(wanted);
    }
    let (mut fits, mut too_many) = (0, 2 * MAX_TICKS);
    while too_many - fits > 1 {
        let middle = fits + (too_many - fits) / 2;
        if make(middle).try_quota().is_some() { fits = middle } else { too_many = middle }
    }
    make(fits)
}

/// Any limit whose decisions follow from time alone: all but slots.
pub fn any_timed() -> BoxedStrategy<Numbers> {
    let limit = prop_oneof![1..6_u64, 1..200_u64];
    let most = prop::bool::weighted(0.1);
    let counted = (any_pace(), limit, most, 0..4_u8).prop_map(|(pace, limit, most, which)| match which {
        0 => fitting(|burst| Numbers::Token(pace, burst), limit, most),
        1 => fitting(|burst| Numbers::Interval(pace, burst), limit, most),
        2 => fitting(|burst| Numbers::Gcra(pace, burst), limit - 1, most),
        _ => fitting(|queue| Numbers::Leaky(pace, queue), limit - 1, most),
    });
    let windows = (any_pace(), any::<bool>())
        .prop_map(|(pace, first)| if first { Numbers::First(pace) } else { Numbers::Fixed(pace) });
    let zones = prop_oneof![
        Just((CalendarUnit::Day, "UTC")),
        Just((CalendarUnit::Day, "Europe/Berlin")),
        Just((CalendarUnit::Week, "Europe/Berlin")),
        Just((CalendarUnit::Month, "UTC")),
    ];
    let calendars = (1..20_u64, zones).prop_map(|(units, (unit, zone))| Numbers::Calendar(units, unit, zone));
    let log_pace = (1..40_u64, any_pace()).prop_map(|(units, pace)| Pace { units, ..pace });
    let logs = prop::collection::vec(log_pace, 1..4).prop_map(Numbers::Log);
    let parts = prop_oneof![3 => Just(1_u64), 2 => 2..8_u64, 1 => Just(60)];
    let sliding = (any_pace(), 1..60_u64, parts).prop_map(|(pace, units, buckets)| {
        let width = (pace.period / buckets).max(1);
        fitting(|units| Numbers::Sliding(Pace { units, period: width * buckets }, buckets), units, false)
    });
    prop_oneof![4 => counted, 2 => windows, 1 => calendars, 2 => logs, 2 => sliding].boxed()
}

/// Any limit.
pub fn any_numbers() -> BoxedStrategy<Numbers> {
    let lease = prop_oneof![Just(30_000_000_u64), Just(SECOND), Just(1_000), 1..5_000_000_u64];
    let slots = (1..8_u64, lease).prop_map(|(limit, lease)| Numbers::Slots(limit, lease));
    prop_oneof![8 => any_timed(), 1 => slots].boxed()
}

/// How the clock moves before an arrival.
#[derive(Clone, Copy, Debug)]
pub enum Move {
    By(i64),
    /// By thousandths of the limit's period.
    Periods(u64),
    /// By `retry_after` of the last decision, or else its `reset_after`, and then by this offset.
    ToEdge(i64),
}

impl Move {
    pub fn from(self, now: u64, period: u64, last: Option<&Decision>) -> u64 {
        // No further than 2112, from where the longest waits still end within exact numbers.
        let latest = MAX_TICKS / 2;
        let moved = match self {
            Self::By(step) => now.saturating_add_signed(step),
            Self::Periods(thousandths) => now + period / 1_000 * thousandths,
            Self::ToEdge(step) => {
                let edge = last.map_or(0, |last| match last.retry_after {
                    Some(Micros(wait)) if wait > 0 => wait,
                    _ => last.reset_after.0,
                });
                (now + edge).saturating_add_signed(step)
            }
        };
        moved.min(latest)
    }
}

/// The clock of a test.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    pub now: u64,
    latest: u64,
    /// By how much it may be behind its latest time.
    behind: u64,
}

impl Course {
    /// A clock that may be set back.
    pub fn any() -> Self {
        Self { now: START, latest: START, behind: u64::MAX }
    }

    /// A clock that is never more than `behind` microseconds behind its latest time.
    pub fn behind(behind: u64) -> Self {
        Self { behind, ..Self::any() }
    }

    pub fn go(&mut self, step: Move, period: u64, last: Option<&Decision>) -> u64 {
        self.now = step.from(self.now, period, last).max(self.latest.saturating_sub(self.behind));
        self.latest = self.latest.max(self.now);
        self.now
    }
}

/// Bursts, ties, idle times, and clocks that step back by less than a second.
pub fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        8 => Just(Move::By(0)),
        4 => (0..5_000_i64).prop_map(Move::By),
        3 => (0..2_000_000_i64).prop_map(Move::By),
        4 => (0..1_500_u64).prop_map(Move::Periods),
        1 => (1_500..9_000_u64).prop_map(Move::Periods),
        4 => (-2..2_i64).prop_map(Move::ToEdge),
        2 => (-1_000_000..0_i64).prop_map(Move::By),
        // The durations of bans and leases, to reach their ends.
        2 => prop_oneof![Just(1_000_i64), Just(-1_000_000)].prop_map(Move::By),
    ]
}

/// The same, and clocks that are set back.
pub fn any_jump() -> impl Strategy<Value = Move> {
    let far = prop_oneof![-1_000_002..-999_998_i64, -50_000_000..-1_000_000_i64, -2_000_000_000_000..0_i64];
    prop_oneof![15 => any_move(), 1 => far.prop_map(Move::By)]
}

/// None, one, some, or more than there can be.
pub fn any_cost() -> impl Strategy<Value = u64> {
    prop_oneof![10 => Just(1_u64), 2 => Just(0), 4 => 0..12_u64, 2 => 0..250_u64, 1 => any::<u64>()]
}

/// The number of cases: `usually`, or `PROOF_FACTOR` times as many.
pub fn cases(usually: u32) -> u32 {
    let factor = std::env::var("PROOF_FACTOR").ok().and_then(|text| text.parse::<NonZeroU64>().ok());
    usually.saturating_mul(factor.map_or(1, |factor| u32::try_from(factor.get()).unwrap()))
}

/// Runs a property over random cases, and shrinks what fails.
pub fn for_all<S: Strategy>(
    usually: u32,
    strategy: &S,
    property: impl Fn(S::Value) -> Result<(), TestCaseError>,
) {
    let config =
        ProptestConfig { cases: cases(usually), failure_persistence: None, ..ProptestConfig::default() };
    if let Err(failure) = TestRunner::new(config).run(strategy, property) {
        panic!("{failure}");
    }
}

/// A ban with this probability.
pub fn any_ban(probability: f64) -> impl Strategy<Value = Option<Ban>> {
    let span = || prop_oneof![Just(1_000_u64), 1..5_000_u64, 1..5_000_000_u64];
    let ban = (1..4_u64, span(), span());
    let ban =
        ban.prop_map(|(after, within, length)| Ban { after, within: Micros(within), length: Micros(length) });
    prop::option::weighted(probability, ban)
}

/// The same policy with a ban, and perhaps in shadow mode.
pub fn with(mut policy: Policy, ban: Option<Ban>, shadow: bool) -> Policy {
    (policy.ban, policy.shadow) = (ban, shadow);
    policy
}

/// The same policy, with refunds by the final status if `refunds`.
pub fn with_refunds(policy: Policy, refunds: bool) -> Policy {
    if refunds { policy.with_charge_on([401].into()) } else { policy }
}

/// The most that a settled cost can be, of a limit that settles costs: so little that charges are cut, enough for any number of
/// them, and more than can be counted.
pub fn any_settlement() -> impl Strategy<Value = Option<u64>> {
    let most = prop_oneof![Just(1_u64), 2..50_u64, Just(10_000), Just(u64::MAX)];
    prop::option::weighted(0.4, most)
}

/// The same policy, which settles costs of at most so many units if there is a number.
pub fn with_settlement(policy: Policy, most: Option<u64>) -> Policy {
    match most {
        Some(most) => policy.with_settlement(most),
        None => policy,
    }
}

/// The same policy for a class that leaves slots to others, if it has slots; there are three ways to do so.
pub fn with_reserved(policy: Policy, which: u64) -> Policy {
    match which % 3 {
        0 => policy,
        1 => policy.reserving([0.3, 0.0, 0.0].map(ReservedShare::new)),
        _ => policy.reserving([0.2, 0.1, 0.5].map(ReservedShare::new)),
    }
}

pub fn key(number: u8) -> Key {
    Key([number; 16])
}

pub fn charge(policy: u32, key_number: u8, cost: u64) -> Charge {
    Charge::take(PolicyId(policy), key(key_number), cost)
}

pub fn held(policy: u32, key_number: u8, cost: u64, holder: u64, kind: ChargeKind) -> Charge {
    Charge { holder: Holder(holder), kind, ..charge(policy, key_number, cost) }
}

/// An in-memory store whose clock the test moves.
pub fn memory() -> Memory {
    Memory::new(10_000, Clock::manual(Timestamp(START)))
}

/// Takes from such a store at `now`.
pub fn take(memory: &Memory, now: u64, policy: &Policy, cost: u64) -> Decision {
    memory.clock().set(Timestamp(now));
    memory.take(std::slice::from_ref(policy), &[charge(0, 1, cost)])[0]
}
