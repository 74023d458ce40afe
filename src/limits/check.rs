//! The check of one request. The steps are those of the proxy: normalize, plan, admit, and what rejects a request after that.

use std::sync::Arc;
use std::time::Duration;

use hyper::ext::Protocol;
use smallvec::SmallVec;

use super::active::Active;
use super::calls::{Decided, Fetched, Hold};
use super::client::Client;
use super::decision::{Allowed, Decision, Denied, update};
use super::shared::Shared;
use crate::consumers::ConsumerError;
use crate::gate::{BodyFields, Charges, MissingPart, RequestError, RouteId, TokenRefusal};
use crate::http1::RequestHead;
use crate::limit::{PolicyId, binding};
use crate::limiter::{Denial, LimitStatuses};
use crate::proxy::{LocalResponse, Rejection, RequestFacts, SoftHeaders, Target};
use crate::telemetry::{DecisionSource, Interface, LimitOutcome, Verdict};
use crate::time::{Micros, Stopwatch, monotonic};

/// Limits that count by the body are rejected with the file.
static NO_BODY: BodyFields = BodyFields::NONE;

/// What the plan of a request has decided.
#[derive(Default)]
struct Planned {
    route: Option<RouteId>,
    charges: Charges,
    exempt: SmallVec<[PolicyId; 2]>,
    missing: Option<Box<MissingPart>>,
    unidentified: Option<ConsumerError>,
    refused: Option<TokenRefusal>,
}

/// A request that is checked.
struct RequestCheck {
    shared: Arc<Shared>,
    active: Arc<Active>,
    client: Client,
    head: Box<RequestHead>,
    facts: RequestFacts,
}

/// Checks the limits of a request; `protocol` is that of an extended CONNECT.
pub(super) async fn check(
    shared: Arc<Shared>,
    mut head: Box<RequestHead>,
    protocol: Option<Protocol>,
    client: Client,
) -> Decision {
    let active = shared.active().await;
    // Refreshes the cached time of the caller's thread.
    let _ = monotonic();
    let (facts, normalized) =
        RequestFacts::read(&active.snapshot, client.address(), &mut head, protocol.as_ref());
    let check = RequestCheck { shared, active, client, head, facts };
    match normalized {
        Ok(()) => check.run().await,
        Err(error) => check.malformed(error).finish(&check.active).await,
    }
}

impl RequestCheck {
    async fn run(self) -> Decision {
        let mut planned = self.plan(None);
        if let Ok(partial) = &mut planned
            && partial.unidentified == Some(ConsumerError::NotFetched)
        {
            match self.fetch_consumer(std::mem::take(&mut partial.charges)).await {
                Fetched::Read(unread) => planned = self.plan(Some(unread)),
                Fetched::Denied { denial, statuses } => {
                    let rejection = Rejection::Denied(denial);
                    let rejected = self.rejected(partial.route, *statuses, None, &rejection);
                    return rejected.finish(&self.active).await;
                }
            }
        }
        let mut planned = match planned {
            Ok(planned) => planned,
            Err(error) => return self.malformed(error).finish(&self.active).await,
        };
        let (charges, active) = (std::mem::take(&mut planned.charges), Arc::clone(&self.active));
        let Decided { verdict, delay, statuses, soft, hold } = self.decide(charges, &planned.exempt).await;
        let rejection = match verdict {
            Err(denial) => Some(Rejection::Denied(denial)),
            Ok(()) => self.rejection_of_plan(&mut planned),
        };
        let rejected = match rejection {
            None => return self.allow(statuses, soft, delay, hold),
            Some(rejection) => self.rejected(planned.route, statuses, hold, &rejection),
        };
        rejected.finish(&active).await
    }

    /// Reads the consumer from Redis, unless `charges`, which the head decides, deny the request.
    async fn fetch_consumer(&self, charges: Charges) -> Fetched {
        let (client, head) = (self.client.clone(), self.head.clone());
        let fetched = self.shared.fetch_consumer(&self.active, client, head, charges).await;
        fetched.unwrap_or(Fetched::Read(ConsumerError::Unavailable))
    }

    /// Decides the route and the charges; `unread` is why a consumer that was to be read is not known.
    fn plan(&self, unread: Option<ConsumerError>) -> Result<Planned, RequestError> {
        let identity = self.client.identity();
        let gate = &self.active.snapshot.gate;
        let plan = match unread {
            None => gate.plan(identity, &self.head, Some(&NO_BODY))?,
            Some(unread) => gate.plan_read(identity, &self.head, Some(&NO_BODY), unread)?,
        };
        Ok(Planned {
            route: plan.matched.route,
            charges: plan.charges,
            exempt: plan.exempt,
            missing: plan.missing,
            unidentified: plan.identity.error,
            refused: plan.refused,
        })
    }

    async fn decide(&self, charges: Charges, exempt: &[PolicyId]) -> Decided {
        self.active.counts.with(|counts| {
            for limit in exempt {
                counts.record_decision(*limit, LimitOutcome::Exempt, DecisionSource::Config);
            }
        });
        if charges.is_empty() {
            return Decided::unlimited(&self.active.snapshot.gate.limits);
        }
        let stopwatch = Stopwatch::start();
        let decided = self.shared.decide(&self.active, charges).await;
        let _ = monotonic();
        self.active.counts.with(|counts| counts.record_decision_duration(stopwatch.elapsed()));
        decided.unwrap_or_else(Decided::unavailable)
    }

    /// Why a request that its limits allow is rejected all the same.
    fn rejection_of_plan(&self, planned: &mut Planned) -> Option<Rejection> {
        if let Some(error) = planned.unidentified {
            return Some(Rejection::Unidentified(error));
        }
        if let Some(refusal) = planned.refused {
            return Some(Rejection::Token(refusal));
        }
        if let Some(missing) = planned.missing.take() {
            return Some(Rejection::MissingKey(missing));
        }
        let action = &self.active.snapshot.actions[planned.route?];
        matches!(action.target, Target::Block).then_some(Rejection::BlockedByRoute)
    }

    fn allow(
        self,
        statuses: LimitStatuses,
        soft: Option<Box<SoftHeaders>>,
        delay: Micros,
        hold: Option<Hold>,
    ) -> Decision {
        let delay = Duration::from(delay);
        self.active.counts.with(|counts| {
            counts.record_request(Interface::Library, Verdict::Allowed);
            if delay > Duration::ZERO {
                counts.record_delay(delay);
            }
        });
        let snapshot = Arc::clone(&self.active.snapshot);
        Decision::Allowed(Allowed { snapshot, facts: self.facts, statuses, soft, delay, hold })
    }

    fn malformed(&self, error: RequestError) -> Rejected {
        self.rejected(None, LimitStatuses::new(), None, &Rejection::Malformed(error))
    }

    /// Makes the response to a rejected request, and counts why it is rejected.
    fn rejected(
        &self,
        route: Option<RouteId>,
        statuses: LimitStatuses,
        hold: Option<Hold>,
        rejection: &Rejection,
    ) -> Rejected {
        let Active { snapshot, counts, .. } = &*self.active;
        let decided = rejection.decision();
        counts.with(|counts| {
            if let Some((limit, outcome)) = decided {
                counts.record_decision(limit, outcome, DecisionSource::Config);
            }
            if let Some(verdict) = rejection.verdict() {
                counts.record_request(Interface::Library, verdict);
            }
        });
        let limit = match rejection {
            Rejection::Denied(Denial::Limited) => {
                binding(statuses.iter().map(|status| &status.decision)).map(|index| statuses[index].policy)
            }
            _ => decided.map(|(limit, _)| limit),
        };
        let limit = limit.map(|limit| snapshot.gate.limits.policies[limit].name.clone());
        let response = LocalResponse::new(snapshot, &self.facts, (route, &statuses), rejection);
        Rejected { response, limit, statuses, hold }
    }
}

/// A rejected request.
struct Rejected {
    response: LocalResponse,
    limit: Option<Box<str>>,
    statuses: LimitStatuses,
    hold: Option<Hold>,
}

impl Rejected {
    /// Refunds what a request with this response does not pay, and completes the response.
    async fn finish(mut self, active: &Active) -> Decision {
        if let Some(hold) = &mut self.hold {
            update(&mut self.statuses, hold.settle(self.response.status()).await);
        }
        let retry_after = self.response.retry_after.map(Duration::from_secs);
        let response = self.response.finish(&active.snapshot, &self.statuses);
        Decision::Denied(Denied { response, retry_after, limit: self.limit })
    }
}
