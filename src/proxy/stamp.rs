//! Rate headers: the only place that writes them.

use std::io::Write as _;

use super::response_policy::ResponsePolicy;
use crate::http1::names::{
    RATELIMIT, RATELIMIT_POLICY, X_RATELIMIT_LIMIT, X_RATELIMIT_REMAINING, X_RATELIMIT_RESET,
};
use crate::http1::{Fields, parse_decimal, push_decimal};
use crate::limit::{Decision, Policy, binding};
use crate::limiter::LimitStatus;
use crate::time::{Micros, Timestamp};

/// Writes the rate headers of a request that stands so with its limits. Headers of the server stay, as a
/// set, if they leave the client no more than ours. `retry_after` is what a denial says, in seconds.
pub(super) fn stamp(
    fields: &mut Fields,
    answers: &ResponsePolicy,
    policies: &[Policy],
    standings: &[LimitStatus],
    retry_after: Option<u64>,
    now: impl Fn() -> Timestamp,
) {
    let Some(place) = binding(standings.iter().map(|standing| &standing.decision)) else { return };
    let decision = &standings[place].decision;
    if answers.rate_headers.x_ratelimit && !is_tighter(fields, decision) {
        fields.set_with(X_RATELIMIT_LIMIT, |out| push_decimal(out, decision.limit));
        fields.set_with(X_RATELIMIT_REMAINING, |out| push_decimal(out, decision.remaining));
        fields.set_with(X_RATELIMIT_RESET, |out| push_decimal(out, reset(decision, answers, now)));
    }
    if answers.rate_headers.draft_11 && !is_tighter_draft(fields, decision) {
        fields.set_with(RATELIMIT_POLICY, |out| write_policies(out, policies, standings));
        fields.set_with(RATELIMIT, |out| write_limits(out, policies, standings, retry_after));
    }
}

/// What `X-RateLimit-Reset` says.
pub(super) fn reset(decision: &Decision, answers: &ResponsePolicy, now: impl Fn() -> Timestamp) -> u64 {
    if answers.reset_is_epoch {
        Micros(now().after(decision.reset_after).0).ceil_secs()
    } else {
        decision.reset_after.ceil_secs()
    }
}

/// Whether a server's own remaining count is at most ours.
fn is_tighter(fields: &Fields, ours: &Decision) -> bool {
    let theirs = fields.get(X_RATELIMIT_REMAINING).and_then(parse_decimal);
    theirs.is_some_and(|remaining| remaining <= ours.remaining)
}

/// The same of the draft's field: the smallest `r` of all its items counts.
fn is_tighter_draft(fields: &Fields, ours: &Decision) -> bool {
    let parameters = fields.elements(RATELIMIT).flat_map(|item| item.split(|byte| *byte == b';'));
    let counts = parameters.filter_map(|part| parse_decimal(part.trim_ascii().strip_prefix(b"r=")?));
    counts.min().is_some_and(|remaining| remaining <= ours.remaining)
}

/// The value of `RateLimit-Policy`: an item for each limit.
fn write_policies(out: &mut Vec<u8>, policies: &[Policy], standings: &[LimitStatus]) {
    let mut separator = "";
    for standing in standings {
        let Policy { name, quota, .. } = &policies[standing.policy];
        let (units, window) = quota.advertised();
        // Writing to memory can't fail.
        let _ = write!(out, "{separator}\"{name}\";q={units};w={window}");
        separator = ", ";
    }
}

/// The value of `RateLimit`: an item for each limit. No limit is reset later than `retry_after` seconds.
fn write_limits(out: &mut Vec<u8>, policies: &[Policy], standings: &[LimitStatus], retry_after: Option<u64>) {
    let mut separator = "";
    for standing in standings {
        let name = &policies[standing.policy].name;
        let Decision { remaining, reset_after, .. } = standing.decision;
        let reset = retry_after.map_or(reset_after.ceil_secs(), |most| reset_after.ceil_secs().min(most));
        let _ = write!(out, "{separator}\"{name}\";r={remaining};t={reset}");
        separator = ", ";
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{DenyReason, PolicyId, Quota, Rate};
    use crate::proxy::RateHeaders;

    fn stamped(upstream: &[(&str, &str)], answers: &ResponsePolicy, denied: Option<u64>) -> Vec<String> {
        let rate = Rate::new(100, Micros(60_000_000)).unwrap();
        let policies = [
            Policy::new("per-key", Quota::token_bucket(rate, 500).unwrap()),
            Policy::new("even", Quota::gcra(rate, 9).unwrap()),
        ];
        let standing = |policy: u32, remaining, reset: u64| LimitStatus {
            policy: PolicyId(policy),
            decision: Decision {
                allowed: denied.is_none(),
                limit: policies[policy as usize].quota.limit(),
                remaining,
                reset_after: Micros(reset),
                retry_after: Some(Micros::ZERO),
                delay: Micros::ZERO,
                cause: DenyReason::Quota,
                at: Timestamp::default(),
            },
        };
        let standings = [standing(0, 412, 52_800_001), standing(1, 2, 4_800_000)];
        let mut fields: Fields = upstream.iter().copied().collect();
        stamp(&mut fields, answers, &policies, &standings, denied, || Timestamp(1_000_000_000_001));
        let text = |bytes| std::str::from_utf8(bytes).unwrap();
        let mut lines: Vec<String> =
            fields.iter().map(|field| format!("{}: {}", field.name.as_str(), text(field.value))).collect();
        lines.sort();
        lines
    }

    #[test]
    fn the_binding_limit_is_shown() {
        assert_eq!(
            stamped(&[], &ResponsePolicy::default(), None),
            ["x-ratelimit-limit: 10", "x-ratelimit-remaining: 2", "x-ratelimit-reset: 5"]
        );
        let epoch = ResponsePolicy { reset_is_epoch: true, ..ResponsePolicy::default() };
        assert_eq!(stamped(&[], &epoch, None)[2], "x-ratelimit-reset: 1000005");
    }

    #[test]
    fn the_draft_shows_every_limit() {
        let rate_headers = RateHeaders { x_ratelimit: false, draft_11: true };
        let answers = ResponsePolicy { rate_headers, ..ResponsePolicy::default() };
        assert_eq!(
            stamped(&[], &answers, None),
            [
                r#"ratelimit-policy: "per-key";q=500;w=300, "even";q=10;w=6"#,
                r#"ratelimit: "per-key";r=412;t=53, "even";r=2;t=5"#,
            ]
        );
        assert!(stamped(&[], &answers, Some(3))[1].ends_with("r=412;t=3, \"even\";r=2;t=3"));
        let none = RateHeaders { x_ratelimit: false, draft_11: false };
        assert!(
            stamped(&[], &ResponsePolicy { rate_headers: none, ..ResponsePolicy::default() }, None)
                .is_empty()
        );
    }

    #[test]
    fn a_servers_own_headers_stay_if_they_leave_no_more() {
        let own = [("x-ratelimit-limit", "7"), ("x-ratelimit-remaining", "2"), ("x-ratelimit-reset", "9")];
        assert_eq!(stamped(&own, &ResponsePolicy::default(), None)[0], "x-ratelimit-limit: 7");
        let looser = [("x-ratelimit-remaining", "3"), ("x-ratelimit-limit", "7")];
        assert_eq!(stamped(&looser, &ResponsePolicy::default(), None)[0], "x-ratelimit-limit: 10");
        let odd = [("x-ratelimit-remaining", "many")];
        assert_eq!(stamped(&odd, &ResponsePolicy::default(), None)[1], "x-ratelimit-remaining: 2");
    }
}
