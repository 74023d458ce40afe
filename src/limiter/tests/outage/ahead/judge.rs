//! The exact algorithm, which judges what all proxies together have admitted, and what explains an excess.

use super::*;
use crate::limit::{Holder, State};

/// Counts what was admitted, and how much of it exceeds the limit.
#[derive(Default)]
pub struct Judge {
    state: Option<State>,
    admitted: Vec<(u64, u64)>,
    pub units: u64,
    pub over: u64,
}

/// What proxies do not know of.
pub struct Unknown {
    /// The units that others have taken from the store since the last reply to each proxy, granted ones included.
    pub since_reply: Vec<u64>,
    /// The shares of these when outages began.
    pub of_outages: u64,
    /// How long proxies counted by their shares after another one had noticed that the store was available, in microseconds.
    pub late: u64,
    /// When each proxy had its first failed call in the last outage, and when that ended.
    pub failed: Vec<Option<u64>>,
    pub ended: u64,
    /// Units that proxies without a call in an outage took from the store, while others owed some.
    pub unaware: u64,
}

impl Judge {
    pub fn admit(&mut self, quota: &Quota, at: u64, units: u64) {
        self.units += units;
        if let Quota::IntervalBucket(bucket) = quota {
            // The grid of each proxy starts by itself, so only the bound is the same.
            self.admitted.push((at, units));
            let (rate, mut sum, mut over) = (bucket.rate(), 0, 0);
            for (from, units) in self.admitted.iter().rev() {
                sum += units;
                let most = bucket.limit() + rate.units() * (at - from).div_ceil(rate.period().0);
                over = over.max(sum.saturating_sub(most));
            }
            if over > 0 {
                self.over += units;
                let _ = self.admitted.pop();
            }
            return;
        }
        let step = quota.step(self.state.as_ref(), Timestamp(START + at), units, Holder::default());
        if step.decision.allowed {
            self.state = step.next.or(self.state.take());
        } else {
            self.over += units;
        }
    }
}
