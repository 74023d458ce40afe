//! The requests that wait for a place.

use std::collections::BTreeMap;

use tidegate_limit::time::{Micros, Timestamp};

use super::class::{Arrival, Class};
use super::turns::Turns;

/// A queue that has not been empty for this long stands: requests come faster than they are served.
const STANDING: Micros = Micros(100_000);
/// How long a request waits while the queue stands.
const STANDING_TIMEOUT: Micros = Micros(50_000);

/// The most keys among which [`Queue::find`] looks.
const MOST_LOOKED_AT: usize = 64;

/// A waiting request, for [`Queue::remove`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    arrival: Arrival,
    number: u64,
}

/// Requests that wait: by class, inside a class by turns of their keys, inside a key by arrival.
///
/// - Higher classes are served first. If others wait too, they get a part of the turns, the `floor`.
/// - A request waits for the timeout at most; for 50 ms at most while the queue has not been empty for 100 ms.
/// - A full queue takes a request in place of the newest one of the lowest class and its heaviest key, if that class is lower or
///   that key has more requests. A class holds at most half of the queue.
#[derive(Debug)]
pub struct Queue<T> {
    classes: [Turns<u64, T>; Class::COUNT],
    /// All waiting requests in the order of their arrival.
    order: BTreeMap<u64, (Timestamp, Arrival)>,
    next_number: u64,
    most: usize,
    timeout: Micros,
    floor: f64,
    /// What the classes below each class have earned of the turns, by the index of the higher one.
    earned: [f64; Class::COUNT],
    /// Since when it has not been empty.
    filled_at: Timestamp,
}

/// What [`Queue::push`] does with a request.
#[derive(Debug)]
pub enum Pushed<T> {
    /// It waits.
    Queued(Ticket),
    /// It waits in place of another request, of this class.
    Displaced(Ticket, Class, T),
    /// There is no room for it.
    Full(T),
}

impl<T> Queue<T> {
    /// An empty queue for `most` requests.
    #[must_use]
    pub fn new(most: usize, timeout: Micros, floor: f64) -> Self {
        Self {
            classes: Default::default(),
            order: BTreeMap::new(),
            next_number: 0,
            most,
            timeout,
            floor,
            earned: [0.0; Class::COUNT],
            filled_at: Timestamp(0),
        }
    }

    /// The number of waiting requests.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// The number of waiting requests of a class.
    #[must_use]
    pub fn len_of(&self, class: Class) -> usize {
        self.classes[class.index()].len()
    }

    /// Adds a request.
    pub fn push(&mut self, arrival: Arrival, item: T, now: Timestamp) -> Pushed<T> {
        let victim = match self.room(arrival) {
            Room::Free => None,
            Room::InPlaceOf(class) => Some(class),
            Room::None => return Pushed::Full(item),
        };
        let displaced = victim.and_then(|class| {
            let (number, item) = self.classes[class.index()].pop_newest_of_heaviest()?;
            self.order.remove(&number);
            Some((class, item))
        });
        if self.is_empty() {
            self.filled_at = now;
        }
        let number = self.next_number;
        self.next_number += 1;
        self.order.insert(number, (now, arrival));
        self.classes[arrival.class.index()].push(arrival.key, number, item);
        let ticket = Ticket { arrival, number };
        match displaced {
            None => Pushed::Queued(ticket),
            Some((class, item)) => Pushed::Displaced(ticket, class, item),
        }
    }

    /// Whether [`Self::push`] would have no room for this request.
    #[must_use]
    pub fn is_full_for(&self, arrival: Arrival) -> bool {
        matches!(self.room(arrival), Room::None)
    }

    fn room(&self, arrival: Arrival) -> Room {
        let own = &self.classes[arrival.class.index()];
        let in_place_of = |class: Class| {
            // A swap must leave the newcomer's key with fewer requests than the other one had.
            let lighter = own.len_of(arrival.key) + 1 < self.classes[class.index()].heaviest();
            if class > arrival.class || (class == arrival.class && lighter) {
                Room::InPlaceOf(class)
            } else {
                Room::None
            }
        };
        if own.len() >= self.most.div_ceil(2) {
            return in_place_of(arrival.class);
        }
        if self.len() < self.most {
            return Room::Free;
        }
        let lowest = Class::ALL.into_iter().rev().find(|class| self.len_of(*class) > 0);
        lowest.map_or(Room::None, in_place_of)
    }

    /// The class whose turn it is, of those for which `has_room` holds; none if none of them waits. The turn must be used, with
    /// [`Self::pop`].
    pub fn next_class(&mut self, has_room: impl Fn(Class) -> bool) -> Option<Class> {
        let waits = |class: &Class| !self.classes[class.index()].is_empty() && has_room(*class);
        let mut waiting = Class::ALL.into_iter().filter(waits).peekable();
        let mut next = waiting.next()?;
        while let Some(lower) = waiting.peek() {
            let earned = &mut self.earned[next.index()];
            *earned += self.floor;
            if *earned < 1.0 {
                break;
            }
            *earned -= 1.0;
            next = *lower;
            waiting.next();
        }
        Some(next)
    }

    /// The next request of a class.
    #[must_use]
    pub fn front(&self, class: Class) -> Option<Arrival> {
        self.classes[class.index()].front().map(|(key, _)| Arrival { class, key })
    }

    /// Takes the next request of a class.
    pub fn pop(&mut self, class: Class) -> Option<T> {
        let (number, item) = self.classes[class.index()].pop_next()?;
        self.order.remove(&number);
        Some(item)
    }

    /// The next request of a class whose key fulfils a condition. It is looked for among the first 64 keys by their turns, since the
    /// caller has a lock.
    #[must_use]
    pub fn find(&self, class: Class, is_wanted: impl Fn(u64) -> bool) -> Option<Arrival> {
        let mut keys = self.classes[class.index()].keys().take(MOST_LOOKED_AT);
        keys.find(|key| is_wanted(*key)).map(|key| Arrival { class, key })
    }

    /// Takes the next request of this class and key.
    pub fn pop_of(&mut self, arrival: Arrival) -> Option<T> {
        let (number, item) = self.classes[arrival.class.index()].pop_next_of(arrival.key)?;
        self.order.remove(&number);
        Some(item)
    }

    /// Takes a request that has waited for too long.
    pub fn pop_expired(&mut self, now: Timestamp) -> Option<(Class, T)> {
        let (&number, &(since, arrival)) = self.order.first_key_value()?;
        if now.since(since) < self.timeout_at(now) {
            return None;
        }
        let item = self.remove(Ticket { arrival, number })?;
        Some((arrival.class, item))
    }

    /// When a request will have waited for too long, if none is taken before.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        let (_, &(since, _)) = self.order.first_key_value()?;
        let standing = since.after(STANDING_TIMEOUT).max(self.filled_at.after(STANDING));
        Some(since.after(self.timeout).min(standing))
    }

    /// Removes a request whose client has left; none if it does not wait any more.
    pub fn remove(&mut self, ticket: Ticket) -> Option<T> {
        let Ticket { arrival, number } = ticket;
        self.order.remove(&number)?;
        self.classes[arrival.class.index()].remove(arrival.key, number)
    }

    fn timeout_at(&self, now: Timestamp) -> Micros {
        if now.since(self.filled_at) >= STANDING { self.timeout.min(STANDING_TIMEOUT) } else { self.timeout }
    }
}

enum Room {
    Free,
    InPlaceOf(Class),
    None,
}

#[cfg(test)]
mod tests;
