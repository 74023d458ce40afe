//! What one proxy knows of a key when it has to go on alone: the last that the store said of it, as the state that the
//! key has in the proxy's share.
//!
//! A decision says how much is left and when all of it will be back. The share of one of k proxies that know the same
//! has a k-th of it left, and is whole again at the same instant. Whole units are rounded down: together the proxies
//! must not have more left than the store had.

use std::num::NonZeroU64;

use super::decision::{Decision, DenyReason};
use super::key::Key;
use super::penalty::Penalty;
use super::policy::{Charge, Policy, PolicyId, Record};
use super::quota::{Quota, State};
use crate::time::{Micros, Timestamp};

impl Policy {
    /// What is known of a key in this share of one of `instances` proxies, after the store has `said` this of the whole
    /// quota; `known` is what was known of it before.
    #[must_use]
    pub fn seed(
        &self,
        known: Option<&Record>,
        said: &Decision,
        instances: NonZeroU64,
        now: Timestamp,
    ) -> Record {
        let rest = said.retry_after.unwrap_or(said.reset_after);
        let none = Penalty { stamp: now, ..Penalty::default() };
        let hold = match said.cause {
            DenyReason::Quota => {
                return Record { state: self.quota.seed(said, instances, now), hold: None };
            }
            DenyReason::Ban => Penalty { banned: none.until(rest), ..none },
            DenyReason::Block => Penalty { blocked: none.until(rest), ..none },
        };
        // Who is held back is not told what is spent.
        Record { state: known.and_then(|known| known.state.clone()), hold: Some(hold) }
    }

    /// The same while the store may not have been charged for everything yet: `known` stays if it leaves less.
    #[must_use]
    pub fn stricter_seed(
        &self,
        known: Option<&Record>,
        said: &Decision,
        instances: NonZeroU64,
        now: Timestamp,
    ) -> Record {
        let seed = self.seed(known, said, instances, now);
        let look = Charge::take(PolicyId(0), Key([0; 16]), 0);
        let remaining = |record: &Record| self.decide(Some(record), now, &look).decision.remaining;
        match known {
            Some(known) if said.cause == DenyReason::Quota && remaining(known) <= remaining(&seed) => {
                known.clone()
            }
            _ => seed,
        }
    }
}

impl Quota {
    /// The state in this share of one of `instances` proxies; see [`Policy::seed`]. Nothing is known of slots.
    fn seed(&self, said: &Decision, instances: NonZeroU64, now: Timestamp) -> Option<State> {
        let Decision { remaining, reset_after, .. } = *said;
        if reset_after == Micros::ZERO {
            return None;
        }
        let left = remaining / instances;
        let spent = self.limit().saturating_sub(left);
        match self {
            Self::TokenBucket(it) | Self::Gcra(it) | Self::LeakyBucket(it) => {
                Some(State::Debt(it.seed(reset_after, now)))
            }
            Self::IntervalBucket(it) => Some(State::Missing(it.seed(spent, reset_after, now))),
            Self::FixedWindow(it) => Some(State::Count(it.seed(spent, reset_after, now))),
            Self::SlidingLog(it) => it.seed(left, reset_after, now).map(|log| State::Log(Box::new(log))),
            Self::SlidingWindow(it) => {
                it.seed(spent, reset_after, now).map(|parts| State::Parts(Box::new(parts)))
            }
            Self::Concurrency(_) => None,
        }
    }
}
