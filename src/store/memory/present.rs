//! The present by both clocks, and decisions of calendar windows, which follow the wall clock.
//!
//! Everything else counts monotonic time, so that setting the system's clock hands out nothing and lifts no ban. A
//! record of a calendar window has its count in wall time, and its hold in monotonic time.

use crate::limit::{Charge, ChargeKind, Decision, Outcome, Penalty, Policy, Record};
use crate::time::{Clock, Micros, Timestamp};

/// What time it is. The wall clock is read only when it is asked for, as few limits follow it.
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

    /// Decides a charge by what is kept of its key.
    pub fn decide(self, policy: &Policy, record: Option<&Record>, charge: &Charge) -> Outcome {
        if !policy.follows_calendar() {
            return policy.decide(record, self.time, charge);
        }
        let wall = self.wall();
        let mut charge = *charge;
        if let ChargeKind::Refund | ChargeKind::Late = charge.manner {
            charge.taken = moved(charge.taken, self.time, wall);
        }
        let record = record.map(|record| with_hold_moved(record.clone(), self.time, wall));
        let Outcome { decision, next } = policy.decide(record.as_ref(), wall, &charge);
        let decision = Decision { at: self.time, ..decision };
        Outcome { decision, next: next.map(|next| with_hold_moved(next, wall, self.time)) }
    }

    /// What `make` makes of a record, at the time that the policy's counts have.
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
        let record = record.map(|record| with_hold_moved(record.clone(), self.time, wall));
        with_hold_moved(make(record.as_ref(), wall), wall, self.time)
    }

    /// When `record` equals none, and whether that is by the wall clock. Where a count and a hold end by different
    /// clocks it is the hold's: it must not end early.
    pub fn expiry(self, policy: &Policy, record: &Record) -> Option<(Timestamp, bool)> {
        let expiry =
            |now: Timestamp, lifetime: Micros| (lifetime > Micros::ZERO).then(|| now.after(lifetime));
        if !policy.follows_calendar() {
            return expiry(self.time, policy.lifetime(record, self.time)).map(|expires| (expires, false));
        }
        let wall = self.wall();
        let lifetime = policy.lifetime(&with_hold_moved(record.clone(), self.time, wall), wall);
        let by_wall = record.hold.is_none();
        expiry(if by_wall { wall } else { self.time }, lifetime).map(|expires| (expires, by_wall))
    }
}

fn with_hold_moved(record: Record, from: Timestamp, to: Timestamp) -> Record {
    let hold = record.hold.map(|hold| Penalty {
        stamp: moved(hold.stamp, from, to),
        denials: hold.denials,
        opened: moved(hold.opened, from, to),
        banned: moved(hold.banned, from, to),
        blocked: moved(hold.blocked, from, to),
    });
    Record { hold, ..record }
}

/// A time by one clock as the other has it, where one shows `from` when the other shows `to`. Zero means no time.
fn moved(time: Timestamp, from: Timestamp, to: Timestamp) -> Timestamp {
    if time.0 == 0 { time } else { Timestamp(time.0.saturating_add(to.0).saturating_sub(from.0)) }
}
