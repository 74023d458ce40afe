//! Rate headers: the only place that writes them.

use std::fmt::Write as _;
use std::sync::LazyLock;

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};

use super::answers::Answers;
use super::http2::once;
use crate::limit::{Decision, Policy, binding};
use crate::limiter::Standing;
use crate::time::{Micros, Timestamp};

const X_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const LIMIT: HeaderName = HeaderName::from_static("ratelimit");

/// Writes the rate headers of a request that stands so with its limits. Headers of the server stay, as a
/// set, if they leave the client no more than ours. `retry_after` is what a denial says, in seconds.
pub(super) fn stamp(
    headers: &mut HeaderMap,
    answers: &Answers,
    policies: &[Policy],
    standings: &[Standing],
    retry_after: Option<u64>,
    now: impl Fn() -> Timestamp,
) {
    let Some(place) = binding(standings.iter().map(|standing| &standing.decision)) else { return };
    let decision = &standings[place].decision;
    if answers.rate_headers.x_ratelimit && !is_tighter(headers.get(X_REMAINING), decision) {
        headers.insert(X_LIMIT, number(decision.limit));
        headers.insert(X_REMAINING, once(number(decision.remaining)));
        headers.insert(X_RESET, once(number(reset(decision, answers, now))));
    }
    if answers.rate_headers.draft_11 && !is_tighter_draft(headers, decision) {
        let (policy, limit) = draft(policies, standings, retry_after);
        headers.insert(POLICY, policy);
        headers.insert(LIMIT, once(limit));
    }
}

/// What `X-RateLimit-Reset` says.
pub(super) fn reset(decision: &Decision, answers: &Answers, now: impl Fn() -> Timestamp) -> u64 {
    if answers.reset_is_epoch {
        Micros(now().after(decision.reset_after).0).ceil_secs()
    } else {
        decision.reset_after.ceil_secs()
    }
}

/// Whether a server's own remaining count is at most ours.
fn is_tighter(theirs: Option<&HeaderValue>, ours: &Decision) -> bool {
    let theirs = theirs.and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok());
    theirs.is_some_and(|remaining| remaining <= ours.remaining)
}

/// The same of the draft's field: the smallest `r` of all its items counts.
fn is_tighter_draft(headers: &HeaderMap, ours: &Decision) -> bool {
    let items = headers.get_all(LIMIT).iter().filter_map(|value| value.to_str().ok());
    let counts = items.flat_map(|text| text.split([',', ';']));
    let smallest = counts.filter_map(|part| part.trim().strip_prefix("r=")?.parse::<u64>().ok()).min();
    smallest.is_some_and(|remaining| remaining <= ours.remaining)
}

/// `RateLimit-Policy` and `RateLimit`: an item for each limit.
fn draft(
    policies: &[Policy],
    standings: &[Standing],
    retry_after: Option<u64>,
) -> (HeaderValue, HeaderValue) {
    let (mut policy, mut limit) = (String::new(), String::new());
    for standing in standings {
        let Policy { name, quota, .. } = &policies[standing.policy.0 as usize];
        let separator = if policy.is_empty() { "" } else { ", " };
        let (units, window) = quota.advertised();
        let Decision { remaining, reset_after, .. } = standing.decision;
        let reset = retry_after.map_or(reset_after.ceil_secs(), |most| reset_after.ceil_secs().min(most));
        // Writing to a string can't fail.
        let _ = write!(policy, "{separator}\"{name}\";q={units};w={window}");
        let _ = write!(limit, "{separator}\"{name}\";r={remaining};t={reset}");
    }
    (text(policy), text(limit))
}

/// A header value of what we have written: names of limits are plain, and the rest are digits.
fn text(written: String) -> HeaderValue {
    HeaderValue::try_from(written).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// A number as a header value; the small ones, which are nearly all, are made once.
pub(super) fn number(number: u64) -> HeaderValue {
    static SMALL: LazyLock<Box<[HeaderValue]>> = LazyLock::new(|| {
        (0..1024_u32).map(|n| HeaderValue::from_static(Box::leak(n.to_string().into_boxed_str()))).collect()
    });
    let small = usize::try_from(number).ok().and_then(|place| SMALL.get(place));
    small.map_or_else(|| HeaderValue::from(number), Clone::clone)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::{Cause, PolicyId, Quota, Rate};
    use crate::proxy::RateHeaders;

    fn stamped(
        upstream: &[(&'static str, &'static str)],
        answers: &Answers,
        denied: Option<u64>,
    ) -> Vec<String> {
        let rate = Rate::new(100, Micros(60_000_000)).unwrap();
        let policies = [
            Policy::new("per-key", Quota::token_bucket(rate, 500).unwrap()),
            Policy::new("even", Quota::gcra(rate, 9).unwrap()),
        ];
        let standing = |policy: u32, remaining, reset: u64| Standing {
            policy: PolicyId(policy),
            decision: Decision {
                allowed: denied.is_none(),
                limit: policies[policy as usize].quota.limit(),
                remaining,
                reset_after: Micros(reset),
                retry_after: Some(Micros::ZERO),
                delay: Micros::ZERO,
                cause: Cause::Quota,
                at: Timestamp::default(),
            },
        };
        let standings = [standing(0, 412, 52_800_001), standing(1, 2, 4_800_000)];
        let mut headers = HeaderMap::new();
        for (name, value) in upstream {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        stamp(&mut headers, answers, &policies, &standings, denied, || Timestamp(1_000_000_000_001));
        let mut lines: Vec<String> =
            headers.iter().map(|(n, v)| format!("{n}: {}", v.to_str().unwrap())).collect();
        lines.sort();
        lines
    }

    #[test]
    fn the_binding_limit_is_shown() {
        assert_eq!(
            stamped(&[], &Answers::default(), None),
            ["x-ratelimit-limit: 10", "x-ratelimit-remaining: 2", "x-ratelimit-reset: 5"]
        );
        let epoch = Answers { reset_is_epoch: true, ..Answers::default() };
        assert_eq!(stamped(&[], &epoch, None)[2], "x-ratelimit-reset: 1000005");
    }

    #[test]
    fn the_draft_shows_every_limit() {
        let rate_headers = RateHeaders { x_ratelimit: false, draft_11: true };
        let answers = Answers { rate_headers, ..Answers::default() };
        assert_eq!(
            stamped(&[], &answers, None),
            [
                r#"ratelimit-policy: "per-key";q=500;w=300, "even";q=10;w=6"#,
                r#"ratelimit: "per-key";r=412;t=53, "even";r=2;t=5"#,
            ]
        );
        assert!(stamped(&[], &answers, Some(3))[1].ends_with("r=412;t=3, \"even\";r=2;t=3"));
        let none = RateHeaders { x_ratelimit: false, draft_11: false };
        assert!(stamped(&[], &Answers { rate_headers: none, ..Answers::default() }, None).is_empty());
    }

    #[test]
    fn a_servers_own_headers_stay_if_they_leave_no_more() {
        let own = [("x-ratelimit-limit", "7"), ("x-ratelimit-remaining", "2"), ("x-ratelimit-reset", "9")];
        assert_eq!(stamped(&own, &Answers::default(), None)[0], "x-ratelimit-limit: 7");
        let looser = [("x-ratelimit-remaining", "3"), ("x-ratelimit-limit", "7")];
        assert_eq!(stamped(&looser, &Answers::default(), None)[0], "x-ratelimit-limit: 10");
        let odd = [("x-ratelimit-remaining", "many")];
        assert_eq!(stamped(&odd, &Answers::default(), None)[1], "x-ratelimit-remaining: 2");
    }

    #[test]
    fn large_numbers_are_written_too() {
        assert_eq!(number(1023), "1023");
        assert_eq!(number(u64::MAX), u64::MAX.to_string().as_str());
    }
}
