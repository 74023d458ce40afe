//! WHERE counts live. One verb: take all charges of a request, or none of them.

pub mod memory;
pub mod redis;

use std::sync::Arc;

use smallvec::SmallVec;

pub use memory::Memory;
pub use redis::{Redis, RedisSpec};

use crate::limit::{Charge, Decision, Policy};

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

/// Why a store gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No connection, so nothing was sent.
    #[error("not connected")]
    Away,
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

impl Store {
    /// Takes all `charges`, each from the policy that it names, if every one of them is allowed; none of them
    /// otherwise. Decisions come in the order of the charges; those that would have been allowed in a request
    /// that is not show what is there.
    ///
    /// # Errors
    /// When the store can't be asked; never for a memory store.
    pub async fn take(&self, policies: &[Policy], charges: &[Charge]) -> Result<Decisions, StoreError> {
        match self {
            Self::Memory(memory) => Ok(memory.take(policies, charges)),
            Self::Redis(redis) => redis.take(policies, charges).await,
        }
    }
}
