//! Gets the next grant of a key in time, so that no request has to wait for it.

use std::sync::Arc;

use super::questions::{Questions, ask};
use super::table::GrantTable;
use crate::limit::{Charge, ChargeKind};
use crate::limiter::limits::Limits;
use crate::limiter::store_client::StoreClient;
use crate::time::BootTime;

/// Asks for another grant for the key of a charge, in the background.
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
    // Before the task starts, so that no other request asks as well.
    let (_, questions) = ask(table, limits, &[charge], true, BootTime::now());
    if questions.want_grants() {
        tokio::task::spawn_local(call(client.clone(), limits.clone(), charge, questions));
    }
}

/// The charge of a call that asks for another grant for the key of `charge`.
pub(super) fn refill_charge(charge: &Charge) -> Charge {
    Charge { cost: 0, kind: ChargeKind::Grant, ..*charge }
}

async fn call(client: StoreClient, limits: Limits, charge: Charge, questions: Questions) {
    match client.store.take_with_grants(&limits.policies, &[charge], &questions.requests).await {
        Ok(granted) => {
            client.record_success();
            client.seed_fallback(&limits, &[charge], &granted.decisions);
            questions.answer(&limits, &[charge], &granted, BootTime::now());
        }
        Err(error) => client.record_failure(&error),
    }
}
