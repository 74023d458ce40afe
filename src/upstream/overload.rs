//! The admission of requests to an upstream with `overload`, over all workers: [`Admission`] with the tasks that wait.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::overload::{
    Admission, Arrival, Arrived, Class, CountUntil, Counts, OverloadSpec, Place, Reason, Refusal, Released,
    Sample, Samples, Ticket,
};
use crate::time::{Clock, Timestamp, cached_now, monotonic};

/// How often a waiting request looks for others that have waited for too long.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// The most routes of an upstream whose latencies are distinguished.
const MAX_ROUTES: usize = 256;

/// A moment of the monotonic clock, and the wall time then: all upstreams test their limits by the same clock.
static ANCHOR: LazyLock<(Instant, Timestamp)> = LazyLock::new(|| (cached_now(), Clock::Monotonic.now()));

/// The admission of requests to one upstream, over all workers.
#[derive(Debug)]
pub(super) struct Overload {
    pub spec: OverloadSpec,
    admission: Admission<oneshot::Sender<Answer>>,
    /// The names of the routes whose latencies are known, by their index. Routes of later configurations have others.
    routes: Mutex<Vec<Box<str>>>,
}

/// What a waiting request gets.
type Answer = Result<HeldPlace, Refusal>;

/// A request in flight that the limit counts, until this is dropped.
#[derive(Debug)]
pub(super) struct HeldPlace {
    overload: Arc<Overload>,
    /// None while it is dropped.
    place: Option<Place>,
}

/// A request in the queue, until this is dropped.
struct Waiting<'o> {
    overload: &'o Arc<Overload>,
    ticket: Ticket,
}

impl Overload {
    /// An admission that has learned nothing yet.
    pub fn new(spec: &OverloadSpec) -> Arc<Self> {
        let admission = Admission::new(spec, None, now());
        Arc::new(Self { spec: spec.clone(), admission, routes: Mutex::default() })
    }

    /// The successor after a reload: the same if the configuration is, so that it counts all requests in flight, or else one
    /// with what this has learned.
    pub fn after(previous: &Arc<Self>, spec: &OverloadSpec) -> Arc<Self> {
        // Only an admission that has learned nothing reads the number of servers.
        if (OverloadSpec { servers: spec.servers, ..previous.spec.clone() }) == *spec {
            return Arc::clone(previous);
        }
        let learned = previous.admission.learned();
        let admission = Admission::new(spec, learned.as_ref(), now());
        Arc::new(Self { spec: spec.clone(), admission, routes: Mutex::new(previous.routes.lock().clone()) })
    }

    /// The index under which the latencies of a route are known. Those beyond the most have the last one together.
    pub fn route_index(&self, name: &str) -> u32 {
        let mut routes = self.routes.lock();
        let known = routes.iter().position(|route| **route == *name);
        let index = known.unwrap_or_else(|| {
            if routes.len() < MAX_ROUTES {
                routes.push(name.into());
            }
            routes.len() - 1
        });
        u32::try_from(index).unwrap_or_default()
    }

    /// Values for metrics.
    pub fn counts(&self) -> Counts {
        self.admission.counts()
    }

    /// The refusal of a request for which the queue has no room; none if it may take a place or wait.
    pub fn refuse_at_once(&self, arrival: Arrival) -> Option<Refusal> {
        self.admission.refuse_at_once(arrival)
    }

    /// Whether a request of this class that comes soon may have to wait.
    pub fn may_have_to_wait(&self, class: Class) -> bool {
        self.admission.may_have_to_wait(class)
    }

    /// A place for a request, if there is room and no request waits.
    pub fn try_admit(self: &Arc<Self>, arrival: Arrival) -> Option<HeldPlace> {
        self.admission.try_admit(arrival).map(|place| self.hold(place))
    }

    /// The longest that a request waits for a place.
    pub fn pending_timeout(&self) -> Duration {
        Duration::from_micros(self.spec.pending_timeout.0)
    }

    /// Waits for a place, until `deadline` at most.
    pub async fn wait(self: &Arc<Self>, arrival: Arrival, deadline: Instant) -> Answer {
        let (sender, mut answer) = oneshot::channel();
        let mut released = Vec::new();
        let arrived = self.admission.arrive(arrival, sender, now(), &mut released);
        self.tell(released);
        let ticket = match arrived {
            Arrived::Admitted(_, place) => return Ok(self.hold(place)),
            Arrived::Refused(_, refusal) => return Err(refusal),
            Arrived::Queued(ticket) => ticket,
        };
        let _waiting = Waiting { overload: self, ticket };
        loop {
            let check = deadline.min(cached_now() + CHECK_INTERVAL);
            let answered = timeout_at(check, &mut answer).await;
            if let Ok(answer) = answered {
                let _ = monotonic();
                return answer.unwrap_or(Err(timed_out(arrival)));
            }
            if monotonic() >= deadline {
                return Err(timed_out(arrival));
            }
            self.expire();
        }
    }

    /// A place for a request that must not wait any more, if there is room of its class.
    pub fn admit_late(self: &Arc<Self>, arrival: Arrival) -> Answer {
        let mut released = Vec::new();
        let answer = self.admission.arrive_late(arrival, &mut released);
        self.tell(released);
        answer.map(|place| self.hold(place))
    }

    /// Records how a request has ended, for the limit.
    pub fn record(&self, samples: &mut Samples, sample: Sample) {
        self.admission.record(samples, sample, now());
    }

    /// Refuses the requests that have waited for too long.
    fn expire(self: &Arc<Self>) {
        let mut released = Vec::new();
        self.admission.expire(now(), &mut released);
        self.tell(released);
    }

    fn finish(self: &Arc<Self>, place: Place) {
        if self.admission.give_back(place) {
            self.expire();
        }
    }

    fn hold(self: &Arc<Self>, place: Place) -> HeldPlace {
        HeldPlace { overload: Arc::clone(self), place: Some(place) }
    }

    /// Tells requests that they don't wait any more. The place of one that has left is given back when its answer is dropped.
    fn tell(self: &Arc<Self>, released: Vec<Released<oneshot::Sender<Answer>>>) {
        for released in released {
            let _ = match released {
                Released::Admitted(waiter, place) => waiter.send(Ok(self.hold(place))),
                Released::Refused(waiter, refusal) => waiter.send(Err(refusal)),
            };
        }
    }
}

impl HeldPlace {
    /// Whether it was taken above the limit, in shadow mode.
    pub fn is_above_limit(&self) -> bool {
        self.place.as_ref().is_some_and(Place::is_above_limit)
    }

    /// The place after the head of the response has arrived: none unless the request counts until its end.
    pub fn after_head(self) -> Option<Self> {
        (self.overload.spec.count == CountUntil::End).then_some(self)
    }
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.overload.finish(place);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let _ = self.overload.admission.leave(self.ticket);
    }
}

/// The time of the cached clock.
fn now() -> Timestamp {
    let (anchor, time) = *ANCHOR;
    time.after(cached_now().saturating_duration_since(anchor).into())
}

fn timed_out(arrival: Arrival) -> Refusal {
    Refusal { class: arrival.class, reason: Reason::TimedOut }
}
