//! One process: its grants, its cached denials, its clock, and its connection to the store.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use tokio::time::Instant;

use crate::limit::{Charge, GrantRequest};
use crate::limiter::denial_cache::{CacheLookup, DenialCache};
use crate::limiter::grants::grant_requests::{GrantRequests, request_grants_at};
use crate::limiter::grants::refill::refill_charge;
use crate::limiter::grants::returns::reports;
use crate::limiter::grants::taken_units::take_units;
use crate::limiter::limits::Limits;
use crate::limiter::{GrantTable, grants};
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
    table: Arc<GrantTable>,
    denials: DenialCache,
    /// The monotonic clock at the start of the simulation.
    started: Instant,
}

/// A call to the store.
pub struct Call {
    pub process: usize,
    pub crashes: u32,
    pub charges: SmallVec<[Charge; 4]>,
    pub requests: SmallVec<[GrantRequest; 2]>,
    /// What to do with the reply: none if grants are returned.
    grant_requests: Option<GrantRequests>,
    /// If the call decides a request.
    lookup: Option<CacheLookup>,
}

/// What a process does with a request.
pub struct Response {
    pub verdict: Verdict,
    /// Calls to the store.
    pub calls: SmallVec<[Call; 2]>,
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
    pub fn new(place: Place, started: Instant) -> Self {
        Self { place, crashes: 0, table: Arc::default(), denials: DenialCache::default(), started }
    }

    /// It loses its grants and cached denials.
    pub fn crash(&mut self) {
        let crashes = self.crashes + 1;
        *self = Self { crashes, ..Self::new(self.place, self.started) };
    }

    /// Its clock at a time of the simulation.
    fn clock(&self, now: u64) -> BootTime {
        let million = 1_000_000;
        let rate = u64::try_from(million + self.place.drift).unwrap();
        // Some time after the start of the machine.
        BootTime(60_000_000 + now * rate / million.unsigned_abs())
    }

    fn instant(&self, now: u64) -> Instant {
        self.started + Duration::from_micros(self.clock(now).0)
    }

    /// Decides a request as [`crate::limiter::Limiter::decide`] does.
    pub fn decide(&mut self, limits: &Limits, charge: &Charge, (number, now): (usize, u64)) -> Response {
        let clock = self.clock(now);
        let split = take_units(&self.table, limits, &[*charge], clock);
        let mut calls = SmallVec::new();
        for charge in &split.low {
            let charge = refill_charge(charge);
            let (_, grant_requests) = request_grants_at(&self.table, limits, &[charge], true, clock);
            if grant_requests.wants_grants() {
                calls.push(self.call(number, &[charge], grant_requests, None));
            }
        }
        let grants::SplitCharges { taken, missing, .. } = split;
        let verdict = if !taken.denials(&limits.policies).is_empty() {
            Verdict::Denied
        } else if missing.is_empty() {
            assert!(taken.pass(&limits.policies).is_none());
            Verdict::Admitted
        } else if self.denials.check(&limits.policies, &missing, self.instant(now)).is_some() {
            Verdict::Denied
        } else {
            let lookup = self.denials.lookup(self.instant(now));
            let (missing, grant_requests) = request_grants_at(&self.table, limits, &missing, true, clock);
            calls.push(self.call(number, &missing, grant_requests, Some(lookup)));
            Verdict::Waiting
        };
        Response { verdict, calls }
    }

    fn call(
        &self,
        process: usize,
        charges: &[Charge],
        grant_requests: GrantRequests,
        lookup: Option<CacheLookup>,
    ) -> Call {
        let requests = grant_requests.requests.clone();
        let charges = SmallVec::from_slice(charges);
        Call {
            process,
            crashes: self.crashes,
            charges,
            requests,
            grant_requests: Some(grant_requests),
            lookup,
        }
    }

    /// The reply to a call arrives.
    pub fn receive(&mut self, limits: &Limits, call: Call, granted: &Granted, now: u64) {
        if call.crashes != self.crashes {
            return;
        }
        if let Some(lookup) = call.lookup {
            self.denials.record(&limits.policies, &call.charges, &granted.decisions, lookup);
        }
        if let Some(grant_requests) = call.grant_requests {
            grant_requests.receive(limits, &call.charges, granted, self.clock(now));
        }
    }

    /// Returns grants as [`grants::run_returns`] does.
    pub fn sweep(&mut self, process: usize, now: u64) -> Option<Call> {
        let clock = self.clock(now);
        if self.table.is_sweep_due(clock) {
            self.table.sweep(clock);
        }
        let mut returned = self.table.take_returned();
        returned.retain(|grant| clock < grant.ends);
        let (charges, requests) = reports(&returned);
        let (charges, requests) = (charges.into(), requests.into());
        let call =
            Call { process, crashes: self.crashes, charges, requests, grant_requests: None, lookup: None };
        (!returned.is_empty()).then_some(call)
    }
}
