//! Units that requests take on arrival, until their responses have told what the requests are charged: by their final status
//! (`charge_on`), or by a cost that is found in the response.
//!
//! A request in flight holds its units, so a burst of parallel requests is bounded by the limit, and a client that
//! disconnects before its response has paid.
//!
//! Both are one mechanism: a limit is settled at a number of units. What it has taken beyond that is refunded, to the state that
//! took it; what it has taken too little is charged in addition, whatever the limit allows. A status that is not charged
//! settles at 0, before the response is sent ([`Reservation::respond`]); a cost that is found at the end of the response is
//! settled then ([`Reservation::settle`]). If the client disconnects the reservation is dropped, and the units stay charged; so
//! they do if a server may have received the request and the status is 502 or 504.

mod on_servers;
mod part;

use smallvec::SmallVec;

pub(super) use self::part::Origin;
use self::part::Part;
use super::grants::TakenUnits;
use super::limits::Limits;
use super::settlement::{Settlement, SettlementContext};
use super::status::LimitStatuses;
use crate::boxed::rare;
use crate::limit::{Charge, Charges, DecidedCharge, EntryId, Policy, PolicyId};
use crate::telemetry::SettledOutcome;

/// The most decisions whose units are kept apart: those of further ones are added to the last.
const MAX_PARTS: usize = 8;

/// Units that a request holds. [`Reservation::respond`] and [`Reservation::settle`] refund or charge the difference to what the
/// request costs; all of them stay charged if it is dropped before.
#[derive(Debug)]
pub struct Reservation {
    context: SettlementContext,
    /// The limits that have decided the request.
    limits: Limits,
    /// What each limit and key has reserved.
    reserved: SmallVec<[Reserved; 2]>,
    /// Where the units were taken: by the decision on the request, and then by those on more units.
    parts: SmallVec<[Part; 1]>,
    delivery: Delivery,
    /// The reservations of the same request on other servers of the store; theirs are empty.
    others: Vec<Self>,
}

/// What a limit has reserved under one key.
#[derive(Clone, Copy, Debug)]
struct Reserved {
    /// The limit of the configuration.
    limit: PolicyId,
    /// The charge of the request; the limit may have decided it by raised numbers.
    charge: Charge,
    /// Units that were taken for the request.
    units: u64,
    /// How many of them are still held: none once the status has refunded them.
    held: u64,
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
    /// The proxy has refused it after its limits have allowed it: it is not charged.
    Refused,
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

impl SettledUnits {
    /// A request that has reserved units of this limit and whose response has this cost, of which no more is charged than a
    /// settled cost can be.
    pub(super) fn of(limit: PolicyId, policy: &Policy, reserved: u64, cost: u64) -> Self {
        let charged = cost.min(policy.settled_max().unwrap_or(u64::MAX));
        Self { policy: limit, reserved, charged, is_cut: charged < cost }
    }
}

/// How the final status settles a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatusRule {
    /// The reserved units stay charged.
    Charged,
    /// The reserved units are refunded.
    Refunded,
    /// The reserved units stay charged unless the response tells the cost.
    Awaited,
}

impl StatusRule {
    /// The rule for a limit and this final status.
    pub fn of(policy: &Policy, status: u16, delivery: Delivery) -> Self {
        let is_unanswered = match delivery {
            Delivery::Refused => return Self::Refunded,
            Delivery::Unsent => false,
            // A 503 is the proxy's own.
            Delivery::Unanswered => status == 503 || is_unanswered(status),
            Delivery::Answered => is_unanswered(status),
        };
        let is_listed = !policy.charges_by_status() || policy.charge_on().contains(&status);
        match policy.settles() {
            false if is_unanswered || is_listed => Self::Charged,
            true if is_unanswered && delivery == Delivery::Unanswered => Self::Charged,
            true if is_unanswered || (is_listed && delivery != Delivery::Unsent) => Self::Awaited,
            _ => Self::Refunded,
        }
    }
}

impl Reservation {
    /// The units that charges have taken and that the response may change; most requests have none.
    pub(super) fn new(
        context: impl FnOnce() -> SettlementContext,
        limits: &Limits,
        decided: &[DecidedCharge],
        origin: Origin,
    ) -> Option<Box<Self>> {
        let held = reserving(limits, decided);
        if held.is_empty() {
            return None;
        }
        let context = context();
        let part = Part::new(&context.client.fallback, limits, held, origin);
        Some(Box::new(Self::of(context, part)))
    }

    fn of(context: SettlementContext, part: Part) -> Self {
        let limits = part.limits.clone();
        let mut all = Self {
            context,
            limits,
            reserved: SmallVec::new(),
            parts: SmallVec::new(),
            delivery: Delivery::Unsent,
            others: Vec::new(),
        };
        part.charges().for_each(|charge| all.reserve(&charge));
        all.parts.push(part);
        all
    }

    /// This reservation, or a new one, with units that were taken from grants.
    pub(super) fn with_taken(
        known: Option<Box<Self>>,
        (context, limits): (SettlementContext, &Limits),
        taken: Box<TakenUnits>,
    ) -> Box<Self> {
        let part = Part::new(&context.client.fallback, limits, SmallVec::new(), Origin::Store(Vec::new()));
        let taken = Self::of(context, Part { taken: Some(taken), ..part });
        let Some(mut known) = known else { return Box::new(taken) };
        known.join(taken);
        known
    }

    /// Adds the units of another decision on the same request.
    pub(super) fn join(&mut self, mut other: Self) {
        for part in std::mem::take(&mut other.parts) {
            // A stream may take more units every second, for hours.
            let is_merged =
                self.parts.len() >= MAX_PARTS && self.parts.last_mut().is_some_and(|last| last.merge(&part));
            if !is_merged {
                self.parts.push(part);
            }
        }
        for more in std::mem::take(&mut other.reserved) {
            self.add(more);
        }
    }

    /// Records that a charge has reserved units.
    fn reserve(&mut self, charge: &Charge) {
        let (limit, units) = (self.limits.configured(charge), charge.cost);
        let policy = self.limits.policy(charge);
        if policy.settles() {
            self.context.reserved.add(policy, charge.key, units);
            self.count(limit, SettledOutcome::Reserved, units);
        }
        self.add(Reserved { limit, charge: *charge, units, held: units });
    }

    fn add(&mut self, more: Reserved) {
        let same = |known: &&mut Reserved| (known.limit, known.charge.key) == (more.limit, more.charge.key);
        match self.reserved.iter_mut().find(same) {
            Some(known) => {
                known.units = known.units.saturating_add(more.units);
                known.held = known.held.saturating_add(more.held);
            }
            None => self.reserved.push(more),
        }
    }

    /// Refunds what a request with this final status is not charged, and settles the limits whose cost is `known`, before the
    /// response is sent. Returns the decisions of their limits after that, and what is settled at the end of the response.
    pub async fn respond(
        mut self: Box<Self>,
        status: u16,
        known: &[(PolicyId, u64)],
    ) -> (LimitStatuses, Option<Box<Self>>) {
        let settlement = self.settle_by_status(status, known);
        let statuses = if self.others.is_empty() {
            settlement.send(&self.context).await
        } else {
            rare(self.respond_on_each_server(settlement, status, known)).await
        };
        let awaits = self.on_each_server().any(|own| !own.reserved.is_empty());
        (statuses, awaits.then_some(self))
    }

    /// Settles in this process what the final status decides, and the limits whose cost is known; returns what is sent to the
    /// store. What is settled at the end of the response stays reserved.
    pub(super) fn settle_by_status(&mut self, status: u16, known: &[(PolicyId, u64)]) -> Settlement {
        let mut settlement = Settlement::default();
        for mut reserved in std::mem::take(&mut self.reserved) {
            let policy = self.limits.policy(&reserved.charge);
            let known = known.iter().find(|(limit, _)| *limit == reserved.limit && policy.settles());
            if let Some((_, cost)) = known {
                let units = SettledUnits::of(reserved.limit, policy, reserved.units, *cost);
                self.settle_at(&reserved, units, *cost, &mut settlement);
                continue;
            }
            let settles = policy.settles();
            match StatusRule::of(policy, status, self.delivery) {
                StatusRule::Charged => self.keep(&reserved, &mut settlement),
                StatusRule::Awaited => self.reserved.push(reserved),
                StatusRule::Refunded => {
                    self.settle_units(&reserved, 0, &mut settlement);
                    reserved.held = 0;
                    // A cost that is found later is charged all the same.
                    if settles {
                        self.reserved.push(reserved);
                    }
                }
            }
        }
        settlement
    }

    /// Refunds the units that a request with this final status is not charged; returns the decisions of their limits after
    /// that. The reserved units of the others stay charged.
    pub async fn finish(self: Box<Self>, status: u16) -> LimitStatuses {
        self.respond(status, &[]).await.0
    }

    /// Settles the units by what the response has cost. Returns at once, with what each limit is charged; the store is called
    /// afterwards. `costs` has the cost of a request for a limit of the configuration, or `None` if it is unknown: then the
    /// reserved units stay charged.
    pub fn settle(
        mut self: Box<Self>,
        costs: impl Fn(PolicyId) -> Option<u64>,
    ) -> SmallVec<[SettledUnits; 2]> {
        let (mut settled, settlement) = self.settle_all(&costs);
        settlement.send_later(&self.context);
        self.settle_on_other_servers(costs, &mut settled);
        settled
    }

    /// Settles the units in this process; returns what each limit is charged, and what is sent to the store.
    pub(super) fn settle_all(
        &mut self,
        costs: impl Fn(PolicyId) -> Option<u64>,
    ) -> (SmallVec<[SettledUnits; 2]>, Settlement) {
        let (mut settled, mut settlement) = (SmallVec::new(), Settlement::default());
        for reserved in std::mem::take(&mut self.reserved) {
            let policy = self.limits.policy(&reserved.charge);
            if !policy.settles() {
                self.keep(&reserved, &mut settlement);
                continue;
            }
            let Reserved { limit, units, held, .. } = reserved;
            settled.push(if let Some(cost) = costs(limit) {
                let units = SettledUnits::of(limit, policy, units, cost);
                self.settle_at(&reserved, units, cost, &mut settlement);
                units
            } else {
                self.keep(&reserved, &mut settlement);
                SettledUnits { policy: limit, reserved: units, charged: held, is_cut: false }
            });
        }
        (settled, settlement)
    }

    /// The units that each limit of the configuration has reserved for this request, if it settles them.
    pub fn reserved(&self) -> impl Iterator<Item = (PolicyId, u64)> {
        self.on_each_server().flat_map(|own| {
            let settles = |reserved: &&Reserved| own.limits.policy(&reserved.charge).settles();
            own.reserved.iter().filter(settles).map(|reserved| (reserved.limit, reserved.units))
        })
    }

    /// The limits that have decided the request, and charges of more units of these limits. The limits decide by the numbers that
    /// the request had, also if a raise has begun or ended.
    pub(super) fn more(&self, more: &[(PolicyId, u64)]) -> (Limits, Charges) {
        let charge = |(limit, units): &(PolicyId, u64)| {
            let reserved = self.reserved.iter().find(|reserved| reserved.limit == *limit)?;
            Some(Charge { cost: *units, ..reserved.charge }).filter(|_| *units > 0)
        };
        (self.limits.clone(), more.iter().filter_map(charge).collect())
    }

    /// Where it is recorded that a server may have received the request, and has responded.
    pub fn delivery_mut(&mut self) -> &mut Delivery {
        &mut self.delivery
    }

    /// Settles a limit by the cost of the response.
    fn settle_at(
        &mut self,
        reserved: &Reserved,
        units: SettledUnits,
        cost: u64,
        settlement: &mut Settlement,
    ) {
        let charged = units.charged;
        let extra = self.settle_units(reserved, charged, settlement);
        if extra > 0 {
            settlement.add(&self.limits, reserved.charge.extra(extra));
        }
        self.count(reserved.limit, SettledOutcome::Settled, charged);
        self.count(reserved.limit, SettledOutcome::Extra, extra);
        self.count(reserved.limit, SettledOutcome::Cut, cost - charged);
    }

    /// The units that are held stay charged.
    fn keep(&mut self, reserved: &Reserved, settlement: &mut Settlement) {
        self.settle_units(reserved, reserved.held, settlement);
        if self.limits.policy(&reserved.charge).settles() {
            self.count(reserved.limit, SettledOutcome::Settled, reserved.held);
        }
    }

    /// Charges so many of the units that a limit has reserved, and refunds the others: those that were taken last first. Returns
    /// how many of `charged` are missing.
    fn settle_units(&mut self, reserved: &Reserved, charged: u64, settlement: &mut Settlement) -> u64 {
        let (policy, mut rest) = (self.limits.policy(&reserved.charge), charged);
        let id = EntryId::new(policy, reserved.charge.key);
        for part in &mut self.parts {
            part.settle(&self.context.client.fallback, id, &mut rest, settlement);
        }
        if policy.settles() {
            self.context.reserved.remove(policy, reserved.charge.key, reserved.held);
            self.count(reserved.limit, SettledOutcome::Refunded, reserved.held.saturating_sub(charged));
        }
        rest
    }

    fn count(&self, limit: PolicyId, outcome: SettledOutcome, units: u64) {
        self.context.client.fallback.counts.record_settled(limit, outcome, units);
    }
}

impl Drop for Reservation {
    /// Units that were not settled stay charged.
    fn drop(&mut self) {
        self.parts.iter_mut().for_each(|part| part.charge(&self.context.client.fallback));
        for reserved in std::mem::take(&mut self.reserved) {
            let policy = self.limits.policy(&reserved.charge);
            if policy.settles() {
                self.context.reserved.remove(policy, reserved.charge.key, reserved.held);
                self.count(reserved.limit, SettledOutcome::Settled, reserved.held);
            }
        }
    }
}

/// The charges that have taken units which the response may change; most requests have none. A limit in shadow mode takes units as
/// well, if it would have allowed them.
pub(super) fn reserving(limits: &Limits, decided: &[DecidedCharge]) -> SmallVec<[DecidedCharge; 2]> {
    let is_reserving = |one: &&DecidedCharge| {
        let policy = limits.policy(&one.charge);
        limits.reserve(policy) && one.charge.takes_units() && one.decision.allowed
    };
    decided.iter().filter(is_reserving).copied().collect()
}
