//! What is counted for each limit.

use super::sketch::Sketch;
use super::summary::Summary;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopBy {
    /// Requests that the limit denied, or in shadow mode would have denied.
    Denials,
    /// Requests that the limit decided.
    Traffic,
}

/// The denied requests and all requests of a limit.
#[derive(Clone, Debug, Default)]
pub(super) struct DeniedAndAll<T> {
    pub denials: T,
    pub traffic: T,
}

impl<T> DeniedAndAll<T> {
    pub fn get(&self, by: TopBy) -> &T {
        match by {
            TopBy::Denials => &self.denials,
            TopBy::Traffic => &self.traffic,
        }
    }
}

impl DeniedAndAll<Summary> {
    pub fn merge(&mut self, other: &Self) {
        self.denials.merge(&other.denials);
        self.traffic.merge(&other.traffic);
    }
}

impl From<DeniedAndAll<Sketch>> for DeniedAndAll<Summary> {
    fn from(DeniedAndAll { denials, traffic }: DeniedAndAll<Sketch>) -> Self {
        Self { denials: denials.into(), traffic: traffic.into() }
    }
}
