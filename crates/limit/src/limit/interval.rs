//! A token bucket that is refilled at intervals: N tokens at each whole P since the request that found it full.
//!
//! Twin of `lua/interval.lua`. A full bucket has no grid of intervals, and equals no state.

use std::num::NonZeroU64;

use super::clock::MAX_SKEW;
use super::decision::{Decision, Step};
use super::rate::{MAX_TICKS, MAX_WAIT, QuotaError, Rate};
use crate::time::{Micros, Timestamp};

/// The numbers of a bucket that is refilled at intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    rate: Rate,
    limit: NonZeroU64,
    /// The tokens by which settled costs may exceed the limit.
    extra: u64,
}

/// The state of a key whose bucket is not full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortfall {
    /// When it last changed.
    pub stamp: Timestamp,
    /// The last tick of its grid at or before `stamp`.
    pub tick: Timestamp,
    /// Tokens that are missing.
    pub tokens: u64,
}

/// A state as of the present.
struct Updated {
    at: Timestamp,
    tick: Timestamp,
    missing: u64,
    set_back: bool,
}

impl Interval {
    /// A bucket of `limit` tokens that gets the units of `rate` at once, each period.
    ///
    /// # Errors
    /// A capacity of zero, or numbers that do not stay exact in a double.
    pub fn new(rate: Rate, limit: u64) -> Result<Self, QuotaError> {
        let largest = largest(rate);
        if limit > largest || rate.units() > MAX_TICKS {
            return Err(QuotaError::TooLarge { largest: if rate.units() > MAX_TICKS { 0 } else { largest } });
        }
        let limit = NonZeroU64::new(limit).ok_or(QuotaError::ZeroCapacity)?;
        Ok(Self { rate, limit, extra: 0 })
    }

    /// The most tokens that it holds.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit.get()
    }

    /// This bucket, of which settled costs may take this number of tokens more than there are, as far as they can be counted
    /// exactly.
    #[must_use]
    pub fn with_extra(self, tokens: u64) -> Self {
        Self { extra: tokens.min(largest(self.rate).saturating_sub(self.limit())), ..self }
    }

    /// The most tokens that can be missing.
    #[must_use]
    pub fn most_units(&self) -> u64 {
        self.limit() + self.extra
    }

    /// The rate as configured.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// `[N, P, limit]`: the numbers in the script's order.
    #[must_use]
    pub fn numbers(&self) -> [u64; 3] {
        [self.rate.units(), self.rate.period().0, self.limit()]
    }

    /// The share of one of `instances` proxies.
    #[must_use]
    pub fn shared_by(&self, instances: NonZeroU64) -> Self {
        let limit = NonZeroU64::new(self.limit() / instances).unwrap_or(NonZeroU64::MIN);
        let shared = self.rate.shared_by(instances);
        // If the longer period can't be counted exactly, the share keeps the period.
        Self::new(shared, limit.get()).unwrap_or(Self { rate: self.rate, limit, extra: 0 })
    }

    /// Decides a request of `cost` tokens at `now`. A cost of zero changes nothing.
    #[must_use]
    pub fn step(&self, state: Option<&Shortfall>, now: Timestamp, cost: u64) -> Step<Shortfall> {
        let updated = self.update(state, now);
        if cost > self.room(&updated) {
            let decision = self.denied(&updated, now, cost);
            let moved = Shortfall { stamp: updated.at, tick: updated.tick, tokens: updated.missing };
            return Step { decision, next: updated.set_back.then_some(moved) };
        }
        let tick = if updated.missing == 0 { updated.at } else { updated.tick };
        let next = Shortfall { stamp: updated.at, tick, tokens: updated.missing + cost };
        let after = Updated { tick, missing: next.tokens, ..updated };
        Step { decision: self.decision(&after, now), next: (cost > 0).then_some(next) }
    }

    /// Refunds `cost` tokens that were taken at `taken`, except those that were refilled since, and no more than are missing.
    #[must_use]
    pub fn refund(
        &self,
        state: Option<&Shortfall>,
        now: Timestamp,
        cost: u64,
        taken: Timestamp,
    ) -> Step<Shortfall> {
        let updated = self.update(state, now);
        let ticks = updated.tick.since(taken).0.div_ceil(self.rate.period().0);
        let back = cost.saturating_sub(ticks.saturating_mul(self.rate.units())).min(updated.missing);
        let next = Shortfall { stamp: updated.at, tick: updated.tick, tokens: updated.missing - back };
        let after = Updated { missing: next.tokens, ..updated };
        Step { decision: self.decision(&after, now), next: (back > 0).then_some(next) }
    }

    /// Charges `cost` tokens that were taken at `taken`, except those that were refilled since, and no more than can be missing.
    /// If the bucket is full, its grid starts with these tokens.
    #[must_use]
    pub fn charge_late(
        &self,
        state: Option<&Shortfall>,
        now: Timestamp,
        cost: u64,
        taken: Timestamp,
    ) -> Step<Shortfall> {
        let updated = self.update(state, now);
        let taken = taken.min(updated.at);
        let last = if updated.missing == 0 { updated.at } else { updated.tick };
        let ticks = last.since(taken).0 / self.rate.period().0;
        let tick =
            if updated.missing == 0 { taken.after(Micros(ticks * self.rate.period().0)) } else { last };
        let owed = cost.min(self.most_units()).saturating_sub(ticks.saturating_mul(self.rate.units()));
        let tokens = (updated.missing + owed).min(self.most_units());
        let is_more = tokens > updated.missing;
        let next = Shortfall { stamp: updated.at, tick, tokens };
        let after = if is_more { Updated { tick, missing: tokens, ..updated } } else { updated };
        Step { decision: self.decision(&after, now), next: is_more.then_some(next) }
    }

    /// The state in which `tokens` are missing, the last of which come after `reset_after`, or later if the
    /// period is too long for that. If all tokens are missing, and the bucket settles costs, even more can be missing.
    pub(super) fn seed(&self, tokens: u64, reset_after: Micros, now: Timestamp) -> Shortfall {
        let period = self.rate.period().0;
        let tokens =
            if tokens == self.limit() { self.missing_until(reset_after).max(tokens) } else { tokens };
        let until_back = tokens.div_ceil(self.rate.units()).saturating_mul(period);
        let tick = now.after(reset_after).0.saturating_sub(until_back);
        let tick = tick.max((now.0 + 1).saturating_sub(period)).min(now.0);
        Shortfall { stamp: now, tick: Timestamp(tick), tokens }
    }

    /// The most tokens that can be missing if the last of them come after `reset_after`.
    pub(super) fn missing_until(&self, reset_after: Micros) -> u64 {
        let ticks = reset_after.0.div_ceil(self.rate.period().0);
        ticks.saturating_mul(self.rate.units()).min(self.most_units())
    }

    /// How long `state` differs from no state, counted from `now`.
    #[must_use]
    pub fn lifetime(&self, state: &Shortfall, now: Timestamp) -> Micros {
        let updated = self.update(Some(state), now);
        self.until_back(updated.missing, &updated, now)
    }

    fn denied(&self, updated: &Updated, now: Timestamp, cost: u64) -> Decision {
        let is_possible = cost <= self.limit();
        let retry_after =
            is_possible.then(|| self.until_back(updated.missing + cost - self.limit(), updated, now));
        Decision { allowed: false, retry_after, ..self.decision(updated, now) }
    }

    fn decision(&self, updated: &Updated, now: Timestamp) -> Decision {
        let reset_after = self.until_back(updated.missing, updated, now);
        Decision::allowed(self.limit(), self.room(updated), reset_after)
    }

    /// The tokens that are there.
    fn room(&self, updated: &Updated) -> u64 {
        self.limit().saturating_sub(updated.missing)
    }

    /// Time from `now` until `tokens` are refilled.
    fn until_back(&self, tokens: u64, updated: &Updated, now: Timestamp) -> Micros {
        if tokens == 0 {
            return Micros::ZERO;
        }
        let ticks = tokens.div_ceil(self.rate.units());
        let since = updated.at.0 - updated.tick.0;
        Micros(ticks * self.rate.period().0 - since + (updated.at.0 - now.0))
    }

    fn update(&self, state: Option<&Shortfall>, now: Timestamp) -> Updated {
        let Some(state) = state else {
            return Updated { at: now, tick: now, missing: 0, set_back: false };
        };
        let set_back = state.stamp > now.after(MAX_SKEW);
        let at = if set_back { now } else { now.max(state.stamp) };
        let shift = if set_back { state.stamp.0 - now.0 } else { 0 };
        let tick = state.tick.0.saturating_sub(shift);
        let ticks = (at.0 - tick) / self.rate.period().0;
        let missing = state.tokens.min(self.most_units());
        if ticks >= missing.div_ceil(self.rate.units()) {
            return Updated { at, tick: at, missing: 0, set_back };
        }
        let tick = Timestamp(tick + ticks * self.rate.period().0);
        Updated { at, tick, missing: missing - ticks * self.rate.units(), set_back }
    }
}

/// The most tokens that can be counted exactly: the longest wait is for all of them.
fn largest(rate: Rate) -> u64 {
    (MAX_WAIT / rate.period().0).saturating_mul(rate.units()).min(MAX_TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(units: u64, period: u64, limit: u64) -> Interval {
        Interval::new(Rate::new(units, Micros(period)).unwrap(), limit).unwrap()
    }

    fn state(step: &Step<Shortfall>) -> Shortfall {
        step.next.unwrap()
    }

    #[test]
    fn tokens_are_refilled_at_whole_periods_since_the_first_request() {
        let bucket = interval(2, 1_000, 5);
        let first = state(&bucket.step(None, Timestamp(300), 5));
        let early = bucket.step(Some(&first), Timestamp(1_299), 1).decision;
        assert_eq!((early.allowed, early.retry_after), (false, Some(Micros(1))));
        let second = bucket.step(Some(&first), Timestamp(1_300), 1);
        assert_eq!((second.decision.allowed, second.decision.remaining), (true, 1));
        assert_eq!(second.decision.reset_after, Micros(2_000));
        let third = bucket.step(Some(&state(&second)), Timestamp(2_400), 1).decision;
        assert_eq!((third.remaining, third.reset_after), (2, Micros(1_900)));
    }

    #[test]
    fn a_full_bucket_has_no_grid() {
        let bucket = interval(2, 1_000, 2);
        let first = state(&bucket.step(None, Timestamp(0), 1));
        assert_eq!(bucket.lifetime(&first, Timestamp(400)), Micros(600));
        let anew = state(&bucket.step(Some(&first), Timestamp(1_700), 1));
        assert_eq!(anew.tick, Timestamp(1_700));
    }

    #[test]
    fn a_clock_set_back_moves_the_grid() {
        let bucket = interval(1, 10_000_000, 1);
        let far = state(&bucket.step(None, Timestamp(90_000_000), 1));
        let denied = bucket.step(Some(&far), Timestamp(50_000_000), 1);
        assert_eq!(denied.decision.retry_after, Some(Micros(10_000_000)));
        assert_eq!(state(&denied).tick, Timestamp(50_000_000));
    }
}
