//! What the limits are.

use super::api::{LimitInfo, TierInfo};
use crate::gate::Gate;
use crate::limit::{Policy, PolicyId};
use crate::limiter::OnStoreFailure;

/// Every limit, in the order of the file.
pub(super) fn all(gate: &Gate) -> Vec<LimitInfo> {
    names(gate).into_iter().filter_map(|name| info(gate, name)).collect()
}

/// The names of all limits, each once.
pub(super) fn names(gate: &Gate) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for policy in gate.limits.policies.iter() {
        if !names.contains(&&*policy.name) {
            names.push(&policy.name);
        }
    }
    names
}

/// The policies of a limit: its own numbers first, then those of its tiers.
pub(super) fn policies<'g>(gate: &'g Gate, name: &str) -> Vec<(PolicyId, &'g Policy)> {
    let all = (0..).map(PolicyId).zip(gate.limits.policies.iter());
    all.filter(|(_, policy)| *policy.name == *name).collect()
}

fn info(gate: &Gate, name: &str) -> Option<LimitInfo> {
    let policies = policies(gate, name);
    let ((id, policy), tiers) = policies.split_first()?;
    let terms = gate.terms.get(id.0 as usize)?;
    let on_failure = match gate.limits.on_failure.get(id.0 as usize) {
        Some(OnStoreFailure::Allow) => "allow",
        Some(OnStoreFailure::Deny) => "deny",
        _ => "local",
    };
    let (quota, window) = policy.quota.advertised();
    Some(LimitInfo {
        name: name.to_owned(),
        algorithm: policy.quota.algorithm().name().to_owned(),
        key: terms.key.parts.iter().map(ToString::to_string).collect(),
        cost: terms.cost,
        mode: if policy.shadow { "shadow" } else { "enforce" }.to_owned(),
        on_store_failure: on_failure.to_owned(),
        limit: policy.quota.limit(),
        quota,
        window,
        tiers: tiers.iter().map(|(_, policy)| tier(policy)).collect(),
    })
}

/// The tier that a policy is for, unless it is the limit's own.
pub(super) fn tier_of(policy: &Policy) -> Option<&str> {
    policy.stored.strip_prefix(&*policy.name)?.strip_prefix('.')
}

fn tier(policy: &Policy) -> TierInfo {
    let (quota, window) = policy.quota.advertised();
    TierInfo {
        name: tier_of(policy).unwrap_or_default().to_owned(),
        limit: policy.quota.limit(),
        quota,
        window,
    }
}
