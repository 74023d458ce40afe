//! Granted units admit no more than the limit: the exact algorithm allows all admitted units at the times when they were
//! admitted.

use std::collections::HashMap;
use std::num::NonZeroU64;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;
use tidegate::limit::{
    Ahead, CalendarUnit, ChargeKind, Decision, Grant, GrantReport, GrantRequest, Holder, Policy, Quota,
    Record, RecordStep, State,
};
use tidegate::time::{Micros, Timestamp};

use super::kit::{self, Numbers, SECOND, START, for_all};
use super::rules::Pace;

/// What happens next. Grants and reports are chosen among those that exist by their number, modulo how many there are.
#[derive(Clone, Debug)]
enum Event {
    /// Time passes.
    Wait(u64),
    /// The clock of the store is set back.
    SetBack(u64),
    /// A process calls the store for a request that costs units, reports one of its grants, and requests another.
    Request { cost: u64, wanted: u64, report: Option<(usize, u64)> },
    /// A process takes units without a grant request.
    Take(u64),
    /// A holder spends units of a grant.
    Spend(usize, u64),
    /// A holder writes a report, and returns some units; it arrives later or never.
    Write(usize, u64),
    /// A report arrives. None arrives twice: a call that may have run is never sent again.
    Arrive(usize),
    /// A report of a generation that the store does not know.
    Unknown(i64),
    /// A holder crashes.
    Crash(usize),
    /// The limit is raised.
    Raise,
}

/// A grant that a process holds. Its times are those of a clock that is never set back.
#[derive(Clone, Copy, Debug)]
struct Held {
    opened: Timestamp,
    until: Timestamp,
    ends: u64,
    units: u64,
    spent: u64,
    /// When the first unit can be spent, and each further one later by this much.
    from: u64,
    step: u64,
    used: u64,
    /// The start of its fixed window.
    window: u64,
}

/// The exact algorithm, which judges what was admitted.
enum Reference {
    Exact(Option<State>),
    /// A bucket that is refilled at intervals: its grid starts when the store sees a charge, so only the bound is the same.
    Bound(Vec<(u64, u64)>),
    /// The units of each fixed window by its start. With a clock that is slightly behind, a request counts in the window that
    /// the store has seen, and granted units in the window of their grant.
    Windows(HashMap<u64, u64>),
}

struct World {
    policies: [Policy; 2],
    current: usize,
    record: Option<Record>,
    /// When the store removes the record, by its clock.
    expires: u64,
    /// A clock that is never set back, and how far the clock of the store is behind it.
    now: u64,
    behind: u64,
    held: Vec<Held>,
    reports: Vec<GrantReport>,
    reference: Reference,
}

impl World {
    fn new(numbers: &Numbers, other: &Numbers, ahead: Ahead) -> Self {
        let policies = [numbers, other].map(|numbers| numbers.policy("a").with_ahead(ahead));
        let reference = match policies[0].quota {
            Quota::IntervalBucket(_) => Reference::Bound(Vec::new()),
            Quota::FixedWindow(_) => Reference::Windows(HashMap::new()),
            _ => Reference::Exact(None),
        };
        let (held, reports) = (Vec::new(), Vec::new());
        let (current, expires, behind) = (0, u64::MAX, 0);
        Self { policies, current, record: None, expires, now: START, behind, held, reports, reference }
    }

    fn policy(&self) -> &Policy {
        &self.policies[self.current]
    }

    /// The clock of the store.
    fn clock(&self) -> Timestamp {
        Timestamp(self.now - self.behind)
    }

    fn store(&mut self, next: Option<Record>) {
        let Some(record) = next else { return };
        let lifetime = self.policy().lifetime(&record, self.clock());
        self.expires = self.clock().after(lifetime).0;
        self.record = (lifetime > Micros::ZERO).then_some(record);
    }

    /// The store removes what has expired. Without that a fixed window is counted on if the clock is set back into it.
    fn expire(&mut self) {
        if self.clock().0 >= self.expires && !matches!(self.policy().quota, Quota::FixedWindow(_)) {
            (self.record, self.expires) = (None, u64::MAX);
        }
    }

    /// The start of the fixed window that counts requests now.
    fn window(&self) -> u64 {
        let state = match self.record.as_ref().and_then(|record| record.state.as_ref()) {
            Some(State::WithGrants(counts)) => counts.state.as_ref(),
            state => state,
        };
        let quota = &self.policy().quota;
        // The next charge would be made in that window.
        match quota.step(state, self.clock(), 1, Holder::default()).next.as_ref().or(state) {
            Some(State::Count(count)) => count.start.0,
            _ => 0,
        }
    }

    /// Units are admitted now, in this fixed window.
    fn admit(&mut self, units: u64, window: u64) -> Result<(), TestCaseError> {
        let quota = &self.policies[self.current].quota;
        match &mut self.reference {
            Reference::Exact(state) => {
                let step = quota.step(state.as_ref(), Timestamp(self.now), units, Holder::default());
                prop_assert!(step.decision.allowed, "{} units at {}: {:?}", units, self.now, state);
                *state = step.next.or(state.take());
            }
            Reference::Bound(admitted) => {
                let Quota::IntervalBucket(bucket) = quota else { unreachable!("the algorithm stays") };
                admitted.push((self.now, units));
                let (rate, mut sum) = (bucket.rate(), 0);
                for (at, units) in admitted.iter().rev() {
                    sum += units;
                    let most = bucket.limit() + rate.units() * (self.now - at).div_ceil(rate.period().0);
                    prop_assert!(sum <= most, "{} units since {}, of {}", sum, at, most);
                }
            }
            Reference::Windows(counts) => {
                let count = counts.entry(window).or_default();
                *count += units;
                prop_assert!(*count <= quota.limit(), "{} units in the window from {}", count, window);
            }
        }
        Ok(())
    }

    fn report(&mut self, report: &GrantReport) {
        let next = self.policy().report(self.record.as_ref(), self.clock(), report);
        self.store(next);
    }

    fn decide(
        &mut self,
        cost: u64,
        kind: ChargeKind,
        request: &GrantRequest,
    ) -> Result<Decision, TestCaseError> {
        if let Some(report) = &request.report {
            self.report(report);
        }
        let charge = kit::held(0, 1, cost, 0, kind);
        let RecordStep { decision, next } = self.policy().decide(self.record.as_ref(), self.clock(), &charge);
        self.store(next);
        if decision.allowed && cost > 0 {
            self.admit(cost, self.window())?;
        }
        if kind == ChargeKind::Grant {
            let granted = self.policy().grant(self.record.as_ref(), self.clock(), request.wanted, &decision);
            if let Some((outcome, grant)) = granted {
                self.store(outcome.next);
                self.hold(&grant);
            }
        }
        Ok(decision)
    }

    fn hold(&mut self, grant: &Grant) {
        let step = match &self.policy().quota {
            Quota::TokenBucket(it) | Quota::Gcra(it) => it.numbers()[1].div_ceil(it.numbers()[0]),
            _ => 0,
        };
        self.held.push(Held {
            opened: grant.opened,
            until: self.clock().after(grant.duration),
            ends: self.now + grant.duration.0,
            units: grant.units,
            spent: 0,
            from: self.now + grant.first.map_or(0, |first| first.0),
            step: if grant.first.is_some() { step } else { 0 },
            used: 0,
            window: self.window(),
        });
    }

    fn spend(&mut self, which: usize, units: u64) -> Result<(), TestCaseError> {
        let now = self.now;
        let Some(held) = pick(&mut self.held, which) else { return Ok(()) };
        let mut units = units.min(held.units);
        // A paced grant gives one unit after the other.
        while units > 0 && now < held.from + held.step * (held.used + units - 1) {
            units -= 1;
        }
        if now >= held.ends || units == 0 {
            return Ok(());
        }
        (held.units, held.spent, held.used) = (held.units - units, held.spent + units, held.used + units);
        let window = held.window;
        self.admit(units, window)
    }

    /// Writes the report of a grant, which returns some units.
    fn write_report(&mut self, which: usize, returned: u64) -> Option<GrantReport> {
        let held = pick(&mut self.held, which)?;
        let returned = returned.min(held.units);
        let report = GrantReport { opened: held.opened, until: held.until, spent: held.spent, returned };
        (held.units, held.spent) = (held.units - returned, 0);
        Some(report)
    }

    fn run(&mut self, event: &Event) -> Result<(), TestCaseError> {
        match *event {
            Event::Wait(span) => self.now += span,
            Event::SetBack(span) => self.behind += span,
            Event::Take(cost) => drop(self.decide(cost, ChargeKind::Take, &GrantRequest::default())?),
            Event::Request { cost, wanted, report } => {
                let report = report.and_then(|(which, returned)| self.write_report(which, returned));
                self.decide(cost, ChargeKind::Grant, &GrantRequest { report, wanted })?;
            }
            Event::Spend(which, units) => self.spend(which, units)?,
            Event::Write(which, returned) => {
                let report = self.write_report(which, returned);
                self.reports.extend(report);
            }
            Event::Arrive(which) if !self.reports.is_empty() => {
                let report = self.reports.swap_remove(which % self.reports.len());
                self.report(&report);
            }
            Event::Unknown(ends) => {
                let (opened, until) = (Timestamp(7), Timestamp(self.clock().0.saturating_add_signed(ends)));
                self.report(&GrantReport { opened, until, spent: 2, returned: 3 });
            }
            Event::Crash(which) if !self.held.is_empty() => {
                self.held.swap_remove(which % self.held.len());
            }
            Event::Raise => self.current = 1,
            Event::Arrive(_) | Event::Crash(_) => {}
        }
        self.expire();
        Ok(())
    }
}

fn pick<T>(list: &mut [T], which: usize) -> Option<&mut T> {
    let count = list.len();
    (count > 0).then(|| &mut list[which % count])
}

fn any_event() -> impl Strategy<Value = Event> {
    let report = prop::option::of((0..8_usize, prop_oneof![Just(0_u64), 0..30_u64]));
    let request = (prop_oneof![Just(0_u64), 1..6_u64], 0..200_u64, report);
    let wait = prop_oneof![3 => 0..2_000_u64, 3 => 0..120_000_u64, 2 => 0..1_500_000_u64];
    let back = prop_oneof![4 => 1..SECOND, 1 => SECOND..20 * SECOND];
    prop_oneof![
        8 => wait.prop_map(Event::Wait),
        1 => back.prop_map(Event::SetBack),
        6 => request.prop_map(|(cost, wanted, report)| Event::Request { cost, wanted, report }),
        3 => prop_oneof![1..6_u64, 1..100_u64].prop_map(Event::Take),
        8 => (0..8_usize, prop_oneof![1..4_u64, 1..100_u64]).prop_map(|(which, units)| Event::Spend(which, units)),
        2 => (0..8_usize, prop_oneof![Just(0_u64), 0..30_u64]).prop_map(|(which, back)| Event::Write(which, back)),
        2 => (0..8_usize).prop_map(Event::Arrive),
        1 => (-3_000_000..3_000_000_i64).prop_map(Event::Unknown),
        1 => (0..8_usize).prop_map(Event::Crash),
        1 => Just(Event::Raise),
    ]
}

/// A limit, and perhaps a higher one. Its period and the rate of a bucket stay: a new rate counts from the last charge that the
/// store knows. A lower limit would not hold for units that were granted before.
fn any_limit() -> impl Strategy<Value = (Numbers, Numbers)> {
    let period = prop_oneof![Just(SECOND), 100_000..3_000_000_u64, Just(10 * SECOND)];
    let numbers = (period, 20..400_u64, 20..400_u64, 0..400_u64, 1..12_u64, 0..10_u8);
    numbers.prop_map(|(period, units, burst, more, parts, which)| {
        let pace = Pace { units, period };
        let raised = Pace { units: units + more, period };
        let half = Pace { units: units / 2 + 1, period: period / 3 };
        match which {
            0 | 1 => (Numbers::Token(pace, burst), Numbers::Token(pace, burst + more)),
            2 => (Numbers::Gcra(pace, burst), Numbers::Gcra(pace, burst + more)),
            3 => (Numbers::Interval(pace, burst), Numbers::Interval(pace, burst)),
            4 => (Numbers::Fixed(pace), Numbers::Fixed(raised)),
            5 => (Numbers::First(pace), Numbers::First(raised)),
            6 => (Numbers::Log(vec![pace]), Numbers::Log(vec![pace])),
            7 => (Numbers::Log(vec![pace, half]), Numbers::Log(vec![pace, half])),
            8 => {
                let day = Numbers::Calendar(units, CalendarUnit::Day, "Europe/Berlin");
                (day.clone(), day)
            }
            _ => {
                let pace = Pace { period: period / parts * parts, ..pace };
                (Numbers::Sliding(pace, parts), Numbers::Sliding(pace, parts))
            }
        }
    })
}

fn any_ahead() -> impl Strategy<Value = Ahead> {
    let span = prop_oneof![Just(100_000_u64), 100_000..2_000_000_u64];
    (span, 1..9_u64)
        .prop_map(|(span, share)| Ahead { span: Micros(span), share: NonZeroU64::new(share).unwrap() })
}

#[test]
fn granted_units_admit_no_more_than_the_limit() {
    for_all(3_000, &(any_limit(), any_ahead(), prop::collection::vec(any_event(), 1..120)), |case| {
        let ((numbers, other), ahead, events) = case;
        let mut world = World::new(&numbers, &other, ahead);
        // A window or a grid that is moved because the clock was set back far can't be compared.
        let can_jump = !matches!(world.policy().quota, Quota::FixedWindow(_) | Quota::IntervalBucket(_));
        for event in &events {
            match event {
                Event::SetBack(span) if world.behind + span >= SECOND && !can_jump => {}
                // Parts of the store's clock, which is behind, differ from those of time, also without grants. And if it is set
                // back over the edge of a window, the granted units of that window are no longer known.
                Event::SetBack(_)
                    if matches!(world.policy().quota, Quota::SlidingWindow(_) | Quota::FixedWindow(_)) => {}
                _ => world.run(event)?,
            }
        }
        // In the end the limit has refilled completely: first the granted units are charged, and later they refill. All units
        // of a large bucket may have been granted.
        let long = 20 * numbers.period().max(10 * SECOND);
        world.now += long;
        let charged = world.decide(0, ChargeKind::Take, &GrantRequest::default())?;
        world.now += long.max(charged.reset_after.0);
        let decision = world.decide(0, ChargeKind::Take, &GrantRequest::default())?;
        prop_assert_eq!(decision.remaining, decision.limit);
        Ok(())
    });
}
