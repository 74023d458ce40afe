//! The grant requests of one call to the store; the request for the next grant of a key in time, so that no request has to
//! wait for it; and returns of grants that are not needed.

use std::borrow::Cow;
use std::num::NonZeroU64;
use std::sync::Arc;

use smallvec::SmallVec;

use super::held_grant::{GrantCall, UnitCounts};
use super::held_grants::{HeldGrants, ReturnedGrant};
use super::share_balance::ChargeReply;
use super::table::GrantTable;
use crate::limit::{
    Charge, ChargeKind, DecidedCharge, DecidedCharges, Decision, DenyReason, EntryId, Grant, GrantReport,
    GrantRequest, Policy,
};
use crate::limiter::limits::Limits;
use crate::limiter::store_client::StoreClient;
use crate::time::{BootTime, Timestamp, monotonic};

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
                    let reply = ChargeReply { decision: *decision, cost, held: held.units() };
                    let share = (limits.instances > NonZeroU64::MIN).then(|| limits.share(charge));
                    held.share.record_reply(share, reply, now);
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

/// Requests another grant for the key of a charge, in the background.
pub(in crate::limiter) fn refill(
    table: &Arc<GrantTable>,
    client: &StoreClient,
    limits: &Limits,
    charge: &Charge,
) {
    let charge = refill_charge(charge);
    if client.fallback.breaker.is_open() || !client.fallback.is_settled(limits, &[charge]) {
        return;
    }
    // Before the task starts, so that no other request starts one as well.
    let (_, grant_requests) = request_grants_at(table, limits, &[charge], true, BootTime::now());
    if grant_requests.wants_grants() {
        tokio::task::spawn_local(call(client.clone(), limits.clone(), charge, grant_requests));
    }
}

/// The charge of a call that requests another grant for the key of `charge`.
pub(in crate::limiter) fn refill_charge(charge: &Charge) -> Charge {
    Charge { cost: 0, kind: ChargeKind::Grant, ..*charge }
}

async fn call(client: StoreClient, limits: Limits, charge: Charge, grant_requests: GrantRequests) {
    match client.store.take_with_grants(&limits.policies, &[charge], &grant_requests.requests).await {
        Ok(granted) => {
            client.record_success();
            let decided = DecidedCharge::join(&[charge], &granted.decisions);
            client.seed_fallback(&limits, &decided);
            grant_requests.receive(&limits, &decided, &granted.grants, BootTime::now());
        }
        Err(error) => client.record_failure(&error),
    }
}

/// The most grants that one call returns.
pub(in crate::limiter) const MAX_RETURNED: usize = 128;

/// Returns grants that would lapse, as long as there are some; never returns itself.
pub(in crate::limiter) async fn run_returns(client: &StoreClient, table: &GrantTable) {
    loop {
        let (interval, changed) = table.next_sweep();
        let _ = tokio::time::timeout(interval.into(), changed).await;
        // Refreshes the thread's cached time after the wait.
        let _ = monotonic();
        let now = BootTime::now();
        // While the store is unavailable held units can't be returned, and are spent.
        if !client.fallback.breaker.is_open() {
            if table.is_sweep_due(now) {
                table.sweep(now);
            }
            send(client, table).await;
        }
    }
}

/// Returns all grants.
pub(in crate::limiter) async fn return_all(client: &StoreClient, table: &GrantTable) {
    table.queue_all();
    send(client, table).await;
}

/// Sends the reports of grants that are to be returned. A report that may be lost is not repeated: then the units lapse.
async fn send(client: &StoreClient, table: &GrantTable) {
    let mut lasting = take_lasting(table, BootTime::now());
    while let Some(first) = lasting.first() {
        // Nearly always all of them: only a reload or a raise brings other policies.
        let policies = Arc::clone(&first.owner.policies);
        let mut call = Vec::new();
        let mut others = Vec::new();
        for grant in lasting {
            let fits = call.len() < MAX_RETURNED && Arc::ptr_eq(&grant.owner.policies, &policies);
            if fits { call.push(grant) } else { others.push(grant) }
        }
        send_call(client, &policies, &call).await;
        lasting = others;
    }
}

/// Takes the grants that are to be returned. Those that have ended are counted, and left out.
pub(in crate::limiter) fn take_lasting(table: &GrantTable, now: BootTime) -> Vec<ReturnedGrant> {
    let (lasting, ended): (Vec<ReturnedGrant>, Vec<ReturnedGrant>) =
        table.take_returned().into_iter().partition(|grant| now < grant.ends);
    count_returned(&ended, &[]);
    lasting
}

async fn send_call(client: &StoreClient, policies: &Arc<[Policy]>, grants: &[ReturnedGrant]) {
    let (charges, requests) = return_charges(grants);
    match client.store.apply_with_grants(policies, &charges, &requests).await {
        Ok(granted) => {
            client.record_success();
            count_returned(grants, &granted.decisions);
        }
        Err(error) => {
            client.record_failure(&error);
            count_returned(grants, &[]);
        }
    }
}

/// The charges and the grant requests of a call that returns grants.
pub(in crate::limiter) fn return_charges(grants: &[ReturnedGrant]) -> (Vec<Charge>, Vec<GrantRequest>) {
    let report = |grant: &ReturnedGrant| {
        let charge = Charge::take(grant.owner.policy, grant.owner.key, 0).with_kind(ChargeKind::Grant);
        (charge, GrantRequest { report: Some(grant.report), wanted: 0 })
    };
    grants.iter().map(report).unzip()
}

/// Counts the units of grants whose reports were sent. `decisions` are the store's, in the same order; none if it has applied no
/// report.
pub(in crate::limiter) fn count_returned(grants: &[ReturnedGrant], decisions: &[Decision]) {
    for (index, grant) in grants.iter().enumerate() {
        grant.counts.add_returned(&grant.report, decisions.get(index).map(|decision| decision.at));
    }
}
