//! Requests in flight, counted by all workers without a lock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tidegate_limit::limit::ReservedShare;

use super::class::Class;

/// Bits of the number of requests of one class.
const BITS: u32 = 16;
/// The greatest number of requests of one class.
const MOST: u64 = (1 << BITS) - 1;

/// A request in flight. It must be given back to the [`Places`] that it comes from.
#[must_use = "a place that is not given back is taken for ever"]
#[derive(Debug)]
pub struct Place {
    class: Class,
    counted: bool,
    above_limit: bool,
}

impl Place {
    /// The class of the request.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class
    }

    /// Whether it was taken above the limit, in shadow mode.
    #[must_use]
    pub fn is_above_limit(&self) -> bool {
        self.above_limit
    }
}

/// The requests in flight by class, and their limit.
///
/// [`Self::waiting`] is the number of waiting requests, so that a worker needs no lock while there are none. All accesses are
/// sequentially consistent: who queues sets `waiting` and then tries to take a place; who gives one back does so and then reads
/// `waiting`. So one of the two sees the other.
#[derive(Debug)]
pub struct Places {
    /// The requests of each class, 16 bits for each.
    taken: AtomicU64,
    limit: AtomicU32,
    waiting: AtomicU32,
    /// The reserved shares.
    shares: [ReservedShare; Class::COUNT],
    /// The sum of the shares.
    all_shares: ReservedShare,
}

impl Places {
    /// Without requests. `shares` are the reserved shares of the limit, by [`Class::index`].
    #[must_use]
    pub fn new(limit: u32, shares: [f64; Class::COUNT]) -> Self {
        let shares = shares.map(ReservedShare::new);
        let all_shares = shares.iter().copied().sum();
        Self {
            taken: AtomicU64::new(0),
            limit: AtomicU32::new(limit),
            waiting: AtomicU32::new(0),
            shares,
            all_shares,
        }
    }

    /// The limit of requests in flight.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.limit.load(Ordering::SeqCst)
    }

    /// Sets the limit. Requests in flight above it stay.
    pub fn set_limit(&self, limit: u32) {
        self.limit.store(limit, Ordering::SeqCst);
    }

    /// The number of waiting requests.
    #[must_use]
    #[inline]
    pub fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Sets the number of waiting requests. Only the owner of the queue does so, with its lock.
    pub fn set_waiting(&self, waiting: u32) {
        self.waiting.store(waiting, Ordering::SeqCst);
    }

    /// Takes a place if the limit and the shares of other classes allow it.
    #[must_use]
    pub fn try_take(&self, class: Class) -> Option<Place> {
        let limit = self.limit();
        let taken = self.add(class, |taken| self.fits(taken, limit, class));
        taken.map(|()| Place { class, counted: true, above_limit: false })
    }

    /// Takes a place above the limit, in shadow mode.
    pub fn take(&self, class: Class) -> Place {
        Place { class, counted: self.add(class, |_| true).is_some(), above_limit: true }
    }

    /// Gives a place back.
    #[inline]
    #[expect(clippy::needless_pass_by_value, reason = "a place is given back once")]
    pub fn give_back(&self, place: Place) {
        if place.counted {
            self.taken.fetch_sub(one(place.class), Ordering::SeqCst);
        }
    }

    /// Whether a request of this class may be sent.
    #[must_use]
    pub fn has_room(&self, class: Class) -> bool {
        self.fits(self.taken.load(Ordering::SeqCst), self.limit(), class)
    }

    /// The requests in flight, by [`Class::index`].
    #[must_use]
    pub fn in_flight(&self) -> [u32; Class::COUNT] {
        let taken = self.taken.load(Ordering::SeqCst);
        Class::ALL.map(|class| count(taken, class))
    }

    fn add(&self, class: Class, may: impl Fn(u64) -> bool) -> Option<()> {
        let next = |taken| (u64::from(count(taken, class)) < MOST && may(taken)).then(|| taken + one(class));
        self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).ok().map(|_| ())
    }

    #[inline]
    fn fits(&self, taken: u64, limit: u32, class: Class) -> bool {
        let used: u32 = Class::ALL.iter().map(|other| count(taken, *other)).sum();
        // Mostly there is room for all reserved shares besides.
        if used + reserved(self.all_shares, limit) < limit {
            return true;
        }
        if used >= limit {
            return false;
        }
        let kept = |other: Class| count(taken, other).max(reserved(self.shares[other.index()], limit));
        let others: u32 = Class::ALL.into_iter().filter(|other| *other != class).map(kept).sum();
        count(taken, class) + others < limit
    }
}

fn one(class: Class) -> u64 {
    1 << (BITS * class as u32)
}

fn count(taken: u64, class: Class) -> u32 {
    (taken >> (BITS * class as u32) & MOST) as u32
}

#[expect(clippy::cast_possible_truncation, reason = "at most the limit")]
fn reserved(share: ReservedShare, limit: u32) -> u32 {
    share.of(u64::from(limit)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_bounded_by_the_limit_and_come_back() {
        let places = Places::new(2, [0.0; 4]);
        let first = places.try_take(Class::Normal).unwrap();
        let second = places.try_take(Class::Low).unwrap();
        assert!(places.try_take(Class::Critical).is_none());
        assert_eq!(places.in_flight(), [0, 0, 1, 1]);
        places.give_back(first);
        places.give_back(second);
        assert_eq!(places.in_flight(), [0; 4]);
    }

    #[test]
    fn a_reserved_share_is_left_to_its_class() {
        let places = Places::new(10, [0.2, 0.0, 0.0, 0.1]);
        let normal: Vec<Place> = std::iter::from_fn(|| places.try_take(Class::Normal)).collect();
        assert_eq!(normal.len(), 7);
        let critical: Vec<Place> = std::iter::from_fn(|| places.try_take(Class::Critical)).collect();
        assert_eq!(critical.len(), 2);
        let low: Vec<Place> = std::iter::from_fn(|| places.try_take(Class::Low)).collect();
        assert_eq!(low.len(), 1);
    }

    #[test]
    fn a_class_above_its_share_leaves_others_the_rest() {
        let places = Places::new(10, [0.2, 0.0, 0.0, 0.0]);
        let critical: Vec<Place> = (0..8).filter_map(|_| places.try_take(Class::Critical)).collect();
        let normal: Vec<Place> = std::iter::from_fn(|| places.try_take(Class::Normal)).collect();
        assert_eq!((critical.len(), normal.len()), (8, 2));
    }

    #[test]
    fn numbers_of_a_class_do_not_overflow_into_the_next() {
        let places = Places::new(1, [0.0; 4]);
        let taken: Vec<Place> = (0..MOST + 5).map(|_| places.take(Class::Critical)).collect();
        assert_eq!(places.in_flight(), [65_535, 0, 0, 0]);
        for place in taken {
            places.give_back(place);
        }
        assert_eq!(places.in_flight(), [0; 4]);
    }
}
