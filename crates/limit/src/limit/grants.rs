//! Granted units in the record of a key: how they are reserved, reported and charged.
//!
//! Twin of `lua/grants.lua`. Granted units are reserved beside the state: a request may take only units that are available and
//! not reserved. They are charged when they are reported as spent; those that are not reported are charged when their grant
//! has ended. At any time the state and the granted units together count at least what was admitted, because no algorithm
//! counts units for a shorter time if they are charged later than they were spent.
//!
//! Opening a grant charges nothing (`limit::Ahead`). Returned units are released uncharged. Each spent unit is
//! reserved before its request is admitted, and stays reserved until it is charged.
//!
//! A charge of the kind `Grant` takes units, reports an earlier grant, and requests another one, in one step. A record with
//! granted units has a layout of its own, so the stored keys of a limit with `ahead` have an upper-case letter, and those of a
//! limit with `charge_on` or settled costs the letter before that of the algorithm (`Policy::letter`).

use super::ahead::{Ahead, Grant, GrantReport};
use super::clock::MAX_SKEW;
use super::decision::{Decision, Step};
use super::quota::{Quota, Taken};
use super::rate::MAX_TICKS;
use super::slots::Holder;
use super::state::{Generation, State, WithGrants};
use super::window::Align;
use crate::time::{Micros, Timestamp};

/// How many units must be wanted for a paced grant.
const WANTED_PACED: u64 = 8;
/// The most wanted units that count for one, so that a double holds their product with a time exactly.
const MOST_WANTED: u64 = 1 << 30;
/// How long before its window a grant ends, so that no unit is spent in the next window.
const BEFORE_END: Micros = Micros(1_000);

/// A quota, with the settings of its grants if it grants units. Without granted units it decides as the quota does.
#[derive(Clone, Copy, Debug)]
pub(super) struct GrantingQuota<'a> {
    pub quota: &'a Quota,
    pub ahead: Option<Ahead>,
}

/// The state of a key as of the present: the units of grants that have ended are charged.
struct Settled {
    counts: WithGrants,
    /// Whether it differs from the stored state.
    changed: bool,
}

/// A grant, with the state and the decision after it.
#[derive(Debug)]
pub(super) struct Reserved {
    pub grant: Grant,
    pub state: State,
    pub decision: Decision,
}

impl GrantingQuota<'_> {
    /// Decides a request of `cost` units, which may take only units that are not granted.
    pub fn step(self, state: Option<&State>, now: Timestamp, cost: u64, holder: Holder) -> Step<State> {
        if !has_grants(state) {
            return self.quota.step(state, now, cost, holder);
        }
        self.changed(state, now, |counts| {
            let granted = counts.units();
            let fits = cost == 0 || granted.saturating_add(cost) <= self.available(counts, now);
            if granted == 0 || fits {
                return self.quota.step(counts.state.as_ref(), now, cost, Holder::default());
            }
            self.denied(counts, now, cost)
        })
    }

    /// Like [`Quota::refund`].
    pub fn refund(self, state: Option<&State>, now: Timestamp, taken: Taken) -> Step<State> {
        if !has_grants(state) {
            return self.quota.refund(state, now, taken);
        }
        self.changed(state, now, |counts| self.quota.refund(counts.state.as_ref(), now, taken))
    }

    /// Like [`Quota::charge_late`].
    pub fn charge_late(self, state: Option<&State>, now: Timestamp, taken: Taken) -> Step<State> {
        if !has_grants(state) {
            return self.quota.charge_late(state, now, taken);
        }
        self.changed(state, now, |counts| self.quota.charge_late(counts.state.as_ref(), now, taken))
    }

    /// How long `state` differs from no state, counted from `now`: until the last grant has ended, and its units, charged
    /// then, no longer count.
    pub fn lifetime(self, state: &State, now: Timestamp) -> Micros {
        let State::WithGrants(counts) = state else { return self.quota.lifetime(state, now) };
        let charged = self.charge(counts.state.as_ref(), now, counts.units()).next;
        let charged = charged.as_ref().or(counts.state.as_ref());
        let alive = charged.map_or(Micros::ZERO, |state| self.quota.lifetime(state, now));
        Micros(counts.until().since(now).0.saturating_add(alive.0))
    }

    /// The state after the report of a grant; `None` if it does not change.
    ///
    /// An unknown generation was charged when it ended. If it can't have ended yet, the store has lost it: then its spent units
    /// are charged now.
    pub fn report(self, state: Option<&State>, now: Timestamp, report: &GrantReport) -> Option<State> {
        let Settled { mut counts, mut changed } = self.settled(state, now);
        let at = if let Some(generation) = counts.opened_at(report.opened) {
            generation.units = generation.units.saturating_sub(report.spent.saturating_add(report.returned));
            if generation.units == 0 {
                *generation = Generation::default();
            }
            changed = true;
            // In the window or part in which they were granted, if the clock is slightly behind. All others count from now: a
            // later charge would let what was charged before expire earlier.
            let is_window = matches!(self.quota, Quota::FixedWindow(_) | Quota::SlidingWindow(_));
            Some(if is_window { now.max(report.opened) } else { now })
        } else {
            (now < report.until).then_some(now)
        };
        if let Some(charged) = at.and_then(|at| self.charge(counts.state.as_ref(), at, report.spent).next) {
            (counts.state, changed) = (Some(charged), true);
        }
        changed.then(|| counts.into())
    }

    /// Grants the `wanted` units after a decision at `now`, but no more than the share of those that are available. If they are
    /// too few, or the decision `is_denied`, a smooth bucket makes a paced grant.
    pub fn grant(
        self,
        state: Option<&State>,
        now: Timestamp,
        wanted: u64,
        is_denied: bool,
    ) -> Option<Reserved> {
        let Ahead { span, share } = self.ahead?;
        let Settled { mut counts, .. } = self.settled(state, now);
        let (opened, until) = self.opened_until(&counts, now, span)?;
        let left = self.available(&counts, now).saturating_sub(counts.units());
        let units = if is_denied { 0 } else { wanted.min(left / share) };
        let (units, first) = if units < Ahead::MIN_GRANT {
            let (units, first) = self.paced(&counts, now, (wanted, span))?;
            (units, Some(first))
        } else {
            (units, None)
        };
        let WithGrants { current, previous, .. } = &mut counts;
        if previous.units == 0 && opened.since(current.opened) >= span {
            (*previous, *current) = (*current, Generation::default());
        }
        if current.units == 0 {
            *current = Generation { opened, ..Generation::default() };
        }
        current.units = current.units.saturating_add(units);
        current.until = current.until.max(until);
        let grant = Grant { units, opened: current.opened, duration: until.since(now), first };
        Some(Reserved { grant, decision: self.shown(&counts, now), state: counts.into() })
    }

    /// Settles the state and applies `change` to it. A decision that allows shows the units that are available and not granted.
    fn changed(
        self,
        state: Option<&State>,
        now: Timestamp,
        change: impl FnOnce(&WithGrants) -> Step<State>,
    ) -> Step<State> {
        let Settled { mut counts, mut changed } = self.settled(state, now);
        let step = change(&counts);
        if let Some(next) = step.next {
            // What equals no state is left out, as in Redis.
            counts.state = Some(next).filter(|next| self.quota.lifetime(next, now) > Micros::ZERO);
            changed = true;
        }
        let is_shown = step.decision.allowed && counts.units() > 0;
        let decision = if is_shown { self.shown(&counts, now) } else { step.decision };
        Step { decision, next: changed.then(|| counts.into()) }
    }

    /// The denial of a request that does not fit beside the granted units.
    fn denied(self, counts: &WithGrants, now: Timestamp, cost: u64) -> Step<State> {
        let (state, granted) = (counts.state.as_ref(), counts.units());
        let charged = self.charge(state, now, granted);
        let retry_after = if let Quota::TokenBucket(it) | Quota::Gcra(it) = self.quota {
            let debt = state.and_then(State::as_debt);
            let units = granted.saturating_add(cost);
            (cost <= it.limit()).then(|| it.until_free(debt, now, units))
        } else {
            let charged = charged.next.as_ref().or(state);
            self.quota.step(charged, now, cost, Holder::default()).decision.retry_after
        };
        // More than any limit is always denied, which moves the state if the clock was set back.
        let moved = self.quota.step(state, now, u64::MAX, Holder::default()).next;
        Step { decision: Decision { allowed: false, retry_after, ..self.shown(counts, now) }, next: moved }
    }

    /// The decision that shows the units which are available and not granted. Units that are promised for later refill after
    /// the others, so that the reset may be later than that of a full debt.
    fn shown(self, counts: &WithGrants, now: Timestamp) -> Decision {
        let decision = self.charge(counts.state.as_ref(), now, counts.units()).decision;
        match self.quota.bucket() {
            Some(bucket) if decision.remaining == 0 => {
                let debt = counts.state.as_ref().and_then(State::as_debt);
                Decision { reset_after: bucket.until_empty(debt, now, counts.units()), ..decision }
            }
            _ => decision,
        }
    }

    /// Whole units that are available in the state, including granted ones.
    fn available(self, counts: &WithGrants, now: Timestamp) -> u64 {
        self.quota.step(counts.state.as_ref(), now, 0, Holder::default()).decision.remaining
    }

    /// Charges granted units as if they were spent now.
    fn charge(self, state: Option<&State>, now: Timestamp, units: u64) -> Step<State> {
        // A time in the future, so that none of the units is refilled yet, even if the timestamp is ahead of the clock.
        let taken = Taken { units, at: Timestamp(MAX_TICKS), holder: Holder::default() };
        self.quota.charge_late(state, now, taken)
    }

    fn settled(self, state: Option<&State>, now: Timestamp) -> Settled {
        let Some(State::WithGrants(known)) = state else {
            return Settled {
                counts: WithGrants { state: state.cloned(), ..WithGrants::default() },
                changed: false,
            };
        };
        let (mut counts, set_back) = moved_with_clock(known, now);
        let ended = [take_ended(&mut counts.previous, now), take_ended(&mut counts.current, now)];
        let changed = set_back || ended.iter().any(Option::is_some);
        for generation in ended.into_iter().flatten() {
            if !self.is_of_earlier_window(&counts, generation, now) {
                let next = self.charge(counts.state.as_ref(), now, generation.units).next;
                counts.state = next.or(counts.state);
            }
        }
        Settled { counts, changed }
    }

    /// Whether the units were spent in a fixed window that is over.
    fn is_of_earlier_window(self, counts: &WithGrants, generation: Generation, now: Timestamp) -> bool {
        let Quota::FixedWindow(window) = self.quota else { return false };
        let state = counts.state.as_ref().and_then(State::as_count);
        let (start, end, _) = window.present(state, now);
        if state.is_none() && *window.align() == Align::FirstRequest {
            // The window may be open although nothing counts in it: what has opened it may have been refunded.
            return now >= generation.opened.after(end.since(start));
        }
        generation.until <= start
    }

    /// When a grant is opened and when it ends; `None` if there can be none. A grant of a fixed window ends with it.
    fn opened_until(
        self,
        counts: &WithGrants,
        now: Timestamp,
        span: Micros,
    ) -> Option<(Timestamp, Timestamp)> {
        let (opened, until) = match self.quota {
            Quota::LeakyBucket(_) | Quota::Concurrency(_) => return None,
            Quota::FixedWindow(window) => {
                let (start, end, is_open) =
                    window.present(counts.state.as_ref().and_then(State::as_count), now);
                let opened = now.max(start);
                let last = Timestamp(end.0.saturating_sub(BEFORE_END.0));
                // Until the first request it is unknown when the window starts.
                let starts_later = *window.align() == Align::FirstRequest && !is_open;
                (opened, if starts_later { opened } else { opened.after(span).min(last) })
            }
            _ => (now, now.after(span)),
        };
        (until > opened).then_some((opened, until))
    }

    /// The units of a paced grant, and how long until the first; `None` if there is none.
    ///
    /// While there is a debt, it drains at a constant rate, so it is known when the next units become available. A quarter of
    /// those that will be available soon are granted, so that other processes get some as well.
    fn paced(
        self,
        counts: &WithGrants,
        now: Timestamp,
        (wanted, span): (u64, Micros),
    ) -> Option<(u64, Micros)> {
        let (Quota::TokenBucket(bucket) | Quota::Gcra(bucket)) = self.quota else { return None };
        if wanted < WANTED_PACED {
            return None;
        }
        let ([drain, unit, limit], granted) = (bucket.numbers(), counts.units());
        let span = span.0.max(1);
        let soon = Ahead::PACED_AHEAD.0.min(span);
        let debt = counts.state.as_ref().and_then(State::as_debt);
        if bucket.is_exceeded(debt, now) {
            return None;
        }
        let promised = granted.saturating_sub(self.available(counts, now));
        let coming = (drain.min(Ahead::MOST_DRAINED) * soon / unit).saturating_sub(promised);
        let units = (wanted.min(MOST_WANTED) * soon / span).min(coming / 4);
        if units < Ahead::MIN_PACED_GRANT || granted.saturating_add(units) > limit / 2 {
            return None;
        }
        Some((units, bucket.until_free(debt, now, granted + 1)))
    }
}

fn has_grants(state: Option<&State>) -> bool {
    matches!(state, Some(State::WithGrants(_)))
}

/// Takes the generation out if its last grant has ended.
fn take_ended(generation: &mut Generation, now: Timestamp) -> Option<Generation> {
    (generation.units > 0 && now >= generation.until).then(|| std::mem::take(generation))
}

/// The grants, moved back with the clock if it was set back: they last as long from now as they did from the last one.
fn moved_with_clock(counts: &WithGrants, now: Timestamp) -> (WithGrants, bool) {
    let latest = counts.current.opened.max(counts.previous.opened);
    if latest <= now.after(MAX_SKEW) {
        return (counts.clone(), false);
    }
    let shift = latest.0 - now.0;
    let back = |at: Timestamp| Timestamp(at.0.saturating_sub(shift));
    let moved = |generation: Generation| Generation {
        opened: back(generation.opened),
        until: back(generation.until),
        ..generation
    };
    let (current, previous) = (moved(counts.current), moved(counts.previous));
    (WithGrants { state: counts.state.clone(), current, previous }, true)
}
