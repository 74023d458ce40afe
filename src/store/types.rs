//! The parameters and results of every store: takes, changes by operators, and raises of single keys.

use smallvec::SmallVec;

use crate::limit::{Decision, Factor, Grant, Key};
use crate::time::Micros;

/// The decisions on one request, in the order of its charges.
pub type Decisions = SmallVec<[Decision; 4]>;

/// The decisions on one request, and the grants of units for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// In the order of the charges.
    pub decisions: Decisions,
    /// For the charges of the kind `Grant`.
    pub grants: Grants,
}

/// One grant for each charge of the kind `Grant`, in their order.
pub type Grants = SmallVec<[Grant; 2]>;

/// A change of a key by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateChange {
    /// Deny the key for this long, whatever its quota allows, even if the limit gets another algorithm.
    Block(Micros),
    /// Lift the key's block and its ban.
    Unblock,
    /// Clear what the key has spent, its denials and its ban; a block stays.
    Reset,
}

/// Why a store has made no decision.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The queue before the store is full; the request was not sent.
    #[error("too many requests wait for it")]
    QueueFull,
    /// The request was not sent: its deadline passed in the queue before the store, or an earlier call has had no reply for a
    /// whole deadline.
    #[error("no reply within the deadline")]
    Unsent,
    /// The slot of the keys is being moved to another node of a cluster, and no node has all of them (TRYAGAIN).
    #[error("the slot of a key is being moved to another node")]
    SlotMoving,
    /// There is no connection, for this reason, so nothing was sent.
    #[error("not connected: {0}")]
    NotConnected(String),
    /// The connection closed before the reply; the charge may have been made.
    #[error("the connection closed before the reply")]
    Lost,
    /// No reply within the deadline; the charge may have been made.
    #[error("no reply within the deadline")]
    Deadline,
    /// The server has replied with an error.
    #[error("{0}")]
    ErrorReply(String),
    /// The reply does not have the script's format.
    #[error("malformed reply: {0}")]
    Malformed(String),
}

impl StoreError {
    /// Whether the error proves that nothing was charged.
    #[must_use]
    pub fn is_uncharged(&self) -> bool {
        match self {
            Self::QueueFull
            | Self::Unsent
            | Self::SlotMoving
            | Self::NotConnected(_)
            | Self::ErrorReply(_) => true,
            Self::Lost | Self::Deadline | Self::Malformed(_) => false,
        }
    }
}

/// The most raises at a time: every proxy keeps all of them.
pub const MAX_RAISES: usize = 1_000;

/// More units for one key of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raise {
    /// The limit's name.
    pub limit: Box<str>,
    /// The key.
    pub key: Key,
    /// How many times its numbers are raised.
    pub factor: Factor,
    /// How long, from the time at which the raise starts or was read.
    pub rest: Micros,
    /// Who has started it: one line.
    pub by: Box<str>,
}

/// All raises in a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RaiseList {
    /// Changes with each change of the list; 0 if there has been no raise.
    pub version: u64,
    /// The raises.
    pub raises: Vec<Raise>,
}

/// A change of the raises by an operator.
#[derive(Clone, Debug)]
pub enum RaiseChange {
    /// Start a raise, in place of the present one of its key.
    Start(Raise),
    /// End the raise of a key.
    End {
        /// The limit's name.
        limit: Box<str>,
        /// The key.
        key: Key,
    },
}

/// Why raises were not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RaiseError {
    /// There are as many as there may be.
    #[error("there are {MAX_RAISES} raises already")]
    Full,
    /// The raise that should end does not exist.
    #[error("the key is not raised")]
    NotRaised,
}
