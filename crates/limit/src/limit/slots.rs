//! Concurrency: at most N units in flight at once.
//!
//! Twin of `lua/concurrency.lua`. Each holder has a lease; one that is not renewed expires, so the slots of a
//! proxy that was killed are released.

use std::num::NonZeroU64;

use super::clock::MAX_SKEW;
use super::decision::{Decision, Step};
use super::rate::QuotaError;
use super::reserved_share::ReservedShare;
use crate::time::{Micros, Timestamp};

/// The holder of a slot: a number that no other request of any proxy has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Holder(pub u64);

/// The numbers of a concurrency limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    limit: NonZeroU64,
    lease: Micros,
    /// The shares of the limit that are reserved for other requests.
    reserved: [ReservedShare; Slots::MAX_RESERVED],
}

/// The units of a holder, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The holder.
    pub holder: Holder,
    /// When it expires.
    pub end: Timestamp,
    /// Units.
    pub units: u64,
}

/// The state of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leases {
    /// When it last changed.
    pub stamp: Timestamp,
    /// The leases of all holders.
    pub held: Vec<Lease>,
}

/// The `retry_after` of a denial: the time at which a slot is released is unknown.
const GUESS: Micros = Micros::SECOND;

/// The most holders of one key: each is 24 bytes of its state.
pub const MAX_IN_FLIGHT: u64 = 10_000;

/// The longest lease: a proxy that has not renewed it for so long has ended.
pub const MAX_LEASE: Micros = Micros(86_400_000_000);

impl Slots {
    /// How long a process keeps a freed slot at most, if the limit keeps them.
    pub const KEPT_FOR: Micros = Micros(100_000);
    /// The most shares of a limit that are reserved.
    pub const MAX_RESERVED: usize = 3;

    /// At most `limit` units in flight, each as long as its holder renews it within `lease`.
    ///
    /// # Errors
    /// No slots or too many, or a lease of zero or too long.
    pub fn new(limit: u64, lease: Micros) -> Result<Self, QuotaError> {
        if limit > MAX_IN_FLIGHT {
            return Err(QuotaError::TooLarge { largest: MAX_IN_FLIGHT });
        }
        if lease.0 == 0 || lease > MAX_LEASE {
            return Err(QuotaError::ZeroRate);
        }
        let limit = NonZeroU64::new(limit).ok_or(QuotaError::ZeroCapacity)?;
        Ok(Self { limit, lease, reserved: [ReservedShare::default(); Self::MAX_RESERVED] })
    }

    /// These slots for requests that must leave these shares of them free. The shares are less than all of the slots together.
    #[must_use]
    pub fn reserving(&self, reserved: [ReservedShare; Self::MAX_RESERVED]) -> Self {
        Self { reserved, ..*self }
    }

    /// Another number of slots, with the same lease and the same shares reserved.
    ///
    /// # Errors
    /// No slots or too many.
    pub fn with_limit(&self, limit: u64) -> Result<Self, QuotaError> {
        Ok(Self::new(limit, self.lease)?.reserving(self.reserved))
    }

    /// The same slots with another lease.
    ///
    /// # Errors
    /// A lease of zero or too long.
    pub fn with_lease(&self, lease: Micros) -> Result<Self, QuotaError> {
        Ok(Self::new(self.limit(), lease)?.reserving(self.reserved))
    }

    /// Units that may be in flight.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit.get()
    }

    /// Slots that are reserved for other requests.
    #[must_use]
    pub fn reserved(&self) -> u64 {
        self.reserved.iter().map(|share| share.of(self.limit())).sum()
    }

    /// Units that may be in flight after a request has taken some: all that are not reserved for others.
    #[must_use]
    pub fn usable(&self) -> u64 {
        self.limit().saturating_sub(self.reserved())
    }

    /// How long a holder is counted without a renewal.
    #[must_use]
    pub fn lease(&self) -> Micros {
        self.lease
    }

    /// `[N, lease]`: the numbers in the script's order. N is the number of usable slots: others do not exist for it.
    #[must_use]
    pub fn numbers(&self) -> [u64; 2] {
        [self.usable(), self.lease.0]
    }

    /// The most units in freed slots of one key that a process keeps, if the limit keeps them: so few that they hardly
    /// reduce the limit for other processes.
    #[must_use]
    pub fn max_kept(&self) -> u64 {
        if self.limit() < 8 { 0 } else { (self.limit() / 50).clamp(1, 8) }
    }

    /// The share of one of `instances` proxies.
    #[must_use]
    pub fn shared_by(&self, instances: NonZeroU64) -> Self {
        Self { limit: NonZeroU64::new(self.limit() / instances).unwrap_or(NonZeroU64::MIN), ..*self }
    }

    /// Decides whether `holder` gets `cost` units at `now`. A cost of zero changes nothing.
    #[must_use]
    pub fn step(&self, state: Option<&Leases>, now: Timestamp, cost: u64, holder: Holder) -> Step<Leases> {
        let view = View::new(state, now);
        let used = view.live().map(|lease| lease.units).sum();
        if cost > self.usable().saturating_sub(used) {
            let retry_after = (cost <= self.usable()).then_some(GUESS);
            let decision = Decision { allowed: false, retry_after, ..self.decision(used) };
            return Step { decision, next: view.set_back.then(|| view.leases(None)) };
        }
        if cost == 0 {
            return Step { decision: self.decision(used), next: None };
        }
        // Replaces an earlier lease of the same holder.
        let next = view.leases(Some(Lease { holder, end: view.at.after(self.lease), units: cost }));
        Step { decision: self.decision(next.used()), next: Some(next) }
    }

    /// Releases the units of `holder`; does nothing if it has none.
    #[must_use]
    pub fn release(&self, state: Option<&Leases>, now: Timestamp, holder: Holder) -> Step<Leases> {
        let view = View::new(state, now);
        let had = view.live().any(|lease| lease.holder == holder);
        let mut leases = view.leases(None);
        leases.held.retain(|lease| lease.holder != holder);
        Step { decision: self.decision(leases.used()), next: had.then_some(leases) }
    }

    /// Renews the lease of `holder`, or restores it if it is missing.
    #[must_use]
    pub fn renew(&self, state: Option<&Leases>, now: Timestamp, units: u64, holder: Holder) -> Step<Leases> {
        let view = View::new(state, now);
        let leases = view.leases(Some(Lease { holder, end: view.at.after(self.lease), units }));
        Step { decision: self.decision(leases.used()), next: Some(leases) }
    }

    /// How long `leases` differs from no state, counted from `now`.
    #[must_use]
    pub fn lifetime(&self, leases: &Leases, now: Timestamp) -> Micros {
        let latest = leases.held.iter().map(|lease| lease.end.0).max().unwrap_or(0);
        Micros(latest.saturating_sub(now.0))
    }

    fn decision(&self, used: u64) -> Decision {
        let reset_after = if used == 0 { Micros::ZERO } else { GUESS };
        Decision::allowed(self.limit(), self.usable().saturating_sub(used), reset_after)
    }
}

impl Leases {
    fn used(&self) -> u64 {
        self.held.iter().map(|lease| lease.units).sum()
    }
}

/// A state as of the present, without a copy of it.
struct View<'a> {
    at: Timestamp,
    held: &'a [Lease],
    /// How far all times move because the clock was set back.
    shift: u64,
    set_back: bool,
}

impl<'a> View<'a> {
    fn new(state: Option<&'a Leases>, now: Timestamp) -> Self {
        let Some(Leases { stamp, held }) = state else {
            return Self { at: now, held: &[], shift: 0, set_back: false };
        };
        if *stamp > now.after(MAX_SKEW) {
            return Self { at: now, held, shift: stamp.0 - now.0, set_back: true };
        }
        Self { at: now.max(*stamp), held, shift: 0, set_back: false }
    }

    /// Leases that have not expired.
    fn live(&self) -> impl Iterator<Item = Lease> {
        let moved =
            |lease: &Lease| Lease { end: Timestamp(lease.end.0.saturating_sub(self.shift)), ..*lease };
        self.held.iter().map(moved).filter(|lease| lease.end > self.at)
    }

    /// The new state; `last` is added, or replaces the lease of its holder.
    fn leases(&self, last: Option<Lease>) -> Leases {
        let mut held = Vec::with_capacity(self.held.len() + 1);
        held.extend(self.live().filter(|lease| last.is_none_or(|last| last.holder != lease.holder)));
        held.extend(last);
        Leases { stamp: self.at, held }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leases(step: &Step<Leases>) -> Leases {
        step.next.clone().unwrap()
    }

    fn slots() -> Slots {
        Slots::new(2, Micros(30_000_000)).unwrap()
    }

    #[test]
    fn slots_are_bounded_and_released_by_their_holders() {
        let slots = slots();
        let one = leases(&slots.step(None, Timestamp(0), 1, Holder(1)));
        let two = leases(&slots.step(Some(&one), Timestamp(5), 1, Holder(2)));
        let denied = slots.step(Some(&two), Timestamp(9), 1, Holder(3));
        assert_eq!((denied.decision.allowed, denied.decision.retry_after), (false, Some(Micros::SECOND)));
        assert_eq!(slots.release(Some(&two), Timestamp(9), Holder(7)).next, None);
        // Taking again replaces the units of the holder.
        let again = slots.step(Some(&one), Timestamp(7), 1, Holder(1));
        assert_eq!((again.decision.remaining, leases(&again).held.len()), (1, 1));
        let back = leases(&slots.release(Some(&two), Timestamp(9), Holder(1)));
        assert!(slots.step(Some(&back), Timestamp(9), 1, Holder(3)).decision.allowed);
    }

    #[test]
    fn a_lease_expires_unless_it_is_renewed() {
        let slots = slots();
        let one = leases(&slots.step(None, Timestamp(0), 2, Holder(1)));
        assert!(!slots.step(Some(&one), Timestamp(29_999_999), 1, Holder(2)).decision.allowed);
        assert!(slots.step(Some(&one), Timestamp(30_000_000), 1, Holder(2)).decision.allowed);
        let renewed = leases(&slots.renew(Some(&one), Timestamp(10_000_000), 2, Holder(1)));
        assert!(!slots.step(Some(&renewed), Timestamp(30_000_000), 1, Holder(2)).decision.allowed);
        assert_eq!(slots.lifetime(&renewed, Timestamp(10_000_000)), Micros(30_000_000));
        assert_eq!(leases(&slots.renew(None, Timestamp(3), 2, Holder(1))).held.len(), 1);
    }

    #[test]
    fn reserved_slots_are_free_for_others_only() {
        let all = Slots::new(10, Micros(30_000_000)).unwrap();
        let shares = [0.2, 0.1, 0.0].map(ReservedShare::new);
        let others = all.reserving(shares);
        assert_eq!((others.limit(), others.usable(), others.numbers()[0]), (10, 7, 7));
        let none = others.step(None, Timestamp(0), 0, Holder(1)).decision;
        assert_eq!((none.limit, none.remaining, none.reset_after), (10, 7, Micros::ZERO));
        let seven = leases(&all.step(None, Timestamp(0), 7, Holder(1)));
        let denied = others.step(Some(&seven), Timestamp(1), 1, Holder(2)).decision;
        assert_eq!((denied.allowed, denied.remaining, denied.retry_after), (false, 0, Some(GUESS)));
        let ten = leases(&all.step(Some(&seven), Timestamp(1), 3, Holder(2)));
        assert!(!all.step(Some(&ten), Timestamp(2), 1, Holder(3)).decision.allowed);
        assert_eq!(others.step(None, Timestamp(2), 8, Holder(3)).decision.retry_after, None);
        // The shares are those of other numbers of slots as well.
        assert_eq!(others.with_limit(20).unwrap().usable(), 14);
        let of_four = others.shared_by(NonZeroU64::new(4).unwrap());
        assert_eq!((of_four.limit(), of_four.usable()), (2, 2));
    }

    #[test]
    fn numbers_out_of_range_are_rejected() {
        assert_eq!(Slots::new(10_001, Micros(1)), Err(QuotaError::TooLarge { largest: 10_000 }));
        assert!(Slots::new(0, Micros(1)).is_err() && Slots::new(1, Micros(0)).is_err());
        assert!(Slots::new(1, MAX_LEASE).is_ok() && Slots::new(1, Micros(MAX_LEASE.0 + 1)).is_err());
    }
}
