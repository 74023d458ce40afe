//! WHERE counts live. One verb: take all charges of a request, or none of them.

pub mod memory;
pub mod redis;

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

pub use memory::Memory;
pub use redis::{Redis, RedisSpec};

use crate::limit::{Charge, Decision, Key, Policy, PolicyId};
use crate::time::Micros;

/// The decisions of one request, in the order of its charges.
pub type Decisions = SmallVec<[Decision; 4]>;

/// Which store a configuration asks for.
#[derive(Clone, Debug)]
pub enum StoreSpec {
    /// In this process.
    Memory,
    /// In Redis.
    Redis(RedisSpec),
}

/// A place where counts live.
#[derive(Clone, Debug)]
pub enum Store {
    /// In this process, shared by its workers.
    Memory(Arc<Memory>),
    /// In Redis, shared by every proxy that uses it.
    Redis(Redis),
}

/// What an operator changes of a key by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Refuse it for so long, whatever its quota says and whichever algorithm it gets meanwhile.
    Block(Micros),
    /// Lift its block, and its ban.
    Unblock,
    /// Forget what it has spent, its denials and its ban; a block stays.
    Reset,
}

/// Why a store gave no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Too many requests wait for it; this one was not sent.
    #[error("too many requests wait for it")]
    Busy,
    /// The deadline passed while it waited for the calls before it; it was not sent.
    #[error("no answer within the deadline")]
    Unsent,
    /// The slot of its keys is being moved to another node of a cluster, and none has all of them (TRYAGAIN).
    #[error("the slot of a key is being moved to another node")]
    SlotMoving,
    /// No connection, so nothing was sent; and why there is none.
    #[error("not connected: {0}")]
    Away(String),
    /// The connection ended before the answer; the charge may have been made.
    #[error("the connection ended before the answer")]
    Lost,
    /// No answer within the deadline; the charge may have been made.
    #[error("no answer within the deadline")]
    Deadline,
    /// An answer that is an error.
    #[error("{0}")]
    Refused(String),
    /// An answer that makes no sense.
    #[error("an answer that can't be read: {0}")]
    Garbled(String),
}

impl StoreError {
    /// Whether it proves that nothing was charged.
    #[must_use]
    pub fn charges_nothing(&self) -> bool {
        match self {
            Self::Busy | Self::Unsent | Self::SlotMoving | Self::Away(_) | Self::Refused(_) => true,
            Self::Lost | Self::Deadline | Self::Garbled(_) => false,
        }
    }
}

impl Store {
    /// The store that is asked for, over a connection of its own; must be called within a runtime. `memory` is where
    /// counts live in this process.
    #[must_use]
    pub fn open(spec: &StoreSpec, memory: &Arc<Memory>) -> Self {
        match spec {
            StoreSpec::Memory => Self::Memory(Arc::clone(memory)),
            StoreSpec::Redis(spec) => Self::Redis(Redis::connect(spec)),
        }
    }

    /// Takes all `charges`, each from the policy that it names, if every one of them is allowed; none of them
    /// otherwise. Decisions come in the order of the charges; those that would have been allowed in a request
    /// that is not show what is there.
    ///
    /// # Errors
    /// When the store can't be asked; never for a memory store.
    pub async fn take(&self, policies: &Arc<[Policy]>, charges: &[Charge]) -> Result<Decisions, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.take(policies, charges)),
            Self::Redis(redis) => redis.take(policies, charges).await,
        }
    }

    /// Does each charge by itself, those of a limit in shadow mode included: refunds, late charges, and slots that are
    /// given back or renewed.
    ///
    /// # Errors
    /// When the store can't be asked; never for a memory store.
    pub async fn charge_late(
        &self,
        policies: &Arc<[Policy]>,
        charges: &[Charge],
    ) -> Result<Decisions, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.settle(policies, charges)),
            Self::Redis(redis) => redis.settle(policies, charges).await,
        }
    }

    /// Waits at most `patience` for the first connection, and no longer than until it fails.
    ///
    /// # Errors
    /// Why there is none; never for a memory store.
    pub async fn wait_connected(&self, patience: Duration) -> Result<(), StoreError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => redis.reach(patience).await,
        }
    }

    /// Builds the connection anew, unless one is just being made; for when nothing has come back for long.
    pub fn reconnect(&self) {
        if let Self::Redis(redis) = self {
            redis.reconnect();
        }
    }

    /// Asks for no more than a sign of life, of everything that a take needs.
    ///
    /// # Errors
    /// When there is none; never for a memory store.
    pub async fn probe(&self) -> Result<(), StoreError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redis(redis) => redis.probe().await,
        }
    }

    /// Changes these keys by hand; says how many of them were known.
    ///
    /// # Errors
    /// When the store can't be asked; never for a memory store.
    pub async fn change(
        &self,
        policies: &[Policy],
        keys: &[(PolicyId, Key)],
        change: Change,
    ) -> Result<usize, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.change(policies, keys, change)),
            Self::Redis(redis) => redis.change(policies, keys, change).await,
        }
    }

    /// Keys of `policy` that are known, at most `max`, in no order.
    ///
    /// # Errors
    /// When the store can't be asked; never for a memory store.
    pub async fn keys(&self, policy: &Policy, max: usize) -> Result<Vec<Key>, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.keys(policy, max)),
            Self::Redis(redis) => redis.keys(policy, max).await,
        }
    }
}
