//! THE straight line of a request: admit, forward, stamp.

mod answers;
mod treatment;

pub use answers::{Answers, CustomDenied, RateHeaders, Template};
pub use treatment::{HeaderEdits, Rewrite, Target, Treatment};

use crate::gate::Gate;
use crate::upstream::UpstreamSpec;

/// Everything that a worker needs to serve: one snapshot of the configuration. Immutable.
#[derive(Debug)]
pub struct Site {
    /// Who may pass.
    pub gate: Gate,
    /// What becomes of a request, by the route that it matches.
    pub treatments: Vec<Treatment>,
    /// Where requests go.
    pub upstreams: Vec<UpstreamSpec>,
    /// What clients see.
    pub answers: Answers,
}
