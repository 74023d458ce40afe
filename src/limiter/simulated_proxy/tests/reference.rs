//! The exact algorithm, which judges what was admitted.

use crate::limit::{Holder, Quota, State};
use crate::time::Timestamp;

/// All units that were admitted, each at its time.
pub enum Reference {
    /// By the algorithm.
    Exact(Option<State>),
    /// A bucket that is refilled at intervals: the store counts them from the first charge that it sees, so only the bound is
    /// the same. The times in order, each with the units that were admitted before it.
    Bound { times: Vec<(Timestamp, u64)>, total: u64 },
}

impl Reference {
    /// Nothing was admitted.
    pub fn new(quota: &Quota) -> Self {
        match quota {
            Quota::IntervalBucket(_) => Self::Bound { times: Vec::new(), total: 0 },
            _ => Self::Exact(None),
        }
    }

    /// Admits units; returns whether the limit allows them.
    pub fn admit(&mut self, quota: &Quota, now: Timestamp, units: u64) -> bool {
        match self {
            Self::Exact(state) => take(quota, state, now, units),
            Self::Bound { times, total } => {
                let Quota::IntervalBucket(bucket) = quota else { unreachable!("only these have a bound") };
                times.push((now, *total));
                *total += units;
                let (rate, first) = (bucket.rate(), times[0].0);
                let periods = now.since(first).0.div_ceil(rate.period().0);
                // The most that any interval of so many periods which ends now may have.
                (0..=periods).all(|count| {
                    let start = Timestamp(now.0.saturating_sub(count * rate.period().0));
                    let index = times.partition_point(|(at, _)| *at < start);
                    *total - times[index].1 <= bucket.limit() + count * rate.units()
                })
            }
        }
    }
}

/// Takes units from a state by the exact algorithm; returns whether it allows them.
pub fn take(quota: &Quota, state: &mut Option<State>, now: Timestamp, units: u64) -> bool {
    let step = quota.step(state.as_ref(), now, units, Holder::default());
    if step.next.is_some() {
        *state = step.next;
    }
    step.decision.allowed
}
