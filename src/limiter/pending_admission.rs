//! A request that Redis decides, and what is reserved for it.
//!
//! On the way it reserves what the request may need: units of held grants, slots, and units of the shares of this process. They
//! become part of the admission if the request passes, and are given back otherwise: shares by `admit` and `fail`, all others
//! when the value is dropped, and so also if the client disconnects during the call.

use std::borrow::Cow;

use super::admission::Admission;
use super::denial_cache::CacheLookup;
use super::grants::{self, GrantRequests, TakenUnits};
use super::kept_slots::SlotOwner;
use super::limits::Limits;
use super::local_fallback::{LocalFallback, ShareRefunds};
use super::reservation::{Origin, Reservation};
use super::server_limiter::ServerLimiter;
use super::slots::SlotSet;
use super::status::StatusSource;
use crate::limit::{Charge, DecidedCharges, Policy};
use crate::store::{Grants, Redis, StoreError};
use crate::telemetry::DecisionSource;
use crate::time::{BootTime, cached_now};

/// A request that Redis decides, and what is reserved for it.
pub(super) struct PendingAdmission<'a> {
    limiter: &'a ServerLimiter,
    limits: &'a Limits,
    /// Units that held grants have decided; the other charges of the request are those that Redis decides.
    taken: Option<TakenUnits>,
    /// The refunds of what was taken from the shares of this process.
    shares: ShareRefunds,
    slots: Option<SlotSet>,
    grant_requests: Option<GrantRequests>,
}

impl<'a> PendingAdmission<'a> {
    pub fn new(limiter: &'a ServerLimiter, limits: &'a Limits, taken: Option<TakenUnits>) -> Self {
        Self { limiter, limits, taken, shares: ShareRefunds::new(), slots: None, grant_requests: None }
    }

    /// Decides by Redis; without it if it is unavailable.
    pub async fn decide(mut self, redis: &Redis, charges: &[Charge]) -> Admission {
        // After an outage Redis does not know all charges until every proxy has paid its debts. Until then a request must
        // also fit the share of this process, or several proxies could admit more than the limit.
        let is_settled = self.fallback().is_settled(self.limits, charges);
        if !is_settled {
            match self.fallback().take_shares(self.limits, charges) {
                Ok(shares) => self.shares = shares,
                // Redis is not called: the request is denied whatever its decision would be.
                Err(denied) => return Admission::new(&self.limits.shares, &denied, None),
            }
        }
        let requested = self.reserve(charges, is_settled);
        // Before the call, so that no denial outlives its `retry_after`, or a reset that clears the cache during the call.
        let lookup = self.limiter.denials.lookup(cached_now());
        match self.send(&requested).await {
            Ok((decided, grants)) => {
                self.record(redis, &decided, lookup);
                self.admit(decided, &grants)
            }
            Err(error) => {
                self.limiter.client.record_failure(&error);
                self.fail(charges, Some(&error))
            }
        }
    }

    fn fallback(&self) -> &'a LocalFallback {
        &self.limiter.client.fallback
    }

    /// Reserves slots and requests grants; returns the charges with their holders and grant requests. Both before the call: if
    /// the client disconnects during it, the store may have given them.
    fn reserve<'c>(&mut self, charges: &'c [Charge], is_settled: bool) -> Cow<'c, [Charge]> {
        let (requested, slots) = self.fallback().slots.request(self.limits, SlotOwner::store, charges);
        self.slots = slots;
        // While Redis does not know all charges it must not grant units.
        let (requested, grant_requests) =
            grants::request_grants(&self.limiter.grants, self.limits, requested, is_settled);
        self.grant_requests = grant_requests;
        requested
    }

    async fn send(&self, requested: &[Charge]) -> Result<(DecidedCharges, Grants), StoreError> {
        let requests = self.grant_requests.as_ref().map_or(&[][..], |requests| &requests.requests);
        self.limiter.client.take(self.limits, requested, requests, self.slots.as_ref()).await
    }

    /// Records the decisions of Redis, for requests that are decided without it.
    fn record(&self, redis: &Redis, decided: &DecidedCharges, lookup: CacheLookup) {
        self.limiter.record_reply(redis, self.limits, decided, lookup);
        if self.taken.is_some() {
            // The next request may be denied by a paced grant.
            self.limiter.denials.record_shown(&self.limits.policies, decided, lookup);
        }
    }

    /// The admission of a request that Redis has decided, with these grants.
    fn admit(mut self, decided: DecidedCharges, grants: &Grants) -> Admission {
        let decided = match self.grant_requests.take() {
            Some(requests) => requests.receive(self.limits, &decided, grants, BootTime::now()),
            None => decided,
        };
        self.fallback().record_store_decisions(&self.limits.policies, &decided, self.slots.as_ref());
        let shares = std::mem::take(&mut self.shares);
        let (limits, fallback) = (self.limits, self.fallback());
        self.conclude(&limits.policies, &decided, |passes| {
            // All charges of a request are made or none, also in the shares.
            if !passes {
                fallback.refund_shares(limits, &shares);
            }
            Origin::Store(shares.into_vec())
        })
    }

    /// Decides without the store, after `error` or without a call to it. A limit that denies because the store is unavailable
    /// takes precedence over one whose share is used up. Units that were taken from grants are no charges of this process: the
    /// store counts them when their grants end.
    pub fn fail(mut self, charges: &[Charge], error: Option<&StoreError>) -> Admission {
        let (limits, fallback) = (self.limits, self.fallback());
        // `LocalFallback::decide` charges the shares itself.
        fallback.refund_shares(limits, &std::mem::take(&mut self.shares));
        // Before the shares are charged: a request that such a limit denies must not use them up.
        if fallback.denies(limits, charges) {
            // A retry before the next probe of the store would be denied as well.
            return Admission::unavailable(fallback.breaker.until_probe());
        }
        grants::update_shares(&self.limiter.grants, fallback, limits, charges, BootTime::now());
        let (decided, slots) = fallback.decide(limits, charges, error);
        // Those that Redis may have given are released when this returns.
        let _unused = std::mem::replace(&mut self.slots, slots);
        let admission = self.conclude(&limits.shares, &decided, |_| Origin::fallback(error));
        Admission { source: StatusSource::Local, ..admission }
    }

    /// Makes the admission from the decisions of the store or the shares, together with those of held grants. `origin` is called
    /// with whether the request passes, and returns where its units were taken.
    fn conclude(
        self,
        policies: &[Policy],
        decided: &DecidedCharges,
        origin: impl FnOnce(bool) -> Origin,
    ) -> Admission {
        let Self { limiter, limits, taken, slots, .. } = self;
        let mut admission = match &taken {
            Some(taken) => {
                let counts = &limiter.client.fallback.counts;
                counts.record_decisions(policies, &taken.decided(), DecisionSource::Ahead);
                Admission::new(policies, &taken.join(decided.clone()), slots)
            }
            None => Admission::new(policies, decided, slots),
        };
        let origin = origin(admission.verdict.is_ok());
        admission.reserve(|| Reservation::new(|| limiter.settlement_context(), limits, decided, origin));
        admission.pass_taken(|| limiter.settlement_context(), limits, taken);
        admission
    }
}
