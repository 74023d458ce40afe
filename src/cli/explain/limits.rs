//! What a limit makes of a request.

use super::rows::Rows;
use crate::config::Loaded;
use crate::gate::{
    Cost, Gate, KeyPart, KeySpec, LimitMatch, LimitRule, OnMissing, PartValue, PolicySource, Subject,
};
use crate::jwt::TokenError;
use crate::limit::{Charge, Policy, PolicyId};
use crate::limiter::OnStoreFailure;
use crate::store::StoreSpec;
use crate::store::redis::stored_key;
use crate::time::format_duration;

/// Tells of one limit: its numbers, the key, the cost, and where the count lives.
pub(super) fn tell(rows: &mut Rows, loaded: &Loaded, id: PolicyId, subject: &Subject<'_>) {
    let gate = &loaded.config.site.gate;
    let (policy, terms) = (&gate.limits.policies[id], &gate.limit_rules[id]);
    rows.row("limit", format!("{}: {}", policy.name, numbers(loaded, id)));
    if policy.shadow {
        rows.below("mode", "shadow: it only watches, and refuses nobody");
    }
    key(rows, &terms.key, subject);
    let found = terms.key.find(subject, &gate.hasher);
    match gate.match_limit(id, subject, &found) {
        LimitMatch::Charged { charge, source } => charged(rows, loaded, terms, subject, &charge, source),
        LimitMatch::Allowed(by) => {
            rows.below("cost", format!("none: {by}, which this limit lets off (`allow`)"));
        }
        LimitMatch::Skipped => {
            rows.below("cost", "none: a request that lacks this is not counted (on_missing = \"skip\")");
        }
        LimitMatch::Blocked(by) => {
            rows.below("refused", format!("{by}, which this limit turns away (`block`)"));
        }
        LimitMatch::TooManyValues(part) => {
            rows.below("refused", format!("{part} has too many values to look up a rule for each"));
        }
        LimitMatch::Missing(_) => {
            let status = terms.missing_status.as_u16();
            rows.below("refused", format!("with {status}: the request lacks this (on_missing = \"deny\")"));
        }
    }
}

/// Tells which limit turns a request away, and by which rule.
pub(super) fn tell_block(rows: &mut Rows, gate: &Gate, id: PolicyId, subject: &Subject<'_>) {
    let (policy, terms) = (&gate.limits.policies[id], &gate.limit_rules[id]);
    let found = terms.key.find(subject, &gate.hasher);
    if let LimitMatch::Blocked(by) = gate.match_limit(id, subject, &found) {
        rows.row("", format!("{by}, which the limit {} turns away (`block`)", policy.name));
    }
}

/// The algorithm and the numbers of a limit, a tier or an override.
fn numbers(loaded: &Loaded, id: PolicyId) -> String {
    let (policy, written) = (&loaded.config.site.gate.limits.policies[id], &loaded.limits[id]);
    let (algorithm, most) = (policy.quota.algorithm().name(), policy.quota.limit());
    format!("{algorithm}, {}; at most {most} at once", written.numbers)
}

fn charged(
    rows: &mut Rows,
    loaded: &Loaded,
    terms: &LimitRule,
    subject: &Subject<'_>,
    charge: &Charge,
    whose: PolicySource<'_>,
) {
    let gate = &loaded.config.site.gate;
    let policy = &gate.limits.policies[charge.policy];
    match whose {
        PolicySource::Base => no_tier(rows, gate, terms, subject),
        PolicySource::Tier(name) => {
            let by = terms.tiers.as_ref().map_or_else(String::new, |tiers| tiers.by.to_string());
            rows.below("tier", format!("{name}, by {by}: {}", numbers(loaded, charge.policy)));
        }
        PolicySource::Override(name) => {
            rows.below("override", format!("{name}: {}", numbers(loaded, charge.policy)));
        }
    }
    rows.below("cost", cost(gate, terms, subject, charge.cost));
    if policy.charges_by_status() {
        let statuses: Vec<String> = policy.charge_on.iter().map(u16::to_string).collect();
        let statuses = statuses.join(" or ");
        rows.below("charged", format!("on arrival, and given back unless the final status is {statuses}"));
    }
    if let Some(ban) = &policy.ban {
        let [within, length] = [ban.within, ban.length].map(|span| format_duration(span.into()));
        rows.below(
            "ban",
            format!(
                "for {length}, after {} denial{} within {within}",
                ban.after,
                if ban.after == 1 { "" } else { "s" }
            ),
        );
    }
    count(rows, loaded, policy, charge);
}

/// Why no tier applies, where there are some.
fn no_tier(rows: &mut Rows, gate: &Gate, terms: &LimitRule, subject: &Subject<'_>) {
    let Some(tiers) = &terms.tiers else { return };
    let by = &tiers.by;
    let why = match by.value(subject) {
        PartValue::Missing => format!("the request has no {by}"),
        PartValue::Several(_) => format!("{by} has several values that differ"),
        PartValue::One(_)
            if by.is_client_supplied() && !gate.trusts_headers_of(subject.peer, terms.trust) =>
        {
            format!("{by} is not believed, since {} is no trusted proxy", subject.peer)
        }
        PartValue::One(value) => {
            format!("{by} = {}, and no tier is called so", String::from_utf8_lossy(&value))
        }
    };
    rows.below("tier", format!("none: {why}"));
}

fn cost(gate: &Gate, terms: &LimitRule, subject: &Subject<'_>, cost: u64) -> String {
    let Cost::Header { name, max } = &terms.cost else { return cost.to_string() };
    if !subject.head.fields.contains(name) {
        return format!("{cost}: the request has no header:{name}");
    }
    if !gate.trusts_headers_of(subject.peer, terms.trust) {
        return format!("{cost}: header:{name} is not believed, since {} is no trusted proxy", subject.peer);
    }
    format!("{cost}, by header:{name}, from 1 to {max}")
}

/// Where the count lives.
fn count(rows: &mut Rows, loaded: &Loaded, policy: &Policy, charge: &Charge) {
    let StoreSpec::Redis(redis) = &loaded.config.store else {
        rows.below("counted", "in this process");
        return;
    };
    let limits = &loaded.config.site.gate.limits;
    rows.below("counted", format!("in {}", redis.target));
    let name = stored_key(&redis.prefix, policy, charge.key, policy.quota.letter());
    rows.below("as", String::from_utf8_lossy(&name));
    let share = limits.shares[charge.policy].quota.limit();
    rows.below(
        "if away",
        match limits.on_failure[charge.policy] {
            OnStoreFailure::Allow => "the request passes this limit".to_owned(),
            OnStoreFailure::Deny if !policy.shadow => "the request is refused with 503".to_owned(),
            OnStoreFailure::Deny => "the request passes this limit, which only watches".to_owned(),
            OnStoreFailure::Local => format!("this process decides by itself, at most {share} at once"),
        },
    );
}

fn key(rows: &mut Rows, spec: &KeySpec, subject: &Subject<'_>) {
    for (number, part) in spec.parts.iter().enumerate() {
        let label = if number == 0 { "key" } else { "" };
        let text = match (part.value(subject), spec.on_missing) {
            (PartValue::One(_), _) if *part == KeyPart::Global => format!("{part} = everybody"),
            (PartValue::One(value), _) => format!("{part} = {}", String::from_utf8_lossy(&value)),
            (PartValue::Several(_), _) => {
                let address = subject.client;
                format!("{part} has several values that differ: the client's address is counted, {address}")
            }
            (PartValue::Missing, OnMissing::ClientIp) => {
                let why = why_missing(part, subject);
                format!("{part} is missing{why}: the client's address stands in for it, {}", subject.client)
            }
            (PartValue::Missing, _) => format!("{part} is missing{}", why_missing(part, subject)),
        };
        rows.below(label, text);
    }
}

/// Why there is no such claim; of other parts it is plain.
fn why_missing(part: &KeyPart, subject: &Subject<'_>) -> String {
    if !matches!(part, KeyPart::Jwt(_)) {
        return String::new();
    }
    match subject.token.claims() {
        Ok(_) => " (the token does not say it)".to_owned(),
        Err(TokenError::NoKeys) => " (its keys are fetched while tidegate runs, and not now)".to_owned(),
        Err(error) => format!(" ({error})"),
    }
}
