//! The limits of a request that its response settles, until its end.

use std::rc::Rc;
use std::sync::Arc;

use smallvec::SmallVec;

use super::cost::{self, End, Seen, SettledRequest};
use super::hidden::HiddenFields;
use super::warnings::SettleWarnings;
use crate::gate::{Cost, CostBasis, CostSource, Gate, RouteId, SettledCost};
use crate::http1::Fields;
use crate::limit::PolicyId;
use crate::limiter::{Delivery, LimitStatuses, Limiter, Reservation, is_unanswered};
use crate::proxy::snapshot::{ConfigSnapshot, Proxy};
use crate::telemetry::Counts;
use crate::time::Stopwatch;
use crate::usage::Unknown;

/// The units of a request, and the limits that settle them by its response.
pub(in crate::proxy) struct Pending {
    snapshot: Arc<ConfigSnapshot>,
    counts: Arc<Counts>,
    /// Takes more units while the response is sent.
    pub(super) limiter: Limiter,
    warnings: Rc<SettleWarnings>,
    route: Option<RouteId>,
    status: u16,
    /// None while more units are taken, and when the units are settled.
    pub reservation: Option<Box<Reservation>>,
    pub(super) limits: SmallVec<[PendingLimit; 2]>,
    pub request: SettledRequest,
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// A limit that a response settles.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingLimit {
    pub policy: PolicyId,
    /// Units that were taken on arrival, and since.
    pub reserved: u64,
    /// Whether the status is charged: otherwise the units were refunded, unless the response says its cost.
    is_charged: bool,
    /// The cost, once it is known.
    known: Option<u64>,
    /// Why the cost is unknown.
    unknown: Option<Unknown>,
    /// What the request is charged, once that is settled.
    charged: Option<u64>,
}

/// What a limit has charged a request, for its record.
#[derive(Clone, Debug)]
pub(in crate::proxy) struct LimitCost {
    pub limit: Box<str>,
    /// Units that were taken on arrival, and while the response was sent.
    pub reserved: u64,
    /// Units that it is charged; none if that is not settled yet.
    pub charged: Option<u64>,
}

impl PendingLimit {
    /// Whether the rest of the response decides what the limit is charged.
    pub fn is_open(&self) -> bool {
        self.is_charged && self.known.is_none()
    }
}

impl Pending {
    /// The units that a request has reserved.
    pub fn new(
        proxy: &Proxy,
        route: Option<RouteId>,
        reservation: Box<Reservation>,
        request: SettledRequest,
    ) -> Self {
        let limit = |(policy, reserved)| PendingLimit {
            policy,
            reserved,
            is_charged: true,
            known: None,
            unknown: None,
            charged: None,
        };
        Self {
            snapshot: Arc::clone(&proxy.snapshot),
            counts: Arc::clone(&proxy.counts),
            limiter: proxy.limiter.clone(),
            warnings: Rc::clone(&proxy.settle_warnings),
            route,
            status: 0,
            limits: reservation.reserved().map(limit).collect(),
            reservation: Some(reservation),
            request,
        }
    }

    /// The same for a request that has reserved nothing.
    pub fn without_units(proxy: &Proxy, route: RouteId) -> Self {
        Self {
            snapshot: Arc::clone(&proxy.snapshot),
            counts: Arc::clone(&proxy.counts),
            limiter: proxy.limiter.clone(),
            warnings: Rc::clone(&proxy.settle_warnings),
            route: Some(route),
            status: 0,
            limits: SmallVec::new(),
            reservation: None,
            request: SettledRequest { started: Stopwatch::start(), is_head: false, usage: Arc::default() },
        }
    }

    /// The settled costs of its limits.
    pub fn costs(&self) -> impl Iterator<Item = &SettledCost> {
        self.limits.iter().filter_map(|limit| settled_cost(&self.snapshot.gate, limit.policy))
    }

    /// The pointers to costs in the body, in the order of the limits.
    pub fn pointers(&self) -> Vec<&str> {
        self.costs().filter_map(cost::pointer).collect()
    }

    /// The fields that the client does not get.
    pub fn hidden(&self) -> HiddenFields<'_> {
        HiddenFields { gate: &self.snapshot.gate, route: self.route }
    }

    /// Whether units are not settled yet.
    pub fn is_open(&self) -> bool {
        self.reservation.is_some()
    }

    /// Records the final status, which decides whether units are charged.
    pub fn set_status(&mut self, status: u16) {
        self.status = status;
        let delivery = self.delivery();
        for limit in &mut self.limits {
            let charge_on = self.snapshot.gate.limits.policies[limit.policy].charge_on();
            limit.is_charged = charge_on.is_empty()
                || charge_on.contains(&status)
                || delivery == Delivery::Unanswered
                || is_unanswered(status);
        }
    }

    /// Finds the costs that are known before the response is sent. `fields` are those of the head of a server's response; a
    /// response that is `is_bodiless` has no body by definition.
    pub fn find_known(&mut self, fields: Option<&Fields>, is_bodiless: bool) {
        let is_unsent = self.is_unsent();
        let gate = &self.snapshot.gate;
        for limit in &mut self.limits {
            let Some(cost) = settled_cost(gate, limit.policy) else { continue };
            let found = match (&cost.basis, fields) {
                // The proxy has made the response by itself.
                _ if is_unsent => Ok(Some(0)),
                (CostBasis::Parts { settle: CostSource::Header(name), .. }, Some(fields)) => {
                    cost::header_units(fields, name).map(Some)
                }
                (basis, _) if is_bodiless && basis.reads_response() => Ok(Some(0)),
                _ => Ok(None),
            };
            match found {
                Ok(units) => limit.known = units,
                Err(unknown) => limit.unknown = Some(unknown),
            }
        }
    }

    /// Refunds what a request with this status is not charged, and settles the limits whose cost is known. Returns the
    /// decisions of their limits after that.
    pub async fn respond(&mut self) -> LimitStatuses {
        let Some(reservation) = self.reservation.take() else { return LimitStatuses::new() };
        let (statuses, rest) = reservation.respond(self.status, &self.known()).await;
        self.responded(rest);
        self.report();
        statuses
    }

    /// Where it is recorded that a server may have received the request, and has responded.
    pub fn delivery_mut(&mut self) -> Option<&mut Delivery> {
        self.reservation.as_deref_mut().map(Reservation::delivery_mut)
    }

    /// Records that the request is refused since the upstream is overloaded: nothing is charged, unless a server may have received
    /// an earlier attempt.
    pub fn refuse(&mut self) {
        if let Some(delivery) = self.delivery_mut().filter(|delivery| **delivery == Delivery::Unsent) {
            *delivery = Delivery::Refused;
        }
    }

    /// Whether no server has received the request.
    fn is_unsent(&mut self) -> bool {
        matches!(self.delivery(), Delivery::Unsent | Delivery::Refused)
    }

    /// Whether a server has the request.
    fn delivery(&mut self) -> Delivery {
        self.delivery_mut().map_or(Delivery::Answered, |delivery| *delivery)
    }

    /// The costs that are known.
    fn known(&self) -> SmallVec<[(PolicyId, u64); 2]> {
        self.limits.iter().filter_map(|limit| Some((limit.policy, limit.known?))).collect()
    }

    /// Records what the limits are charged that are settled now; `rest` is settled at the end of the response.
    fn responded(&mut self, rest: Option<Box<Reservation>>) {
        for limit in &mut self.limits {
            let policy = &self.snapshot.gate.limits.policies[limit.policy];
            let most = policy.settled_max().unwrap_or(u64::MAX);
            limit.charged = match (limit.known, limit.is_charged) {
                (Some(units), _) => Some(units.min(most)),
                (None, false) => Some(0),
                (None, true) => rest.is_none().then_some(limit.reserved),
            };
        }
        self.reservation = rest;
    }

    /// The cost of a limit so far.
    pub(super) fn so_far(&self, index: usize, seen: &Seen<'_>) -> Option<u64> {
        let gate = &self.snapshot.gate;
        let limit = self.limits.get(index)?;
        let pointer = self.limits[..index].iter().filter_map(|limit| settled_cost(gate, limit.policy));
        let pointer = pointer.filter_map(cost::pointer).count();
        cost::units(settled_cost(gate, limit.policy)?, pointer, &self.request, seen).ok().flatten()
    }

    /// Settles the limits by what was seen of the response.
    pub(super) fn settle(&mut self, seen: &Seen<'_>) {
        let Some(reservation) = self.reservation.take() else { return };
        let gate = &self.snapshot.gate;
        let mut pointer = 0;
        for limit in &mut self.limits {
            let Some(cost) = settled_cost(gate, limit.policy) else { continue };
            let own_pointer = pointer;
            pointer += usize::from(cost::pointer(cost).is_some());
            // A status that is not charged is so whatever is measured, but not whatever the server says.
            let is_refunded = !limit.is_charged && (cost::is_measured(cost) || seen.end == End::Early);
            if limit.known.is_some() || is_refunded {
                continue;
            }
            match cost::units(cost, own_pointer, &self.request, seen) {
                Ok(units) => {
                    limit.known = units;
                    limit.unknown = cost::has_unknown_model(cost, seen).then_some(Unknown::Model);
                }
                Err(unknown) => limit.unknown = limit.unknown.or(Some(unknown)),
            }
        }
        self.finish(reservation);
        self.report();
    }

    /// Settles the limits at the end of a tunnel, over which the client and the server have sent so many bytes. They have a cost
    /// by bytes and time alone.
    pub fn settle_tunnel(&mut self, from_client: u64, bytes: u64) {
        self.request.usage.received.add(from_client);
        let observed = Err(Unknown::Type);
        self.settle(&Seen { end: End::Early, observed, is_stream: false, bytes, trailers: None });
    }

    /// Leaves the reserved units charged, or gives them back if no server has received the request.
    pub fn abandon(&mut self) {
        let is_unsent = self.is_unsent();
        if let Some(reservation) = self.reservation.take() {
            for limit in &mut self.limits {
                limit.known = limit.known.or(is_unsent.then_some(0));
            }
            self.finish(reservation);
        }
    }

    fn finish(&mut self, reservation: Box<Reservation>) {
        let limits = &self.limits;
        let known = |policy| limits.iter().find(|limit| limit.policy == policy)?.known;
        let settled = reservation.settle(known);
        for units in settled {
            let limit = self.limits.iter_mut().find(|limit| limit.policy == units.policy);
            if let Some(limit) = limit {
                (limit.reserved, limit.charged) = (units.reserved, Some(units.charged));
            }
        }
    }

    /// Counts the costs that turn out to be unknown, and warns of them and of costs that were cut.
    fn report(&mut self) {
        let gate = &self.snapshot.gate;
        let route = (self.route, self.route.map_or("", |route| &*gate.routes.get(route).name));
        for limit in &mut self.limits {
            let own = gate.limit_of(limit.policy);
            let policy = &gate.limits.policies[own];
            if let Some(reason) = limit.unknown.take().filter(|_| limit.is_charged) {
                self.counts.record_settle_unknown(own, reason);
                self.warnings.warn_unknown(route, &policy.name, reason);
            }
            if let (Some(known), Some(charged)) = (limit.known, limit.charged)
                && charged < known
            {
                self.warnings.warn_cut(route, &policy.name, charged);
            }
        }
    }

    /// What each limit has charged.
    pub fn charged(&self) -> Vec<LimitCost> {
        let name = |policy: PolicyId| self.snapshot.gate.limits.policies[policy].name.clone();
        let cost = |limit: &PendingLimit| LimitCost {
            limit: name(self.snapshot.gate.limit_of(limit.policy)),
            reserved: limit.reserved,
            charged: limit.charged,
        };
        self.limits.iter().map(cost).collect()
    }
}

/// How a limit, or the one whose tier or override the policy is, settles costs; none if it does not.
fn settled_cost(gate: &Gate, policy: PolicyId) -> Option<&SettledCost> {
    match &gate.limit_rules.get(gate.limit_of(policy))?.cost {
        Cost::Settled(cost) => Some(cost),
        Cost::Fixed(_) | Cost::Header { .. } => None,
    }
}
