//! Requests the next grant of a key in time, so that no request has to wait for it.

use std::sync::Arc;

use super::grant_requests::{GrantRequests, request_grants_at};
use super::table::GrantTable;
use crate::limit::{Charge, ChargeKind, DecidedCharge};
use crate::limiter::limits::Limits;
use crate::limiter::store_client::StoreClient;
use crate::time::BootTime;

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
