//! Charges: what one request takes from its limits, and what is refunded or charged later.

use smallvec::SmallVec;

use super::decision::Decision;
use super::key::Key;
use super::slots::Holder;
use crate::id_vec::Id;
use crate::time::Timestamp;

/// The index of a policy in the list of all policies of a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyId(pub u32);

impl Id for PolicyId {
    fn new(number: u32) -> Self {
        Self(number)
    }

    fn number(self) -> u32 {
        self.0
    }
}

/// One limit's part of a request: `cost` units from the quota of `policy`, counted under `key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charge {
    /// The policy that is charged.
    pub policy: PolicyId,
    /// The key that the units are counted under.
    pub key: Key,
    /// How many units.
    pub cost: u64,
    /// How the units are charged or returned.
    pub kind: ChargeKind,
    /// The holder of a slot; only concurrency limits use it.
    pub holder: Holder,
    /// When the units were taken: of a refund by the clock of the store, of a late charge by the clock of this process.
    /// No other kind uses it.
    pub taken: Timestamp,
}

/// A charge, and the decision of its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecidedCharge {
    /// The charge.
    pub charge: Charge,
    /// The decision on it.
    pub decision: Decision,
}

/// The charges of a request, with the decisions on them.
pub type DecidedCharges = SmallVec<[DecidedCharge; 4]>;

/// How the units of a charge are charged or returned. The numbers are those of the script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ChargeKind {
    /// Take them, if they are available.
    #[default]
    Take = 0,
    /// Decide as for a take, without taking them.
    Check = 1,
    /// Release a slot.
    Release = 3,
    /// Renew the lease of a slot.
    Renew = 4,
    /// Refund what was taken: another charge of the request was denied, or its final status is not charged.
    Refund = 5,
    /// Charge what was admitted earlier, while the store was unavailable, as far as the limit allows.
    Late = 6,
    /// Take units if they are available, report what has become of an earlier grant, and ask for a new one; see
    /// [`crate::limit::GrantRequest`].
    Grant = 7,
    /// Charge units without asking, at the time of the charge: a response has cost more than its request had reserved. The
    /// units may exceed the limit, up to a bound of the policy, [`crate::limit::Policy::settled_max`].
    Extra = 8,
}

impl Charge {
    /// A charge that takes `cost` units.
    #[must_use]
    pub fn take(policy: PolicyId, key: Key, cost: u64) -> Self {
        let (holder, taken) = (Holder::default(), Timestamp::default());
        Self { policy, key, cost, kind: ChargeKind::Take, holder, taken }
    }

    /// This charge at no cost, which shows what is available.
    #[must_use]
    pub fn peek(self) -> Self {
        Self { cost: 0, kind: ChargeKind::Take, ..self }
    }

    /// The refund of what this charge took at `taken`.
    #[must_use]
    pub fn refund(self, taken: Timestamp) -> Self {
        Self { kind: ChargeKind::Refund, taken, ..self }
    }

    /// The late charge for what this charge took at `taken`, while the store was unavailable.
    #[must_use]
    pub fn late(self, taken: Timestamp) -> Self {
        Self { kind: ChargeKind::Late, taken, ..self }
    }

    /// A charge of `units` more than this charge took, whatever the limit allows.
    #[must_use]
    pub fn extra(self, units: u64) -> Self {
        Self { kind: ChargeKind::Extra, cost: units, ..self }
    }

    /// This charge with another kind.
    #[must_use]
    pub fn with_kind(self, kind: ChargeKind) -> Self {
        Self { kind, ..self }
    }

    /// Whether units are taken if the charge is allowed.
    #[must_use]
    pub fn takes_units(&self) -> bool {
        matches!(self.kind, ChargeKind::Take | ChargeKind::Grant) && self.cost > 0
    }
}

/// The charges of one request.
pub type Charges = SmallVec<[Charge; 4]>;

impl DecidedCharge {
    /// Charges with the decisions on them, which are in the same order.
    #[must_use]
    pub fn join(charges: &[Charge], decisions: &[Decision]) -> DecidedCharges {
        debug_assert_eq!(charges.len(), decisions.len(), "each charge has a decision");
        let all = charges.iter().zip(decisions);
        all.map(|(charge, decision)| Self { charge: *charge, decision: *decision }).collect()
    }

    /// The refund of the units that were taken.
    #[must_use]
    pub fn refund(&self) -> Charge {
        self.charge.refund(self.decision.at)
    }
}
