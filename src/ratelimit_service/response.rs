//! The response to a request: its decisions as a message.

use super::decision::{ChargedDescriptor, DescriptorDecisions};
use super::messages::{
    Code, DescriptorStatus, Duration, EnvoyRateLimit, HeaderValue, RateLimitResponse, Unit,
};
use crate::limit::{Policy, binding};
use crate::limiter::LimitStatus;
use crate::proxy::{Proxy, SoftHeaders, limit_headers};
use crate::time::Micros;

/// The response with the decisions on a request.
pub(super) fn response(proxy: &Proxy, decided: &DescriptorDecisions<'_>) -> RateLimitResponse {
    let policies = &proxy.gate().limits.policies;
    let soft = SoftHeaders::new(policies, decided.notes(policies));
    let is_over = decided.is_over();
    let for_server = soft.both().into_iter().filter(|(_, names)| !is_over && !names.is_empty());
    RateLimitResponse {
        overall_code: code(is_over),
        statuses: decided.descriptors.iter().map(|charged| status(policies, charged, decided)).collect(),
        response_headers_to_add: headers(proxy, decided, &soft),
        request_headers_to_add: for_server.map(|(name, names)| header(name.as_str(), names)).collect(),
    }
}

fn header(name: &str, value: &str) -> HeaderValue {
    HeaderValue { key: name.to_owned(), value: value.to_owned() }
}

fn code(is_over: bool) -> i32 {
    let code = if is_over { Code::OverLimit } else { Code::Ok };
    code.into()
}

/// The status of a descriptor: that of its limit with the least left. Limits in shadow mode are shown where there is no other.
fn status(
    policies: &[Policy],
    charged: &ChargedDescriptor<'_>,
    decided: &DescriptorDecisions<'_>,
) -> DescriptorStatus {
    let of = |all| {
        let own: Vec<&LimitStatus> = charged.statuses(all).collect();
        binding(own.iter().map(|status| &status.decision)).map(|index| own[index])
    };
    let bound = of(&decided.statuses).or_else(|| of(&decided.shadow));
    let is_over = charged.is_over(&decided.statuses);
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
fn headers(proxy: &Proxy, decided: &DescriptorDecisions<'_>, soft: &SoftHeaders) -> Vec<HeaderValue> {
    let limits = decided.limits.as_deref().unwrap_or(&proxy.gate().limits);
    // Where numbers were sent, the headers show them.
    let sent = |status: &LimitStatus| {
        let charges = decided.descriptors.iter().flat_map(|charged| &charged.charges);
        let mut own = charges.filter(|(policy, charge)| (*policy, charge.key) == (status.policy, status.key));
        LimitStatus { policy: own.next().map_or(status.policy, |(_, charge)| charge.policy), ..*status }
    };
    let statuses: Vec<LimitStatus> = decided.statuses.iter().map(sent).collect();
    let fields = limit_headers(proxy, &limits.policies, &statuses, Some(soft));
    fields.iter().map(|field| header(field.name.as_str(), &String::from_utf8_lossy(field.value))).collect()
}
