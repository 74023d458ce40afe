//! What a request's settlement changes in the store: refunds and extra charges, in one call, or on a cluster one for each key.
//!
//! A settlement is consumed by sending it, and never sent twice. If it is not sent, its refunds are dropped, and its extra charges
//! are owed. If its reply is lost, it counts as made.

use std::sync::Arc;

use smallvec::SmallVec;

use super::denial_cache::DenialCache;
use super::limits::Limits;
use super::reserved_units::ReservedUnits;
use super::status::LimitStatuses;
use super::store_client::StoreClient;
use crate::limit::{Charge, ChargeKind, Charges};
use crate::store::Store;

/// Where units are settled: the store, and what this process knows of keys.
#[derive(Clone, Debug)]
pub(super) struct SettlementContext {
    pub client: StoreClient,
    pub denials: Arc<DenialCache>,
    pub reserved: Arc<ReservedUnits>,
}

impl SettlementContext {
    /// Whether both are about the same server of the store.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.client.fallback.ledger, &other.client.fallback.ledger)
    }
}

/// Refunds and extra charges that were not sent yet, and the decisions of limits that are settled without the store.
#[derive(Debug, Default)]
pub(super) struct Settlement {
    /// The decisions after what was refunded in this process.
    pub statuses: LimitStatuses,
    /// Nearly always one: only a raise brings other limits.
    pub calls: SmallVec<[Call; 1]>,
}

/// The refunds and extra charges of one set of limits.
#[derive(Debug)]
pub(super) struct Call {
    pub limits: Limits,
    pub charges: Charges,
}

impl Settlement {
    /// Adds a refund or an extra charge.
    pub fn add(&mut self, limits: &Limits, charge: Charge) {
        let same = |call: &&mut Call| Arc::ptr_eq(&call.limits.policies, &limits.policies);
        match self.calls.iter_mut().find(same) {
            Some(call) => call.charges.push(charge),
            None => {
                self.calls.push(Call { limits: limits.clone(), charges: SmallVec::from_slice(&[charge]) });
            }
        }
    }

    /// Sends it; returns the decisions of the limits after that. If this is dropped, extra charges are made all the same.
    pub async fn send(self, context: &SettlementContext) -> LimitStatuses {
        let charges_more = |call: &Call| call.charges.iter().any(|charge| charge.kind == ChargeKind::Extra);
        if self.needs_call(context) && self.calls.iter().any(charges_more) {
            let context = context.clone();
            // A client that disconnects must not prevent the charge.
            let sent = tokio::task::spawn_local(async move { self.send_now(&context).await });
            return sent.await.unwrap_or_default();
        }
        self.send_now(context).await
    }

    /// Sends it without waiting: with the next call to the store, which also releases the slots of the request if these are
    /// dropped before the worker runs other tasks.
    pub fn send_later(self, context: &SettlementContext) {
        if self.calls.is_empty() {
            return;
        }
        if let Store::Memory(memory) = &context.client.store {
            for Call { limits, charges } in self.calls {
                let _ = memory.apply(&limits.policies, &charges);
            }
            return;
        }
        let context = context.clone();
        tokio::task::spawn_local(async move { self.send_now(&context).await });
    }

    fn needs_call(&self, context: &SettlementContext) -> bool {
        matches!(context.client.store, Store::Redis(_)) && !self.calls.is_empty()
    }

    async fn send_now(self, context: &SettlementContext) -> LimitStatuses {
        let Self { mut statuses, calls } = self;
        for Call { limits, mut charges } in calls {
            // On a cluster the charges of a key have one call.
            charges.sort_by_key(|charge| charge.key.0);
            statuses.extend(context.client.settle(&limits, &charges).await);
            for refund in charges.iter().filter(|charge| charge.kind == ChargeKind::Refund) {
                // After the reply: a request that is decided before it may still be denied.
                context.denials.forget(limits.policy(refund), refund.key);
            }
        }
        statuses
    }
}
