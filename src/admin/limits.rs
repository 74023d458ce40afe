//! Reports the limits of the configuration, and reads and shows their keys as operators write them.

use super::api::{AheadInfo, CostInfo, LimitInfo, LimitList, LimitSummary, SettledCostInfo, TierInfo};
use crate::gate::{Cost, CostBasis, Gate, NamedKey, SettledCost};
use crate::limit::{Ahead, Key, Policy, PolicyId, Slots};
use crate::limiter::OnStoreFailure;

/// Every limit, in the order of the file.
pub(super) fn all(gate: &Gate) -> LimitList {
    LimitList { limits: gate.limits().map(|(limit, policy)| info(gate, limit, policy)).collect() }
}

/// The policies of a limit under which keys are stored: each stored name and algorithm once, those of the limit itself
/// and its tiers before those of its overrides.
pub(super) fn stored(gate: &Gate, limit: PolicyId) -> Vec<(PolicyId, &Policy)> {
    let mut stored: Vec<(PolicyId, &Policy)> = Vec::new();
    for (id, policy) in (0..).map(PolicyId).zip(&*gate.limits.policies) {
        let is_new = || stored.iter().all(|(_, other)| other.salt() != policy.salt());
        if gate.limit_of(id) == limit && is_new() {
            stored.push((id, policy));
        }
    }
    stored
}

fn info(gate: &Gate, limit: PolicyId, policy: &Policy) -> LimitInfo {
    let rule = &gate.limit_rules[limit];
    let on_failure = match gate.limits.on_failure[limit] {
        OnStoreFailure::Allow => "allow",
        OnStoreFailure::Deny => "deny",
        OnStoreFailure::Local => "local",
    };
    let (quota, window) = policy.quota.advertised();
    let others = |(name, id): (&str, PolicyId)| other(gate, name, id);
    LimitInfo {
        name: policy.name.to_string(),
        algorithm: policy.quota.algorithm().name().to_owned(),
        key: rule.key.parts.iter().map(ToString::to_string).collect(),
        cost: match &rule.cost {
            Cost::Fixed(cost) => CostInfo::Fixed(*cost),
            Cost::Header { name, .. } => CostInfo::Header(format!("header:{name}")),
            Cost::Settled(cost) => CostInfo::Settled(settled(cost)),
        },
        mode: policy.mode().to_owned(),
        on_store_failure: on_failure.to_owned(),
        ahead: ahead(policy),
        numbers: gate.numbers[limit].to_string(),
        limit: policy.quota.limit(),
        quota,
        window,
        tiers: rule.tiers.iter().flat_map(|tiers| tiers.all().map(others)).collect(),
        overrides: rule.rules.overrides().map(others).collect(),
    }
}

/// A cost that the response decides.
fn settled(cost: &SettledCost) -> SettledCostInfo {
    let (reserve, settle) = match &cost.basis {
        CostBasis::Parts { reserve, settle } => {
            (reserve.iter().map(ToString::to_string).collect(), settle.to_string())
        }
        CostBasis::Llm(llm) => (Vec::new(), llm.name().to_owned()),
    };
    SettledCostInfo { reserve, settle, max: cost.max }
}

/// How a limit grants units ahead, or keeps freed slots.
fn ahead(policy: &Policy) -> Option<AheadInfo> {
    if policy.keeps_slots {
        return Some(AheadInfo { span: Slots::KEPT_FOR.as_secs_f64(), share: None });
    }
    let Ahead { span, share } = policy.ahead?;
    Some(AheadInfo { span: span.as_secs_f64(), share: Some(share.get()) })
}

/// A limit without its tiers and overrides.
pub(super) fn summary(policy: &Policy, numbers: &str) -> LimitSummary {
    let (quota, window) = policy.quota.advertised();
    LimitSummary {
        name: policy.name.to_string(),
        algorithm: policy.quota.algorithm().name().to_owned(),
        mode: policy.mode().to_owned(),
        numbers: numbers.to_owned(),
        limit: policy.quota.limit(),
        quota,
        window,
    }
}

/// The tier of a policy; none for the limit's own.
pub(super) fn tier_of(policy: &Policy) -> Option<&str> {
    policy.stored.strip_prefix(&*policy.name)?.strip_prefix('.')
}

fn other(gate: &Gate, name: &str, id: PolicyId) -> TierInfo {
    let Policy { quota: own, .. } = &gate.limits.policies[id];
    let (quota, window) = own.advertised();
    TierInfo {
        name: name.to_owned(),
        numbers: gate.numbers[id].to_string(),
        limit: own.limit(),
        quota,
        window,
    }
}

/// The tag of a key, as lists show it.
pub(super) fn tag(key: Key) -> String {
    format!("{}{key}", Key::TAG)
}

/// The key that a request names: by its values, by its tag, or by a consumer and the values of its other parts. Fails if the key
/// is missing, or the limit has no such key, or the file has no such consumer.
pub(super) fn text(
    gate: &Gate,
    limit: PolicyId,
    key: Option<String>,
    consumer: Option<&str>,
) -> Result<String, String> {
    let Some(consumer) = consumer else { return key.ok_or_else(|| "the key is missing".to_owned()) };
    let name = gate.keys(limit).name_of_consumer(consumer, key.as_deref())?;
    // Those in Redis are known only while they send requests.
    if let Some(rules) = gate.consumers.as_ref().filter(|rules| rules.stored.is_none()) {
        rules.named(consumer)?;
    }
    Ok(name)
}

/// Parses a key of a limit. Fails if `text` is neither a tag nor the values of all parts.
pub(super) fn key<'g>(gate: &'g Gate, limit: PolicyId, text: &str) -> Result<NamedKey<'g>, String> {
    if let Some(tag) = text.strip_prefix(Key::TAG).filter(|tag| tag.len() == Key::TEXT_LEN) {
        let key = Key::parse(tag.as_bytes()).ok_or_else(|| format!("`{text}` is not a tag"))?;
        return Ok(gate.keys(limit).known(key));
    }
    gate.keys(limit).named(text).map_err(|error| format!("`{text}` is not a key of this limit: {error}"))
}
