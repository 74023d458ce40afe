//! The response of a route with `respond = "limits"`: what the client may still spend.

use http::StatusCode;
use serde::Serialize;

use super::local_reply::{self, LocalReply};
use super::rate_headers::RateHeaderSource;
use super::route_action::Target;
use super::snapshot::ConfigSnapshot;
use crate::gate::RequestPlan;
use crate::http1::names::CACHE_CONTROL;
use crate::limit::{DenyReason, Policy};
use crate::limiter::{LimitStatus, Limiter, StatusSource};

/// The body. Times are in whole seconds, rounded up, as in the rate headers.
#[derive(Serialize)]
struct Body<'a> {
    limits: Vec<OwnLimit<'a>>,
    /// `store`, or `local` while the store is unavailable and the numbers are the shares of this proxy.
    source: &'static str,
}

/// One limit of the client.
#[derive(Serialize)]
struct OwnLimit<'a> {
    name: &'a str,
    /// The most units that can be available at once.
    limit: u64,
    /// The units that remain.
    remaining: u64,
    /// Of the other units, those that requests in flight through this process have reserved, if responses settle the cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    reserved: Option<u64>,
    /// The time until all units are available again.
    reset_after: u64,
    /// This many units …
    quota: u64,
    /// … come back in this time.
    window: u64,
    /// Why every request is denied, whatever remains: `ban` or `block`.
    #[serde(skip_serializing_if = "Option::is_none")]
    denied: Option<&'static str>,
    /// The rest of the ban.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<u64>,
}

/// Whether a request reads the client's limits instead of being charged. One that is rejected for its credential is charged
/// as on other routes, since that bounds how fast credentials can be guessed.
pub(super) fn only_shows_limits(snapshot: &ConfigSnapshot, plan: &RequestPlan<'_>) -> bool {
    let is_served = plan.identity.error.is_none() && plan.refused.is_none() && plan.missing.is_none();
    is_served && is_about_limits(snapshot, plan)
}

/// Whether the route of a request shows the client's limits.
pub(super) fn is_about_limits(snapshot: &ConfigSnapshot, plan: &RequestPlan<'_>) -> bool {
    let action = plan.matched.route.map(|route| &snapshot.actions[route]);
    action.is_some_and(|action| matches!(action.target, Target::Limits))
}

/// The limits of a client as JSON.
pub(super) fn reply(limiter: &Limiter, headers: RateHeaderSource<'_>, source: StatusSource) -> LocalReply {
    let state = |status: &LimitStatus| OwnLimit {
        reserved: limiter.reserved_units(&headers.limits[status.policy], status.key),
        ..limit_state(headers.limits, status)
    };
    let limits = headers.statuses.iter().map(state).collect();
    let source = match source {
        StatusSource::Store => "store",
        StatusSource::Local => "local",
    };
    let body = Body { limits, source };
    // Serialization can't fail: the values are text and integers.
    let mut text = serde_json::to_string(&body).unwrap_or_default();
    text.push('\n');
    let mut response = local_reply::reply(StatusCode::OK, b"application/json", text);
    // A cache must not return the limits of one client to another.
    response.head.fields.push(CACHE_CONTROL, b"no-store");
    response
}

fn limit_state<'a>(policies: &'a [Policy], status: &LimitStatus) -> OwnLimit<'a> {
    let decision = &status.decision;
    let (quota, window) = status.advertised(policies);
    let denied = match (decision.allowed, decision.reason) {
        (true, _) | (_, DenyReason::Quota) => None,
        (_, DenyReason::Ban) => Some("ban"),
        (_, DenyReason::Block) => Some("block"),
    };
    OwnLimit {
        name: &policies[status.policy].name,
        limit: decision.limit,
        remaining: decision.remaining,
        reserved: None,
        reset_after: decision.reset_after.ceil_secs(),
        quota,
        window,
        denied,
        // A block has no time to retry for its client, as in the response to a denial.
        retry_after: (denied == Some("ban")).then(|| decision.retry_after.unwrap_or_default().ceil_secs()),
    }
}
