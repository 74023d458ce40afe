//! The state of a key, whichever algorithm its limit has.

use super::bucket::Debt;
use super::interval::Shortfall;
use super::sliding_log::Log;
use super::sliding_window::PartCounts;
use super::slots::Leases;
use super::window::Count;
use crate::time::Timestamp;

/// The state of an algorithm for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The state of a token bucket that refills continuously, a GCRA, or a leaky bucket.
    Debt(Debt),
    /// The state of a token bucket that refills at intervals.
    Shortfall(Shortfall),
    /// The state of a fixed window.
    Count(Count),
    /// The state of a sliding log.
    Log(Box<Log>),
    /// The state of a sliding window.
    Parts(Box<PartCounts>),
    /// The state of a concurrency limit.
    Leases(Box<Leases>),
    /// The state of a limit that grants units, while some are granted.
    WithGrants(Box<WithGrants>),
}

/// A state, and the units that are granted of what it leaves; see `Ahead`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WithGrants {
    /// The state of the algorithm, without the granted units.
    pub state: Option<State>,
    /// The generation that new grants belong to.
    pub current: Generation,
    /// The one before.
    pub previous: Generation,
}

/// Grants that are made within one span; they are charged together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Generation {
    /// When the first of them was made, which identifies the generation.
    pub opened: Timestamp,
    /// Their units that were not reported yet. Zero means that there is no such generation.
    pub units: u64,
    /// When the last of them ends.
    pub until: Timestamp,
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

impl State {
    /// Whether it is nothing but the empty remainder of grants that have ended.
    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::WithGrants(counts) if counts.state.is_none() && counts.units() == 0)
    }
}

impl WithGrants {
    /// All granted units.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.current.units.saturating_add(self.previous.units)
    }

    /// The generation that was opened at this time.
    pub(super) fn opened_at(&mut self, opened: Timestamp) -> Option<&mut Generation> {
        let known = [&mut self.current, &mut self.previous].into_iter();
        known.filter(|generation| generation.units > 0).find(|generation| generation.opened == opened)
    }

    /// When the last grant ends.
    #[must_use]
    pub fn until(&self) -> Timestamp {
        self.current.until.max(self.previous.until)
    }
}

impl From<WithGrants> for State {
    /// The state alone if no units are granted.
    fn from(counts: WithGrants) -> Self {
        match counts.state {
            Some(state) if counts.current.units == 0 && counts.previous.units == 0 => state,
            _ => Self::WithGrants(Box::new(counts)),
        }
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
