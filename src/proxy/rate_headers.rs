//! Rate headers: `X-RateLimit-*`, `RateLimit` with `RateLimit-Policy`, and those of `OpenAI`. Written here only.

mod openai;

use super::response_policy::{RateHeaders, ResponsePolicy};
use super::snapshot::ConfigSnapshot;
use super::soft_headers::SoftHeaders;
use crate::gate::Gate;
use crate::http1::names::{
    RATELIMIT, RATELIMIT_POLICY, X_RATELIMIT_LIMIT, X_RATELIMIT_REMAINING, X_RATELIMIT_RESET,
};
use crate::http1::{Fields, parse_decimal, push_decimal};
use crate::limit::{Decision, Policy, binding};
use crate::limiter::LimitStatus;
use crate::time::{Clock, Micros};

/// The input of the rate headers of one request.
#[derive(Clone, Copy)]
pub(super) struct RateHeaderSource<'a> {
    pub policy: &'a ResponsePolicy,
    pub gate: &'a Gate,
    /// All policies, by [`PolicyId`](crate::limit::PolicyId).
    pub limits: &'a [Policy],
    /// The state of each limit that applies to the request.
    pub statuses: &'a [LimitStatus],
    pub clock: &'a Clock,
    /// What clients learn of soft limits, if there are any.
    pub soft: Option<&'a SoftHeaders>,
}

impl<'a> RateHeaderSource<'a> {
    /// The input for a request under this configuration.
    pub fn new(snapshot: &'a ConfigSnapshot, statuses: &'a [LimitStatus], clock: &'a Clock) -> Self {
        let ConfigSnapshot { gate, response_policy: policy, .. } = snapshot;
        Self { policy, gate, limits: &gate.limits.policies, statuses, clock, soft: None }
    }

    /// These headers with those of soft limits.
    pub fn with_soft(self, soft: Option<&'a SoftHeaders>) -> Self {
        Self { soft, ..self }
    }

    /// Writes the rate headers. A server's own headers are kept, as a set, if their remaining count is not above ours.
    /// `retry_after` is the wait of a denial, in seconds.
    pub fn write(&self, fields: &mut Fields, retry_after: Option<u64>) {
        let RateHeaders { x_ratelimit, draft_11, openai } = self.policy.rate_headers;
        if let Some(soft) = self.soft.filter(|_| x_ratelimit || draft_11 || openai) {
            soft.add_to_response(fields);
        }
        let Some(index) = binding(self.statuses.iter().map(|status| &status.decision)) else { return };
        let decision = &self.statuses[index].decision;
        if x_ratelimit && !is_tighter(fields, decision) {
            fields.set_with(X_RATELIMIT_LIMIT, |out| push_decimal(out, decision.limit));
            fields.set_with(X_RATELIMIT_REMAINING, |out| push_decimal(out, decision.remaining));
            fields.set_with(X_RATELIMIT_RESET, |out| push_decimal(out, self.reset(decision)));
        }
        if draft_11 && !is_tighter_draft(fields, decision) {
            fields.set_with(RATELIMIT_POLICY, |out| write_policies(out, self.limits, self.statuses));
            fields.set_with(RATELIMIT, |out| write_limits(out, self.limits, self.statuses, retry_after));
        }
        if openai {
            openai::write(fields, self.gate, self.limits, self.statuses);
        }
    }

    /// The value of `X-RateLimit-Reset`: seconds, or a Unix time if so configured.
    pub fn reset(&self, decision: &Decision) -> u64 {
        if self.policy.reset_is_epoch {
            Micros(self.clock.now().after(decision.reset_after).0).ceil_secs()
        } else {
            decision.reset_after.ceil_secs()
        }
    }
}

/// Whether a server's own remaining count is at most ours.
fn is_tighter(fields: &Fields, ours: &Decision) -> bool {
    let theirs = fields.get(X_RATELIMIT_REMAINING).and_then(parse_decimal);
    theirs.is_some_and(|remaining| remaining <= ours.remaining)
}

/// Whether the remaining count of a server's `RateLimit` field, of the draft, is at most ours: the smallest `r` of all its
/// items counts.
fn is_tighter_draft(fields: &Fields, ours: &Decision) -> bool {
    let parameters = fields.elements(RATELIMIT).flat_map(|item| item.split(|byte| *byte == b';'));
    let counts = parameters.filter_map(|part| parse_decimal(part.trim_ascii().strip_prefix(b"r=")?));
    counts.min().is_some_and(|remaining| remaining <= ours.remaining)
}

/// The value of `RateLimit-Policy`: an item for each limit.
fn write_policies(out: &mut Vec<u8>, limits: &[Policy], statuses: &[LimitStatus]) {
    for (index, status) in statuses.iter().enumerate() {
        let (units, window) = status.advertised(limits);
        write_item(out, index, &limits[status.policy].name, [(b";q=", units), (b";w=", window)]);
    }
}

/// The value of `RateLimit`: an item for each limit. No limit is reset later than `retry_after` seconds.
fn write_limits(out: &mut Vec<u8>, limits: &[Policy], statuses: &[LimitStatus], retry_after: Option<u64>) {
    for (index, status) in statuses.iter().enumerate() {
        let Decision { remaining, reset_after, .. } = status.decision;
        let reset = retry_after.map_or(reset_after.ceil_secs(), |most| reset_after.ceil_secs().min(most));
        write_item(out, index, &limits[status.policy].name, [(b";r=", remaining), (b";t=", reset)]);
    }
}

/// Writes an item of a list: the name of a limit as a string, and parameters with their numbers. A name has no characters
/// that would have to be escaped.
fn write_item(out: &mut Vec<u8>, index: usize, name: &str, parameters: [(&[u8; 3], u64); 2]) {
    out.extend_from_slice(if index == 0 { b"\"" } else { b", \"" });
    out.extend_from_slice(name.as_bytes());
    out.push(b'"');
    for (parameter, number) in parameters {
        out.extend_from_slice(parameter);
        push_decimal(out, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use crate::limit::{DenyReason, Key, PolicyId};
    use crate::time::Timestamp;

    fn written(upstream: &[(&str, &str)], policy: &ResponsePolicy, denied: Option<u64>) -> Vec<String> {
        let file = "[limits.per-key]\nrate = \"100/minute\"\nburst = 500\n\
                    [limits.even]\nalgorithm = \"gcra\"\nrate = \"100/minute\"\nburst = 9\n";
        let loaded = config::parse_limits(file, "limits.toml").unwrap();
        let gate = &loaded.config.snapshot.gate;
        let limits = &gate.limits.policies;
        let status = |limit: u32, remaining, reset: u64| LimitStatus {
            policy: PolicyId(limit),
            key: Key([0; 16]),
            raised: None,
            decision: Decision {
                allowed: denied.is_none(),
                limit: limits[PolicyId(limit)].quota.limit(),
                remaining,
                reset_after: Micros(reset),
                retry_after: Some(Micros::ZERO),
                delay: Micros::ZERO,
                reason: DenyReason::Quota,
                at: Timestamp::default(),
            },
        };
        let statuses = [status(0, 412, 52_800_001), status(1, 2, 4_800_000)];
        let mut fields: Fields = upstream.iter().copied().collect();
        let clock = Clock::manual(Timestamp(1_000_000_000_001));
        let source =
            RateHeaderSource { policy, gate, limits, statuses: &statuses, clock: &clock, soft: None };
        source.write(&mut fields, denied);
        let text = |bytes| std::str::from_utf8(bytes).unwrap();
        let mut lines: Vec<String> =
            fields.iter().map(|field| format!("{}: {}", field.name.as_str(), text(field.value))).collect();
        lines.sort();
        lines
    }

    #[test]
    fn the_binding_limit_is_shown() {
        assert_eq!(
            written(&[], &config::defaults::response_policy(), None),
            ["x-ratelimit-limit: 10", "x-ratelimit-remaining: 2", "x-ratelimit-reset: 5"]
        );
        let epoch = ResponsePolicy { reset_is_epoch: true, ..config::defaults::response_policy() };
        assert_eq!(written(&[], &epoch, None)[2], "x-ratelimit-reset: 1000005");
    }

    #[test]
    fn the_draft_shows_every_limit() {
        let rate_headers = RateHeaders { x_ratelimit: false, draft_11: true, openai: false };
        let policy = ResponsePolicy { rate_headers, ..config::defaults::response_policy() };
        assert_eq!(
            written(&[], &policy, None),
            [
                r#"ratelimit-policy: "per-key";q=500;w=300, "even";q=10;w=6"#,
                r#"ratelimit: "per-key";r=412;t=53, "even";r=2;t=5"#,
            ]
        );
        assert!(written(&[], &policy, Some(3))[1].ends_with("r=412;t=3, \"even\";r=2;t=3"));
        let none = RateHeaders { x_ratelimit: false, draft_11: false, openai: false };
        assert!(
            written(&[], &ResponsePolicy { rate_headers: none, ..config::defaults::response_policy() }, None)
                .is_empty()
        );
    }

    #[test]
    fn headers_of_openai_show_the_limit_of_requests_that_binds() {
        let rate_headers = RateHeaders { x_ratelimit: false, draft_11: false, openai: true };
        let policy = ResponsePolicy { rate_headers, ..config::defaults::response_policy() };
        assert_eq!(
            written(&[], &policy, None),
            [
                "x-ratelimit-limit-requests: 10",
                "x-ratelimit-remaining-requests: 2",
                "x-ratelimit-reset-requests: 5s",
            ]
        );
    }

    #[test]
    fn a_servers_own_headers_stay_if_their_remaining_count_is_not_above_ours() {
        let own = [("x-ratelimit-limit", "7"), ("x-ratelimit-remaining", "2"), ("x-ratelimit-reset", "9")];
        assert_eq!(written(&own, &config::defaults::response_policy(), None)[0], "x-ratelimit-limit: 7");
        let looser = [("x-ratelimit-remaining", "3"), ("x-ratelimit-limit", "7")];
        assert_eq!(written(&looser, &config::defaults::response_policy(), None)[0], "x-ratelimit-limit: 10");
        let odd = [("x-ratelimit-remaining", "many")];
        assert_eq!(written(&odd, &config::defaults::response_policy(), None)[1], "x-ratelimit-remaining: 2");
    }
}
