//! Denials of requests by a part of their charges, before the others are known: the rest of the request need not be read.
//!
//! The charges are checked ([`ChargeKind::Check`]), so that nothing is taken: a request that passes is decided with all of its
//! charges later, all or none. A check denies no request that the decision on all charges would not deny as well at that time,
//! and a denial counts towards a ban once, since a denied request is not decided again. These are not checked:
//!
//! - limits in shadow mode, which deny nothing;
//! - limits with `ahead` of which this process holds grants, unless a paced one denies: the store does not know how many of these
//!   units are spent;
//! - concurrency limits with `ahead`: a freed slot that is kept is in use for the store.
//!
//! A check may leave out what it can't decide exactly, since a check that was too lenient changes nothing. The in-process store,
//! cached denials, paced grants and the shares of an outage are checked without I/O. Redis is called only if the request has to
//! wait: for a consumer, or for a body that has not arrived (`read_missing::poll_arrived`).

use super::admission::Admission;
use super::grants::HeldDecision;
use super::in_process::deny_impossible;
use super::limits::Limits;
use super::server_limiter::ServerLimiter;
use super::status::{LimitStatus, LimitStatuses, StatusSource};
use crate::limit::{Charge, ChargeKind, Charges, DecidedCharge};
use crate::store::{Memory, Store, StoreError};
use crate::telemetry::DecisionSource;
use crate::time::{BootTime, cached_now};

/// The charges of a request that the store would decide, and the denials by grants that this process holds.
#[derive(Default)]
struct Checks {
    in_store: Charges,
    by_grants: LimitStatuses,
}

/// The result of a check in the store.
pub(super) enum Checked {
    /// No limit denies the request, as far as the check can say.
    Passes,
    /// A limit denies it.
    Denied(Box<Admission>),
    /// The store has not replied, and what this process knows denies nothing.
    Failed,
}

impl Checked {
    pub fn denial(self) -> Option<Admission> {
        if let Self::Denied(denied) = self { Some(*denied) } else { None }
    }
}

impl ServerLimiter {
    /// The denial of a request by some of its charges, as far as this process knows; none if it does not know one.
    pub fn known_denial(&self, limits: &Limits, charges: &[Charge]) -> Option<Admission> {
        match self.raised.apply(limits, charges, cached_now()) {
            Some(raised) => self.known(&raised.limits, &raised.charges),
            None => self.known(limits, charges),
        }
    }

    /// Whether a check of these charges needs a call: some can deny the request, and only Redis can say whether they do.
    pub fn has_checks(&self, limits: &Limits, charges: &[Charge]) -> bool {
        let has_checks = |limits, charges| !self.checks(limits, charges).in_store.is_empty();
        self.is_available()
            && match self.raised.apply(limits, charges, cached_now()) {
                Some(raised) => has_checks(&raised.limits, &raised.charges),
                None => has_checks(limits, charges),
            }
    }

    /// Checks some of the charges of a request in Redis, after [`Self::known_denial`] had none.
    pub async fn check_in_store(&self, limits: &Limits, charges: &[Charge]) -> Checked {
        match self.raised.apply(limits, charges, cached_now()) {
            Some(raised) => self.check_in_redis(&raised.limits, &raised.charges).await,
            None => self.check_in_redis(limits, charges).await,
        }
    }

    fn known(&self, limits: &Limits, charges: &[Charge]) -> Option<Admission> {
        let fallback = &self.client.fallback;
        if let Some(denied) = deny_impossible(limits, charges, &fallback.counts) {
            return Some(denied);
        }
        match &self.client.store {
            Store::Memory(memory) => self.check_in_memory(memory, limits, charges),
            Store::Redis(_) if fallback.breaker.is_open() => self.check_locally(limits, charges),
            Store::Redis(_) => self.check_caches(limits, charges),
        }
    }

    fn check_in_memory(&self, memory: &Memory, limits: &Limits, charges: &[Charge]) -> Option<Admission> {
        let checks: Charges = enforced_checks(limits, charges).collect();
        let decided = memory.decide(&limits.policies, &checks);
        denies(&decided).then(|| {
            let counts = &self.client.fallback.counts;
            counts.record_decisions(&limits.policies, &decided, DecisionSource::Memory);
            Admission::new(&limits.policies, &decided, None)
        })
    }

    /// Checks without the store, which is unavailable.
    fn check_locally(&self, limits: &Limits, charges: &[Charge]) -> Option<Admission> {
        let checks: Charges = enforced_checks(limits, charges).collect();
        let fallback = &self.client.fallback;
        if fallback.denies(limits, &checks) {
            return Some(Admission::unavailable(fallback.breaker.until_probe()));
        }
        let denied = Admission::new(&limits.shares, &fallback.check(limits, &checks)?, None);
        Some(Admission { source: StatusSource::Local, ..denied })
    }

    /// Checks by cached denials and paced grants.
    fn check_caches(&self, limits: &Limits, charges: &[Charge]) -> Option<Admission> {
        let Checks { in_store, by_grants } = self.checks(limits, charges);
        let (now, policies, fallback) = (cached_now(), &limits.policies, &self.client.fallback);
        if !by_grants.is_empty() {
            fallback.record_denials(policies, &by_grants, DecisionSource::Ahead);
            let mut statuses = self.denials.shown(policies, &in_store, now);
            statuses.extend(by_grants);
            return Some(Admission::limited(statuses));
        }
        let known = self.denials.check(policies, &in_store, now)?;
        fallback.record_denials(policies, &known, DecisionSource::Cache);
        Some(Admission::limited(known))
    }

    async fn check_in_redis(&self, limits: &Limits, charges: &[Charge]) -> Checked {
        let Store::Redis(redis) = &self.client.store else { return Checked::Passes };
        let checks = self.checks(limits, charges).in_store;
        if checks.is_empty() || self.client.fallback.breaker.is_open() {
            return Checked::Passes;
        }
        // Before the call, so that no denial outlives its `retry_after`.
        let lookup = self.denials.lookup(cached_now());
        match redis.take(&limits.policies, &checks).await {
            Ok(decisions) => {
                self.client.record_success();
                let decided = DecidedCharge::join(&checks, &decisions);
                self.record_reply(redis, limits, &decided, lookup);
                if !denies(&decided) {
                    return Checked::Passes;
                }
                self.client.fallback.record_store_decisions(&limits.policies, &decided, None);
                Checked::Denied(Box::new(Admission::new(&limits.policies, &decided, None)))
            }
            Err(error) => {
                let denied = self.check_after(&error, limits, charges);
                denied.map_or(Checked::Failed, |denied| Checked::Denied(Box::new(denied)))
            }
        }
    }

    fn check_after(&self, error: &StoreError, limits: &Limits, charges: &[Charge]) -> Option<Admission> {
        self.client.record_failure(error);
        self.check_locally(limits, charges)
    }

    fn checks(&self, limits: &Limits, charges: &[Charge]) -> Checks {
        let (mut checks, now) = (Checks::default(), BootTime::now());
        for charge in enforced_checks(limits, charges) {
            let policy = limits.policy(&charge);
            match self.grants.check(&limits.policies, &charge, now) {
                HeldDecision::Denied(decision) => {
                    checks.by_grants.push(LimitStatus::new(policy, &charge, decision));
                }
                HeldDecision::NoGrant if !policy.keeps_slots => checks.in_store.push(charge),
                HeldDecision::NoGrant | HeldDecision::Undecided => {}
            }
        }
        checks
    }
}

/// The checks of the charges that can deny a request.
fn enforced_checks<'a>(limits: &'a Limits, charges: &'a [Charge]) -> impl Iterator<Item = Charge> + 'a {
    let enforced = charges.iter().filter(|charge| !limits.policy(charge).shadow);
    enforced.map(|charge| charge.with_kind(ChargeKind::Check))
}

fn denies(decided: &[DecidedCharge]) -> bool {
    decided.iter().any(|one| !one.decision.allowed)
}
