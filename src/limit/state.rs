//! The state of a key, whichever algorithm its limit has.

use super::bucket::Debt;
use super::interval::Shortfall;
use super::sliding_log::Log;
use super::sliding_window::PartCounts;
use super::slots::Leases;
use super::window::Count;

/// The state of an algorithm for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Of a token bucket that refills continuously, a GCRA, or a leaky bucket.
    Debt(Debt),
    /// Of a token bucket that refills at intervals.
    Shortfall(Shortfall),
    /// Of a fixed window.
    Count(Count),
    /// Of a sliding log.
    Log(Box<Log>),
    /// Of a sliding window.
    Parts(Box<PartCounts>),
    /// Of a concurrency limit.
    Leases(Box<Leases>),
}

// A state of another algorithm is the same as none: the configuration has changed since it was stored.
impl State {
    pub(super) fn as_debt(&self) -> Option<&Debt> {
        if let Self::Debt(debt) = self { Some(debt) } else { None }
    }

    pub(super) fn as_shortfall(&self) -> Option<&Shortfall> {
        if let Self::Shortfall(missing) = self { Some(missing) } else { None }
    }

    pub(super) fn as_count(&self) -> Option<&Count> {
        if let Self::Count(count) = self { Some(count) } else { None }
    }

    pub(super) fn as_log(&self) -> Option<&Log> {
        if let Self::Log(log) = self { Some(log) } else { None }
    }

    pub(super) fn as_parts(&self) -> Option<&PartCounts> {
        if let Self::Parts(parts) = self { Some(parts) } else { None }
    }

    pub(super) fn as_leases(&self) -> Option<&Leases> {
        if let Self::Leases(leases) = self { Some(leases) } else { None }
    }
}

impl From<Debt> for State {
    fn from(debt: Debt) -> Self {
        Self::Debt(debt)
    }
}

impl From<Shortfall> for State {
    fn from(missing: Shortfall) -> Self {
        Self::Shortfall(missing)
    }
}

impl From<Count> for State {
    fn from(count: Count) -> Self {
        Self::Count(count)
    }
}

impl From<Log> for State {
    fn from(log: Log) -> Self {
        Self::Log(Box::new(log))
    }
}

impl From<PartCounts> for State {
    fn from(parts: PartCounts) -> Self {
        Self::Parts(Box::new(parts))
    }
}

impl From<Leases> for State {
    fn from(leases: Leases) -> Self {
        Self::Leases(Box::new(leases))
    }
}
