//! What is sent to the thread of a limiter, and what a request holds there.

use std::fmt;

use http::StatusCode;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::client::Client;
use crate::gate::Charges;
use crate::http1::RequestHead;
use crate::limiter::{Denial, LimitStatuses};
use crate::time::Micros;

/// A call to the thread of a limiter.
pub(super) enum Call {
    /// Decides these charges.
    Decide { charges: Charges, reply: oneshot::Sender<Decided> },
    /// Reads the consumer of a request from Redis. The reply is sent when the next plan of the request knows it.
    FetchConsumer { client: Client, head: Box<RequestHead>, reply: oneshot::Sender<()> },
    /// Refunds what a request with this final status does not pay, and returns the changed states.
    Settle { id: HoldId, status: u16, reply: oneshot::Sender<LimitStatuses> },
    /// Releases what a request holds. Units stay charged.
    Release { id: HoldId },
}

/// The number of a request that holds slots or units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct HoldId(pub u64);

/// The decision on a request.
pub(super) struct Decided {
    pub verdict: Result<(), Denial>,
    pub delay: Micros,
    pub statuses: LimitStatuses,
    pub hold: Option<Hold>,
}

/// What a request holds in the thread of its limiter: slots, which are released when this is dropped, and units, which are
/// charged then unless they were settled before.
pub(super) struct Hold {
    id: HoldId,
    calls: UnboundedSender<Call>,
}

impl Hold {
    pub fn new(id: HoldId, calls: UnboundedSender<Call>) -> Self {
        Self { id, calls }
    }

    /// Refunds what a request with this final status does not pay; returns the changed states.
    pub async fn settle(&self, status: StatusCode) -> LimitStatuses {
        self.settle_later(status.as_u16()).await.unwrap_or_default()
    }

    /// The same without waiting for it: later requests are decided after it.
    pub fn settle_later(&self, status: u16) -> oneshot::Receiver<LimitStatuses> {
        let (reply, replied) = oneshot::channel();
        // It fails only if the thread has ended, and then nothing is held.
        let _ = self.calls.send(Call::Settle { id: self.id, status, reply });
        replied
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let _ = self.calls.send(Call::Release { id: self.id });
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Hold").field(&self.id.0).finish()
    }
}
