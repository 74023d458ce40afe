//! The events of a simulation.

use std::time::Duration;

use tidegate_limit::time::{Nanos, Timestamp};

use super::super::admission::{Admission, Arrived, Released};
use super::super::class::{Arrival, Class};
use super::super::places::Place;
use super::super::samples::{Outcome, Sample, Samples};
use super::super::spec::{CountUntil, OverloadSpec};
use super::events::{Event, Events};
use super::measure::{Run, Trace, calm_p99};
use super::random::Random;
use super::request::{Ending, Request};
use super::scenario::Scenario;
use super::server::Server;

/// Seconds between two points of the trace.
const TRACE: f64 = 0.1;
/// The time of the first event: some time of the wall clock.
const START: u64 = 1_800_000_000_000_000;

struct Proxy {
    admission: Admission<u32>,
    samples: Vec<Samples>,
    /// Requests at each server.
    at: Vec<usize>,
    /// When its queue will be looked at.
    expires: f64,
}

struct World<'s> {
    scenario: &'s Scenario,
    random: Random,
    events: Events,
    servers: Vec<Server>,
    proxies: Vec<Proxy>,
    requests: Vec<Request>,
    trace: Vec<Trace>,
    released: Vec<Released<u32>>,
    now: f64,
    capacity: f64,
}

/// Runs a scenario. The same seed gives the same result.
#[must_use]
pub fn run(scenario: &Scenario, seed: u64) -> Run {
    let calm_p99 = if scenario.admission.is_some() { calm_p99(scenario, seed) } else { f64::NAN };
    let mut world = World::new(scenario, seed);
    world.plan();
    while let Some((time, event)) = world.events.next() {
        world.now = time;
        world.happen(event);
    }
    Run { requests: world.requests, trace: world.trace, capacity: world.capacity, calm_p99 }
}

/// The time as the library counts it.
fn timestamp(seconds: f64) -> Timestamp {
    Timestamp(START).after(Duration::from_secs_f64(seconds).into())
}

impl<'s> World<'s> {
    fn new(scenario: &'s Scenario, seed: u64) -> Self {
        // Without admission, a fixed limit that is never reached does the same.
        let none = OverloadSpec {
            limit: super::super::spec::LimitSpec::Fixed(OverloadSpec::MAX_LIMIT),
            ..OverloadSpec::default()
        };
        let spec = scenario.admission.as_ref().unwrap_or(&none);
        let proxy = |_| Proxy {
            admission: Admission::new(spec, None, timestamp(0.0)),
            samples: vec![Samples::new(); scenario.workers.max(1)],
            at: vec![0; scenario.servers],
            expires: f64::MAX,
        };
        Self {
            scenario,
            random: Random::new(seed),
            events: Events::default(),
            servers: (0..scenario.servers)
                .map(|_| Server::new(scenario.slots, scenario.discipline))
                .collect(),
            proxies: scenario.proxies.iter().map(proxy).collect(),
            requests: Vec::new(),
            trace: Vec::new(),
            released: Vec::new(),
            now: 0.0,
            capacity: scenario.capacity(),
        }
    }

    fn plan(&mut self) {
        for (index, change) in self.scenario.changes.iter().enumerate() {
            self.events.add(change.at, Event::Change(index));
        }
        for group in 0..self.scenario.groups.len() {
            self.events.add(0.0, Event::Arrive(group));
        }
        self.events.add(0.0, Event::Trace);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrive(group) => self.arrive(group),
            Event::Retry(request) => self.retry(request),
            Event::Complete(server, version) => self.complete(server, version),
            Event::Head(request) => self.head(request),
            Event::End(request) => self.end(request),
            Event::GiveUp(request) => self.give_up(request),
            Event::Expire(proxy) => {
                self.proxies[proxy].expires = f64::MAX;
                self.proxies[proxy].admission.expire(timestamp(self.now), &mut self.released);
                self.release(proxy);
            }
            Event::Change(index) => {
                let change = self.scenario.changes[index];
                self.servers[change.server].set_speed(change.speed, self.now);
                self.plan_completion(change.server);
            }
            Event::Trace => self.record_trace(),
        }
    }

    /// Takes a request from a Poisson process at the highest rate of the group, with the part that its present rate has of it.
    fn arrive(&mut self, index: usize) {
        let group = &self.scenario.groups[index];
        let (load, most) = (group.load.at(self.now), group.load.most());
        if self.now > self.scenario.seconds || most <= 0.0 {
            return;
        }
        let pause = self.random.exponential() / (self.capacity * most);
        self.events.add(self.now + pause, Event::Arrive(index));
        if self.random.unit() * most >= load {
            return;
        }
        let route = group
            .route
            .unwrap_or_else(|| choose(self.scenario.routes.iter().map(|route| route.part), &mut self.random));
        let tenant = self.random.below(group.tenants);
        let request = Request {
            arrived: self.now,
            ended: 0.0,
            ending: Ending::None,
            group: index,
            class: group.class,
            tries: 0,
            key: (index * 1_000_003 + tenant) as u64,
            route,
            proxy: choose(self.scenario.proxies.iter().copied(), &mut self.random),
            server: 0,
            sent: 0.0,
            work: self.scenario.routes[route].service.draw(&mut self.random),
            ticket: None,
            place: None,
        };
        self.admit(request);
    }

    fn retry(&mut self, index: u32) {
        let old = &self.requests[index as usize];
        let request = Request {
            arrived: self.now,
            ended: 0.0,
            ending: Ending::None,
            tries: old.tries + 1,
            sent: 0.0,
            ticket: None,
            place: None,
            ..*old
        };
        self.admit(request);
    }

    fn admit(&mut self, request: Request) {
        let index = u32::try_from(self.requests.len()).unwrap_or(u32::MAX);
        let (proxy, arrival) = (request.proxy, Arrival { class: request.class, key: request.key });
        self.requests.push(request);
        self.events.add(self.now + self.scenario.client_timeout, Event::GiveUp(index));
        let admission = &self.proxies[proxy].admission;
        if admission.refuse_at_once(arrival).is_some() {
            return self.refuse(index);
        }
        match admission.arrive(arrival, index, timestamp(self.now), &mut self.released) {
            Arrived::Admitted(index, place) => self.send(index, place),
            Arrived::Queued(ticket) => self.requests[index as usize].ticket = Some(ticket),
            Arrived::Refused(index, _) => self.refuse(index),
        }
        self.release(proxy);
    }

    /// Sends or ends the requests that no longer wait.
    fn release(&mut self, proxy: usize) {
        for released in std::mem::take(&mut self.released) {
            match released {
                Released::Admitted(index, place) => self.send(index, place),
                Released::Refused(index, _) => self.refuse(index),
            }
        }
        if let Some(deadline) = self.proxies[proxy].admission.deadline() {
            let seconds = deadline.since(Timestamp(START)).as_secs_f64().max(self.now);
            if seconds < self.proxies[proxy].expires {
                self.proxies[proxy].expires = seconds;
                self.events.add(seconds, Event::Expire(proxy));
            }
        }
    }

    fn refuse(&mut self, index: u32) {
        let request = &mut self.requests[index as usize];
        (request.ending, request.ended, request.ticket) = (Ending::Refused, self.now, None);
        if let Some(retry) = self.scenario.retry.filter(|retry| request.tries < retry.times) {
            let pause = retry.after * (1.0 + 2.0 * self.random.unit());
            self.events.add(self.now + pause, Event::Retry(index));
        }
    }

    /// Sends a request to the server with the fewest of this proxy.
    fn send(&mut self, index: u32, place: Place) {
        let request = &mut self.requests[index as usize];
        let proxy = &mut self.proxies[request.proxy];
        let first = self.random.below(self.scenario.servers);
        let order = (0..self.scenario.servers).map(|server| (server + first) % self.scenario.servers);
        let server = order.min_by_key(|server| proxy.at[*server]).unwrap_or(0);
        proxy.at[server] += 1;
        (request.server, request.sent, request.ticket, request.place) = (server, self.now, None, Some(place));
        self.servers[server].add(index, request.work, self.now);
        self.plan_completion(server);
    }

    fn plan_completion(&mut self, server: usize) {
        if let Some(time) = self.servers[server].next() {
            self.events.add(time, Event::Complete(server, self.servers[server].version));
        }
    }

    fn complete(&mut self, server: usize, version: u32) {
        if self.servers[server].version != version {
            return;
        }
        if let Some(index) = self.servers[server].complete(self.now) {
            let noise = self.scenario.noise;
            let is_late = noise > 0.0 && self.random.unit() < noise;
            let late = if is_late { 0.05 * self.random.unit().powf(-1.0 / 1.2) } else { 0.0 };
            let delay = self.scenario.routes[self.requests[index as usize].route].delay;
            self.events.add(self.now + self.scenario.latency.at(self.now) + delay + late, Event::Head(index));
        }
        self.plan_completion(server);
    }

    fn head(&mut self, index: u32) {
        if self.requests[index as usize].ending != Ending::None {
            return;
        }
        let request = &mut self.requests[index as usize];
        (request.ending, request.ended) = (Ending::Served, self.now);
        let stream = self.scenario.routes[request.route].stream;
        let proxy = request.proxy;
        self.sample(index, Outcome::Response);
        self.proxies[proxy].at[self.requests[index as usize].server] -= 1;
        let until_end = self.scenario.admission.as_ref().is_some_and(|spec| spec.count == CountUntil::End);
        if until_end && stream > 0.0 {
            let pause = stream * self.random.exponential();
            self.events.add(self.now + pause, Event::End(index));
        } else {
            self.end(index);
        }
    }

    fn sample(&mut self, index: u32, outcome: Outcome) {
        let request = &self.requests[index as usize];
        let latency = Nanos::from(Duration::from_secs_f64(self.now - request.sent));
        let route = u32::try_from(request.route).unwrap_or(0);
        let sample = Sample { route, key: request.key, latency, outcome };
        let proxy = &mut self.proxies[request.proxy];
        let worker = index as usize % proxy.samples.len();
        proxy.admission.record(&mut proxy.samples[worker], sample, timestamp(self.now));
    }

    fn end(&mut self, index: u32) {
        let request = &mut self.requests[index as usize];
        let proxy = request.proxy;
        if let Some(place) = request.place.take() {
            self.proxies[proxy].admission.finish(place, timestamp(self.now), &mut self.released);
            self.release(proxy);
        }
    }

    /// The client gives up; a server that has the request works at it until its end.
    fn give_up(&mut self, index: u32) {
        let request = &mut self.requests[index as usize];
        if request.ending != Ending::None {
            return;
        }
        (request.ending, request.ended) = (Ending::TimedOut, self.now);
        let proxy = request.proxy;
        if let Some(ticket) = request.ticket.take() {
            self.proxies[proxy].admission.leave(ticket);
        } else {
            self.proxies[proxy].at[request.server] -= 1;
            self.sample(index, Outcome::Failure);
            self.end(index);
        }
    }

    fn record_trace(&mut self) {
        let mut trace =
            Trace { time: self.now, limit: 0, in_flight: 0, waiting: 0, refused: [0; Class::COUNT] };
        for proxy in &self.proxies {
            let counts = proxy.admission.counts();
            trace.limit += counts.limit;
            trace.in_flight += counts.in_flight_total();
            trace.waiting += counts.waiting_total();
            for (sum, refused) in trace.refused.iter_mut().zip(counts.refused) {
                *sum += refused.iter().sum::<u64>();
            }
        }
        self.trace.push(trace);
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let next = self.trace.len() as f64 * TRACE;
        if next < self.scenario.seconds + TRACE / 2.0 {
            self.events.add(next, Event::Trace);
        }
    }
}

/// An index by the part of each.
fn choose(parts: impl Iterator<Item = f64> + Clone, random: &mut Random) -> usize {
    let mut left = random.unit() * parts.clone().sum::<f64>();
    let mut last = 0;
    for (index, part) in parts.enumerate() {
        last = index;
        left -= part;
        if left <= 0.0 {
            break;
        }
    }
    last
}
