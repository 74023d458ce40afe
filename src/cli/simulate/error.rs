//! Errors of a simulation.

use std::io;

use crate::store::StoreError;

/// Why a simulation stops.
#[derive(Debug, thiserror::Error)]
pub(super) enum SimulateError {
    /// The Redis of `--store` can't be reached.
    #[error(
        "can't reach {0}: {1}\nhelp: name a Redis that runs with --store URL, or leave --store out to play in memory"
    )]
    Unreachable(String, StoreError),
    /// A call to the store failed.
    #[error("the store failed: {0}")]
    Store(#[from] StoreError),
    /// Standard output can't be written.
    #[error(transparent)]
    Output(#[from] io::Error),
    /// SIGINT.
    #[error("interrupted")]
    Interrupted,
}
