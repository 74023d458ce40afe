//! Raises: more units for one key, until a time.

use crate::limit::{Factor, Key};
use crate::time::Micros;

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
