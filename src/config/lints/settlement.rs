//! Lints of limits whose cost the response decides: routes whose requests have no such response.

use crate::config::limits::{ReadLimit, ReadLimits};
use crate::config::report::Problem;
use crate::config::routes::ReadRoute;
use crate::config::sections::Sections;
use crate::gate::{Cost, CostBasis};
use crate::limit::PolicyId;
use crate::proxy::Target;

/// The first limit of a route with such a cost.
fn limit_of<'l>(
    read: &ReadRoute,
    limits: &'l ReadLimits,
    is_sought: impl Fn(&CostBasis) -> bool,
) -> Option<(PolicyId, &'l ReadLimit)> {
    let settled = |limit: &ReadLimit| match &limit.rule.cost {
        Cost::Settled(cost) => is_sought(&cost.basis),
        Cost::Fixed(_) | Cost::Header { .. } => false,
    };
    read.route.limits.iter().find_map(|id| Some((*id, limits.get(*id).filter(|limit| settled(limit))?)))
}

/// Routes that respond by themselves: what a limit reserves for their requests is given back.
pub(super) fn unsent(sections: &Sections<'_>) -> Vec<Problem> {
    let problem = |read: &ReadRoute| {
        match read.action.target {
            Target::Respond { .. } | Target::Redirect(_) | Target::Block => {}
            Target::Forward(_) | Target::Authorize(_) | Target::Limits | Target::Decide(_) => return None,
        }
        let (id, limit) = limit_of(read, &sections.limits, |_| true)?;
        let title = format!(
            "route `{}` never charges the limit `{}`: it responds by itself, and what the limit reserves is given back",
            read.route.name, limit.policy.name
        );
        let problem =
            Problem::warning(read.span.clone(), title).related(sections.limits.span(id), "the limit");
        Some(problem.help("leave the limit out of this route, or name one whose cost is known on arrival"))
    };
    sections.routes().iter().filter_map(problem).collect()
}

/// Routes that the file lets clients upgrade, where the cost is read from a body: a tunnel has none.
pub(super) fn tunnels(sections: &Sections<'_>) -> Vec<Problem> {
    let problem = |read: &ReadRoute| {
        let span = read.upgrades_span.clone()?;
        let upgrades = &read.action.target.forwarding()?.upgrades;
        if !upgrades.websocket && upgrades.others.is_empty() {
            return None;
        }
        let (id, limit) = limit_of(read, &sections.limits, CostBasis::reads_response)?;
        let title = format!(
            "after an upgrade the limit `{}` keeps its estimate: it reads the cost in a response, and a tunnel has none",
            limit.policy.name
        );
        let problem = Problem::warning(span, title).related(sections.limits.span(id), "the limit");
        Some(problem.help("write upgrades = [], or a limit with settle = \"seconds\" or \"response_bytes\""))
    };
    sections.routes().iter().filter_map(problem).collect()
}

/// A route whose requests have no body, with a limit that estimates their cost by it.
pub(super) fn bodiless(read: &ReadRoute, limits: &ReadLimits) -> Option<Problem> {
    let (id, _) = limit_of(read, limits, CostBasis::reads_request)?;
    let title = format!(
        "requests of route `{}` have no body, by which this limit estimates their cost: they reserve 1",
        read.route.name
    );
    let problem = Problem::warning(limits.span(id), title).related(read.span.clone(), "this route");
    Some(problem.help("leave the limit out, or add a method such as POST"))
}
