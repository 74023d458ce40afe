//! The state that the limiters of all workers share, and the task that keeps the raises in it up to date: it removes those
//! that have ended, and reads those in Redis, so that a raise on another proxy takes effect within about a second.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use super::breaker::Breakers;
use super::denial_cache::DenialCache;
use super::grants::GrantTable;
use super::kept_slots::KeptSlots;
use super::outage_ledger::OutageLedger;
use super::raises::Raises;
use super::reserved_units::ReservedUnits;
use crate::store::{Memory, Store, StoreError};
use crate::time::{monotonic, periodic};

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
    /// Units that requests in flight have reserved, of limits that settle costs.
    pub reserved: Arc<ReservedUnits>,
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
        let (kept_slots, reserved) = (Arc::default(), Arc::default());
        Self { fallback, breakers, denials, grants, ledger, kept_slots, reserved, raises, instances }
    }
}

/// How often that is done, once for all workers.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// How often ended raises are removed if none are read. They have no effect any more.
const REMOVE_INTERVAL: Duration = Duration::from_secs(2);

/// Keeps the raises up to date over a connection to their store; never returns. If the store does not reply, the workers probe
/// it as well, so that they notice its failure while they are idle.
pub async fn keep_raises(store: &Store, shared: &SharedState) {
    let mut interval = periodic(match store {
        Store::Redis(_) => READ_INTERVAL,
        Store::Memory(_) => REMOVE_INTERVAL,
    });
    loop {
        interval.tick().await;
        match update(store, &shared.raises).await {
            // A missing permission for this command says nothing about the calls of limits.
            Ok(()) | Err(StoreError::ErrorReply(_)) => {}
            Err(_) => shared.breakers.suspect(),
        }
    }
}

/// Updates the raises once, unless they were read just before. While the store is unavailable they stay until their ends.
///
/// # Errors
/// When the store does not reply.
pub(super) async fn update(store: &Store, raises: &Raises) -> Result<(), StoreError> {
    let now = monotonic();
    raises.remove_ended(now);
    let Store::Redis(redis) = store else { return Ok(()) };
    let Some(known) = raises.due(now) else { return Ok(()) };
    // Boxed because it would enlarge the futures of all background work.
    let list = Box::pin(redis.raises(known)).await;
    let list = list.inspect_err(|error| tracing::debug!("the raises of keys can't be read: {error}"))?;
    if let Some(list) = list {
        raises.replace(list, now);
    }
    Ok(())
}
