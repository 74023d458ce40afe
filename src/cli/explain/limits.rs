//! What a limit makes of a request.

use super::rows::Rows;
use crate::config::Loaded;
use crate::gate::{KeyPart, KeySpec, OnMissing, Subject};
use crate::jwt::TokenError;
use crate::limit::{Charge, PolicyId};
use crate::limiter::OnStoreFailure;
use crate::store::StoreSpec;
use crate::store::redis::stored_key;

/// Tells of one limit: its numbers, the key, the cost, and where the count lives.
pub(super) fn tell(
    rows: &mut Rows,
    loaded: &Loaded,
    id: PolicyId,
    charge: Option<&Charge>,
    subject: &Subject<'_>,
) {
    let gate = &loaded.config.site.gate;
    let place = id.0 as usize;
    let (Some(policy), Some(terms), Some(written)) =
        (gate.limits.policies.get(place), gate.terms.get(place), loaded.limits.get(place))
    else {
        return;
    };
    let burst = written.burst.map_or_else(String::new, |burst| format!(", burst {burst}"));
    let (algorithm, most) = (policy.quota.algorithm().name(), policy.quota.limit());
    let numbers = format!("{}: {algorithm}, {}{burst}; at most {most} at once", policy.name, written.rate);
    rows.row("limit", numbers);
    key(rows, &terms.key, subject);
    let Some(charge) = charge else {
        rows.below("cost", "none: a request that lacks this is not counted (on_missing = \"skip\")");
        return;
    };
    rows.below("cost", charge.cost.to_string());
    match &loaded.config.store {
        StoreSpec::Memory => rows.below("counted", "in this process"),
        StoreSpec::Redis(redis) => {
            rows.below("counted", format!("in {}", redis.target));
            let name = stored_key(&redis.prefix, policy, charge.key, policy.quota.letter());
            rows.below("as", String::from_utf8_lossy(&name));
            let share = gate.limits.shares.get(place).map_or(most, |share| share.quota.limit());
            rows.below(
                "if away",
                match gate.limits.on_failure.get(place) {
                    Some(OnStoreFailure::Allow) => "the request passes this limit".to_owned(),
                    Some(OnStoreFailure::Deny) => "the request is refused with 503".to_owned(),
                    _ => format!("this process decides by itself, at most {share} at once"),
                },
            );
        }
    }
}

fn key(rows: &mut Rows, spec: &KeySpec, subject: &Subject<'_>) {
    for (number, part) in spec.parts.iter().enumerate() {
        let label = if number == 0 { "key" } else { "" };
        let text = match (part.value(subject), spec.on_missing) {
            (Some(_), _) if *part == KeyPart::Global => format!("{part} = everybody"),
            (Some(value), _) => format!("{part} = {}", String::from_utf8_lossy(&value)),
            (None, OnMissing::ClientIp) => {
                let why = why_missing(part, subject);
                format!("{part} is missing{why}: the client's address stands in for it, {}", subject.client)
            }
            (None, _) => format!("{part} is missing{}", why_missing(part, subject)),
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
