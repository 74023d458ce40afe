//! Requests whose limits have keys on several servers, which no call can decide together.
//!
//! First all servers check their charges at once, which takes nothing. If none denies the request, the charges are made: on one
//! server after the other, each in one atomic call, in an order that is the same for all requests. If one denies the request now,
//! since another request was faster, the charges before it are given back (`Delivery::Refused`), also if the client disconnects
//! meanwhile. So no limit is exceeded; but a competing request may be denied although it would have fitted.
//!
//! There is no check if a single server has one to make, and what the other parts take can be given back. Then this process decides
//! the other parts, by grants and shares, and their charges are made first. The check is made nevertheless if another part has a
//! leaky bucket, whose position can't be given back, or a slot that may need a call.
//!
//! A server that is unavailable decides for its keys alone: its part of the request follows `on_store_failure`, and one that has
//! not replied to the check is not asked again.

use futures_util::future::join_all;

use super::admission::Admission;
use super::early_denial::Checked;
use super::limits::Limits;
use super::reservation::Reservation;
use super::server_limiter::ServerLimiter;
use super::status::{LimitStatus, LimitStatuses};
use crate::limit::{Charge, Charges, PolicyId, Quota};
use crate::store::Servers;

/// The charges of a request on the keys of one server.
struct Part<'a> {
    server: &'a ServerLimiter,
    charges: Charges,
    /// Whether only the server can say if it denies the request; set by `order`.
    has_checks: bool,
    /// Whether the server has not replied to the check.
    has_failed: bool,
}

impl Part<'_> {
    /// Whether no limit of this part denies requests.
    fn is_shadow(&self, limits: &Limits) -> bool {
        self.charges.iter().all(|charge| limits.policy(charge).shadow)
    }

    /// Whether a charge takes a position in the queue of a leaky bucket.
    fn queues(&self, limits: &Limits) -> bool {
        let queues = |charge: &Charge| matches!(limits.policy(charge).quota, Quota::LeakyBucket(_));
        self.charges.iter().any(queues)
    }
}

/// The charges by their servers.
fn parts<'a>(servers: &'a Servers<ServerLimiter>, charges: &[Charge]) -> Vec<Part<'a>> {
    let indices: Vec<usize> = charges.iter().map(|charge| servers.index(charge.key)).collect();
    let own = |(index, server): (usize, &'a ServerLimiter)| {
        let charges: Charges =
            charges.iter().zip(&indices).filter(|(_, of)| **of == index).map(|(charge, _)| *charge).collect();
        (!charges.is_empty()).then_some(Part { server, charges, has_checks: false, has_failed: false })
    };
    servers.iter().enumerate().filter_map(own).collect()
}

/// Puts the parts into the order in which their charges are made.
fn order(parts: &mut [Part<'_>], limits: &Limits) {
    for part in &mut *parts {
        part.has_checks = part.server.has_checks(limits, &part.charges);
    }
    // Limits in shadow mode, which deny nothing, are charged last, and leaky buckets late, since a position in a queue can't be
    // given back. What this process decides is given back without a call. The sort is stable, so parts stay in the order of the
    // servers.
    parts.sort_by_key(|part| (part.is_shadow(limits), part.queues(limits), part.has_checks));
}

/// Whether the servers check the charges of a request before they are made.
fn needs_check(parts: &[Part<'_>], limits: &Limits) -> bool {
    let keeps_slots = |part: &Part<'_>| part.charges.iter().any(|charge| limits.policy(charge).keeps_slots);
    let matters = |part: &Part<'_>| !part.is_shadow(limits) && (part.queues(limits) || keeps_slots(part));
    match parts.iter().filter(|part| part.has_checks).count() {
        0 => false,
        1 => parts.iter().any(|part| !part.has_checks && matters(part)),
        _ => true,
    }
}

/// Decides a request: all of its charges are made, or none.
pub(super) async fn decide(
    servers: &Servers<ServerLimiter>,
    limits: &Limits,
    charges: &[Charge],
) -> Admission {
    let mut parts = parts(servers, charges);
    if let Some(denied) = find_known(&parts, limits) {
        return denied;
    }
    order(&mut parts, limits);
    if needs_check(&parts, limits)
        && let Some(denied) = check(&mut parts, limits).await
    {
        return denied;
    }
    // All units can be given back until the whole request has passed.
    let refundable = limits.refundable();
    let mut passed = Passed(Vec::with_capacity(parts.len()));
    for Part { server, charges, has_failed, .. } in &parts {
        let admission = if *has_failed {
            server.decide_locally(&refundable, charges)
        } else {
            Box::pin(server.decide(&refundable, charges)).await
        };
        if admission.verdict.is_err() {
            return admission;
        }
        passed.0.push(admission);
    }
    let mut all = passed.join();
    sort(&mut all.statuses, limits, charges);
    sort(&mut all.shadow, limits, charges);
    all
}

/// See `Limiter::known_denial`.
pub(super) fn known_denial(
    servers: &Servers<ServerLimiter>,
    limits: &Limits,
    charges: &[Charge],
) -> Option<Admission> {
    find_known(&parts(servers, charges), limits)
}

/// See `Limiter::denial_in_redis`.
pub(super) async fn denial_in_redis(
    servers: &Servers<ServerLimiter>,
    limits: &Limits,
    charges: &[Charge],
) -> Option<Admission> {
    check(&mut parts(servers, charges), limits).await
}

fn find_known(parts: &[Part<'_>], limits: &Limits) -> Option<Admission> {
    parts.iter().find_map(|Part { server, charges, .. }| server.known_denial(limits, charges))
}

/// Has all servers check their charges at once; returns the first denial.
async fn check(parts: &mut [Part<'_>], limits: &Limits) -> Option<Admission> {
    let checks = parts.iter().map(|Part { server, charges, .. }| server.check_in_store(limits, charges));
    let (checked, mut first) = (join_all(checks).await, None);
    for (part, checked) in parts.iter_mut().zip(checked) {
        part.has_failed = matches!(checked, Checked::Failed);
        first = first.or(checked.denial());
    }
    first
}

/// Reads the state of each limit that the charges name: for clients if it is `shown`, see `Limiter::show`.
pub(super) async fn read(
    servers: &Servers<ServerLimiter>,
    (limits, charges): (&Limits, &[Charge]),
    shown: bool,
) -> Admission {
    let parts = parts(servers, charges);
    let reads = parts.iter().map(async |Part { server, charges, .. }| {
        if shown { server.show(limits, charges).await } else { server.peek(limits, charges).await }
    });
    let (mut read, mut passed) = (join_all(reads).await, Passed(Vec::new()));
    if let Some(denied) = read.iter().position(|admission| admission.verdict.is_err()) {
        return read.swap_remove(denied);
    }
    passed.0 = read;
    let mut all = passed.join();
    sort(&mut all.statuses, limits, charges);
    sort(&mut all.shadow, limits, charges);
    all
}

/// See `Limiter::charge_spent`.
pub(super) async fn charge_spent(
    servers: &Servers<ServerLimiter>,
    limits: &Limits,
    charges: &[Charge],
) -> LimitStatuses {
    let parts = parts(servers, charges);
    let spent = parts.iter().map(|Part { server, charges, .. }| server.charge_spent(limits, charges));
    let mut statuses: LimitStatuses = join_all(spent).await.into_iter().flatten().collect();
    sort(&mut statuses, limits, charges);
    statuses
}

/// See `Limiter::take_more`.
pub(super) async fn take_more(
    servers: &Servers<ServerLimiter>,
    reservation: &mut Reservation,
    more: &[(PolicyId, u64)],
) -> bool {
    let mut passed = Passed(Vec::new());
    for own in reservation.on_each_server() {
        let (limits, charges) = own.more(more);
        let Some(first) = charges.first() else { continue };
        let server = servers.of(first.key);
        let admission = Box::pin(server.decide_charges(&limits.refundable(), &charges)).await;
        if admission.verdict.is_err() {
            return false;
        }
        passed.0.push(admission);
    }
    for taken in std::mem::take(&mut passed.0).into_iter().filter_map(|part| part.reservation) {
        reservation.join_same_server(*taken);
    }
    true
}

/// Puts decisions into the order of the charges.
fn sort(statuses: &mut [LimitStatus], limits: &Limits, charges: &[Charge]) {
    let place = |status: &LimitStatus| {
        let is_of = |charge: &Charge| (limits.configured(charge), charge.key) == (status.policy, status.key);
        charges.iter().position(is_of)
    };
    // A request of Envoy can have many charges.
    statuses.sort_by_cached_key(place);
}

/// The parts of a request that have passed. What they have taken is given back when this is dropped: if another part is denied, or
/// the client disconnects.
struct Passed(Vec<Admission>);

impl Passed {
    /// The admission of the whole request.
    fn join(mut self) -> Admission {
        let mut all = Admission::unlimited();
        for part in std::mem::take(&mut self.0) {
            all.join(part);
        }
        all
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        // Slots are released with their permits.
        self.0.drain(..).filter_map(|part| part.reservation).for_each(Reservation::give_back);
    }
}
