//! What is sent to the thread of a limiter, and what a request holds there.

use std::fmt;
use std::sync::Arc;

use http::StatusCode;
use smallvec::SmallVec;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::active::{Active, NextConfig};
use super::client::Client;
use crate::consumers::ConsumerError;
use crate::gate::Charges;
use crate::http1::RequestHead;
use crate::limit::PolicyId;
use crate::limiter::{
    Admission, Denial, InProcessUnits, LimitStatuses, Limits, Permit, Reservation, is_unanswered,
};
use crate::proxy::SoftHeaders;
use crate::time::Micros;

/// How many calls of requests may wait for the thread of a limiter, or for the store: more than the most requests that wait
/// for Redis.
pub(super) const MAX_WAITING: usize = 16_384;

/// A call to the thread of a limiter.
pub(super) enum EngineCall {
    /// Decides charges of this configuration.
    Decide { active: Arc<Active>, charges: Charges, place: Place, reply: oneshot::Sender<Decided> },
    /// Reads the consumer of a request from Redis, unless the charges that its head decides deny it.
    FetchConsumer {
        active: Arc<Active>,
        client: Client,
        head: Box<RequestHead>,
        charges: Charges,
        place: Place,
        reply: oneshot::Sender<Fetched>,
    },
    /// Refunds what a request with this final status does not pay, and returns the changed states.
    Settle { id: HoldId, status: u16, reply: oneshot::Sender<LimitStatuses> },
    /// Settles the units of a request at what its response has cost each of these policies.
    SettleUnits { id: HoldId, costs: UnitCosts },
    /// Releases what a request holds. Units stay charged.
    Release { id: HoldId },
    /// Adopts a configuration. The reply is sent when requests that start afterwards are decided by it.
    Adopt { next: Box<NextConfig>, reply: oneshot::Sender<()> },
    /// Makes the thread panic.
    #[cfg(test)]
    Panic,
}

/// What a response has cost, by the ids of policies.
pub(super) type UnitCosts = SmallVec<[(PolicyId, u64); 2]>;

/// The cost for a policy; none if it is unknown.
pub(super) fn cost_of(costs: &UnitCosts, policy: PolicyId) -> Option<u64> {
    costs.iter().find(|(known, _)| *known == policy).map(|(_, units)| *units)
}

/// What has become of a consumer that was to be read.
pub(super) enum Fetched {
    /// The next plan of the request knows the consumer, or that it is not known for this reason.
    Read(ConsumerError),
    /// It was not read, since the request is denied.
    Denied { denial: Denial, statuses: Box<LimitStatuses> },
}

/// The place of a call among those that wait; free again when this is dropped.
pub(super) struct Place(#[expect(dead_code, reason = "held, not read")] pub OwnedSemaphorePermit);

/// The number of a request that holds slots or units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct HoldId(pub u64);

/// The decision on a request.
pub(super) struct Decided {
    pub verdict: Result<(), Denial>,
    pub delay: Micros,
    pub statuses: LimitStatuses,
    /// The headers of soft limits, if the configuration has any and the limits allow the request.
    pub soft: Option<Box<SoftHeaders>>,
    pub hold: Option<Hold>,
}

impl Decided {
    /// The decision of this admission by these limits; `hold` keeps what the request holds if it is allowed.
    pub fn new(
        limits: &Limits,
        admission: Admission,
        hold: impl FnOnce(Permit, Option<Box<Reservation>>) -> Option<Hold>,
    ) -> Self {
        let soft = SoftHeaders::of(limits, &admission);
        let Admission { verdict, reservation, delay, statuses, .. } = admission;
        let (verdict, hold) = match verdict {
            Ok(permit) => (Ok(()), hold(permit, reservation)),
            Err(denial) => (Err(denial), None),
        };
        Self { verdict, delay, statuses, soft, hold }
    }

    /// The decision on a request without charges, under a configuration with these limits.
    pub fn unlimited(limits: &Limits) -> Self {
        Self { soft: SoftHeaders::unlimited(limits), ..Self::of(Ok(())) }
    }

    /// The decision on a request whose limits can't be checked: the thread has ended by a panic, or too many calls wait for it.
    pub fn unavailable() -> Self {
        Self::of(Err(Denial::Unavailable { retry_after: Micros::SECOND }))
    }

    fn of(verdict: Result<(), Denial>) -> Self {
        Self { verdict, delay: Micros::ZERO, statuses: LimitStatuses::new(), soft: None, hold: None }
    }
}

/// What a request holds: slots, which are released when this is dropped, and units, which are charged then unless they were settled
/// before.
pub(super) struct Hold(Held);

enum Held {
    /// In the thread of its limiter.
    InThread { id: HoldId, calls: UnboundedSender<EngineCall> },
    /// Units in the in-process store; none once they are settled.
    InProcess(Option<Box<InProcessUnits>>),
}

impl Hold {
    /// A hold of what the thread of the limiter keeps under this number.
    pub fn in_thread(id: HoldId, calls: UnboundedSender<EngineCall>) -> Self {
        Self(Held::InThread { id, calls })
    }

    /// Units in the in-process store.
    pub fn units(units: Box<InProcessUnits>) -> Self {
        Self(Held::InProcess(Some(units)))
    }

    /// Refunds what a request with this final status does not pay; returns the changed states.
    pub async fn settle(&mut self, status: StatusCode) -> LimitStatuses {
        match self.start_settling(status.as_u16()) {
            Settlement::Done(statuses) => statuses,
            // It fails only if there is nothing to settle, or the thread has ended.
            Settlement::Awaited(replied) => replied.await.unwrap_or_default(),
        }
    }

    /// Settles a request as `settle` does, without waiting: later requests are decided after it.
    pub fn settle_later(&mut self, status: u16) {
        let _ = self.start_settling(status);
    }

    /// Settles the units at what the response has cost, without waiting; those of other policies stay as they are.
    pub fn settle_units(&mut self, costs: UnitCosts) {
        match &mut self.0 {
            Held::InProcess(units) => {
                if let Some(units) = units.take() {
                    let _ = units.settle(|policy| cost_of(&costs, policy));
                }
            }
            Held::InThread { id, calls } => {
                // It fails only if the thread has ended, and then nothing is held.
                let _ = calls.send(EngineCall::SettleUnits { id: *id, costs });
            }
        }
    }

    fn start_settling(&mut self, status: u16) -> Settlement {
        match &mut self.0 {
            // The service has had the request. Units stay charged when this is dropped.
            _ if is_unanswered(status) => Settlement::Done(LimitStatuses::new()),
            Held::InProcess(units) => {
                let Some(held) = units.take() else { return Settlement::Done(LimitStatuses::new()) };
                let (statuses, rest) = held.respond(status);
                *units = rest;
                Settlement::Done(statuses)
            }
            Held::InThread { id, calls } => {
                let (reply, replied) = oneshot::channel();
                // It fails only if the thread has ended, and then nothing is held.
                let _ = calls.send(EngineCall::Settle { id: *id, status, reply });
                Settlement::Awaited(replied)
            }
        }
    }
}

/// The changed states of a request whose final status is known.
enum Settlement {
    Done(LimitStatuses),
    /// They come from the thread.
    Awaited(oneshot::Receiver<LimitStatuses>),
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Held::InThread { id, calls } = &self.0 {
            let _ = calls.send(EngineCall::Release { id: *id });
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Held::InThread { id, .. } => f.debug_tuple("Hold").field(&id.0).finish(),
            Held::InProcess(units) => f.debug_tuple("Hold").field(units).finish(),
        }
    }
}
