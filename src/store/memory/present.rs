//! The present by both clocks, and decisions of calendar windows, which follow the wall clock.
//!
//! Everything else is counted in monotonic time, so that setting the system's clock refills no quota and lifts no ban. The
//! record of a calendar window has its count in wall time, and its penalty and the time of its creation in monotonic time.

use crate::limit::{Charge, ChargeKind, Decision, Grant, GrantReport, Penalty, Policy, Record, RecordStep};
use crate::time::{Clock, Micros, Timestamp};

/// The present time. The wall clock is read only when needed, since few limits follow it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Present<'a> {
    /// Monotonic time.
    pub time: Timestamp,
    clock: &'a Clock,
}

impl<'a> Present<'a> {
    pub fn of(clock: &'a Clock) -> Self {
        Self { time: clock.now(), clock }
    }

    pub fn wall(self) -> Timestamp {
        self.clock.wall()
    }

    /// Decides a charge from the record of its key.
    pub fn decide(self, policy: &Policy, record: Option<&Record>, charge: &Charge) -> RecordStep {
        // Nearly all limits: the wall clock is not read, and the record is not copied.
        if !policy.follows_calendar() {
            return policy.decide(record, self.time, charge);
        }
        let wall = self.wall();
        let mut charge = *charge;
        if let ChargeKind::Refund | ChargeKind::Late = charge.kind {
            charge.taken = moved(charge.taken, self.time, wall);
        }
        let record = record.map(|record| with_times_moved(record.clone(), self.time, wall));
        let RecordStep { decision, next } = policy.decide(record.as_ref(), wall, &charge);
        let decision = Decision { at: self.time, ..decision };
        RecordStep { decision, next: next.map(|next| with_times_moved(next, wall, self.time)) }
    }

    /// Like [`Policy::report`].
    pub fn report(self, policy: &Policy, record: Option<&Record>, report: &GrantReport) -> Option<Record> {
        if !policy.follows_calendar() {
            return policy.report(record, self.time, report);
        }
        let wall = self.wall();
        let report = GrantReport { until: moved(report.until, self.time, wall), ..*report };
        let record = record.map(|record| with_times_moved(record.clone(), self.time, wall));
        let next = policy.report(record.as_ref(), wall, &report);
        next.map(|next| with_times_moved(next, wall, self.time))
    }

    /// Like [`Policy::grant`].
    pub fn grant(
        self,
        policy: &Policy,
        record: Option<&Record>,
        wanted: u64,
        decided: &Decision,
    ) -> Option<(RecordStep, Grant)> {
        if !policy.follows_calendar() {
            return policy.grant(record, self.time, wanted, decided);
        }
        let wall = self.wall();
        let record = record.map(|record| with_times_moved(record.clone(), self.time, wall));
        let (RecordStep { decision, next }, grant) = policy.grant(record.as_ref(), wall, wanted, decided)?;
        Some((RecordStep { decision, next: next.map(|next| with_times_moved(next, wall, self.time)) }, grant))
    }

    /// The record that `make` returns for `record` and the time by the clock of the policy's counts.
    pub fn make(
        self,
        policy: &Policy,
        record: Option<&Record>,
        make: impl FnOnce(Option<&Record>, Timestamp) -> Record,
    ) -> Record {
        if !policy.follows_calendar() {
            return make(record, self.time);
        }
        let wall = self.wall();
        let record = record.map(|record| with_times_moved(record.clone(), self.time, wall));
        with_times_moved(make(record.as_ref(), wall), wall, self.time)
    }

    /// When `record` expires, and whether that is by the wall clock. If a count and a penalty end by different clocks, it is
    /// the penalty's, which must not end early.
    pub fn expiry(self, policy: &Policy, record: &Record) -> Option<(Timestamp, bool)> {
        let expiry =
            |now: Timestamp, lifetime: Micros| (lifetime > Micros::ZERO).then(|| now.after(lifetime));
        if !policy.follows_calendar() {
            return expiry(self.time, policy.lifetime(record, self.time)).map(|expires| (expires, false));
        }
        let wall = self.wall();
        let lifetime = policy.lifetime(&with_times_moved(record.clone(), self.time, wall), wall);
        // A ban must last although the wall clock is set forward, and a count must end with its calendar window.
        let by_wall = record.penalty.is_none();
        expiry(if by_wall { wall } else { self.time }, lifetime).map(|expires| (expires, by_wall))
    }
}

fn with_times_moved(record: Record, from: Timestamp, to: Timestamp) -> Record {
    let penalty = record.penalty.map(|penalty| Penalty {
        stamp: moved(penalty.stamp, from, to),
        denials: penalty.denials,
        opened: moved(penalty.opened, from, to),
        banned: moved(penalty.banned, from, to),
        blocked: moved(penalty.blocked, from, to),
    });
    Record { penalty, created: moved(record.created, from, to), ..record }
}

/// Converts a time between two clocks, one of which shows `from` while the other shows `to`. Zero means no time.
fn moved(time: Timestamp, from: Timestamp, to: Timestamp) -> Timestamp {
    if time.0 == 0 { time } else { Timestamp(time.0.saturating_add(to.0).saturating_sub(from.0)) }
}
