//! A proxy of a simulation: the grants and the cached denials of a process, on a virtual clock. Its caller carries the calls to
//! a store and the replies back.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::SmallVec;
use tokio::time::Instant;

use super::denial_cache::{CacheLookup, DenialCache};
use super::grants::{self, GrantRequests, GrantTable, ReturnedGrant, SplitCharges, TakenUnits};
use super::limits::Limits;
use super::status::LimitStatuses;
use crate::limit::{Charge, DecidedCharge, DecidedCharges, GrantRequest, Key, Policy};
use crate::store::Granted;
use crate::telemetry::{DecisionSource, GrantValues};
use crate::time::{BootTime, Micros, monotonic};

/// A proxy of a simulation. It decides requests as the `Limiter` does while Redis is available.
#[derive(Debug)]
pub struct SimulatedProxy {
    grants: Arc<GrantTable>,
    denials: DenialCache,
    /// The monotonic clock when the virtual clock was zero.
    origin: Instant,
}

/// What a proxy does with a request.
#[derive(Debug)]
pub struct SimulatedReply {
    /// How the request is decided.
    pub decision: ProxyDecision,
    /// Calls in the background, each of which requests a grant.
    pub refills: SmallVec<[ProxyCall; 1]>,
}

/// How a proxy decides a request.
#[derive(Debug)]
pub enum ProxyDecision {
    /// Held grants allow it, with these decisions in the order of its charges.
    Allowed(Vec<DecidedCharge>),
    /// It is denied without a call, by these limits.
    Denied(LimitStatuses, DecisionSource),
    /// The store must decide it.
    Waiting(Box<ProxyCall>),
}

/// A call of a proxy to the store.
#[derive(Debug)]
pub struct ProxyCall {
    charges: SmallVec<[Charge; 2]>,
    requests: SmallVec<[GrantRequest; 2]>,
    grant_requests: Option<GrantRequests>,
    /// The units that the request which waits for the call has taken from held grants, and when the call was sent.
    waiting: Option<(TakenUnits, CacheLookup)>,
    returned: Vec<ReturnedGrant>,
}

impl ProxyCall {
    /// Its charges.
    #[must_use]
    pub fn charges(&self) -> &[Charge] {
        &self.charges
    }

    /// The grant requests of its charges of the kind `Grant`, in their order.
    #[must_use]
    pub fn requests(&self) -> &[GrantRequest] {
        &self.requests
    }

    /// Whether a request waits for it. The store must make all of its charges or none.
    #[must_use]
    pub fn decides_request(&self) -> bool {
        self.waiting.is_some()
    }

    fn new(charges: &[Charge], grant_requests: GrantRequests) -> Self {
        Self {
            charges: charges.into(),
            requests: grant_requests.requests.clone(),
            grant_requests: Some(grant_requests),
            waiting: None,
            returned: Vec::new(),
        }
    }
}

impl Default for SimulatedProxy {
    fn default() -> Self {
        Self { grants: Arc::default(), denials: DenialCache::default(), origin: monotonic() }
    }
}

impl SimulatedProxy {
    /// Decides a request. None of its charges may be of a concurrency limit.
    #[must_use]
    pub fn decide(&self, limits: &Limits, charges: &[Charge], now: BootTime) -> SimulatedReply {
        if let Some(denials) = limits.impossible(charges) {
            let decision = ProxyDecision::Denied(denials, DecisionSource::Config);
            return SimulatedReply { decision, refills: SmallVec::new() };
        }
        let SplitCharges { taken, missing, low } =
            grants::take_units(&self.grants, limits, charges, None, now);
        let refills = low.iter().filter_map(|charge| self.refill(limits, charge, now)).collect();
        SimulatedReply { decision: self.decide_split(limits, taken, &missing, now), refills }
    }

    fn decide_split(
        &self,
        limits: &Limits,
        taken: TakenUnits,
        missing: &[Charge],
        now: BootTime,
    ) -> ProxyDecision {
        if taken.denies(&limits.policies) {
            let others = self.denials.shown(&limits.policies, missing, self.instant(now));
            let statuses = taken.deny(&limits.policies, others, now);
            return ProxyDecision::Denied(statuses, DecisionSource::Ahead);
        }
        if missing.is_empty() {
            let decided = taken.decided();
            taken.charge();
            return ProxyDecision::Allowed(decided.into_vec());
        }
        if let Some(known) = self.denials.check(&limits.policies, missing, self.instant(now)) {
            let statuses = taken.deny(&limits.policies, known, now);
            return ProxyDecision::Denied(statuses, DecisionSource::Cache);
        }
        let lookup = self.denials.lookup(self.instant(now));
        let (charges, grant_requests) = grants::request_grants_at(&self.grants, limits, missing, true, now);
        let call = ProxyCall { waiting: Some((taken, lookup)), ..ProxyCall::new(&charges, grant_requests) };
        ProxyDecision::Waiting(Box::new(call))
    }

    /// The call that requests another grant for the key of `charge`; `None` if none is wanted.
    fn refill(&self, limits: &Limits, charge: &Charge, now: BootTime) -> Option<ProxyCall> {
        let charge = grants::refill_charge(charge);
        let (_, grant_requests) = grants::request_grants_at(&self.grants, limits, &[charge], true, now);
        grant_requests.wants_grants().then(|| ProxyCall::new(&[charge], grant_requests))
    }

    /// Receives the reply to a call. Returns the decisions on all charges of the request that has waited for it, in their
    /// order; `None` if no request has.
    pub fn receive(
        &self,
        limits: &Limits,
        call: ProxyCall,
        granted: &Granted,
        now: BootTime,
    ) -> Option<DecidedCharges> {
        let ProxyCall { charges, grant_requests, waiting, returned, .. } = call;
        grants::count_returned(&returned, &granted.decisions);
        let decided = DecidedCharge::join(&charges, &granted.decisions);
        let (taken, lookup) = waiting.unzip();
        if let Some(lookup) = lookup {
            self.denials.record(&limits.policies, &decided, lookup);
        }
        let decided = grant_requests?.receive(limits, &decided, &granted.grants, now);
        let taken = taken?;
        let decided = taken.join(decided);
        if decided.iter().any(|one| !one.decision.allowed && !limits.policy(&one.charge).shadow) {
            taken.put_back_all(now);
        } else {
            taken.charge();
        }
        Some(decided)
    }

    /// The calls that return grants which would lapse; makes a sweep if it is time for one.
    #[must_use]
    pub fn sweep(&self, now: BootTime) -> Vec<ProxyCall> {
        if self.grants.is_sweep_due(now) {
            self.grants.sweep(now);
        }
        let mut lasting = grants::take_lasting(&self.grants, now);
        let mut calls = Vec::new();
        while !lasting.is_empty() {
            let returned = lasting.split_off(lasting.len().saturating_sub(grants::MAX_RETURNED));
            let (charges, requests) = grants::return_charges(&returned);
            let (charges, requests) = (charges.into(), requests.into());
            calls.push(ProxyCall { charges, requests, grant_requests: None, waiting: None, returned });
        }
        calls
    }

    /// The time between two sweeps; `None` while there are no grants.
    #[must_use]
    pub fn sweep_interval(&self) -> Option<Micros> {
        Some(self.grants.next_sweep().0).filter(|interval| *interval < Micros(u64::MAX))
    }

    /// How many units of a key are held.
    #[must_use]
    pub fn held_units(&self, policy: &Policy, key: Key, now: BootTime) -> u64 {
        self.grants.held_units(policy, key, now)
    }

    /// The counts of granted units of each limit, and the units that are held.
    #[must_use]
    pub fn grant_values(&self) -> BTreeMap<Box<str>, GrantValues> {
        self.grants.values()
    }

    fn instant(&self, now: BootTime) -> Instant {
        self.origin + now.since(BootTime::default()).into()
    }
}

#[cfg(test)]
mod tests;
