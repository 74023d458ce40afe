//! One process: its proxy, its clock, and its network.

use crate::limit::Charge;
use crate::limiter::limits::Limits;
use crate::limiter::{ProxyCall, ProxyDecision, SimulatedProxy, SimulatedReply};
use crate::store::Granted;
use crate::time::{BootTime, Micros};

/// The network and the clock of a process.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// How long a message to the store or from it takes on average.
    pub travel: Micros,
    /// By how many millionths the clock is too fast.
    pub drift: i64,
}

/// A process between two events.
pub struct Process {
    pub place: Place,
    /// How often it has crashed. Replies to calls before that are lost.
    pub crashes: u32,
    proxy: SimulatedProxy,
}

/// A call to the store.
pub struct Call {
    pub process: usize,
    pub crashes: u32,
    pub sent: ProxyCall,
}

/// What a process does with a request.
pub struct Response {
    pub verdict: Verdict,
    /// Calls to the store.
    pub calls: Vec<Call>,
}

/// How a request is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passes at once.
    Admitted,
    /// It is denied at once.
    Denied,
    /// It waits for the decision of the store.
    Waiting,
}

impl Process {
    /// A process that has just started.
    pub fn new(place: Place) -> Self {
        Self { place, crashes: 0, proxy: SimulatedProxy::default() }
    }

    /// It loses its grants and cached denials.
    pub fn crash(&mut self) {
        *self = Self { crashes: self.crashes + 1, ..Self::new(self.place) };
    }

    /// Its clock at a time of the simulation.
    fn clock(&self, now: u64) -> BootTime {
        let million = 1_000_000;
        let rate = u64::try_from(million + self.place.drift).unwrap();
        // Some time after the start of the machine.
        BootTime(60_000_000 + now * rate / million.unsigned_abs())
    }

    /// Decides a request.
    pub fn decide(&mut self, limits: &Limits, charge: &Charge, (process, now): (usize, u64)) -> Response {
        let SimulatedReply { decision, refills } = self.proxy.decide(limits, &[*charge], self.clock(now));
        let mut calls: Vec<ProxyCall> = refills.into_vec();
        let verdict = match decision {
            ProxyDecision::Allowed(_) => Verdict::Admitted,
            ProxyDecision::Denied(..) => Verdict::Denied,
            ProxyDecision::Waiting(call) => {
                calls.push(*call);
                Verdict::Waiting
            }
        };
        Response { verdict, calls: self.sent(process, calls) }
    }

    /// The reply to a call arrives.
    pub fn receive(&mut self, limits: &Limits, call: Call, granted: &Granted, now: u64) {
        if call.crashes == self.crashes {
            self.proxy.receive(limits, call.sent, granted, self.clock(now));
        }
    }

    /// Returns the grants that would lapse.
    pub fn sweep(&mut self, process: usize, now: u64) -> Vec<Call> {
        self.sent(process, self.proxy.sweep(self.clock(now)))
    }

    fn sent(&self, process: usize, calls: Vec<ProxyCall>) -> Vec<Call> {
        calls.into_iter().map(|sent| Call { process, crashes: self.crashes, sent }).collect()
    }
}
