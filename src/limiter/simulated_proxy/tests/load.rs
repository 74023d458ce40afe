//! The requests of a simulation.

use crate::time::Micros;

/// A part of a simulation with a constant demand.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    pub length: Micros,
    /// How many requests come in it, at random times.
    pub requests: u64,
    pub target: Target,
    /// Whether they cost up to five units, or one.
    pub has_costs: bool,
}

/// The processes that get the requests.
#[derive(Clone, Copy, Debug)]
pub enum Target {
    All,
    /// Nine in ten requests go to this one.
    Mostly(usize),
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// From the start of the simulation.
    pub at: u64,
    pub process: usize,
    pub cost: u64,
}

impl Phase {
    /// Requests of one unit to all processes.
    pub fn new(length: Micros, requests: u64) -> Self {
        Self { length, requests, target: Target::All, has_costs: false }
    }

    /// The requests of this phase if it begins at `start`.
    fn arrivals(self, start: u64, processes: usize, random: &mut fastrand::Rng) -> Vec<Arrival> {
        let arrival = |_| Arrival {
            at: start + random.u64(0..=self.length.0),
            process: match self.target {
                Target::Mostly(process) if random.u8(..10) > 0 => process % processes,
                _ => random.usize(..processes),
            },
            cost: if self.has_costs { [1, 1, 1, 2, 3, 5][random.usize(..6)] } else { 1 },
        };
        (0..self.requests).map(arrival).collect()
    }
}

/// The requests of all phases, one after the other.
pub fn arrivals(phases: &[Phase], processes: usize, random: &mut fastrand::Rng) -> Vec<Arrival> {
    let (mut start, mut all) = (0, Vec::new());
    for phase in phases {
        all.extend(phase.arrivals(start, processes, random));
        start += phase.length.0;
    }
    all
}
