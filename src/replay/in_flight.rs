//! Requests in flight on a clock that is set: the slots that they hold, the renewal of their leases, and what happens at
//! their ends.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::limit::{Charge, ChargeKind, DecidedCharge, Policy, Quota};
use crate::time::{Micros, Timestamp};

/// A lease is renewed after this fraction of it, as in the proxy.
const RENEWALS: u64 = 3;

/// Some charges of a request.
pub type FlightCharges = SmallVec<[Charge; 2]>;

/// Requests in flight, by the time of their end and a number.
#[derive(Debug, Default)]
pub struct RequestsInFlight {
    requests: BTreeMap<(Timestamp, u64), Flight>,
    /// When leases are to be renewed, and of which request.
    renewals: BTreeSet<(Timestamp, (Timestamp, u64))>,
    started: u64,
}

/// What a request holds until its end.
#[derive(Debug, Default)]
pub struct Flight {
    /// The charges that hold slots.
    pub slots: FlightCharges,
    /// What is refunded or charged at its end.
    pub settlement: FlightCharges,
}

impl RequestsInFlight {
    /// Starts a request that ends at `end`. One that holds nothing is ignored.
    pub fn start(&mut self, now: Timestamp, end: Timestamp, flight: Flight, policies: &[Policy]) {
        if flight.slots.is_empty() && flight.settlement.is_empty() {
            return;
        }
        self.started += 1;
        let request = (end, self.started);
        if let Some(renewal) = flight.renewal(now, policies) {
            self.renewals.insert((renewal, request));
        }
        self.requests.insert(request, flight);
    }

    /// Removes the next request that has ended by `now`; returns when it ended, and the charges of its end.
    pub fn next_end(&mut self, now: Timestamp) -> Option<(Timestamp, FlightCharges)> {
        let entry = self.requests.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((end, _), flight) = entry.remove_entry();
        let mut charges = flight.slots_with(ChargeKind::Release);
        charges.extend(flight.settlement);
        Some((end, charges))
    }

    /// The charges that renew the leases of the next request whose renewal is due by `now`. A lease is renewed once, even if
    /// several renewals are due.
    pub fn next_renewal(&mut self, now: Timestamp, policies: &[Policy]) -> Option<FlightCharges> {
        while self.renewals.first().is_some_and(|(due, _)| *due <= now) {
            let (_, request) = self.renewals.pop_first()?;
            if let Some(flight) = self.requests.get(&request) {
                if let Some(renewal) = flight.renewal(now, policies) {
                    self.renewals.insert((renewal, request));
                }
                return Some(flight.slots_with(ChargeKind::Renew));
            }
        }
        None
    }

    /// When the last request ends, if there is any.
    #[must_use]
    pub fn busy_until(&self) -> Option<Timestamp> {
        self.requests.last_key_value().map(|((end, _), _)| *end)
    }
}

impl Flight {
    /// When its leases are to be renewed after `now`; none without slots.
    fn renewal(&self, now: Timestamp, policies: &[Policy]) -> Option<Timestamp> {
        let leases = self.slots.iter().filter_map(|charge| lease(&policies[charge.policy]));
        leases.map(|lease| now.after(Micros((lease.0 / RENEWALS).max(1)))).min()
    }

    fn slots_with(&self, kind: ChargeKind) -> FlightCharges {
        self.slots.iter().map(|charge| charge.with_kind(kind)).collect()
    }
}

/// What is refunded or charged when a response has cost `units`, of a request for which a limit has taken other units; none if
/// they are the same.
#[must_use]
pub fn settlement(policy: &Policy, taken: &DecidedCharge, units: u64) -> Option<Charge> {
    let (reserved, units) = (taken.charge.cost, units.min(policy.settled_max().unwrap_or(u64::MAX)));
    match units.cmp(&reserved) {
        Ordering::Less => Some(Charge { cost: reserved - units, ..taken.refund() }),
        Ordering::Equal => None,
        Ordering::Greater => Some(taken.charge.extra(units - reserved)),
    }
}

/// How long a slot is held without renewal; none if the limit has no slots.
#[must_use]
pub fn lease(policy: &Policy) -> Option<Micros> {
    if let Quota::Concurrency(slots) = &policy.quota { Some(slots.lease()) } else { None }
}
