//! The plan of a descriptor: its rule, and what its limits charge.

use smallvec::SmallVec;

use super::descriptor::DescriptorRule;
use crate::limit::{Charge, PolicyId};

/// The plan of a descriptor.
#[derive(Clone, Debug)]
pub struct DescriptorPlan<'g> {
    /// The rule; none if no rule matches, and the descriptor is unlimited.
    pub rule: Option<&'g DescriptorRule>,
    /// The charges of its limits.
    pub charges: SmallVec<[Charge; 2]>,
    /// The limits that exempt it, by an `allow` list.
    pub exempt: SmallVec<[PolicyId; 2]>,
    /// The limit whose `block` list names its key or address.
    pub blocked_by: Option<PolicyId>,
    /// The limit that requires a part of the key which it lacks.
    pub lacking_for: Option<PolicyId>,
}

/// Why a descriptor can't be counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// Its limits count by the client's address, and its value is none.
    #[error("the value of the entry `remote_address` is not an IP address")]
    Address,
}

impl DescriptorPlan<'_> {
    /// Whether it is over the limit whatever the counts are.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.rule.is_some_and(|rule| rule.blocks) || self.blocked_by.is_some() || self.lacking_for.is_some()
    }
}
