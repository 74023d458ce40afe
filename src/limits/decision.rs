//! The decision on a request, for the program that asked for it; and why a limiter can't be created.

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use bytes::Bytes;
use http::header::HeaderMap;
use http::{Response, StatusCode};

use super::calls::Hold;
use crate::config::Report;
use crate::gate::{Cost, CostBasis, CostSource};
use crate::limit::PolicyId;
use crate::limiter::{LimitStatus, LimitStatuses};
use crate::proxy::{ConfigSnapshot, RequestFacts, SoftHeaders, write_rate_headers};

/// The decision on a request.
#[derive(Debug)]
#[must_use = "a request that is not allowed must not be served"]
pub enum Decision {
    /// The request may be served.
    Allowed(Allowed),
    /// The request must not be served: its response is here.
    Denied(Denied),
}

/// A request that all of its limits allow. It holds its slots in concurrency limits until this is dropped, so keep it until the
/// response has been sent.
#[derive(Debug)]
pub struct Allowed {
    pub(super) snapshot: Arc<ConfigSnapshot>,
    pub(super) facts: RequestFacts,
    pub(super) statuses: LimitStatuses,
    /// The headers of soft limits, if the configuration has any.
    pub(super) soft: Option<Box<SoftHeaders>>,
    pub(super) delay: Duration,
    pub(super) hold: Option<Hold>,
}

/// A request that is not to be served, and its response.
#[derive(Debug)]
pub struct Denied {
    pub(super) response: Response<Bytes>,
    pub(super) retry_after: Option<Duration>,
    pub(super) limit: Option<Box<str>>,
}

/// The state of a limit after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LimitState<'a> {
    /// The name of the limit.
    pub name: &'a str,
    /// The most units that can be available at once.
    pub limit: u64,
    /// The units that remain.
    pub remaining: u64,
    /// The time until all units are available again.
    pub reset_after: Duration,
}

impl Decision {
    /// Whether the request may be served.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }
}

impl Allowed {
    /// How long to delay the request before it is served, for a leaky bucket; else zero.
    #[must_use]
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// The limits that apply to the request, without those in shadow and mark mode.
    pub fn limits(&self) -> impl Iterator<Item = LimitState<'_>> {
        let policies = &self.snapshot.gate.limits.policies;
        let state = |status: &LimitStatus| (status.policy, status.decision);
        self.statuses.iter().map(state).map(|(policy, decision)| LimitState {
            name: &policies[policy].name,
            limit: decision.limit,
            remaining: decision.remaining,
            reset_after: decision.reset_after.into(),
        })
    }

    /// The names of the limits of which the share `warn_at` is used.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        self.soft.iter().flat_map(|soft| soft.warnings())
    }

    /// The names of the limits with `mode = "mark"` that would have denied the request.
    pub fn marks(&self) -> impl Iterator<Item = &str> {
        self.soft.iter().flat_map(|soft| soft.denials())
    }

    /// Sets `X-RateLimit-Warning` and `X-RateLimit-Denied` in the headers of the request, in place of those that its client has
    /// sent. Without soft limits the headers stay as they are.
    pub fn write_request_headers(&self, headers: &mut HeaderMap) {
        if let Some(soft) = &self.soft {
            soft.set_in_map(headers);
        }
    }

    /// Adds the headers that show the limits to a response. Headers of the service itself are kept if their remaining count is
    /// not above that of the limits.
    pub fn write_headers(&self, headers: &mut HeaderMap) {
        write_rate_headers(&self.snapshot, &self.statuses, self.soft.as_deref(), headers);
    }

    /// Refunds the units that a response with this status does not pay, because of `charge_on`; with 502 and 504 none, since
    /// the request may have been processed. Call it before
    /// [`Allowed::write_headers`], so that the headers show the refund. Units that are not settled stay charged.
    pub async fn settle(&mut self, status: StatusCode) {
        let Some(hold) = &mut self.hold else { return };
        update(&mut self.statuses, hold.settle(status).await);
    }

    /// Settles the limits whose cost the response decides (`cost` with `settle`, tokens or prices): what they have reserved is
    /// replaced by `units`, which gets the name of each limit. The difference is refunded, or charged whatever the limit allows. A
    /// limit for which `units` is none, and all of them if this is not called, keep the units that they have reserved.
    ///
    /// Call it when the response has ended, once, and after [`Allowed::settle`] if there is a status. It returns at once, and
    /// headers do not show it.
    pub fn settle_units(&mut self, units: impl Fn(&str) -> Option<u64>) {
        let Some(hold) = &mut self.hold else { return };
        let policies = (0..).map(PolicyId).zip(&*self.snapshot.gate.limits.policies);
        let settling = policies.filter(|(_, policy)| policy.settles());
        hold.settle_units(settling.filter_map(|(id, policy)| Some((id, units(&policy.name)?))).collect());
    }
}

impl Allowed {
    /// Settles the limits whose cost is in a header of the response, unless the status is still to come, and removes these
    /// headers.
    pub(super) fn settle_header_costs(&mut self, headers: &mut HeaderMap, awaits_status: bool) {
        if self.hold.is_none() {
            return;
        }
        let snapshot = Arc::clone(&self.snapshot);
        let gate = &snapshot.gate;
        let mut known: Vec<(&str, u64)> = Vec::new();
        let mut removed = Vec::new();
        for (rule, (_, policy)) in gate.limit_rules.iter().zip(gate.limits()) {
            let Cost::Settled(cost) = &rule.cost else { continue };
            let CostBasis::Parts { settle: CostSource::Header(name), .. } = &cost.basis else { continue };
            let values = headers.get_all(name).iter().map(|value| value.as_bytes().trim_ascii());
            known.extend(CostSource::number(values).map(|units| (&*policy.name, units)));
            removed.extend(Some(name).filter(|_| !cost.keeps_header));
        }
        for name in removed {
            headers.remove(name);
        }
        if !known.is_empty() && !awaits_status {
            self.settle_units(|limit| known.iter().find(|(name, _)| *name == limit).map(|(_, units)| *units));
        }
    }
}

/// Replaces the states of limits that have changed.
pub(super) fn update(statuses: &mut LimitStatuses, changed: LimitStatuses) {
    for after in changed {
        let earlier = statuses.iter_mut().filter(|before| before.policy == after.policy);
        earlier.for_each(|status| *status = after);
    }
}

impl Denied {
    /// The status of the response: 429 if a limit is used up; 403, 401, 400 and others as the proxy sends them; 503 if the store is
    /// unavailable and a limit has `on_store_failure = "deny"`.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// The headers of the response, with `Retry-After` and those that show the limits.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// The body of the response: problem+json, or what `[answers]` has for it.
    #[must_use]
    pub fn body(&self) -> &Bytes {
        self.response.body()
    }

    /// The time after which the same request may be allowed, if it is known.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The limit that denies the request, if one does.
    #[must_use]
    pub fn limit(&self) -> Option<&str> {
        self.limit.as_deref()
    }

    /// The response, with a body of another type.
    #[must_use]
    pub fn into_response<B: From<Bytes>>(self) -> Response<B> {
        self.response.map(B::from)
    }
}

/// Why a limiter can't be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file has errors.
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    /// The thread of the limiter can't be started.
    #[error("can't start the thread of the limiter: {0}")]
    Thread(#[source] io::Error),
}

/// All errors of a configuration file. Displayed with the lines of the file and what to write instead, as `tidegate check` does.
#[derive(Clone, Debug)]
pub struct ConfigErrors(Report);

impl ConfigErrors {
    pub(super) fn new(report: Report) -> Self {
        Self(report)
    }

    /// One line for each error, with its position and its cure.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.0.lines()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ConfigErrors {}
