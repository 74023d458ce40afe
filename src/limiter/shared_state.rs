//! The state that the limiters of all workers share, and the task that keeps the raises in it up to date: it removes those
//! that have ended, and reads those in Redis, so that a raise on another proxy takes effect within about a second.

use std::collections::BTreeMap;
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
use crate::store::{Memory, Servers, Store, StoreError, StoreSpec};
use crate::telemetry::{GrantValues, StoreValues};
use crate::time::{monotonic, periodic};

/// The state of a store that all workers share; if it has several servers, of one of them.
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

    /// The states for each server of a store that was not used yet. All servers share what this process counts, and the cache
    /// of denials.
    #[must_use]
    pub fn of_servers(store: &StoreSpec, fallback: &Arc<Memory>, instances: NonZeroU64) -> Servers<Self> {
        let all = Self::new(Arc::clone(fallback), instances);
        let StoreSpec::Redis(servers) = store else { return Servers::one(all) };
        if !servers.are_several() {
            return Servers::one(all);
        }
        servers.map(|spec| Self {
            breakers: Arc::new(Breakers::of_server(spec.target.to_string())),
            ledger: Arc::default(),
            grants: Arc::default(),
            kept_slots: Arc::default(),
            raises: Arc::new(Raises::new(Arc::clone(&all.denials))),
            ..all.clone()
        })
    }

    /// The values of a store of these servers for metrics: their sums.
    pub fn store_values<'s>(servers: impl Iterator<Item = &'s Self>) -> StoreValues {
        let mut all = StoreValues::default();
        for Self { breakers, ledger, .. } in servers {
            all.breakers_open += breakers.open();
            all.breaker_openings += breakers.openings();
            all.owed_keys += ledger.len();
            all.charge_back.iter_mut().zip(ledger.units()).for_each(|(sum, units)| *sum += units);
        }
        all
    }

    /// Whether each of several servers is available to all workers, by their addresses.
    pub fn servers_up<'s>(servers: impl Iterator<Item = &'s Self>) -> Vec<(Box<str>, bool)> {
        let is_up = |server: &Self| Some((server.breakers.server()?.into(), server.breakers.open() == 0));
        servers.filter_map(is_up).collect()
    }

    /// What these servers have granted, for each limit.
    pub fn grant_values<'s>(servers: impl Iterator<Item = &'s Self>) -> BTreeMap<Box<str>, GrantValues> {
        let mut all: BTreeMap<Box<str>, GrantValues> = BTreeMap::new();
        for (limit, values) in servers.flat_map(|server| server.grants.values()) {
            all.entry(limit).or_default().add(&values);
        }
        all
    }

    /// The states for each server of the store of the next configuration. Redis is owed the debts to the earlier store, also
    /// those of requests in flight: its counts apply from now on.
    #[must_use]
    pub fn of_next(earlier: &Servers<Self>, store: &StoreSpec, instances: NonZeroU64) -> Servers<Self> {
        let next = Self::of_servers(store, &earlier.first().fallback, instances);
        match store {
            StoreSpec::Memory => next,
            StoreSpec::Redis(_) if !earlier.are_several() && !next.are_several() => {
                let ledger = &earlier.first().ledger;
                next.map(|state| Self { ledger: Arc::clone(ledger), ..state.clone() })
            }
            StoreSpec::Redis(_) => {
                let ledgers = next.map(|state| Arc::clone(&state.ledger));
                earlier.iter().for_each(|state| state.ledger.move_to(ledgers.clone()));
                next
            }
        }
    }
}

/// How often that is done, once for all workers.
const READ_INTERVAL: Duration = Duration::from_secs(1);
/// How often ended raises are removed if none are read. They have no effect any more.
const REMOVE_INTERVAL: Duration = Duration::from_secs(2);

/// Keeps the raises up to date over a connection to their server; never returns. If that does not reply, the workers probe it as
/// well, so that they notice its failure while they are idle.
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
