//! Limits with `charge_on` whose requests can't end with any of its statuses.

use std::ops::Range;

use http::StatusCode;

use super::limits::ReadLimits;
use super::report::Problem;
use super::routes::ReadRoute;
use crate::gate::OnMissing;
use crate::limit::PolicyId;
use crate::proxy::Target;

/// Final statuses where no route matches: 404, and 204 for `OPTIONS *`.
const WITHOUT_ROUTE: [u16; 2] = [204, 404];

/// A warning for each limit that never charges a request, because all of its routes have `respond` with other
/// statuses.
pub(super) fn warnings<'a>(
    routes: &'a [ReadRoute],
    limits: &'a ReadLimits,
    defaults: &'a [(PolicyId, Range<usize>)],
) -> impl Iterator<Item = Problem> + 'a {
    limits.ids().filter_map(move |id| {
        let charge_on = limits.get(id)?.policy.charge_on();
        let mut own = routes.iter().filter(|read| read.route.limits.contains(&id)).peekable();
        let is_default = defaults.iter().any(|(default, _)| *default == id);
        if charge_on.is_empty() || (own.peek().is_none() && !is_default) {
            return None;
        }
        let can_end = |read: &ReadRoute| {
            let own = match read.action.target {
                Target::Forward { .. } => return true,
                Target::Respond { status, .. } => status,
                // The request is not charged, unless it is rejected.
                Target::Limits => return denies_missing_parts(read, limits),
                Target::Block => StatusCode::FORBIDDEN,
                // Such a route has no limits.
                Target::Decide(_) => return false,
            };
            charge_on.contains(&own.as_u16()) || denies_missing_parts(read, limits)
        };
        let without_route = is_default && charge_on.iter().any(|status| WITHOUT_ROUTE.contains(status));
        let never = !without_route && !own.any(can_end);
        never.then(|| {
            let title = "this limit never charges a request: none of its routes responds with a status of `charge_on`";
            Problem::warning(limits.span(id), title)
                .help("leave `charge_on` out, or use the limit on a route that forwards")
        })
    })
}

/// Whether a limit of the route denies requests that lack a key part, with its own status.
fn denies_missing_parts(read: &ReadRoute, limits: &ReadLimits) -> bool {
    let mut of_route = read.route.limits.iter().filter_map(|id| limits.get(*id));
    of_route.any(|limit| limit.rule.key.on_missing == OnMissing::Deny)
}
