//! Units beyond the limit, which settled costs are charged.

use super::Quota;

impl Quota {
    /// This quota, of which a key may owe this number of units more than the limit, as far as the algorithm can count them
    /// exactly. Queues and slots have no units that are charged without asking.
    #[must_use]
    pub(in crate::limit) fn with_extra(self, units: u64) -> Self {
        match self {
            Self::TokenBucket(it) => Self::TokenBucket(it.with_extra(units)),
            Self::IntervalBucket(it) => Self::IntervalBucket(it.with_extra(units)),
            Self::Gcra(it) => Self::Gcra(it.with_extra(units)),
            Self::FixedWindow(it) => Self::FixedWindow(it.with_extra(units)),
            Self::SlidingLog(it) => Self::SlidingLog(it.with_extra(units)),
            Self::SlidingWindow(it) => Self::SlidingWindow(it.with_extra(units)),
            Self::LeakyBucket(_) | Self::Concurrency(_) => self,
        }
    }

    /// The most units that a key can owe: the limit, and what settled costs may exceed it by. Of several rates of a log it is
    /// that of the longest period.
    #[must_use]
    pub fn most_units(&self) -> u64 {
        match self {
            Self::TokenBucket(it) | Self::Gcra(it) | Self::LeakyBucket(it) => it.most_units(),
            Self::IntervalBucket(it) => it.most_units(),
            Self::FixedWindow(it) => it.most_units(),
            Self::SlidingLog(it) => it.most_units(),
            Self::SlidingWindow(it) => it.most_units(),
            Self::Concurrency(it) => it.limit(),
        }
    }
}
