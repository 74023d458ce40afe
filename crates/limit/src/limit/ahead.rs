//! Grants: units that a process may spend without a call to the store, for limits with `ahead`.
//!
//! A grant charges nothing. The store reserves its units in the record of the key, so that no other request can take them,
//! and charges them when the process reports them as spent, or when the grant has ended: then all of its units count as
//! spent. So the store never counts less than was admitted.

use std::num::NonZeroU64;

use super::quota::Quota;
use crate::time::{Micros, Timestamp};

/// How a limit grants units ahead of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// How long a grant lasts.
    pub span: Micros,
    /// A grant has at most one in `share` of the available units.
    pub share: NonZeroU64,
}

/// What a process sends to the store with a charge of the kind `Grant`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantRequest {
    /// The report of an earlier grant.
    pub report: Option<GrantReport>,
    /// How many units the process requests; zero for no grant.
    pub wanted: u64,
}

/// The units of a grant that were spent or returned since its last report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GrantReport {
    /// The generation of the grant.
    pub opened: Timestamp,
    /// When the grant ends, by the clock of the store.
    pub until: Timestamp,
    /// Units that were spent.
    pub spent: u64,
    /// Units that are returned unspent.
    pub returned: u64,
}

/// Units that a process may spend without a call to the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Grant {
    /// How many units; zero if there is no grant.
    pub units: u64,
    /// The generation of the grant, for reports: when the store opened it.
    pub opened: Timestamp,
    /// How long the grant lasts from when the store made it.
    pub duration: Micros,
    /// In a paced grant, whose units become available as the bucket refills: how long until the first one; every further one
    /// follows after the time in which the bucket gets one unit. `None` if all units can be spent at once.
    pub first: Option<Micros>,
}

impl Ahead {
    /// The share if none is configured.
    pub const DEFAULT_SHARE: NonZeroU64 = NonZeroU64::new(8).unwrap();
    /// The shortest span of a grant.
    pub const MIN_SPAN: Micros = Micros(100_000);
    /// The longest span of a grant.
    pub const MAX_SPAN: Micros = Micros(10_000_000);
    /// The longest span of a limit with bans: for this time a process may spend its units after a key was banned.
    pub const MAX_SPAN_WITH_BAN: Micros = Micros::SECOND;

    /// The fewest units of a grant that is not paced: fewer would not be worth their report.
    pub const MIN_GRANT: u64 = 4;
    /// The fewest units of a paced grant.
    pub(super) const MIN_PACED_GRANT: u64 = 2;
    /// How far ahead units of an exhausted bucket are granted.
    pub(super) const PACED_AHEAD: Micros = Micros(100_000);
    /// The most ticks each microsecond that count for a paced grant, so that a double holds their product with a time exactly.
    pub(super) const MOST_DRAINED: u64 = 1 << 36;

    /// Whether a limit of this quota can ever grant units. One of few units can't, since a grant is a share of the remaining
    /// units; but a bucket that is refilled fast can make paced grants.
    #[must_use]
    pub fn may_grant(&self, quota: &Quota) -> bool {
        let is_paced = match quota {
            Quota::TokenBucket(bucket) | Quota::Gcra(bucket) => {
                let [drain, unit, limit] = bucket.numbers();
                let coming = drain.min(Self::MOST_DRAINED) * Self::PACED_AHEAD.0 / unit;
                coming / 4 >= Self::MIN_PACED_GRANT && limit / 2 >= Self::MIN_PACED_GRANT
            }
            _ => false,
        };
        is_paced || quota.limit().saturating_sub(1) / self.share >= Self::MIN_GRANT
    }

    /// The span for `ahead = "auto"`: a sixth of the time in which the limit refills completely, within bounds. `None` if the
    /// algorithm can't grant units: a unit of a leaky bucket is a position in its queue, and slots are not spent.
    #[must_use]
    pub fn automatic_span(quota: &Quota) -> Option<Micros> {
        Some(Micros(Self::fill_time(quota)?.0 / 6).clamp(Self::MIN_SPAN, Self::MAX_SPAN))
    }

    /// The longest span for a quota: half of the time in which the limit refills completely, within bounds. With a longer one
    /// most denials would be due to units that other proxies hold. `None` as for [`Ahead::automatic_span`].
    #[must_use]
    pub fn longest_span(quota: &Quota) -> Option<Micros> {
        Some(Micros(Self::fill_time(quota)?.0 / 2).clamp(Self::MIN_SPAN, Self::MAX_SPAN))
    }

    /// The time in which the limit refills completely.
    fn fill_time(quota: &Quota) -> Option<Micros> {
        let fill = match quota {
            Quota::TokenBucket(bucket) | Quota::Gcra(bucket) => {
                let [drain, unit, limit] = bucket.numbers();
                (limit * unit).div_ceil(drain)
            }
            Quota::IntervalBucket(bucket) => {
                bucket.limit().div_ceil(bucket.rate().units()) * bucket.rate().period().0
            }
            Quota::FixedWindow(window) => window.rate().period().0,
            Quota::SlidingLog(log) => log.rates().map(|rate| rate.period().0).max().unwrap_or(0),
            Quota::SlidingWindow(window) => window.rate().period().0,
            Quota::LeakyBucket(_) | Quota::Concurrency(_) => return None,
        };
        Some(Micros(fill))
    }
}
