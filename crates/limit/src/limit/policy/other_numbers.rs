//! Policies with other numbers than those of the configuration.

use std::num::NonZeroU64;

use super::Policy;
use crate::limit::charge::PolicyId;
use crate::limit::quota::Quota;
use crate::limit::raise::{DerivedFrom, Factor, raised};
use crate::limit::rate::{QuotaError, Rate};
use crate::limit::reserved_share::ReservedShare;
use crate::limit::slots::Slots;
use crate::limit::window::Align;

impl Policy {
    /// This policy with the share of one of `instances` proxies.
    #[must_use]
    pub fn shared_by(&self, instances: NonZeroU64) -> Self {
        let quota = self.with_own_extra(self.quota.shared_by(instances));
        Self { quota, ..self.clone() }
    }

    /// This policy for requests that must leave these shares of its slots to others; it counts in the same states. Other quotas
    /// have no slots.
    #[must_use]
    pub fn reserving(&self, shares: [ReservedShare; Slots::MAX_RESERVED]) -> Self {
        let quota = match &self.quota {
            Quota::Concurrency(slots) => Quota::Concurrency(slots.reserving(shares)),
            other => other.clone(),
        };
        Self { quota, ..self.clone() }
    }

    /// This policy with raised numbers; it counts in the same states. `own` is its id.
    ///
    /// # Errors
    /// If the numbers are larger than the algorithm can count exactly.
    pub fn raised(&self, own: PolicyId, factor: Factor) -> Result<Self, QuotaError> {
        let quota = self.with_own_extra(raised(&self.quota, factor)?);
        Ok(Self {
            quota,
            derived_from: Some(DerivedFrom { policy: own, factor: Some(factor) }),
            ..self.clone()
        })
    }

    /// The policy with this rate in fixed windows, which a client of the rate-limit service has sent for one descriptor; `own`
    /// is the id of the policy in the configuration. It has counts of its own.
    ///
    /// # Errors
    /// Numbers that can't be counted.
    pub fn with_rate(&self, own: PolicyId, rate: Rate) -> Result<Self, QuotaError> {
        let quota = Quota::fixed_window(rate, Align::Clock)?;
        // Names of limits and tiers have no `=`.
        let stored = format!("{}.={}/{}", self.stored, rate.units(), rate.period().0);
        let derived_from = Some(DerivedFrom { policy: own, factor: None });
        let Self { ban, shadow, soft, .. } = *self;
        Ok(Self { ban, shadow, soft, derived_from, ..Self::stored_as(&self.name, &stored, quota) })
    }
}
