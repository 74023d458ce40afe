//! Explains how a limit applies to a request.

use super::explained::{ExplainedLimit, KeyPartInfo, TextRows};
use crate::cli::describe;
use crate::config::Loaded;
use crate::gate::{
    BodyFields, BodyLength, ClassInput, Cost, CostBasis, Gate, KeyPart, KeySpec, LimitMatch, LimitRule,
    LlmCost, NoField, OnMissing, PartValue, PolicySource, RequestUsage, Subject, trusts_headers_of,
};
use crate::jwt::TokenError;
use crate::limit::{Charge, Key, Policy, PolicyId};
use crate::limiter::OnStoreFailure;
use crate::store::StoreSpec;
use crate::store::redis::stored_key;
use crate::text::plural;
use crate::time::format_duration;
use crate::usage::{RequestFacts, Tokens};

/// Explains how one limit applies to a request or a descriptor: its quota, its key, its cost, and where it is counted.
pub(super) fn explain(
    rows: &mut TextRows,
    loaded: &Loaded,
    id: PolicyId,
    subject: &Subject<'_>,
) -> ExplainedLimit {
    let gate = &loaded.config.snapshot.gate;
    let (policy, rule) = (&gate.limits.policies[id], &gate.limit_rules[id]);
    rows.row("limit", format!("{}: {}", policy.name, describe_quota(gate, id)));
    if policy.shadow {
        let told =
            if policy.soft.marks { ", and names itself in a header to the server instead" } else { "" };
        rows.sub_row("mode", format!("{}: it denies no request{told}", policy.mode()));
    }
    if let Some(share) = policy.soft.warn_at.filter(|_| policy.is_soft()) {
        rows.sub_row("warns", format!("server and client from {share} of the limit on"));
    }
    let info = ExplainedLimit {
        name: policy.name.to_string(),
        algorithm: policy.quota.algorithm().name(),
        mode: policy.mode(),
        numbers: gate.numbers[id].to_string(),
        key: explain_key(rows, &rule.key, subject),
        ..ExplainedLimit::default()
    };
    let found = rule.key.find(subject, &gate.hasher);
    let (outcome, label, text) = match gate.match_limit(id, subject, &found) {
        LimitMatch::Charged { charge, source } => {
            let applied = AppliedCharge { loaded, rule, subject, charge: &charge, source };
            return explain_charge(rows, &applied, info);
        }
        LimitMatch::Allowed(by) => {
            ("allowed", "cost", format!("none: {by}, which this limit exempts (`allow`)"))
        }
        LimitMatch::Skipped => {
            let text = "none: requests without it are not counted (on_missing = \"skip\")".to_owned();
            ("skipped", "cost", text)
        }
        LimitMatch::Blocked(by) => ("blocked", "denied", format!("{by}, which this limit blocks (`block`)")),
        LimitMatch::TooManyValues(part) => {
            ("too_many_values", "denied", format!("{part} has too many values to look up a rule for each"))
        }
        LimitMatch::Missing(_) => {
            let status = rule.missing_status.as_u16();
            ("missing", "denied", format!("with {status}: the request lacks it (on_missing = \"deny\")"))
        }
    };
    rows.sub_row(label, text);
    ExplainedLimit { outcome, ..info }
}

/// Explains which limit blocks a request, and by which rule.
pub(super) fn explain_block(rows: &mut TextRows, gate: &Gate, id: PolicyId, subject: &Subject<'_>) {
    let (policy, rule) = (&gate.limits.policies[id], &gate.limit_rules[id]);
    let found = rule.key.find(subject, &gate.hasher);
    if let LimitMatch::Blocked(by) = gate.match_limit(id, subject, &found) {
        rows.row("", format!("{by}, which limit {} blocks (`block`)", policy.name));
    }
}

/// The algorithm and the quota of a limit, a tier or an override.
fn describe_quota(gate: &Gate, id: PolicyId) -> String {
    let quota = &gate.limits.policies[id].quota;
    format!("{}, {}; at most {} at once", quota.algorithm().name(), gate.numbers[id], quota.limit())
}

/// A limit that charges a request.
struct AppliedCharge<'a> {
    loaded: &'a Loaded,
    rule: &'a LimitRule,
    subject: &'a Subject<'a>,
    charge: &'a Charge,
    /// Where the quota comes from: the limit itself, a tier or an override.
    source: PolicySource<'a>,
}

fn explain_charge(
    rows: &mut TextRows,
    applied: &AppliedCharge<'_>,
    mut info: ExplainedLimit,
) -> ExplainedLimit {
    let AppliedCharge { loaded, rule, subject, charge, source } = applied;
    let gate = &loaded.config.snapshot.gate;
    let policy = &gate.limits.policies[charge.policy];
    match source {
        PolicySource::Base => explain_no_tier(rows, gate, rule, subject),
        PolicySource::Tier(name) => {
            let by = rule.tiers.as_ref().map_or_else(String::new, |tiers| tiers.by.to_string());
            rows.sub_row("tier", format!("{name}, by {by}: {}", describe_quota(gate, charge.policy)));
            info.tier = Some((*name).to_owned());
        }
        PolicySource::Override(name) => {
            rows.sub_row("override", format!("{name}: {}", describe_quota(gate, charge.policy)));
            info.overridden = Some((*name).to_owned());
        }
    }
    if rule.classes.is_some() {
        info.class = Some(explain_class(rows, gate, policy, subject));
    }
    rows.sub_row("cost", describe_cost(gate, rule, subject, charge.cost));
    if let Cost::Settled(cost) = &rule.cost {
        if let (CostBasis::Llm(llm), Some(usage)) = (&cost.basis, subject.body.and_then(BodyFields::usage)) {
            rows.sub_row("estimate", describe_estimate(llm, usage));
        }
        rows.sub_row("settled", describe::settlement(cost));
    }
    if policy.charges_by_status() {
        let statuses = describe::statuses(policy.charge_on());
        rows.sub_row("charged", format!("on arrival, and refunded unless the final status is {statuses}"));
    }
    if let Some(ban) = &policy.ban {
        let [within, length] = [ban.within, ban.length].map(|span| format_duration(span.into()));
        let after = ban.after;
        rows.sub_row("ban", format!("for {length}, after {after} denial{} within {within}", plural(after)));
    }
    if let Some(status) = rule.deny_status {
        rows.sub_row("denied", format!("{} (`deny_status`)", describe::denial(status)));
    }
    if let Some(granted) = describe::ahead(policy) {
        rows.sub_row("ahead", granted);
    }
    let tag = format!("{}{}", Key::TAG, String::from_utf8_lossy(&charge.key.text()));
    ExplainedLimit {
        outcome: "charged",
        numbers: gate.numbers[charge.policy].to_string(),
        cost: Some(charge.cost),
        tag: Some(tag),
        stored_as: explain_store(rows, loaded, policy, charge),
        ..info
    }
}

/// Explains how many slots the class of a request may take; returns its name.
fn explain_class(rows: &mut TextRows, gate: &Gate, policy: &Policy, subject: &Subject<'_>) -> &'static str {
    let (limit, usable) = (policy.quota.limit(), policy.quota.usable());
    let slots = match limit - usable {
        0 => "all slots".to_owned(),
        reserved => format!("at most {usable} slots, since {reserved} are reserved for higher classes"),
    };
    rows.sub_row("class", format!("{}: {slots}", describe::class(gate, subject)));
    gate.class(&ClassInput::of(subject)).0.name()
}

/// Explains why no tier applies, if the limit has tiers.
fn explain_no_tier(rows: &mut TextRows, gate: &Gate, rule: &LimitRule, subject: &Subject<'_>) {
    let Some(tiers) = &rule.tiers else { return };
    let by = &tiers.by;
    let consumer = subject.consumer();
    let why = match by.value_or_recorded(subject) {
        PartValue::One(_) if *by == KeyPart::Consumer => {
            match consumer.and_then(|known| known.tier.as_deref()) {
                Some(tier) => format!("the limit has no numbers for the consumer's tier {tier}"),
                None => "the consumer has no tier".to_owned(),
            }
        }
        PartValue::Missing => format!("the request has no {by}"),
        PartValue::Several(_) => format!("{by} has several values that differ"),
        PartValue::One(_)
            if by.is_client_supplied() && !trusts_headers_of(&gate.client_ip, subject.peer, rule.trust) =>
        {
            format!("{by} is ignored, since {} is not a trusted proxy", subject.peer)
        }
        PartValue::One(value) => {
            format!("{by} = {}, which is not the name of a tier", String::from_utf8_lossy(&value))
        }
    };
    rows.sub_row("tier", format!("none: {why}"));
}

/// Describes the tokens that are estimated for a request, and why.
fn describe_estimate(llm: &LlmCost, usage: &RequestUsage) -> String {
    let Tokens { input, output, .. } = usage.estimate_tokens(&llm.estimate);
    let why = match (&usage.facts, usage.length) {
        (Some(RequestFacts { max_output: Some(most), .. }), _) => {
            format!("by its text and the maximum that it names, {most}")
        }
        (Some(_), _) => "by its text and default_output, because it names no maximum".to_owned(),
        (None, BodyLength::None) => "because it has no body".to_owned(),
        (None, BodyLength::Exact(bytes) | BodyLength::Assumed(bytes)) => format!(
            "by default_output and the length of its body, {bytes} bytes, because it is compressed, malformed, not JSON, or longer than \
             read_body"
        ),
    };
    format!("{input} tokens of input and {output} of output, {why}")
}

fn describe_cost(gate: &Gate, rule: &LimitRule, subject: &Subject<'_>, cost: u64) -> String {
    let (name, max) = match &rule.cost {
        Cost::Fixed(_) => return cost.to_string(),
        Cost::Header { name, max } => (name, max),
        Cost::Settled(settled) => return format!("{cost}, {}", describe::reservation(settled)),
    };
    if !subject.head.fields.contains(name) {
        return format!("{cost}: the request has no header:{name}");
    }
    if !trusts_headers_of(&gate.client_ip, subject.peer, rule.trust) {
        return format!("{cost}: header:{name} is ignored, since {} is not a trusted proxy", subject.peer);
    }
    format!("{cost}, by header:{name}, from 1 to {max}")
}

/// Explains where the limit is counted, and what happens if the store is unavailable. Returns the key in Redis.
fn explain_store(rows: &mut TextRows, loaded: &Loaded, policy: &Policy, charge: &Charge) -> Option<String> {
    let StoreSpec::Redis(servers) = &loaded.config.store else {
        rows.sub_row("counted", "in this process");
        return None;
    };
    let redis = servers.of(charge.key);
    let limits = &loaded.config.snapshot.gate.limits;
    rows.sub_row("counted", format!("in {}", redis.target));
    let name = stored_key(&redis.prefix, policy, charge.key, policy.letter());
    let name = String::from_utf8_lossy(&name).into_owned();
    rows.sub_row("as", &name);
    let share = limits.shares[charge.policy].quota.usable();
    rows.sub_row(
        "if down",
        match limits.on_failure[charge.policy] {
            OnStoreFailure::Allow => "the request passes this limit".to_owned(),
            OnStoreFailure::Deny if !policy.shadow => "the request is denied with 503".to_owned(),
            OnStoreFailure::Deny => {
                format!("the request passes this limit, which is in {} mode", policy.mode())
            }
            OnStoreFailure::Local => format!("this process decides locally, at most {share} at once"),
        },
    );
    Some(name)
}

/// Explains the value of each part of the key.
fn explain_key(rows: &mut TextRows, spec: &KeySpec, subject: &Subject<'_>) -> Vec<KeyPartInfo> {
    let explain = |(index, part): (usize, &KeyPart)| {
        let label = if index == 0 { "key" } else { "" };
        let value = part.value_or_recorded(subject);
        let text = match (&value, spec.on_missing) {
            (PartValue::One(_), _) if *part == KeyPart::Global => format!("{part} = all clients"),
            (PartValue::One(value), _) => format!("{part} = {}", String::from_utf8_lossy(value)),
            (PartValue::Several(_), _) => {
                let address = subject.client;
                format!(
                    "{part} has several values that differ: the client's address is used instead, {address}"
                )
            }
            (PartValue::Missing, OnMissing::ClientIp) => {
                let why = why_missing(part, subject);
                format!("{part} is missing{why}: the client's address is used instead, {}", subject.client)
            }
            (PartValue::Missing, _) => format!("{part} is missing{}", why_missing(part, subject)),
        };
        rows.sub_row(label, text);
        let value = value.one().map(|value| String::from_utf8_lossy(&value).into_owned());
        KeyPartInfo { part: part.to_string(), value }
    };
    spec.parts.iter().enumerate().map(explain).collect()
}

/// Why a claim, a field of the body or a header of an authorization server is missing; other parts need no explanation.
fn why_missing(part: &KeyPart, subject: &Subject<'_>) -> String {
    match part {
        KeyPart::Jwt(_) => match subject.token.claims() {
            Ok(_) => " (the token does not have this claim)".to_owned(),
            Err(TokenError::NoKeys) => " (its keys are fetched only while tidegate runs)".to_owned(),
            Err(error) => format!(" ({error})"),
        },
        KeyPart::Header(name) if subject.route.is_some_and(|route| route.is_header_awaited(name)) => {
            " (the authorization server sets it, which is not asked here)".to_owned()
        }
        KeyPart::Body(field) => match subject.body.map(|body| body.values(field)) {
            Some(Err(NoField::NoBody)) => " (the request has no body; --data gives it one)".to_owned(),
            Some(Err(why)) => format!(" ({why})"),
            _ => " (only the bodies of requests that match a route are read)".to_owned(),
        },
        _ => String::new(),
    }
}
