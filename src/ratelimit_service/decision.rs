//! Decides rate-limit requests: makes charges of descriptors, which the limiter decides like those of other requests.
//!
//! All descriptors are one decision: their hits are charged together or not at all. First those without hits are checked; then
//! the others are charged, unless a descriptor is over its limit already; last come hits that are charged late, whatever
//! the limits allow.

use std::rc::Rc;

use smallvec::SmallVec;

use super::checked_request::{CheckedRequest, DescriptorOptions};
use crate::gate::{DescriptorError, DescriptorPlan, Gate};
use crate::limit::{Charge, Charges, Policy, PolicyId, QuotaError, Rate};
use crate::limiter::{Admission, Denial, LimitStatus, Limiter, Limits, SentLimits, limit_notes};
use crate::proxy::Proxy;
use crate::telemetry::{Counts, DecisionSource, LimitNote, LimitOutcome};
use crate::time::{Micros, Stopwatch};

/// The most charges of a request, as of a route.
const MAX_CHARGES: usize = 1_000;

/// Why there is no decision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DecisionError {
    /// A descriptor can't be counted.
    #[error("descriptor {0}: {1}")]
    Descriptor(usize, DescriptorError),
    /// There are too many charges.
    #[error("the descriptors have more than {MAX_CHARGES} limits together")]
    TooMany,
    /// Sent numbers can't be counted.
    #[error("a limit that was sent can't be counted: {0}")]
    Sent(#[from] QuotaError),
    /// The store is unavailable, and a limit has `on_store_failure = "deny"`.
    #[error("the store that counts limits is unavailable")]
    Unavailable(Micros),
}

/// The decisions on a request.
pub(super) struct DescriptorDecisions<'g> {
    /// The descriptors, in their order.
    pub descriptors: Vec<ChargedDescriptor<'g>>,
    /// The decisions that are known, on charges of all descriptors.
    pub statuses: Vec<LimitStatus>,
    /// The same of limits in shadow mode, which deny nothing.
    pub shadow: Vec<LimitStatus>,
    /// The limits with the numbers that were sent, if there are any.
    pub limits: Option<Rc<Limits>>,
}

/// A descriptor with its charges.
pub(super) struct ChargedDescriptor<'g> {
    pub plan: DescriptorPlan<'g>,
    pub options: DescriptorOptions,
    /// Each charge, and the id of its policy in the configuration.
    pub charges: SmallVec<[(PolicyId, Charge); 2]>,
}

/// The decisions on charges that are known so far.
#[derive(Default)]
struct KnownDecisions {
    statuses: Vec<LimitStatus>,
    /// Those of limits in shadow mode.
    shadow: Vec<LimitStatus>,
}

/// How the hits of a descriptor are charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Check,
    Take,
    Late,
}

impl DescriptorDecisions<'_> {
    /// Whether a descriptor is over a limit.
    pub fn is_over(&self) -> bool {
        self.descriptors.iter().any(|charged| charged.is_over(&self.statuses))
    }

    /// What limits note about the request; `policies` are those of the configuration.
    pub fn notes<'s>(
        &'s self,
        policies: &'s [Policy],
    ) -> impl Iterator<Item = (LimitNote, PolicyId)> + use<'s> {
        limit_notes(policies, &self.statuses, &self.shadow, !self.is_over())
    }
}

impl ChargedDescriptor<'_> {
    /// Whether it is over a limit, by all decisions that are known.
    pub fn is_over(&self, all: &[LimitStatus]) -> bool {
        self.is_blocked() || self.statuses(all).any(|status| !status.decision.allowed)
    }

    fn kind(&self) -> Kind {
        match (&self.plan.rule, self.options.checks) {
            (_, true) => Kind::Check,
            (Some(rule), false) if rule.charges_late => Kind::Late,
            _ => Kind::Take,
        }
    }

    /// Whether it is over the limit whatever the counts are.
    pub fn is_blocked(&self) -> bool {
        let allows_none = self.options.sent.is_some_and(|sent| sent.rate.is_none());
        self.plan.is_blocked() || allows_none && !self.charges.is_empty()
    }

    /// The decisions on its charges, as far as they are known.
    pub fn statuses<'s>(&'s self, all: &'s [LimitStatus]) -> impl Iterator<Item = &'s LimitStatus> {
        let is_own = |status: &&LimitStatus| {
            self.charges.iter().any(|(policy, charge)| (*policy, charge.key) == (status.policy, status.key))
        };
        all.iter().filter(is_own)
    }
}

/// Decides a request.
pub(super) async fn decide<'p>(
    proxy: &'p Proxy,
    request: &CheckedRequest<'_>,
) -> Result<DescriptorDecisions<'p>, DecisionError> {
    let (gate, limiter) = (proxy.gate(), proxy.limiter());
    let (descriptors, limits) = descriptors(gate, proxy.sent_limits(), request)?;
    record_rules(proxy.counts(), &descriptors);
    let known = limits.as_deref().unwrap_or(&gate.limits);
    let stopwatch = Stopwatch::start();
    let decided = decide_charges(limiter, known, &descriptors).await;
    if descriptors.iter().any(|charged| !charged.charges.is_empty()) {
        proxy.counts().record_decision_duration(stopwatch.elapsed());
    }
    let KnownDecisions { statuses, shadow } = decided?;
    Ok(DescriptorDecisions { descriptors, statuses, shadow, limits })
}

/// The descriptors with their charges, by the numbers that were sent where there are any.
fn descriptors<'g>(
    gate: &'g Gate,
    sent_limits: &SentLimits,
    request: &CheckedRequest<'_>,
) -> Result<(Vec<ChargedDescriptor<'g>>, Option<Rc<Limits>>), DecisionError> {
    let plans = gate.descriptors().plan(request.domain, &request.descriptors);
    let plans = plans.map_err(|(index, error)| DecisionError::Descriptor(index, error))?;
    let with_charges = |(plan, options): (DescriptorPlan<'g>, &DescriptorOptions)| {
        let charges = plan.charges.iter().map(|charge| (charge.policy, *charge)).collect();
        ChargedDescriptor { plan, options: *options, charges }
    };
    let mut descriptors: Vec<ChargedDescriptor<'g>> =
        plans.into_iter().zip(&request.options).map(with_charges).collect();
    if descriptors.iter().map(|charged| charged.charges.len()).sum::<usize>() > MAX_CHARGES {
        return Err(DecisionError::TooMany);
    }
    let mut changed: Vec<(&mut Charge, Rate)> = Vec::new();
    for charged in &mut descriptors {
        if let Some(rate) = charged.options.sent.and_then(|sent| sent.rate) {
            changed.extend(charged.charges.iter_mut().map(|(_, charge)| (charge, rate)));
        }
    }
    if changed.is_empty() {
        return Ok((descriptors, None));
    }
    let sent: Vec<(PolicyId, Rate)> = changed.iter().map(|(charge, rate)| (charge.policy, *rate)).collect();
    let (limits, ids) = sent_limits.apply(&gate.limits, &sent)?;
    for ((charge, _), id) in changed.into_iter().zip(ids) {
        charge.policy = id;
    }
    Ok((descriptors, Some(limits)))
}

/// Decides the charges of all descriptors; returns the decisions that are known.
async fn decide_charges(
    limiter: &Limiter,
    limits: &Limits,
    descriptors: &[ChargedDescriptor<'_>],
) -> Result<KnownDecisions, DecisionError> {
    let mut decisions = KnownDecisions::default();
    let mut passes = !descriptors.iter().any(ChargedDescriptor::is_blocked);
    let checks = charges(descriptors, Kind::Check);
    if passes && !checks.is_empty() {
        decisions.add(check(limiter, limits, &checks).await)?;
        passes = decisions.statuses.iter().all(|status| status.decision.allowed);
    }
    let takes = charges(descriptors, Kind::Take);
    if passes && !takes.is_empty() {
        decisions.add(limiter.decide(limits, &takes).await)?;
    }
    // These hits have been spent already, so they are charged whatever the limits allow.
    let late = charges(descriptors, Kind::Late);
    if !late.is_empty() {
        let mut statuses = limiter.charge_spent(limits, &late).await;
        for status in &mut statuses {
            status.decision.allowed &= status.decision.remaining > 0;
        }
        decisions.statuses.extend(statuses);
    }
    Ok(decisions)
}

/// The charges of the descriptors of this kind that are not blocked. Those of one limit and key are one charge, as all are
/// made or none.
fn charges(descriptors: &[ChargedDescriptor<'_>], kind: Kind) -> Charges {
    let mut all = Charges::new();
    let is_charged = |charged: &&ChargedDescriptor<'_>| charged.kind() == kind && !charged.is_blocked();
    for (_, charge) in descriptors.iter().filter(is_charged).flat_map(|charged| &charged.charges) {
        match all.iter_mut().find(|other| (other.policy, other.key) == (charge.policy, charge.key)) {
            Some(other) => other.cost = other.cost.saturating_add(charge.cost),
            None => all.push(*charge),
        }
    }
    all
}

impl KnownDecisions {
    /// Adds the decisions of an admission.
    fn add(&mut self, admission: Admission) -> Result<(), DecisionError> {
        if let Err(Denial::Unavailable { retry_after }) = admission.verdict {
            return Err(DecisionError::Unavailable(retry_after));
        }
        self.statuses.extend(admission.statuses);
        self.shadow.extend(admission.shadow);
        Ok(())
    }
}

/// Reads the remaining units of limits, without a charge. A limit that lacks the units of one hit is over.
async fn check(limiter: &Limiter, limits: &Limits, charges: &[Charge]) -> Admission {
    let mut admission = limiter.peek(limits, charges).await;
    for status in admission.statuses.iter_mut().chain(&mut admission.shadow) {
        let own = |charge: &&Charge| {
            let policy = limits.policies[charge.policy].configured(charge.policy);
            (policy, charge.key) == (status.policy, status.key)
        };
        let cost = charges.iter().find(own).map_or(1, |charge| charge.cost);
        status.decision.allowed &= status.decision.remaining >= cost;
    }
    admission
}

/// Counts what rules decide: blocks and exemptions.
fn record_rules(counts: &Counts, descriptors: &[ChargedDescriptor<'_>]) {
    for plan in descriptors.iter().map(|charged| &charged.plan) {
        let blocked = plan.blocked_by.map(|limit| (limit, LimitOutcome::Blocked));
        let lacking = plan.lacking_for.map(|limit| (limit, LimitOutcome::MissingKey));
        let exempt = plan.exempt.iter().map(|limit| (*limit, LimitOutcome::Exempt));
        for (limit, outcome) in blocked.into_iter().chain(lacking).chain(exempt) {
            counts.record_decision(limit, outcome, DecisionSource::Config);
        }
    }
}
