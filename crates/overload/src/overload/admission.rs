//! The admission of requests to an upstream.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tidegate_limit::time::Timestamp;

use super::class::{Arrival, Class};
use super::counts::{Counts, Reason, Refusal};
use super::limit::{AdaptiveLimit, Learned};
use super::places::{Place, Places};
use super::queue::{Pushed, Queue, Ticket};
use super::samples::{Sample, Samples};
use super::spec::{LimitSpec, Mode, OverloadSpec};

/// What happens to a request that asks for a place.
#[derive(Debug)]
pub enum Arrived<T> {
    /// It may be sent.
    Admitted(T, Place),
    /// It waits, until it comes back as [`Released`].
    Queued(Ticket),
    /// There is no room for it in the queue.
    Refused(T, Refusal),
}

/// A request that does not wait any more.
#[derive(Debug)]
pub enum Released<T> {
    /// It may be sent. If its client has left, its place must be given back with [`Admission::finish`].
    Admitted(T, Place),
    /// It is refused.
    Refused(T, Refusal),
}

/// Admits requests to an upstream up to a limit, and lets others wait or refuses them. One is shared by all workers.
///
/// The order of calls for a request:
///
/// 1. [`Self::refuse_at_once`] before other costs, such as a call to a store. Takes no lock while no request waits.
/// 2. [`Self::try_admit`]: only atomic operations. If it fails, [`Self::arrive`] with the item that the queue keeps for the request,
///    such as the sender of a channel; or [`Self::arrive_late`] if the request has waited for as long as it may.
/// 3. [`Self::record`] with the head of its response, into the worker's own [`Samples`].
/// 4. [`Self::finish`] when it is no longer in flight.
///
/// A waiting request that leaves calls [`Self::leave`]. [`Self::expire`] must be called at [`Self::deadline`] or soon after it, for
/// example by each waiting request, 50 ms after its arrival and every 50 ms from then on. Calls that take `released` add requests
/// to it that no longer wait; the caller tells them.
#[derive(Debug)]
pub struct Admission<T> {
    mode: Mode,
    adaptive: bool,
    /// Whether any request may wait.
    queues: bool,
    places: Places,
    state: Mutex<State<T>>,
}

#[derive(Debug)]
struct State<T> {
    /// None for a fixed limit.
    limit: Option<AdaptiveLimit>,
    queue: Queue<T>,
    counts: Counts,
}

impl<T> Admission<T> {
    /// Without requests. `learned` is from a predecessor.
    #[must_use]
    pub fn new(spec: &OverloadSpec, learned: Option<&Learned>, now: Timestamp) -> Self {
        let limit = match spec.limit {
            LimitSpec::Fixed(_) => None,
            LimitSpec::Adaptive { min, max } => {
                let start = spec.servers.saturating_mul(OverloadSpec::START_PER_SERVER);
                let limit = AdaptiveLimit::new(min, max.min(OverloadSpec::MAX_LIMIT), start, now);
                let limit = if spec.mode == Mode::Shadow { limit.without_tests() } else { limit };
                Some(learned.iter().fold(limit, |limit, learned| limit.resumed(learned)))
            }
        };
        let number = match (&limit, spec.limit) {
            (None, LimitSpec::Fixed(limit)) => limit.min(OverloadSpec::MAX_LIMIT),
            (limit, _) => limit.as_ref().map_or(OverloadSpec::MAX_LIMIT, AdaptiveLimit::limit),
        };
        Self {
            mode: spec.mode,
            adaptive: limit.is_some(),
            queues: spec.max_pending > 0,
            places: Places::new(number, spec.reserved_share),
            state: Mutex::new(State {
                limit,
                queue: Queue::new(spec.max_pending, spec.pending_timeout, spec.floor),
                counts: Counts::default(),
            }),
        }
    }

    /// What the limit has learned, for a successor; none for a fixed limit.
    #[must_use]
    pub fn learned(&self) -> Option<Learned> {
        self.lock().limit.as_ref().map(AdaptiveLimit::learned)
    }

    /// The refusal of a request for which the queue has no room, which is counted; none if it may take a place or wait.
    #[must_use]
    #[inline]
    pub fn refuse_at_once(&self, arrival: Arrival) -> Option<Refusal> {
        let is_served = self.places.waiting() == 0 && (self.queues || self.places.has_room(arrival.class));
        if is_served { None } else { self.refuse_without_room(arrival) }
    }

    #[cold]
    fn refuse_without_room(&self, arrival: Arrival) -> Option<Refusal> {
        if self.mode == Mode::Shadow {
            return None;
        }
        let mut state = self.lock();
        let is_served = self.has_own_room(&state, arrival.class)
            || self.places.may_take_extra(arrival)
            || !state.queue.is_full_for(arrival);
        if is_served {
            return None;
        }
        Some(state.refuse(arrival.class, Reason::Full))
    }

    /// Whether a request of this class that comes soon may have to wait: others wait, half of the limit is in use, or all that this
    /// class may use. Without a lock.
    #[must_use]
    pub fn may_have_to_wait(&self, class: Class) -> bool {
        let is_half_used = || self.places.in_flight().iter().sum::<u32>() >= self.places.limit().div_ceil(2);
        self.mode == Mode::Enforce
            && (self.places.waiting() > 0 || is_half_used() || !self.places.has_room(class))
    }

    /// A place for a request, if there is room and no request waits. Takes no lock.
    #[must_use]
    #[inline]
    pub fn try_admit(&self, arrival: Arrival) -> Option<Place> {
        if self.places.waiting() > 0 { None } else { self.places.try_take(arrival) }
    }

    /// A place for a request, or a place in the queue, or none.
    pub fn arrive(
        &self,
        arrival: Arrival,
        item: T,
        now: Timestamp,
        released: &mut Vec<Released<T>>,
    ) -> Arrived<T> {
        if let Some(place) = self.try_admit(arrival) {
            return Arrived::Admitted(item, place);
        }
        let mut state = self.lock();
        if let Some(place) = self.admit_now(&mut state, arrival, released) {
            return Arrived::Admitted(item, place);
        }
        let arrived = match state.queue.push(arrival, item, now) {
            Pushed::Queued(ticket) => Arrived::Queued(ticket),
            Pushed::Displaced(ticket, class, item) => {
                let refusal = state.refuse(class, Reason::Displaced);
                released.push(Released::Refused(item, refusal));
                Arrived::Queued(ticket)
            }
            Pushed::Full(item) => Arrived::Refused(item, state.refuse(arrival.class, Reason::Full)),
        };
        self.places.set_waiting(number(state.queue.len()));
        self.dispatch(&mut state, now, released);
        arrived
    }

    /// The same for a request that must not wait any more: a place, or its refusal.
    ///
    /// # Errors
    /// The refusal, which is counted.
    pub fn arrive_late(&self, arrival: Arrival, released: &mut Vec<Released<T>>) -> Result<Place, Refusal> {
        if let Some(place) = self.try_admit(arrival) {
            return Ok(place);
        }
        let mut state = self.lock();
        let place = self.admit_now(&mut state, arrival, released);
        place.ok_or_else(|| state.refuse(arrival.class, Reason::TimedOut))
    }

    /// A place for a request while others wait or the limit is reached: one that only its class may use, or one above the limit.
    fn admit_now(
        &self,
        state: &mut State<T>,
        arrival: Arrival,
        released: &mut Vec<Released<T>>,
    ) -> Option<Place> {
        if self.mode == Mode::Shadow {
            state.press();
            state.counts.above_limit[arrival.class.index()] += 1;
            return Some(self.places.take(arrival));
        }
        if self.has_own_room(state, arrival.class)
            && let Some(place) = self.places.try_take(arrival)
        {
            return Some(place);
        }
        // Requests that wait come first.
        self.dispatch_extra(state, released);
        self.places.try_take_extra(arrival)
    }

    /// Records a response. Call it before [`Self::finish`].
    #[inline]
    pub fn record(&self, samples: &mut Samples, sample: Sample, now: Timestamp) {
        if !self.adaptive {
            return;
        }
        samples.record(sample, now);
        if samples.is_due(now) || self.places.waiting() > 0 {
            self.merge(samples, now);
        }
    }

    /// Merges the samples of a worker into the limit.
    #[cold]
    pub fn merge(&self, samples: &mut Samples, now: Timestamp) {
        let mut state = self.lock();
        if let Some(limit) = &mut state.limit {
            limit.merge(samples, now);
            self.places.set_limit(limit.limit());
        }
    }

    /// A request is no longer in flight.
    #[inline]
    pub fn finish(&self, place: Place, now: Timestamp, released: &mut Vec<Released<T>>) {
        if self.give_back(place) {
            self.expire(now, released);
        }
    }

    /// The same without looking for requests that may be sent instead; returns whether [`Self::expire`] must be called.
    #[must_use]
    #[inline]
    pub fn give_back(&self, place: Place) -> bool {
        self.places.give_back(place);
        self.places.waiting() > 0
    }

    /// Admits waiting requests for which there is room, and refuses those that have waited for too long. Without a lock while
    /// no request waits.
    #[inline]
    pub fn expire(&self, now: Timestamp, released: &mut Vec<Released<T>>) {
        if self.places.waiting() > 0 {
            self.dispatch_locked(now, released);
        }
    }

    #[cold]
    fn dispatch_locked(&self, now: Timestamp, released: &mut Vec<Released<T>>) {
        self.dispatch(&mut self.lock(), now, released);
    }

    /// When [`Self::expire`] must be called, if nothing else happens before.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        if self.places.waiting() == 0 { None } else { self.lock().queue.deadline() }
    }

    /// Removes a waiting request; none if it has been released.
    pub fn leave(&self, ticket: Ticket) -> Option<T> {
        let mut state = self.lock();
        let item = state.queue.remove(ticket);
        self.places.set_waiting(number(state.queue.len()));
        item
    }

    /// Values for metrics.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let state = self.lock();
        let waiting = Class::ALL.map(|class| number(state.queue.len_of(class)));
        Counts { limit: self.places.limit(), in_flight: self.places.in_flight(), waiting, ..state.counts }
    }

    /// Whether there is room that only this class may use, so that requests of other classes wait, and none of this one.
    fn has_own_room(&self, state: &State<T>, class: Class) -> bool {
        state.queue.len_of(class) == 0 && self.places.has_room(class)
    }

    fn dispatch(&self, state: &mut State<T>, now: Timestamp, released: &mut Vec<Released<T>>) {
        while let Some((class, item)) = state.queue.pop_expired(now) {
            let refusal = state.refuse(class, Reason::TimedOut);
            released.push(Released::Refused(item, refusal));
        }
        while let Some(class) = state.queue.next_class(|class| self.places.has_room(class)) {
            // A worker that saw an empty queue may have taken the room meanwhile; it dispatches when it gives it back.
            let next = state.queue.front(class);
            let Some(place) = next.and_then(|next| self.places.try_take(next)) else { break };
            match state.queue.pop(class) {
                Some(item) => released.push(Released::Admitted(item, place)),
                None => self.places.give_back(place),
            }
        }
        self.dispatch_extra(state, released);
        if !state.queue.is_empty() {
            state.press();
        }
    }

    /// Admits waiting requests above the limit while one key has nearly all places, the highest class first. Keys that have
    /// requests in flight are passed over. That is bounded: the one key leaves less than a quarter of the places to others, and
    /// [`Queue::find`] looks at 64 keys of a class at most.
    fn dispatch_extra(&self, state: &mut State<T>, released: &mut Vec<Released<T>>) {
        if !state.queue.is_empty() && self.places.has_extra_room() {
            for class in Class::ALL {
                while let Some(next) = state.queue.find(class, |key| self.places.is_idle(key))
                    && let Some(place) = self.places.try_take_extra(next)
                {
                    match state.queue.pop_of(next) {
                        Some(item) => released.push(Released::Admitted(item, place)),
                        None => self.places.give_back(place),
                    }
                }
            }
        }
        self.places.set_waiting(number(state.queue.len()));
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    fn refuse(&mut self, class: Class, reason: Reason) -> Refusal {
        let refusal = Refusal { class, reason };
        self.counts.refuse(refusal);
        self.press();
        refusal
    }

    fn press(&mut self) {
        if let Some(limit) = &mut self.limit {
            limit.press();
        }
    }
}

fn number(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests;
