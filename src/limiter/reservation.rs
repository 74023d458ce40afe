//! Units taken on arrival by limits with `charge_on`, until the final status of the request is known.
//!
//! A request in flight holds its units, so a burst of parallel requests is bounded by the limit, and a client that
//! disconnects before its response has paid.
//!
//! Units that the status does not count are refunded before the response is sent. A gRPC status may be in the trailers, so there
//! the response's body holds the reservation. If the client disconnects the reservation is dropped, and the units stay charged;
//! so they do if a server may have received the request and the status is 502 or 504.

use smallvec::SmallVec;

use super::grants::{PutBack, TakenUnits};
use super::limits::Limits;
use super::local_fallback::ShareRefunds;
use super::status::LimitStatuses;
use super::store_client::StoreClient;
use crate::limit::{Charge, DecidedCharge, PolicyId};
use crate::store::StoreError;

/// Units that a request holds. [`Reservation::finish`] refunds those that its final status does not charge; all of
/// them stay charged if it is dropped before.
#[derive(Debug)]
pub struct Reservation {
    client: StoreClient,
    limits: Limits,
    /// Units that charges have taken, and that a status may refund.
    held: SmallVec<[DecidedCharge; 2]>,
    origin: Origin,
    /// Units that were taken from grants.
    taken: Option<Box<TakenUnits>>,
    delivery: Delivery,
}

/// Whether a server has the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// No server has received it.
    #[default]
    Unsent,
    /// A server may have received it, and has not responded.
    Unanswered,
    /// A server has responded.
    Answered,
}

/// Whether a request that a server has received stays charged with this final status, whatever statuses its limits charge: the
/// server may have processed it, only its response is missing.
#[must_use]
pub fn is_unanswered(status: u16) -> bool {
    matches!(status, 502 | 504)
}

/// What a limit has charged for a request whose response is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettledUnits {
    /// The limit of the configuration.
    pub policy: PolicyId,
    /// Units that were taken on arrival, and while the response was sent.
    pub reserved: u64,
    /// Units that the request is charged.
    pub charged: u64,
    /// Whether the cost was more than a settled cost can be, and was cut.
    pub is_cut: bool,
}

/// Where units were taken, and so where they are refunded.
#[derive(Debug)]
pub(super) enum Origin {
    /// In the store; these refunds are of what was taken from the shares of this process as well.
    Store(Vec<Charge>),
    /// In this process, while the store was unavailable.
    Fallback {
        /// Whether the store is owed them: not if it may have charged them in a call whose reply was lost.
        is_owed: bool,
    },
}

impl Origin {
    /// In this process, after `error` or without a call to the store.
    pub fn fallback(error: Option<&StoreError>) -> Self {
        Self::Fallback { is_owed: error.is_none_or(StoreError::is_uncharged) }
    }
}

impl Reservation {
    /// The units that charges have taken and that a status may refund; most requests have none.
    pub(super) fn new(
        client: &StoreClient,
        limits: &Limits,
        decided: &[DecidedCharge],
        origin: Origin,
    ) -> Option<Box<Self>> {
        let held = refundable(limits, decided);
        if held.is_empty() {
            return None;
        }
        if let Origin::Fallback { .. } = origin {
            let ledger = &client.fallback.ledger;
            held.iter().for_each(|held| ledger.reserve(limits.policy(&held.charge), held.charge.key));
        }
        let (client, limits) = (client.clone(), limits.clone());
        Some(Box::new(Self { client, limits, held, origin, taken: None, delivery: Delivery::Unsent }))
    }

    /// No units.
    pub(super) fn empty(client: &StoreClient, limits: &Limits) -> Box<Self> {
        let (held, origin) = (SmallVec::new(), Origin::Store(Vec::new()));
        let (client, limits) = (client.clone(), limits.clone());
        Box::new(Self { client, limits, held, origin, taken: None, delivery: Delivery::Unsent })
    }

    /// Refunds what a request with this final status is not charged, and settles the limits whose cost is `known`, before the
    /// response is sent. Returns the decisions of their limits after that, and what is settled at the end of the response.
    pub async fn respond(
        self: Box<Self>,
        status: u16,
        known: &[(PolicyId, u64)],
    ) -> (LimitStatuses, Option<Box<Self>>) {
        let _ = known;
        (self.finish(status).await, None)
    }

    /// Settles the units by what the response has cost. Returns at once, with what each limit is charged; the store is called
    /// afterwards. `costs` has the cost of a request for a limit of the configuration, or `None` if it is unknown: then the
    /// reserved units stay charged.
    pub fn settle(self: Box<Self>, costs: impl Fn(PolicyId) -> Option<u64>) -> SmallVec<[SettledUnits; 2]> {
        let _ = costs;
        SmallVec::new()
    }

    /// The units that each limit of the configuration has reserved for this request, if it settles them.
    pub fn reserved(&self) -> impl Iterator<Item = (PolicyId, u64)> {
        std::iter::empty()
    }

    /// Takes more units for a response that has cost more than was reserved, from all of these limits or from none. Returns
    /// whether they were taken.
    pub async fn take_more(&mut self, more: &[(PolicyId, u64)]) -> bool {
        let _ = more;
        true
    }

    /// Where it is recorded that a server may have received the request, and has responded.
    pub fn delivery_mut(&mut self) -> &mut Delivery {
        &mut self.delivery
    }

    /// This reservation with units that were taken from grants.
    pub(super) fn with_taken(mut self: Box<Self>, taken: Box<TakenUnits>) -> Box<Self> {
        self.taken = Some(taken);
        self
    }

    /// Refunds the units that a request with this final status is not charged; returns the decisions of their limits after
    /// that. All stay charged if a server may have processed the request, and its response is missing.
    pub async fn finish(mut self: Box<Self>, status: u16) -> LimitStatuses {
        let is_unanswered = match self.delivery {
            Delivery::Unsent => false,
            // A 503 is the proxy's own.
            Delivery::Unanswered => status == 503 || is_unanswered(status),
            Delivery::Answered => is_unanswered(status),
        };
        if is_unanswered {
            return LimitStatuses::new();
        }
        let PutBack { mut statuses, refunds } = match self.taken.take() {
            Some(taken) => taken.finish(&self.limits.policies, status),
            None => PutBack::default(),
        };
        if !refunds.is_empty() {
            statuses.extend(self.client.refund(&self.limits, &refunds).await);
        }
        statuses.extend(self.finish_held(status).await);
        statuses
    }

    /// Refunds or charges the units that were not taken from grants, as `finish` does.
    async fn finish_held(mut self: Box<Self>, status: u16) -> LimitStatuses {
        let held = std::mem::take(&mut self.held);
        let is_charged =
            |held: &DecidedCharge| self.limits.policy(&held.charge).charge_on().contains(&status);
        let (charged, refunded): (SmallVec<[DecidedCharge; 2]>, SmallVec<[DecidedCharge; 2]>) =
            held.into_iter().partition(is_charged);
        // Charged when `self` is dropped.
        self.held = charged;
        if refunded.is_empty() {
            return LimitStatuses::new();
        }
        let refunds: Vec<Charge> = refunded.iter().map(DecidedCharge::refund).collect();
        match &self.origin {
            Origin::Store(shares) => {
                let is_refunded = |share: &&Charge| {
                    refunds.iter().any(|refund| (refund.policy, refund.key) == (share.policy, share.key))
                };
                let shares: ShareRefunds = shares.iter().filter(is_refunded).copied().collect();
                self.client.fallback.refund_shares(&self.limits, &shares);
                self.client.refund(&self.limits, &refunds).await
            }
            Origin::Fallback { .. } => {
                let statuses = self.client.fallback.refund(&self.limits, &refunds);
                refunded.iter().for_each(|held| self.release(&held.charge));
                statuses
            }
        }
    }

    fn release(&self, charge: &Charge) {
        self.client.fallback.ledger.release(self.limits.policy(charge), charge.key);
    }
}

impl Drop for Reservation {
    /// Units that stay charged are owed to the store if they were taken in this process.
    fn drop(&mut self) {
        if let Some(taken) = self.taken.take() {
            taken.charge();
        }
        if let Origin::Fallback { is_owed } = self.origin {
            for held in &self.held {
                self.client.fallback.record_debt(&self.limits, held, is_owed);
                // After the debt is recorded: otherwise the key would seem to have no debt in between.
                self.release(&held.charge);
            }
        }
    }
}

/// The units that charges have taken and that a status may refund; most requests have none. A limit in shadow mode takes units as
/// well, if it would have allowed them.
pub(super) fn refundable(limits: &Limits, decided: &[DecidedCharge]) -> SmallVec<[DecidedCharge; 2]> {
    let is_refundable = |one: &&DecidedCharge| {
        let policy = limits.policy(&one.charge);
        policy.reserves() && one.charge.takes_units() && one.decision.allowed
    };
    decided.iter().filter(is_refundable).copied().collect()
}
