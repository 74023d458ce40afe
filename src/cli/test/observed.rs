//! What has become of the requests of a step.

use crate::cli::explain::Explained;
use crate::config::{Loaded, Outcome};
use crate::gate::{DenyStatus, RequestError, RouteId};
use crate::limit::{Key, PolicyId, binding};
use crate::replay::{PlannedEntry, PlayedEntry, ReplayVerdict};
use crate::time::Micros;
use http::StatusCode;

/// What has become of the last request of a step, and how many were allowed.
pub(super) struct Observed {
    pub outcome: Outcome,
    /// Why, such as `by the limit a`; empty if there is no more to say.
    pub why: String,
    pub route: Option<String>,
    /// The limits that count the request.
    pub limits: Vec<ObservedLimit>,
    pub consumer: Option<String>,
    /// The status of a response of the proxy itself.
    pub status: Option<u16>,
    /// The limit that denies the request.
    pub limit: Option<String>,
    /// The value of `Retry-After` in seconds, if it is denied.
    pub retry_after: Option<u64>,
    pub delay: Micros,
    /// How many of the requests no limit denies.
    pub allowed: u64,
}

/// A limit that counts a request.
pub(super) struct ObservedLimit {
    pub name: String,
    pub key: Key,
    /// The name of the key; none if it is a credential, or has no name.
    pub key_name: Option<String>,
    /// The tier or the override that applies.
    pub tier: Option<String>,
    pub remaining: u64,
}

/// What a played request has of what is observed.
#[derive(Default)]
pub(super) struct Played {
    pub limits: Vec<ObservedLimit>,
    /// The limit that denies it.
    pub denied_by: Option<PolicyId>,
    /// Whether its counts are why: the status is that of a denial.
    pub is_over: bool,
    /// The part of a key that it lacks.
    pub missing: Option<String>,
    pub retry_after: Option<u64>,
    pub delay: Micros,
}

impl Played {
    /// The result of playing a request.
    pub fn new(loaded: &Loaded, played: &PlayedEntry, planned: Option<&PlannedEntry<'_>>) -> Self {
        let snapshot = &loaded.config.snapshot;
        let policies = &snapshot.gate.limits.policies;
        let limits = played.decisions.iter().map(|(limit, charge, decision)| ObservedLimit {
            name: policies[*limit].name.to_string(),
            key: charge.key,
            key_name: planned.and_then(|planned| planned.key_label(charge)),
            tier: None,
            remaining: decision.remaining,
        });
        let denials = || {
            let denied = played.decisions.iter().filter(|(.., decision)| !decision.allowed);
            denied.filter(|(_, charge, _)| !policies[charge.policy].shadow)
        };
        let wait = denials()
            .map(|(.., decision)| decision.retry_after)
            .max_by_key(|wait| wait.map_or(u64::MAX, |wait| wait.0));
        let seconds = wait.flatten().map(|wait| wait.ceil_secs().max(1));
        let max = snapshot.response_policy.retry_after_max.map_or(u64::MAX, |max| max.as_secs().max(1));
        // The limit that the response names.
        let over = || denials().map(|(.., decision)| decision);
        let bound = binding(over()).and_then(|index| denials().nth(index)).map(|(limit, ..)| *limit);
        let denied_by = match &played.verdict {
            ReplayVerdict::Denied(limit) => bound.or(Some(*limit)),
            ReplayVerdict::Rejected(RequestError::Blocked(limit)) => Some(*limit),
            ReplayVerdict::Missing(missing) => Some(missing.limit),
            _ => None,
        };
        Self {
            limits: limits.collect(),
            denied_by,
            is_over: matches!(played.verdict, ReplayVerdict::Denied(_)),
            missing: match &played.verdict {
                ReplayVerdict::Missing(missing) => Some(missing.detail()),
                _ => None,
            },
            retry_after: seconds.map(|seconds| seconds.min(max)),
            delay: if let ReplayVerdict::Forwarded(delay) = played.verdict {
                delay
            } else {
                Micros::default()
            },
        }
    }
}

impl Observed {
    /// What is observed of a request: how it is explained, and the result of playing it.
    pub fn new(loaded: &Loaded, explained: &Explained, played: Played, allowed: u64) -> Self {
        let gate = &loaded.config.snapshot.gate;
        let response = &explained.response;
        // Something else may reject the request before a limit does for the lack of a part of its key.
        let is_first = played.missing.is_none() || played.missing == response.reason;
        let denied_by = played.denied_by.filter(|_| is_first);
        let limit = denied_by.map(|limit| gate.limits.policies[limit].name.to_string());
        let outcome = match (&limit, response.kind) {
            (Some(_), _) => Outcome::Denied,
            (None, "forward") => Outcome::Forwarded,
            (None, "reject" | "block") => Outcome::Rejected,
            (None, _) => Outcome::Responded,
        };
        let is_rejected = matches!(outcome, Outcome::Denied | Outcome::Rejected);
        let by_limit = denied_by.and_then(|limit| gate.limit_rules[gate.limit_of(limit)].deny_status);
        let status = match deny_status_of_route(loaded, explained).or(by_limit).filter(|_| played.is_over) {
            Some(DenyStatus::Status(status)) => Some(status.as_u16()),
            Some(DenyStatus::Close) => None,
            None if played.is_over => Some(sent_status(loaded, StatusCode::TOO_MANY_REQUESTS.as_u16())),
            None if is_rejected => response.status.map(|status| sent_status(loaded, status)),
            None => response.status,
        };
        let why = match (&limit, outcome) {
            (Some(limit), _) => format!("by the limit {limit}"),
            (None, Outcome::Forwarded) => format!("to {}", response.upstream.as_deref().unwrap_or_default()),
            _ => response.reason.clone().unwrap_or_default(),
        };
        let mut limits = played.limits;
        for limit in &mut limits {
            let explained = explained.limits.iter().find(|explained| explained.name == limit.name);
            limit.tier = explained.and_then(|explained| explained.tier.clone());
        }
        Self {
            outcome,
            why,
            route: explained.route.clone(),
            limits,
            consumer: explained.consumer.clone(),
            status,
            limit,
            retry_after: played.retry_after.filter(|_| status.is_some()),
            delay: played.delay,
            allowed,
        }
    }
}

/// The `deny_status` of the route.
fn deny_status_of_route(loaded: &Loaded, explained: &Explained) -> Option<DenyStatus> {
    let (snapshot, name) = (&loaded.config.snapshot, explained.route.as_deref()?);
    let index = snapshot.gate.routes.routes().iter().position(|route| *route.name == *name)?;
    snapshot.actions[RouteId(u32::try_from(index).ok()?)].deny_status
}

/// The status that is sent in place of this one, by `[answers]`.
pub(super) fn sent_status(loaded: &Loaded, status: u16) -> u16 {
    let custom = &loaded.config.snapshot.response_policy.custom;
    let sent = StatusCode::from_u16(status).ok().and_then(|status| custom.of(status)?.status);
    sent.map_or(status, |status| status.as_u16())
}
