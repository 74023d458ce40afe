//! The response to a request: its decisions as a message.

use super::decision::{ChargedDescriptor, DescriptorDecisions};
use super::messages::{
    Code, DescriptorStatus, Duration, EnvoyRateLimit, HeaderValue, RateLimitResponse, Unit,
};
use crate::limit::{Policy, binding};
use crate::limiter::LimitStatus;
use crate::proxy::{Proxy, limit_headers};
use crate::time::Micros;

/// The response with the decisions on a request.
pub(super) fn response(proxy: &Proxy, decided: &DescriptorDecisions<'_>) -> RateLimitResponse {
    let policies = &proxy.gate().limits.policies;
    let statuses: Vec<DescriptorStatus> =
        decided.descriptors.iter().map(|charged| status(policies, charged, &decided.statuses)).collect();
    let is_over = statuses.iter().any(|status| status.code() == Code::OverLimit);
    RateLimitResponse {
        overall_code: code(is_over),
        statuses,
        response_headers_to_add: headers(proxy, decided),
    }
}

fn code(is_over: bool) -> i32 {
    let code = if is_over { Code::OverLimit } else { Code::Ok };
    code.into()
}

/// The status of a descriptor: that of its limit with the least left.
fn status(policies: &[Policy], charged: &ChargedDescriptor<'_>, all: &[LimitStatus]) -> DescriptorStatus {
    let own: Vec<&LimitStatus> = charged.statuses(all).collect();
    let bound = binding(own.iter().map(|status| &status.decision)).map(|index| own[index]);
    let is_over = charged.is_blocked() || own.iter().any(|status| !status.decision.allowed);
    let is_unlimited = charged.plan.rule.is_some_and(|rule| rule.limits.is_empty() && !rule.blocks);
    let sent = charged.options.sent.filter(|_| !charged.charges.is_empty());
    let limit = bound.map(|status| {
        let (units, seconds) = status.advertised(policies);
        let own = (saturated(units), Unit::of_seconds(seconds));
        let (requests_per_unit, unit) = sent.map_or(own, |sent| (sent.requests_per_unit, sent.unit));
        let name = policies[status.policy].name.to_string();
        EnvoyRateLimit { requests_per_unit, unit: unit.into(), name }
    });
    let none_allowed = || sent.filter(|sent| sent.rate.is_none()).zip(charged.charges.first());
    let limit = limit.or_else(|| {
        let (sent, (policy, _)) = none_allowed()?;
        let name = policies[*policy].name.to_string();
        Some(EnvoyRateLimit { requests_per_unit: 0, unit: sent.unit.into(), name })
    });
    DescriptorStatus {
        code: code(is_over),
        current_limit: limit,
        limit_remaining: match bound {
            Some(status) => saturated(status.decision.remaining),
            None if is_unlimited => u32::MAX,
            None => 0,
        },
        duration_until_reset: bound.map(|status| duration(status.decision.reset_after)),
    }
}

fn saturated(units: u64) -> u32 {
    u32::try_from(units).unwrap_or(u32::MAX)
}

/// Whole seconds, rounded up, as in the rate headers: clients of Envoy are shown them as whole seconds.
fn duration(span: Micros) -> Duration {
    Duration { seconds: i64::try_from(span.ceil_secs()).unwrap_or(i64::MAX), nanos: 0 }
}

/// The headers for the response to the client.
fn headers(proxy: &Proxy, decided: &DescriptorDecisions<'_>) -> Vec<HeaderValue> {
    let limits = decided.limits.as_deref().unwrap_or(&proxy.gate().limits);
    // Where numbers were sent, the headers show them.
    let sent = |status: &LimitStatus| {
        let charges = decided.descriptors.iter().flat_map(|charged| &charged.charges);
        let mut own = charges.filter(|(policy, charge)| (*policy, charge.key) == (status.policy, status.key));
        LimitStatus { policy: own.next().map_or(status.policy, |(_, charge)| charge.policy), ..*status }
    };
    let statuses: Vec<LimitStatus> = decided.statuses.iter().map(sent).collect();
    let fields = limit_headers(proxy, &limits.policies, &statuses);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    fields
        .iter()
        .map(|field| HeaderValue { key: field.name.as_str().to_owned(), value: text(field.value) })
        .collect()
}
