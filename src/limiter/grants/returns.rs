//! Returns grants that are not needed to the store.

use std::sync::Arc;

use super::held_grants::ReturnedGrant;
use super::table::GrantTable;
use crate::limit::{Charge, ChargeKind, Decision, GrantRequest, Policy};
use crate::limiter::store_client::StoreClient;
use crate::time::{BootTime, monotonic};

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
