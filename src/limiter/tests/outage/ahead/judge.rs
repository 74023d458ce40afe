//! The exact algorithm, which judges what all proxies together have admitted.

use super::*;
use crate::limit::{Holder, State};

/// Counts what was admitted, and what of it is too much.
#[derive(Default)]
pub struct Judge {
    state: Option<State>,
    admitted: Vec<(u64, u64)>,
    pub units: u64,
    pub over: u64,
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
