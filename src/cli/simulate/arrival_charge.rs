//! The charge of a limit for an arrival.

use crate::limit::{Charge, Decision};

/// The charge of a limit for an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ArrivalCharge {
    pub charge: Charge,
    /// The decision on a key that the file allows or blocks, which needs no count.
    pub preset: Option<Decision>,
}
