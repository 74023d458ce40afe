//! Units of one request on several servers of the store: each server has a reservation of its own, and the first has the others.

use futures_util::future::join_all;
use smallvec::SmallVec;

use super::{Delivery, Reservation, SettledUnits};
use crate::limit::PolicyId;
use crate::limiter::settlement::Settlement;
use crate::limiter::status::LimitStatuses;

impl Reservation {
    /// Adds the units of the same request on another server.
    pub(in crate::limiter) fn add_server(&mut self, other: Self) {
        self.others.push(other);
    }

    /// The units on each server of the store; nearly always one.
    pub(in crate::limiter) fn on_each_server(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.others)
    }

    /// Adds the units of another decision on the same request to those that the same server has taken.
    pub(in crate::limiter) fn join_same_server(&mut self, other: Self) {
        let is_same = |own: &&mut Self| own.context.is_same(&other.context);
        match self.others.iter_mut().find(is_same) {
            Some(own) => own.join(other),
            None => self.join(other),
        }
    }

    /// The units of a request on several servers; `settlement` is that of the first.
    pub(super) async fn respond_on_each_server(
        &mut self,
        settlement: Settlement,
        status: u16,
        known: &[(PolicyId, u64)],
    ) -> LimitStatuses {
        let delivery = self.delivery;
        let mut settlements = vec![(settlement, self.context.clone())];
        for other in &mut self.others {
            other.delivery = delivery;
            settlements.push((other.settle_by_status(status, known), other.context.clone()));
        }
        let sent = settlements.into_iter().map(async |(settlement, context)| settlement.send(&context).await);
        join_all(sent).await.into_iter().flatten().collect()
    }

    /// Settles the units on the other servers by what the response has cost, and adds what each limit is charged.
    pub(super) fn settle_on_other_servers(
        &mut self,
        costs: impl Fn(PolicyId) -> Option<u64>,
        settled: &mut SmallVec<[SettledUnits; 2]>,
    ) {
        for other in &mut self.others {
            let (more, settlement) = other.settle_all(&costs);
            settlement.send_later(&other.context);
            settled.extend(more);
        }
    }

    /// Gives all units back, since the request is denied by another server. Returns at once; the store is called afterwards.
    pub(in crate::limiter) fn give_back(mut self: Box<Self>) {
        self.delivery = Delivery::Refused;
        self.settle_by_status(503, &[]).send_later(&self.context);
    }
}
