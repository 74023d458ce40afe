//! Units that requests in flight hold, take in addition, or have spent without asking, such as those that Envoy reports at the end
//! of a stream.

use super::limits::Limits;
use super::reservation::Reservation;
use super::server_limiter::ServerLimiter;
use super::status::LimitStatuses;
use crate::limit::{Charge, Charges, Key, Policy, PolicyId};
use crate::telemetry::SettledOutcome;
use crate::time::cached_now;

impl ServerLimiter {
    /// Units of a key that requests in flight through this process have reserved; none if the limit does not settle its cost.
    pub fn reserved_units(&self, policy: &Policy, key: Key) -> Option<u64> {
        policy.settles().then(|| self.reserved.units(policy, key))
    }

    /// Takes more units for a response that has cost more than was reserved, from all of these limits or from none. Returns whether
    /// they were taken.
    pub async fn take_more(&self, reservation: &mut Reservation, more: &[(PolicyId, u64)]) -> bool {
        let (limits, charges) = reservation.more(more);
        if charges.is_empty() {
            return true;
        }
        let admission = self.decide_charges(&limits, &charges).await;
        if let Some(taken) = admission.reservation {
            reservation.join(*taken);
        }
        admission.verdict.is_ok()
    }

    /// Charges units whatever their limits allow: a key may owe more than its limit, if the policy has a bound for that
    /// ([`crate::limit::Policy::settled_max`]), and otherwise as much as it allows. Returns the decisions of the limits after
    /// that; none while the store is unavailable, which is then owed the units.
    pub async fn charge_spent(&self, limits: &Limits, charges: &[Charge]) -> LimitStatuses {
        match self.raised.apply(limits, charges, cached_now()) {
            Some(raised) => self.charge_extra(&raised.limits, &raised.charges).await,
            None => self.charge_extra(limits, charges).await,
        }
    }

    async fn charge_extra(&self, limits: &Limits, charges: &[Charge]) -> LimitStatuses {
        let extra = |charge: &Charge| {
            let most = limits.policy(charge).settled_max().unwrap_or(u64::MAX);
            charge.extra(charge.cost.min(most))
        };
        let mut extra: Charges = charges.iter().map(extra).collect();
        for (charge, all) in extra.iter().zip(charges) {
            let limit = limits.configured(charge);
            self.client.fallback.counts.record_settled(limit, SettledOutcome::Extra, charge.cost);
            self.client.fallback.counts.record_settled(limit, SettledOutcome::Cut, all.cost - charge.cost);
        }
        // Charges of the same key follow each other.
        extra.sort_by_key(|charge| charge.key.0);
        self.client.settle(limits, &extra).await
    }
}
