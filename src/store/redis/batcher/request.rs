//! A request that waits for its call.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::Instant;

use crate::limit::{Charge, GrantRequest, Policy, Quota};
use crate::store::redis::reply::Part;
use crate::store::redis::wire::ChargesWithGrants;
use crate::store::types::StoreError;

/// The greatest total weight of the requests of a call, so that a call does not occupy the server for long. Since each charge
/// weighs at least one, it also bounds the number of charges.
pub(super) const MAX_WEIGHT: usize = crate::store::redis::wire::MAX_CHARGES;
/// A sliding log takes the server about as long as one charge of a token bucket for each of this number of entries.
const ENTRIES: u64 = 100;
/// The slots of a concurrency limit that take the server as long as one charge of a token bucket.
const SLOTS: u64 = 20;

/// A request that waits for a call.
#[derive(Debug)]
pub(super) struct QueuedRequest {
    /// Identifies the request in its lane.
    pub number: u64,
    pub deadline: Instant,
    /// The hash slot of its keys; 0 if there is only one server.
    pub slot: u16,
    pub policies: Arc<[Policy]>,
    pub charges: SmallVec<[Charge; 2]>,
    /// Those of the charges of the kind `Grant`; most requests have none.
    pub grant_requests: Option<Box<[GrantRequest]>>,
    /// Whether each charge is decided independently.
    pub independent: bool,
    /// Receives the part of the script's reply that is about this request.
    pub reply: oneshot::Sender<Result<Part, StoreError>>,
    /// Counts the request among the pending ones.
    pub _permit: OwnedSemaphorePermit,
}

impl QueuedRequest {
    /// The charges, with their grant requests.
    pub fn charges_with_grants(&self) -> ChargesWithGrants<'_> {
        let grant_requests = self.grant_requests.as_deref().unwrap_or_default();
        ChargesWithGrants { charges: &self.charges, grant_requests }
    }

    /// About how long it takes the server, in charges of a token bucket.
    pub fn weight(&self) -> usize {
        self.charges.iter().map(|charge| weight(&self.policies[charge.policy].quota)).sum()
    }
}

fn weight(quota: &Quota) -> usize {
    let weight = match quota {
        Quota::SlidingLog(log) => log.max_entries() / ENTRIES,
        Quota::Concurrency(slots) => slots.limit() / SLOTS,
        _ => 1,
    };
    usize::try_from(weight).unwrap_or(MAX_WEIGHT).clamp(1, MAX_WEIGHT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Rate;
    use crate::time::Micros;

    #[test]
    fn charges_that_take_longer_weigh_more() {
        let log = |units| Quota::sliding_log(&[Rate::new(units, Micros::SECOND).unwrap()]).unwrap();
        let slots = |slots| Quota::concurrency(slots, Micros(60_000_000)).unwrap();
        let bucket = Quota::token_bucket(Rate::new(1, Micros::SECOND).unwrap(), 1_000_000).unwrap();
        let weights = [log(60), log(1_000), slots(10), slots(1_000), bucket].map(|quota| weight(&quota));
        assert_eq!(weights, [1, 10, 1, 50, 1]);
    }
}
