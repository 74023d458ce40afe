//! Requests in flight, counted by all workers without a lock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tidegate_limit::limit::ReservedShare;

use super::class::{Arrival, Class};

/// Bits of the number of requests of one class.
const BITS: u32 = 16;
/// The greatest number of requests of one class.
const MOST: u64 = (1 << BITS) - 1;
/// The part of the limit above it that is for keys without requests while one key has nearly all.
const EXTRA: u32 = 8;

/// A request in flight. It must be given back to the [`Places`] that it comes from.
#[must_use = "a place that is not given back is taken for ever"]
#[derive(Debug)]
pub struct Place {
    class: Class,
    key: u64,
    kind: PlaceKind,
}

/// Where a place is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlaceKind {
    /// Within the limit.
    Within,
    /// Besides the limit, for a key without requests.
    Extra,
    /// With those within the limit, which is exceeded: in shadow mode.
    Above,
    /// Nowhere, since there are too many of its class: in shadow mode.
    Uncounted,
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
        matches!(self.kind, PlaceKind::Above | PlaceKind::Uncounted)
    }
}

/// The requests in flight by class, and their limit.
///
/// They are counted by key as well, so that a key which has nearly all of them for long does not keep out the others: these may be
/// sent above the limit, up to an eighth of it ([`Self::try_take_extra`]).
///
/// [`Self::waiting`] is the number of waiting requests, so that a worker needs no lock while there are none. All accesses are
/// sequentially consistent: who queues sets `waiting` and then tries to take a place; who gives one back does so and then reads
/// `waiting`. So one of the two sees the other.
#[derive(Debug)]
pub struct Places {
    /// The requests of each class, 16 bits for each.
    taken: AtomicU64,
    /// The same of those besides the limit.
    extra: AtomicU64,
    by_key: KeyCounters,
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
            extra: AtomicU64::new(0),
            by_key: KeyCounters::default(),
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
    pub fn try_take(&self, arrival: Arrival) -> Option<Place> {
        let limit = self.limit();
        self.add(arrival, PlaceKind::Within, |taken| self.fits(taken, limit, arrival.class))
    }

    /// Takes a place for a key that has none while another one has more than three quarters of all requests in flight: besides the
    /// limit, which these places do not use up, and at most an eighth of it.
    #[must_use]
    pub fn try_take_extra(&self, arrival: Arrival) -> Option<Place> {
        if !self.may_take_extra(arrival) {
            return None;
        }
        let most = self.limit() / EXTRA;
        self.add(arrival, PlaceKind::Extra, |extra| used(extra) < most)
    }

    /// Whether [`Self::try_take_extra`] would have a place.
    #[must_use]
    pub fn may_take_extra(&self, arrival: Arrival) -> bool {
        self.is_idle(arrival.key) && self.has_extra_room()
    }

    /// Whether [`Self::try_take_extra`] would have a place for any key without requests.
    #[must_use]
    pub fn has_extra_room(&self) -> bool {
        let extra = used(self.extra.load(Ordering::SeqCst));
        let all = used(self.taken.load(Ordering::SeqCst)) + extra;
        extra < self.limit() / EXTRA && self.by_key.most() * 4 > all * 3
    }

    /// Whether a key has no request in flight. False for a few that have none.
    #[must_use]
    pub fn is_idle(&self, key: u64) -> bool {
        self.by_key.count(key) == 0
    }

    /// Takes a place above the limit, in shadow mode.
    pub fn take(&self, arrival: Arrival) -> Place {
        let Arrival { class, key } = arrival;
        let uncounted = Place { class, key, kind: PlaceKind::Uncounted };
        self.add(arrival, PlaceKind::Above, |_| true).unwrap_or(uncounted)
    }

    /// Gives a place back.
    #[inline]
    #[expect(clippy::needless_pass_by_value, reason = "a place is given back once")]
    pub fn give_back(&self, place: Place) {
        let Some(counter) = self.counter(place.kind) else { return };
        for of_key in self.by_key.of(place.key) {
            of_key.fetch_sub(1, Ordering::Relaxed);
        }
        counter.fetch_sub(one(place.class), Ordering::SeqCst);
    }

    /// Whether a request of this class may be sent.
    #[must_use]
    pub fn has_room(&self, class: Class) -> bool {
        self.fits(self.taken.load(Ordering::SeqCst), self.limit(), class)
    }

    /// The requests in flight, by [`Class::index`].
    #[must_use]
    pub fn in_flight(&self) -> [u32; Class::COUNT] {
        let counted = [&self.taken, &self.extra].map(|counter| counter.load(Ordering::SeqCst));
        Class::ALL.map(|class| counted.iter().map(|counted| count(*counted, class)).sum())
    }

    fn counter(&self, kind: PlaceKind) -> Option<&AtomicU64> {
        match kind {
            PlaceKind::Within | PlaceKind::Above => Some(&self.taken),
            PlaceKind::Extra => Some(&self.extra),
            PlaceKind::Uncounted => None,
        }
    }

    fn add(&self, arrival: Arrival, kind: PlaceKind, may: impl Fn(u64) -> bool) -> Option<Place> {
        let Arrival { class, key } = arrival;
        let next = |taken| (u64::from(count(taken, class)) < MOST && may(taken)).then(|| taken + one(class));
        self.counter(kind)?.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).ok()?;
        for of_key in self.by_key.of(key) {
            of_key.fetch_add(1, Ordering::Relaxed);
        }
        Some(Place { class, key, kind })
    }

    #[inline]
    fn fits(&self, taken: u64, limit: u32, class: Class) -> bool {
        let used = used(taken);
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

/// The requests of all classes.
fn used(taken: u64) -> u32 {
    Class::ALL.iter().map(|class| count(taken, *class)).sum()
}

/// Counters of requests by key: two for each, by two bytes of its hash, of which the smaller one is at least the number of its
/// requests. Few keys have both in common with another one.
#[derive(Debug)]
struct KeyCounters(Box<[[AtomicU32; 256]; 2]>);

impl Default for KeyCounters {
    fn default() -> Self {
        Self(Box::new([const { [const { AtomicU32::new(0) }; 256] }; 2]))
    }
}

impl KeyCounters {
    fn of(&self, key: u64) -> impl Iterator<Item = &AtomicU32> {
        self.0.iter().zip(key.to_le_bytes()).map(|(row, byte)| &row[usize::from(byte)])
    }

    /// The requests of a key, or more.
    fn count(&self, key: u64) -> u32 {
        self.of(key).map(|counter| counter.load(Ordering::Relaxed)).min().unwrap_or(0)
    }

    /// The requests of the key that has the most, or more.
    fn most(&self) -> u32 {
        let most = |row: &[AtomicU32; 256]| row.iter().map(|counter| counter.load(Ordering::Relaxed)).max();
        self.0.iter().filter_map(most).min().unwrap_or(0)
    }
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

    fn of(class: Class) -> Arrival {
        Arrival { class, key: 0 }
    }

    #[test]
    fn places_are_bounded_by_the_limit_and_come_back() {
        let places = Places::new(2, [0.0; 4]);
        let first = places.try_take(of(Class::Normal)).unwrap();
        let second = places.try_take(of(Class::Low)).unwrap();
        assert!(places.try_take(of(Class::Critical)).is_none());
        assert_eq!(places.in_flight(), [0, 0, 1, 1]);
        places.give_back(first);
        places.give_back(second);
        assert_eq!(places.in_flight(), [0; 4]);
    }

    #[test]
    fn a_reserved_share_is_left_to_its_class() {
        let places = Places::new(10, [0.2, 0.0, 0.0, 0.1]);
        let normal: Vec<Place> = std::iter::from_fn(|| places.try_take(of(Class::Normal))).collect();
        assert_eq!(normal.len(), 7);
        let critical: Vec<Place> = std::iter::from_fn(|| places.try_take(of(Class::Critical))).collect();
        assert_eq!(critical.len(), 2);
        let low: Vec<Place> = std::iter::from_fn(|| places.try_take(of(Class::Low))).collect();
        assert_eq!(low.len(), 1);
    }

    #[test]
    fn a_class_above_its_share_leaves_others_the_rest() {
        let places = Places::new(10, [0.2, 0.0, 0.0, 0.0]);
        let critical: Vec<Place> = (0..8).filter_map(|_| places.try_take(of(Class::Critical))).collect();
        let normal: Vec<Place> = std::iter::from_fn(|| places.try_take(of(Class::Normal))).collect();
        assert_eq!((critical.len(), normal.len()), (8, 2));
    }

    #[test]
    fn keys_without_requests_get_extra_places_beside_one_that_has_nearly_all() {
        let places = Places::new(16, [0.0; 4]);
        let of = |key| Arrival { class: Class::Normal, key };
        let mut heavy: Vec<Place> = std::iter::from_fn(|| places.try_take(of(1))).collect();
        assert_eq!(heavy.len(), 16);
        assert!(places.try_take_extra(of(1)).is_none());
        let extra = places.try_take_extra(of(2)).unwrap();
        assert!(places.try_take_extra(of(2)).is_none(), "it has one");
        let another = places.try_take_extra(of(3)).unwrap();
        assert!(places.try_take_extra(of(4)).is_none(), "an eighth of the limit");
        places.give_back(extra);
        places.give_back(another);
        assert!(places.try_take(of(2)).is_none());
        // Two that share the places are no reason.
        heavy.drain(..4).for_each(|place| places.give_back(place));
        let light: Vec<Place> = std::iter::from_fn(|| places.try_take(of(2))).collect();
        assert_eq!((light.len(), places.try_take_extra(of(3)).is_none()), (4, true));
        heavy.into_iter().chain(light).for_each(|place| places.give_back(place));
        assert_eq!(places.by_key.most(), 0);
        // A small limit has none.
        let few = Places::new(7, [0.0; 4]);
        assert_eq!(std::iter::from_fn(|| few.try_take(of(1))).count(), 7);
        assert!(few.try_take_extra(of(2)).is_none());
    }

    #[test]
    fn numbers_of_a_class_do_not_overflow_into_the_next() {
        let places = Places::new(1, [0.0; 4]);
        let taken: Vec<Place> = (0..MOST + 5).map(|_| places.take(of(Class::Critical))).collect();
        assert_eq!(places.in_flight(), [65_535, 0, 0, 0]);
        for place in taken {
            places.give_back(place);
        }
        assert_eq!(places.in_flight(), [0; 4]);
    }
}
