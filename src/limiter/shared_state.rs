//! The state that the limiters of all workers share.

use std::num::NonZeroU64;
use std::sync::Arc;

use super::breaker::Breakers;
use super::denial_cache::DenialCache;
use super::grants::GrantTable;
use super::kept_slots::KeptSlots;
use super::outage_ledger::OutageLedger;
use super::raises::Raises;
use crate::store::Memory;

/// The state of a store that all workers share.
#[derive(Clone, Debug)]
pub struct SharedState {
    /// Counts by the shares of this process while the store is unavailable.
    pub fallback: Arc<Memory>,
    /// The circuit breakers of all workers.
    pub breakers: Arc<Breakers>,
    /// Cached denials; must be cleared when an operator resets or refunds a key.
    pub denials: Arc<DenialCache>,
    /// Units that the store has granted; must be dropped when an operator changes their key.
    pub grants: Arc<GrantTable>,
    /// The charges admitted while the store was unavailable, and not paid yet.
    pub ledger: Arc<OutageLedger>,
    /// Freed slots that are kept for the next requests of their keys.
    pub kept_slots: Arc<KeptSlots>,
    /// The raised numbers of single keys.
    pub raises: Arc<Raises>,
    /// How many proxies share the store.
    pub instances: NonZeroU64,
}

impl SharedState {
    /// The state for a store that was not used yet.
    #[must_use]
    pub fn new(fallback: Arc<Memory>, instances: NonZeroU64) -> Self {
        let (breakers, ledger, grants) = (Arc::default(), Arc::default(), Arc::default());
        let denials = Arc::<DenialCache>::default();
        let raises = Arc::new(Raises::new(Arc::clone(&denials)));
        let kept_slots = Arc::default();
        Self { fallback, breakers, denials, grants, ledger, kept_slots, raises, instances }
    }
}
