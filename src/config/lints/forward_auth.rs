//! Routes and limits of a file with authorization requests.

use std::ops::Range;

use crate::config::forward_auth::{TRUST, untrusted};
use crate::config::limits::{ReadLimit, ReadLimits};
use crate::config::reader::Reader;
use crate::config::report::Problem;
use crate::config::routes::ReadRoute;
use crate::gate::{ClientIp, KeyPart};
use crate::limit::{PolicyId, Quota};
use crate::proxy::Target;
use crate::server::ListenerSpec;

/// Rejects routes for authorization requests without trusted proxies.
pub(in crate::config) fn check_trust(
    routes: Option<&[ReadRoute]>,
    client_ip: Option<&ClientIp>,
    reader: &Reader<'_>,
) {
    if client_ip.is_none_or(|client_ip| !client_ip.trusted_proxies.is_empty()) {
        return;
    }
    for read in routes.unwrap_or_default().iter().filter(|read| decides(read)) {
        reader.report(Problem::error(read.span.clone(), untrusted("this route")).help(TRUST).derived());
    }
}

fn decides(read: &ReadRoute) -> bool {
    matches!(read.action.target, Target::Decide(_))
}

/// Limits that decisions can't apply as the proxy does: errors if every request is an authorization request, otherwise warnings.
pub(super) fn problems<'a>(
    routes: &'a [ReadRoute],
    limits: &'a ReadLimits,
    defaults: &'a [(PolicyId, Range<usize>)],
    listeners: &[ListenerSpec],
) -> impl Iterator<Item = Problem> + use<'a> {
    let asks = |spec: &ListenerSpec| spec.forward_auth.is_some();
    let all_ask = !listeners.is_empty() && listeners.iter().all(asks);
    let some_ask = listeners.iter().any(asks) || routes.iter().any(decides);
    let is_used = |id: &PolicyId| {
        routes.iter().any(|read| read.route.limits.contains(id))
            || defaults.iter().any(|(default, _)| default == id)
    };
    limits.ids().filter(move |id| some_ask && is_used(id)).filter_map(move |id| {
        let (title, help) = unknown_to_decisions(limits.get(id)?)?;
        let span = limits.span(id);
        let problem = if all_ask { Problem::error(span, title) } else { Problem::warning(span, title) };
        Some(problem.help(help))
    })
}

/// What a limit needs to know that a decision does not, and the cure.
fn unknown_to_decisions(limit: &ReadLimit) -> Option<(String, &'static str)> {
    if let Quota::Concurrency(_) = limit.policy.quota {
        let title = "a decision holds no slot of this limit: the end of the original request is not known";
        return Some((title.to_owned(), "limit concurrent requests in the trusted proxy"));
    }
    if limit.policy.charges_by_status() {
        let title = "a decision charges this limit whatever `charge_on` is: the final status is not known";
        return Some((title.to_owned(), "leave `charge_on` out, or forward these requests"));
    }
    let part = limit.rule.key.parts.iter().find(|part| matches!(part, KeyPart::Body(_)))?;
    let title = format!("decisions are made without the body of the request: `{part}` is always missing");
    Some((title, "count by another part of the request, or forward these requests"))
}
