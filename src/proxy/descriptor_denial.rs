//! Why a descriptor is over its limit.

use crate::gate::Descriptor;
use crate::limit::{Key, PolicyId};

/// Why a descriptor is over its limit, for the access log and traces.
#[derive(Debug)]
pub struct DescriptorDenial<'d> {
    /// The descriptor.
    pub descriptor: &'d Descriptor<'d>,
    /// The limit or one of its variants; none if a rule blocks the descriptor.
    pub limit: Option<PolicyId>,
    /// The key, if it has denied by one.
    pub key: Option<Key>,
}
