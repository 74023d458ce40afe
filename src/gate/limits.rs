//! The limits of a gate, by name and by policy.

use super::{Gate, KeyResolver};
use crate::id_vec::Id as _;
use crate::limit::{Policy, PolicyId};

impl Gate {
    /// The limit that a policy belongs to: itself, or that of which it is a tier, an override or the policy of a class.
    #[must_use]
    pub fn limit_of(&self, policy: PolicyId) -> PolicyId {
        let variant = policy.index().checked_sub(self.limit_rules.len());
        variant.and_then(|index| self.variants.get(index)).copied().unwrap_or(policy)
    }

    /// The limit of this name.
    #[must_use]
    pub fn limit_named(&self, name: &str) -> Option<PolicyId> {
        self.limits().find(|(_, policy)| *policy.name == *name).map(|(limit, _)| limit)
    }

    /// Every limit with its own policy, in the order of the file.
    pub fn limits(&self) -> impl Iterator<Item = (PolicyId, &Policy)> {
        self.limit_rules.ids().zip(&*self.limits.policies)
    }

    /// Finds keys of a limit by name.
    #[must_use]
    pub fn keys(&self, limit: PolicyId) -> KeyResolver<'_> {
        let (rule, client_ip, hasher) = (&self.limit_rules[limit], &self.client_ip, &self.hasher);
        KeyResolver { limit, rule, client_ip, hasher }
    }
}
