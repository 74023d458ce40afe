//! Token bucket and GCRA: a debt that drains at a constant rate.
//!
//! Twin of `lua/debt.lua`. A token bucket with `burst` tokens and a GCRA with tolerance `(limit − 1)·T`
//! (ITU-T I.371, "virtual scheduling") are the same arithmetic: what was spent and has not come back yet
//! is a debt, counted in ticks. With the rate in lowest terms N'/P', one unit is P' ticks and N' ticks
//! drain each microsecond, so nothing is ever rounded in a state.

use std::num::NonZeroU64;

use super::clock::MAX_SKEW;
use super::decision::{Decision, Step};
use super::rate::{MAX_TICKS, MAX_WAIT, QuotaError, Rate, gcd};
use crate::time::{Micros, Timestamp};

/// The numbers of a token bucket or a GCRA, in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    rate: Rate,
    drain: NonZeroU64,
    unit: NonZeroU64,
    limit: NonZeroU64,
    /// The ticks by which a debt may exceed the limit: in a share those beyond its whole units, up to which a debt from before the
    /// outage may reach, with units that are promised for later; and those of `extra`.
    beyond: u64,
    /// The units by which settled costs may exceed the limit.
    extra: u64,
}

/// The state of a key: `ticks` of debt as of `stamp`, where `unit` ticks are one unit. The
/// unit is stored so that a debt survives a change of the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debt {
    /// The time of the debt.
    pub stamp: Timestamp,
    /// The debt in ticks.
    pub ticks: u64,
    /// Ticks that make one unit.
    pub unit: NonZeroU64,
}

/// A debt as of the present.
struct Updated {
    at: Timestamp,
    ticks: u64,
    set_back: bool,
}

impl Bucket {
    /// A bucket that holds `limit` units and is refilled at `rate`.
    ///
    /// # Errors
    /// A capacity of zero, or one whose ticks do not stay exact in a double.
    pub fn new(rate: Rate, limit: u64) -> Result<Self, QuotaError> {
        let (drain, unit) = rate.reduced();
        let largest = MAX_WAIT / unit;
        if limit > largest || drain > MAX_TICKS {
            return Err(QuotaError::TooLarge { largest: if drain > MAX_TICKS { 0 } else { largest } });
        }
        match (NonZeroU64::new(drain), NonZeroU64::new(unit), NonZeroU64::new(limit)) {
            (Some(drain), Some(unit), Some(limit)) => {
                Ok(Self { rate, drain, unit, limit, beyond: 0, extra: 0 })
            }
            _ => Err(QuotaError::ZeroCapacity),
        }
    }

    /// The most units that can be available at once.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit.get()
    }

    /// This bucket, whose debt may exceed the limit by this number of units, as far as it can be counted exactly.
    #[must_use]
    pub fn with_extra(self, units: u64) -> Self {
        let extra = units.min((MAX_WAIT / self.unit).saturating_sub(self.limit()));
        Self { extra, beyond: self.beyond.max(extra * self.unit.get()), ..self }
    }

    /// The most units that a key can owe.
    #[must_use]
    pub fn most_units(&self) -> u64 {
        self.limit() + self.extra
    }

    /// The share of one of `instances` proxies, so that all of them together admit about as much as this bucket: N per
    /// k·P exactly, and the limit divided, but at least one.
    #[must_use]
    pub fn shared_by(&self, instances: NonZeroU64) -> Self {
        let divisor = NonZeroU64::new(gcd(self.drain.get(), instances.get())).unwrap_or(NonZeroU64::MIN);
        let limit = NonZeroU64::new(self.limit.get() / instances).unwrap_or(NonZeroU64::MIN);
        let stretched = self.unit.get().saturating_mul(instances.get() / divisor);
        // The unit can be too large to count exactly only if the limit is one.
        let unit = NonZeroU64::new(stretched.min(MAX_WAIT / limit)).unwrap_or(NonZeroU64::MIN);
        let drain = NonZeroU64::new(self.drain.get() / divisor).unwrap_or(NonZeroU64::MIN);
        let beyond = (2 * self.full() / divisor).saturating_sub(limit.get() * unit.get());
        Self { rate: self.rate.shared_by(instances), drain, unit, limit, beyond, extra: 0 }
    }

    /// The rate as configured.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// `[N', P', limit]`: the numbers in the script's order.
    #[must_use]
    pub fn numbers(&self) -> [u64; 3] {
        [self.drain.get(), self.unit.get(), self.limit.get()]
    }

    /// Decides a request of `cost` units at `now`. A cost of zero changes nothing.
    #[must_use]
    pub fn step(&self, state: Option<&Debt>, now: Timestamp, cost: u64) -> Step<Debt> {
        let updated = self.update(state, now);
        // Saturation means a cost far beyond the limit, which is denied all the same.
        let ticks = cost.saturating_mul(self.unit.get()).saturating_add(updated.ticks);
        if ticks <= self.full() || cost == 0 {
            let next = Debt { stamp: updated.at, ticks, unit: self.unit };
            let decision = self.allowed(updated.at, now, ticks);
            return Step { decision, next: (cost > 0).then_some(next) };
        }
        let retry_after =
            (cost <= self.limit()).then(|| self.until_drained(ticks - self.full(), updated.at, now));
        let decision =
            Decision { allowed: false, retry_after, ..self.allowed(updated.at, now, updated.ticks) };
        let moved = Debt { stamp: updated.at, ticks: updated.ticks, unit: self.unit };
        Step { decision, next: updated.set_back.then_some(moved) }
    }

    /// Decides a request of `cost` units for a leaky bucket: like a GCRA, with early requests delayed until their unit is
    /// free.
    #[must_use]
    pub fn queue(&self, state: Option<&Debt>, now: Timestamp, cost: u64) -> Step<Debt> {
        let mut step = self.step(state, now, cost);
        if step.decision.allowed && cost > 0 {
            let updated = self.update(state, now);
            step.decision.delay = self.until_drained(updated.ticks, updated.at, now);
        }
        step
    }

    /// Refunds `cost` units that were taken at `taken`, except what has drained since, and no more than the debt.
    #[must_use]
    pub fn refund(&self, state: Option<&Debt>, now: Timestamp, cost: u64, taken: Timestamp) -> Step<Debt> {
        let updated = self.update(state, now);
        let price = cost.min(self.most_units()) * self.unit.get();
        let drained = updated.at.since(taken).0.saturating_mul(self.drain.get());
        let back = price.saturating_sub(drained).min(updated.ticks);
        let next = Debt { stamp: updated.at, ticks: updated.ticks - back, unit: self.unit };
        let decision = self.allowed(updated.at, now, next.ticks);
        Step { decision, next: (back > 0).then_some(next) }
    }

    /// Charges `cost` units that were taken at `taken`, except what has drained since, and no more than a key can owe.
    #[must_use]
    pub fn charge_late(
        &self,
        state: Option<&Debt>,
        now: Timestamp,
        cost: u64,
        taken: Timestamp,
    ) -> Step<Debt> {
        let updated = self.update(state, now);
        let price = cost.min(self.most_units()) * self.unit.get();
        let drained = updated.at.since(taken).0.saturating_mul(self.drain.get());
        let ticks = (updated.ticks + price.saturating_sub(drained)).min(self.most());
        let next = Debt { stamp: updated.at, ticks, unit: self.unit };
        let decision = self.allowed(updated.at, now, ticks);
        Step { decision, next: (ticks > updated.ticks).then_some(next) }
    }

    /// The debt that will have drained after `reset_after`, without these units of it.
    pub(super) fn seed(&self, reset_after: Micros, units: u64, now: Timestamp) -> Debt {
        let ticks = reset_after.0.saturating_mul(self.drain.get());
        let ticks = ticks.saturating_sub(units.saturating_mul(self.unit.get())).min(self.most());
        Debt { stamp: now, ticks, unit: self.unit }
    }

    /// How long `debt` differs from no state, counted from `now`.
    #[must_use]
    pub fn lifetime(&self, debt: &Debt, now: Timestamp) -> Micros {
        // The debt may have been counted in the units of other numbers.
        let ticks = self.in_own_unit(debt).min(self.most());
        self.until_drained(ticks, debt.stamp, now)
    }

    /// In which time so many units come back.
    pub(super) fn time_of(&self, units: u64) -> Micros {
        Micros(units.saturating_mul(self.unit.get()).div_ceil(self.drain.get()))
    }

    /// Time from `now` until `units` fit, which may be more than the limit: of granted units, those that are promised for
    /// later come after it has been reached. At most the time in which the largest debt drains.
    pub(super) fn until_free(&self, state: Option<&Debt>, now: Timestamp, units: u64) -> Micros {
        let updated = self.update(state, now);
        let (limit, unit) = (i128::from(self.limit()), i128::from(self.unit.get()));
        let excess = (i128::from(units) - limit) * unit + i128::from(updated.ticks);
        let excess = excess.clamp(0, i128::from(self.most_units()) * unit);
        self.until_drained(u64::try_from(excess).unwrap_or(0), updated.at, now)
    }

    /// Whether settled costs exceed the limit.
    pub(super) fn is_exceeded(&self, state: Option<&Debt>, now: Timestamp) -> bool {
        self.update(state, now).ticks > self.full()
    }

    /// Time from `now` until the debt and so many units more have drained, which may exceed the limit.
    pub(super) fn until_empty(&self, state: Option<&Debt>, now: Timestamp, units: u64) -> Micros {
        let updated = self.update(state, now);
        let ticks = updated.ticks + units.min(self.limit()) * self.unit.get();
        self.until_drained(ticks.min(MAX_WAIT), updated.at, now)
    }

    fn full(&self) -> u64 {
        self.limit.get() * self.unit.get()
    }

    /// The largest debt.
    fn most(&self) -> u64 {
        self.full() + self.beyond
    }

    fn allowed(&self, at: Timestamp, now: Timestamp, ticks: u64) -> Decision {
        let remaining = self.full().saturating_sub(ticks) / self.unit;
        Decision::allowed(self.limit(), remaining, self.until_drained(ticks, at, now))
    }

    /// Time from `now` until `ticks` of debt as of `at` have drained.
    fn until_drained(&self, ticks: u64, at: Timestamp, now: Timestamp) -> Micros {
        if ticks == 0 {
            return Micros::ZERO;
        }
        Micros(ticks.div_ceil(self.drain.get()).saturating_add(at.0).saturating_sub(now.0))
    }

    fn update(&self, state: Option<&Debt>, now: Timestamp) -> Updated {
        let Some(debt) = state else {
            return Updated { at: now, ticks: 0, set_back: false };
        };
        let ticks = self.in_own_unit(debt).min(self.most());
        if debt.stamp > now.after(MAX_SKEW) {
            return Updated { at: now, ticks, set_back: true };
        }
        let at = now.max(debt.stamp);
        let drained = (at.0 - debt.stamp.0).saturating_mul(self.drain.get());
        Updated { at, ticks: ticks.saturating_sub(drained), set_back: false }
    }

    /// The debt in this bucket's ticks. After a change of the rate whole units stay whole and the rest of
    /// one is rounded up; in doubles, in the same steps as the script, so that both get the same number.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    fn in_own_unit(&self, debt: &Debt) -> u64 {
        if debt.unit == self.unit {
            return debt.ticks;
        }
        let units = debt.ticks / debt.unit;
        if units > self.most_units() {
            return self.most();
        }
        let rest = (debt.ticks % debt.unit) as f64;
        let rest = (rest / debt.unit.get() as f64 * self.unit.get() as f64).ceil();
        units * self.unit.get() + rest as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(units: u64, period: u64, limit: u64) -> Bucket {
        Bucket::new(Rate::new(units, Micros(period)).unwrap(), limit).unwrap()
    }

    fn debt(step: &Step<Debt>) -> Debt {
        step.next.unwrap()
    }

    #[test]
    fn a_new_key_is_full_and_empties() {
        let bucket = bucket(5, 60_000_000, 5);
        let mut state = None;
        for remaining in (0..5).rev() {
            let step = bucket.step(state.as_ref(), Timestamp(1_000), 1);
            assert!(step.decision.allowed);
            assert_eq!(step.decision.remaining, remaining);
            state = Some(debt(&step));
        }
        let denied = bucket.step(state.as_ref(), Timestamp(1_000), 1);
        assert_eq!(denied.decision.retry_after, Some(Micros(12_000_000)));
        assert_eq!(denied.decision.reset_after, Micros(60_000_000));
        assert_eq!(denied.next, None);
    }

    #[test]
    fn a_debt_in_other_units_lives_until_it_has_drained() {
        let (slow, fast) = (bucket(1, 60_000_000, 5), bucket(7, 1_000_000, 5));
        let state = debt(&fast.step(None, Timestamp(1_000), 5));
        for now in [1_000, 2_000_000, 299_000_000, 301_001_000] {
            let left = slow.step(Some(&state), Timestamp(now), 0).decision.reset_after;
            assert_eq!(slow.lifetime(&state, Timestamp(now)), left, "{now}");
        }
    }

    #[test]
    fn retry_after_is_exact_to_the_microsecond() {
        let bucket = bucket(3, 1_000_000, 1);
        let state = debt(&bucket.step(None, Timestamp(0), 1));
        let wait = bucket.step(Some(&state), Timestamp(0), 1).decision.retry_after.unwrap();
        assert_eq!(wait, Micros(333_334));
        assert!(!bucket.step(Some(&state), Timestamp(wait.0 - 1), 1).decision.allowed);
        assert!(bucket.step(Some(&state), Timestamp(wait.0), 1).decision.allowed);
    }

    #[test]
    fn gcra_100_a_second_with_burst_5_admits_six_and_then_one_each_10_ms() {
        let gcra = bucket(100, 1_000_000, 6);
        let mut state = None;
        let mut admitted = Vec::new();
        for at in 0..50_000 {
            let step = gcra.step(state.as_ref(), Timestamp(at), 1);
            if step.decision.allowed {
                admitted.push(at);
                state = Some(debt(&step));
            }
        }
        assert_eq!(admitted, [0, 1, 2, 3, 4, 5, 10_000, 20_000, 30_000, 40_000]);
    }

    #[test]
    fn a_peek_stores_nothing_and_a_cost_above_the_limit_is_never_allowed() {
        let bucket = bucket(1, 1_000_000, 3);
        let peek = bucket.step(None, Timestamp(7), 0);
        assert!(peek.decision.allowed && peek.next.is_none());
        assert_eq!((peek.decision.remaining, peek.decision.reset_after), (3, Micros::ZERO));
        let never = bucket.step(None, Timestamp(7), 4).decision;
        assert_eq!((never.allowed, never.retry_after, never.remaining), (false, None, 3));
        assert!(!bucket.step(None, Timestamp(7), u64::MAX).decision.allowed);
    }

    #[test]
    fn a_clock_slightly_behind_refills_nothing_and_waits_exactly() {
        let bucket = bucket(1, 1_000_000, 1);
        let state = debt(&bucket.step(None, Timestamp(5_000_000), 1));
        let early = bucket.step(Some(&state), Timestamp(4_500_000), 1).decision;
        assert_eq!(early.retry_after, Some(Micros(1_500_000)));
        assert!(bucket.step(Some(&state), Timestamp(6_000_000), 1).decision.allowed);
    }

    #[test]
    fn a_clock_set_back_moves_the_state_and_keeps_the_debt() {
        let bucket = bucket(1, 1_000_000, 2);
        let full = Debt { stamp: Timestamp(90_000_000), ..debt(&bucket.step(None, Timestamp(0), 2)) };
        let denied = bucket.step(Some(&full), Timestamp(10_000_000), 1);
        assert_eq!(denied.decision.retry_after, Some(Micros::SECOND));
        let moved = debt(&denied);
        assert_eq!(moved.stamp, Timestamp(10_000_000));
        assert!(bucket.step(Some(&moved), Timestamp(11_000_000), 1).decision.allowed);
    }

    #[test]
    fn a_debt_survives_a_change_of_the_numbers() {
        let before = bucket(7, 1_000_000, 10);
        let state = debt(&before.step(None, Timestamp(0), 9));
        let wider = bucket(3, 60_000_000, 20).step(Some(&state), Timestamp(0), 0).decision;
        assert_eq!(wider.remaining, 11);
        let narrower = bucket(3, 60_000_000, 4).step(Some(&state), Timestamp(0), 0).decision;
        assert_eq!((narrower.remaining, narrower.reset_after), (0, Micros(80_000_000)));
    }

    #[test]
    fn a_share_has_the_same_units_over_a_longer_period() {
        let whole = bucket(100, 60_000_000, 500);
        let share = whole.shared_by(NonZeroU64::new(3).unwrap());
        assert_eq!((whole.numbers(), share.numbers()), ([1, 600_000, 500], [1, 1_800_000, 166]));
        assert_eq!(bucket(6, 1, 2).shared_by(NonZeroU64::new(4).unwrap()).numbers(), [3, 2, 1]);
    }

    #[test]
    fn numbers_that_are_not_exact_are_rejected_with_the_largest_that_is() {
        let rate = Rate::new(7, Micros(365 * 86_400_000_000)).unwrap();
        let Err(QuotaError::TooLarge { largest }) = Bucket::new(rate, 1_000) else {
            panic!("1,000 × a year was accepted");
        };
        assert!(Bucket::new(rate, largest).is_ok());
        assert!(Bucket::new(rate, largest + 1).is_err());
    }
}
