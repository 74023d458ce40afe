//! The grant requests of one call to the store.

use std::borrow::Cow;
use std::sync::Arc;

use smallvec::SmallVec;

use super::held_grant::GrantCall;
use super::held_grants::HeldGrants;
use super::table::GrantTable;
use super::unit_counts::UnitCounts;
use crate::limit::{
    Charge, ChargeKind, DecidedCharge, DecidedCharges, Decision, DenyReason, EntryId, Grant, GrantReport,
    GrantRequest,
};
use crate::limiter::limits::Limits;
use crate::time::{BootTime, Timestamp};

/// The grant requests of a call. Dropping it records that the call has ended.
#[derive(Debug)]
pub(in crate::limiter) struct GrantRequests {
    table: Arc<GrantTable>,
    /// One for each charge of the kind `Grant`, in their order.
    pub requests: SmallVec<[GrantRequest; 2]>,
    /// The keys for which a grant is wanted.
    wanted: SmallVec<[EntryId; 2]>,
    /// Reports of `requests` that return units, until it is known whether the store has taken them back.
    returns: SmallVec<[(GrantReport, Arc<UnitCounts>); 1]>,
    sent: BootTime,
    drops: u64,
    /// Whether the store knew all that this process had admitted when the call was sent.
    is_settled: bool,
}

/// The charges of a call that is sent now, and their grant requests if a limit grants units; see [`request_grants_at`].
pub(in crate::limiter) fn request_grants<'a>(
    table: &Arc<GrantTable>,
    limits: &Limits,
    charges: Cow<'a, [Charge]>,
    is_settled: bool,
) -> (Cow<'a, [Charge]>, Option<GrantRequests>) {
    if !limits.grant_units(&charges) {
        return (charges, None);
    }
    let (charges, grant_requests) = request_grants_at(table, limits, &charges, is_settled, BootTime::now());
    (Cow::Owned(charges), Some(grant_requests))
}

/// Makes the grant requests of a call with these charges, which is sent at `sent` or later. Units are wanted only if the store
/// `is_settled`; and at most the share of this process in the limit, so that it can spend them also during an outage. Returns the charges as well: one that neither wants units nor has a report becomes one of the kind `Take`, which
/// costs the store less.
pub(in crate::limiter) fn request_grants_at(
    table: &Arc<GrantTable>,
    limits: &Limits,
    charges: &[Charge],
    is_settled: bool,
    sent: BootTime,
) -> (Vec<Charge>, GrantRequests) {
    let drops = table.drops();
    let (requests, wanted, returns) = (SmallVec::new(), SmallVec::new(), SmallVec::new());
    let mut grant_requests =
        GrantRequests { table: Arc::clone(table), requests, wanted, returns, sent, drops, is_settled };
    let mut charges = charges.to_vec();
    for charge in charges.iter_mut().filter(|charge| charge.kind == ChargeKind::Grant) {
        let cost = charge.cost;
        let most = if is_settled { limits.share(charge).quota.limit() } else { 0 };
        let request = table.with_key(&limits.policies, charge, sent, |held| {
            let request = held.request_grant(cost, most, sent);
            let report = request.report.filter(|report| report.returned > 0);
            grant_requests.returns.extend(report.map(|report| (report, held.counts())));
            request
        });
        // A key for which there is no room gets no grant.
        let request = request.unwrap_or_default();
        if request == GrantRequest::default() {
            charge.kind = ChargeKind::Take;
            continue;
        }
        if request.wanted > 0 {
            grant_requests.wanted.push(EntryId::new(limits.policy(charge), charge.key));
        }
        grant_requests.requests.push(request);
    }
    (charges, grant_requests)
}

impl GrantRequests {
    /// Whether a grant is wanted for a key.
    pub fn wants_grants(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Adds the grants of a reply that was `received` now. Returns its decisions; those that allow a request show the held units
    /// as well.
    pub fn receive(
        mut self,
        limits: &Limits,
        decided: &[DecidedCharge],
        grants: &[Grant],
        received: BootTime,
    ) -> DecidedCharges {
        self.count_returns(decided.iter().map(|one| one.decision.at).max());
        let mut shown = DecidedCharges::from_slice(decided);
        let granting = shown.iter_mut().filter(|one| one.charge.kind == ChargeKind::Grant);
        for (one, grant) in granting.zip(grants) {
            let call = GrantCall { sent: self.sent, received, decided: one.decision.at };
            one.decision = self.add(limits, one, grant, call);
        }
        if self.is_settled {
            self.record_replies(limits, decided, received);
        }
        shown
    }

    /// Records what the shares of this process have to count if the store becomes unavailable.
    fn record_replies(&self, limits: &Limits, decided: &[DecidedCharge], now: BootTime) {
        let passes = decided.iter().all(|one| one.decision.allowed || limits.policy(&one.charge).shadow);
        for DecidedCharge { charge, decision } in decided {
            let policy = limits.policy(charge);
            if policy.ahead.is_some() && decision.reason == DenyReason::Quota {
                let cost = if passes && decision.allowed { charge.cost } else { 0 };
                let record = |held: &mut HeldGrants| {
                    let units = (cost, held.units());
                    held.share.record_reply(limits.share(charge), *decision, units, now);
                };
                let _ = self.table.with_known(&EntryId::new(policy, charge.key), record);
            }
        }
    }

    /// Counts the units of reports that the store has applied at this time, if that is known.
    fn count_returns(&mut self, decided: Option<Timestamp>) {
        for (report, counts) in self.returns.drain(..) {
            counts.add_returned(&report, decided);
        }
    }

    fn add(&self, limits: &Limits, decided: &DecidedCharge, grant: &Grant, call: GrantCall) -> Decision {
        let DecidedCharge { charge, decision } = *decided;
        let (table, id) = (&self.table, EntryId::new(limits.policy(&charge), charge.key));
        let added = table.with_key(&limits.policies, &charge, call.received, |held| {
            held.record_decision(decision, call.received);
            if grant.units == 0 && self.wanted.contains(&id) {
                held.record_refusal(call.received);
            }
            if grant.units > 0 {
                table.queue_returns(held.add(table.next_serial(), grant, call));
                // An operator may have changed the key after the store has made the grant.
                if table.drops() != self.drops {
                    held.drop_all();
                }
                table.sweep_within(held.span());
            }
            held.shown(decision, call.received)
        });
        added.unwrap_or(decision)
    }
}

impl Drop for GrantRequests {
    fn drop(&mut self) {
        // Without a reply: the store counts units as spent that it has not taken back.
        self.count_returns(None);
        for id in &self.wanted {
            self.table.with_known(id, HeldGrants::end_request);
        }
    }
}
