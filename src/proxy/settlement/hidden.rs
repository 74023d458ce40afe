//! The headers and trailers in which limits read the cost of a response, and which the client does not get.

use http::header::HeaderName;

use crate::gate::{CostBasis, CostSource, Gate, RouteId};
use crate::http1::Fields;
use crate::proxy::hop;

/// The fields that the limits of a route hide from clients, whether or not they apply to a request.
#[derive(Clone, Copy)]
pub(in crate::proxy) struct HiddenFields<'g> {
    pub gate: &'g Gate,
    pub route: Option<RouteId>,
}

impl<'g> HiddenFields<'g> {
    /// Removes them from the head of a response, and the announcement of those that are trailers.
    pub fn remove(self, fields: &mut Fields) {
        for source in self.sources() {
            if let CostSource::Header(name) = source {
                fields.remove(name);
            }
        }
        if self.has_trailers() {
            hop::retain_announced_trailers(fields, |name| self.has_trailer(name));
        }
    }

    /// Whether this trailer is one of them.
    pub fn has_trailer(self, trailer: &HeaderName) -> bool {
        self.sources().any(|source| matches!(source, CostSource::Trailer(name) if name == trailer))
    }

    /// Whether a trailer is.
    pub fn has_trailers(self) -> bool {
        self.sources().any(|source| matches!(source, CostSource::Trailer(_)))
    }

    fn sources(self) -> impl Iterator<Item = &'g CostSource> {
        let limits = self.route.map(|route| &self.gate.routes.get(route).limits);
        let costs =
            limits.into_iter().flatten().filter_map(|limit| self.gate.limit_rules[*limit].cost.settled());
        costs.filter(|cost| !cost.keeps_header).filter_map(|cost| match &cost.basis {
            CostBasis::Parts { settle, .. } => Some(settle),
            CostBasis::Llm(_) => None,
        })
    }
}
