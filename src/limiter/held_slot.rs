//! A slot that a request, or this process, holds.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::limit::{Charge, ChargeKind, Decision, Policy, Quota};
use crate::store::{Memory, Store};

/// A slot that is held.
#[derive(Clone, Debug)]
pub(super) struct HeldSlot {
    pub policies: Arc<[Policy]>,
    pub shares: Arc<[Policy]>,
    pub owner: SlotOwner,
    pub charge: Charge,
    /// When it is renewed, or if released, when its lease ends.
    pub due: Instant,
    /// The decision that granted it, and when it arrived.
    pub granted: Option<(Decision, Instant)>,
}

/// Where slots are counted.
#[derive(Clone, Debug)]
pub(super) struct SlotOwner {
    /// In the store of the worker.
    pub in_store: bool,
    /// In this process, by these policies.
    pub local: Option<(Arc<Memory>, Arc<[Policy]>)>,
}

impl SlotOwner {
    /// In the store of the worker.
    pub fn store() -> Self {
        Self { in_store: true, local: None }
    }

    /// In this process, by `policies`.
    pub fn local(memory: &Arc<Memory>, policies: &Arc<[Policy]>) -> Self {
        Self { in_store: false, local: Some((Arc::clone(memory), Arc::clone(policies))) }
    }
}

impl HeldSlot {
    /// Releases or renews the slot in this process, if it is counted here.
    pub fn apply_locally(&self, kind: ChargeKind) {
        if let Some((memory, policies)) = &self.owner.local {
            let _ = memory.apply(policies, &[self.charge.with_kind(kind)]);
        }
    }

    pub fn lease(&self) -> Duration {
        match &self.policy().quota {
            Quota::Concurrency(slots) => slots.lease().into(),
            _ => Duration::ZERO,
        }
    }

    pub fn policy(&self) -> &Policy {
        &self.policies[self.charge.policy]
    }
}

/// Releases or renews slots in the store; returns those for which it failed.
pub(super) async fn apply(store: &Store, mut slots: Vec<HeldSlot>, kind: ChargeKind) -> Vec<HeldSlot> {
    let mut failed = Vec::new();
    while let Some(first) = slots.first() {
        // Nearly always all of them: only a reload brings other policies.
        let policies = Arc::clone(&first.policies);
        let (same, others): (Vec<HeldSlot>, Vec<HeldSlot>) =
            slots.into_iter().partition(|held| Arc::ptr_eq(&held.policies, &policies));
        let charges: Vec<Charge> = same.iter().map(|held| held.charge.with_kind(kind)).collect();
        if store.apply(&policies, &charges).await.is_err() {
            failed.extend(same);
        }
        slots = others;
    }
    failed
}
