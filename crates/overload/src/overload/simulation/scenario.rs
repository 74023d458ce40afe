//! What is simulated.

use super::super::class::Class;
use super::super::spec::OverloadSpec;
use super::random::Random;

/// How a server works at several requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Discipline {
    /// One request in each slot, others wait in the order of their arrival: a pool of processes.
    #[default]
    Fifo,
    /// All requests at once, more slowly if there are more than slots: threads on cores.
    ProcessorSharing,
}

/// The work of a request, in seconds of one slot.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Service {
    /// Always the same.
    Constant(f64),
    /// Exponential with this mean.
    Exponential(f64),
    /// Log-normal with this mean, and with 1 as the deviation of its logarithm.
    LogNormal(f64),
}

impl Service {
    /// The mean.
    #[must_use]
    pub fn mean(self) -> f64 {
        let (Self::Constant(mean) | Self::Exponential(mean) | Self::LogNormal(mean)) = self;
        mean
    }

    /// A route that all requests use.
    #[must_use]
    pub fn only(self) -> Vec<Route> {
        vec![Route { part: 1.0, service: self, delay: 0.0, stream: 0.0 }]
    }

    pub(super) fn draw(self, random: &mut Random) -> f64 {
        match self {
            Self::Constant(mean) => mean,
            Self::Exponential(mean) => mean * random.exponential(),
            Self::LogNormal(mean) => mean * (random.normal() - 0.5).exp(),
        }
    }
}

/// Requests of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// The part of the requests of a group that chooses routes by parts.
    pub part: f64,
    /// The work until the head of the response.
    pub service: Service,
    /// Seconds that the response takes besides, without a slot: it waits for something else than this server.
    pub delay: f64,
    /// Seconds from the head of the response to its end, on average. They take no slot.
    pub stream: f64,
}

/// A load that changes with time: from each time on, a multiple of the capacity, until the next.
#[derive(Clone, Debug, Default)]
pub struct Load(pub Vec<(f64, f64)>);

impl Load {
    /// The same for all times.
    #[must_use]
    pub fn constant(load: f64) -> Self {
        Self(vec![(0.0, load)])
    }

    /// At a time.
    #[must_use]
    pub fn at(&self, time: f64) -> f64 {
        self.0.iter().rev().find(|(from, _)| *from <= time).map_or(0.0, |(_, load)| *load)
    }

    pub(super) fn most(&self) -> f64 {
        self.0.iter().map(|(_, load)| *load).fold(0.0, f64::max)
    }

    /// Each load times `factor`.
    #[must_use]
    pub fn times(&self, factor: f64) -> Self {
        Self(self.0.iter().map(|(from, load)| (*from, load * factor)).collect())
    }
}

/// Clients that behave alike.
#[derive(Clone, Debug)]
pub struct Group {
    /// The rate at which new requests come, relative to the capacity of the servers.
    pub load: Load,
    /// The number of fair keys.
    pub tenants: usize,
    /// Their class.
    pub class: Class,
    /// The index of the only route that they use; none for all by their parts.
    pub route: Option<usize>,
}

/// Clients that repeat a refused request.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// How often.
    pub times: u8,
    /// After this many seconds at least; up to three times as many.
    pub after: f64,
}

/// A change of a server.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// When.
    pub at: f64,
    /// The index of the server.
    pub server: usize,
    /// Its speed from then on, 1 at first.
    pub speed: f64,
}

/// A simulation.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The number of servers.
    pub servers: usize,
    /// Slots, or cores, of each.
    pub slots: usize,
    /// How they work.
    pub discipline: Discipline,
    /// The kinds of requests.
    pub routes: Vec<Route>,
    /// The clients.
    pub groups: Vec<Group>,
    /// The part of the requests that each proxy gets.
    pub proxies: Vec<f64>,
    /// The workers of each proxy.
    pub workers: usize,
    /// The admission of each proxy; none admits all.
    pub admission: Option<OverloadSpec>,
    /// Whether clients repeat refused requests.
    pub retry: Option<Retry>,
    /// After this many seconds clients give up.
    pub client_timeout: f64,
    /// Changes of the servers.
    pub changes: Vec<Change>,
    /// Latency that is not caused by load, in seconds.
    pub latency: Load,
    /// The part of the responses with a random delay of 50 ms and more (Pareto, 1.2).
    pub noise: f64,
    /// The time after which no new requests come.
    pub seconds: f64,
}

impl Scenario {
    /// The requests in a second that the servers can answer.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    pub fn capacity(&self) -> f64 {
        let parts: f64 = self.routes.iter().map(|route| route.part).sum();
        let work: f64 = self.routes.iter().map(|route| route.part / parts * route.service.mean()).sum();
        (self.servers * self.slots) as f64 / work
    }

    /// 50 tenants of the default class, with any route.
    #[must_use]
    pub fn group(load: Load) -> Group {
        Group { load, tenants: 50, class: Class::Normal, route: None }
    }

    /// Four servers with four slots and 20 ms, 50 tenants, and a load of a half without an end.
    #[must_use]
    pub fn calm() -> Self {
        Self {
            servers: 4,
            slots: 4,
            discipline: Discipline::Fifo,
            routes: Service::Exponential(0.02).only(),
            groups: vec![Self::group(Load::constant(0.5))],
            proxies: vec![1.0],
            workers: 2,
            admission: Some(OverloadSpec { servers: 4, ..OverloadSpec::default() }),
            retry: None,
            client_timeout: 10.0,
            changes: Vec::new(),
            latency: Load::default(),
            noise: 0.0,
            seconds: 60.0,
        }
    }

    /// As [`Self::calm`] for 10 seconds, then `load` for 30 seconds, then calm for 15.
    #[must_use]
    pub fn step(load: f64) -> Self {
        let mut scenario = Self::calm();
        scenario.groups[0].load = Load(vec![(0.0, 0.5), (10.0, load), (40.0, 0.5)]);
        scenario.seconds = 55.0;
        scenario
    }
}
