//! The key of `balance = "hash:PART"`.

use std::ops::Range;

use crate::gate::KeySpec;

/// A key that chooses servers.
pub(in crate::config) struct ReadKey {
    pub spec: KeySpec,
    /// The span of `balance`.
    pub span: Range<usize>,
}
