//! Where counts are stored. A request's charges are all taken, or none.
//!
//! # What is sent again
//! A take is never sent twice, because a lost reply may have charged. The exceptions prove that nothing ran: after NOSCRIPT the
//! call is sent as `EVAL`; after MOVED, ASK and TRYAGAIN it goes to the node that has the key (`redis::cluster`; fred's own
//! handling is switched off, since it may repeat a call that ran). `StoreError` separates what was not sent (`NotConnected`,
//! `QueueFull`, `Unsent`), what may have run (`Lost`, `Deadline`, `Malformed`) and what the server did not run (`ErrorReply`,
//! `SlotMoving`). `connection::Reconnector` replaces the client when fred gives up, when probes have had no reply for a second
//! on a connection that fred considers alive, and to try another Sentinel. It leaves a client alone that is connecting.

mod check;
pub mod memory;
pub mod redis;
mod servers;
mod types;

use std::sync::Arc;
use std::time::Duration;

pub use check::check_redis;
pub use memory::{Memory, sweep_memory};
pub use redis::{Redis, RedisSpec};
pub use servers::Servers;
pub use types::{
    Decisions, Granted, Grants, MAX_RAISES, Raise, RaiseChange, RaiseError, RaiseList, StateChange,
    StoreError,
};

use crate::limit::{Charge, GrantRequest, Key, Policy, PolicyId};
use crate::telemetry::StoreCounts;

/// The store that a configuration selects.
#[derive(Clone, Debug)]
pub enum StoreSpec {
    /// In this process.
    Memory,
    /// In Redis: on one server, or each key on one of several.
    Redis(Box<Servers<RedisSpec>>),
}

impl StoreSpec {
    /// The address of Redis; those of several servers with commas between them.
    #[must_use]
    pub fn address(&self) -> Option<String> {
        let Self::Redis(servers) = self else { return None };
        let addresses: Vec<String> = servers.iter().map(|spec| spec.target.to_string()).collect();
        Some(addresses.join(", "))
    }
}

/// The counts of all limits, or of those whose keys are on one of several servers.
#[derive(Clone, Debug)]
pub enum Store {
    /// In this process, shared by its workers.
    Memory(Arc<Memory>),
    /// In Redis, shared by every proxy that uses it.
    Redis(Redis),
}

impl Store {
    /// Opens the store of `spec`, over a connection of its own to each server; must be called within a runtime. `memory` is the
    /// store of this process; calls are counted in `counts`.
    #[must_use]
    pub fn open(spec: &StoreSpec, memory: &Arc<Memory>, counts: &StoreCounts) -> Servers<Self> {
        match spec {
            StoreSpec::Memory => Servers::one(Self::Memory(Arc::clone(memory))),
            StoreSpec::Redis(servers) => {
                servers.map(|spec| Self::Redis(Redis::connect_counted(spec, counts.clone())))
            }
        }
    }

    /// Takes all `charges`, each from the policy that it names, if every one of them is allowed; none of them
    /// otherwise. Decisions are in the order of the charges. If the request is denied, the decision on a charge that
    /// would have been allowed shows what is available now.
    ///
    /// # Errors
    /// If the store is unavailable; never for a memory store.
    pub async fn take(&self, policies: &Arc<[Policy]>, charges: &[Charge]) -> Result<Decisions, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.take(policies, charges)),
            Self::Redis(redis) => redis.take(policies, charges).await,
        }
    }

    /// Applies each charge independently of the others, also those of a limit in shadow mode: refunds, late charges, and
    /// slots that are released or renewed.
    ///
    /// # Errors
    /// If the store is unavailable; never for a memory store.
    pub async fn apply(&self, policies: &Arc<[Policy]>, charges: &[Charge]) -> Result<Decisions, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.apply(policies, charges)),
            Self::Redis(redis) => redis.apply(policies, charges).await,
        }
    }

    /// Like [`Store::take`], for charges of the kind `Grant`: each has one of `requests`, in their order. What they report is
    /// applied even if the request is denied; an allowed charge of a denied request gets no grant.
    ///
    /// # Errors
    /// If the store is unavailable; never for a memory store.
    pub async fn take_with_grants(
        &self,
        policies: &Arc<[Policy]>,
        charges: &[Charge],
        requests: &[GrantRequest],
    ) -> Result<Granted, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.take_with_grants(policies, charges, requests)),
            Self::Redis(redis) => redis.take_with_grants(policies, charges, requests).await,
        }
    }

    /// Like [`Store::apply`], for charges of the kind `Grant`: each has one of `requests`, in their order.
    ///
    /// # Errors
    /// If the store is unavailable; never for a memory store.
    pub async fn apply_with_grants(
        &self,
        policies: &Arc<[Policy]>,
        charges: &[Charge],
        requests: &[GrantRequest],
    ) -> Result<Granted, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.apply_with_grants(policies, charges, requests)),
            Self::Redis(redis) => redis.apply_with_grants(policies, charges, requests).await,
        }
    }

    /// Waits at most `timeout` for the first connection, and no longer than until it fails.
    ///
    /// # Errors
    /// Why there is no connection; never for a memory store.
    pub async fn wait_connected(&self, timeout: Duration) -> Result<(), StoreError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => redis.wait_connected(timeout).await,
        }
    }

    /// Replaces the connection, unless one is being made; for when no reply has arrived for long.
    pub fn reconnect(&self) {
        if let Self::Redis(redis) = self {
            redis.reconnect();
        }
    }

    /// Checks that the store works, with all that a take needs.
    ///
    /// # Errors
    /// If the store is unavailable; never for a memory store.
    pub async fn probe(&self) -> Result<(), StoreError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => redis.probe().await,
        }
    }

    /// Changes these keys by hand; returns how many of them the store knew.
    ///
    /// # Errors
    /// If the store is unavailable; never for a memory store.
    pub async fn change(
        &self,
        policies: &[Policy],
        keys: &[(PolicyId, Key)],
        change: StateChange,
    ) -> Result<usize, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.change(policies, keys, change)),
            Self::Redis(redis) => redis.change(policies, keys, change).await,
        }
    }

    /// The keys of `policy` in the store, at most `max`, in no order.
    ///
    /// # Errors
    /// If the store is unavailable; never for a memory store.
    pub async fn keys(&self, policy: &Policy, max: usize) -> Result<Vec<Key>, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.keys(policy, max)),
            Self::Redis(redis) => redis.keys(policy, max).await,
        }
    }
}
