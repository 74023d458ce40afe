//! Checks what proxies with grants have admitted against the limits themselves.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use crate::limit::{Charge, Holder, Key, Policy, PolicyId, Quota, State};
use crate::time::Timestamp;

/// The units that limits with `ahead` have admitted.
#[derive(Debug, Default)]
pub(super) struct Admissions {
    /// The charges that are not judged yet, in the order of their times.
    unjudged: BTreeMap<(Timestamp, u64), Charge>,
    count: u64,
    /// The judged units of each key, counted by the algorithm of its limit.
    states: HashMap<(PolicyId, Key), State>,
    exceeding: u64,
}

impl Admissions {
    /// How many of the judged units were admitted beyond a limit.
    pub fn exceeding(&self) -> u64 {
        self.exceeding
    }

    /// Records that a limit has admitted units at this time.
    pub fn add(&mut self, at: Timestamp, charge: Charge) {
        self.count += 1;
        self.unjudged.insert((at, self.count), charge);
    }

    /// Judges what was admitted before `until`: nothing can be recorded for an earlier time any more.
    pub fn judge(&mut self, until: Timestamp, policies: &[Policy]) {
        while let Some(entry) = self.unjudged.first_entry().filter(|entry| entry.key().0 < until) {
            let ((at, _), charge) = entry.remove_entry();
            let quota = bound(&policies[charge.policy].quota);
            let state = self.states.get(&(charge.policy, charge.key));
            let step = quota.step(state, at, charge.cost, Holder::default());
            if let Some(next) = step.next {
                self.states.insert((charge.policy, charge.key), next);
            }
            self.exceeding += if step.decision.allowed { 0 } else { charge.cost };
        }
    }
}

/// The quota that judges what a limit has admitted.
fn bound(quota: &Quota) -> Quota {
    match quota {
        // The intervals start with the first charge that the store sees, which may be later than the first admission. The
        // units of any time fit a bucket that refills smoothly and has the units of one more interval.
        Quota::IntervalBucket(bucket) => {
            let (rate, limit) = (bucket.rate(), bucket.limit());
            Quota::token_bucket(rate, limit + rate.units()).unwrap_or_else(|_| quota.clone())
        }
        _ => quota.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::Rate;
    use crate::time::Micros;

    /// How many of these units, each admitted at its time, exceed a limit.
    fn exceeding(quota: Quota, admitted: &[(u64, u64)]) -> u64 {
        let (policies, mut admissions) = ([Policy::new("a", quota)], Admissions::default());
        for (at, units) in admitted {
            admissions.add(Timestamp(*at), Charge::take(PolicyId(0), Key([1; 16]), *units));
        }
        admissions.judge(Timestamp(u64::MAX), &policies);
        admissions.exceeding()
    }

    #[test]
    fn units_beyond_a_limit_are_counted_in_the_order_of_their_times() {
        let rate = Rate::new(10, Micros::SECOND).unwrap();
        let bucket = || Quota::token_bucket(rate, 5).unwrap();
        assert_eq!(exceeding(bucket(), &[(100_000, 1), (0, 5), (200_000, 1)]), 0);
        assert_eq!(exceeding(bucket(), &[(99_999, 1), (0, 5), (200_000, 1)]), 1);
        let interval = Quota::interval_bucket(rate, 5).unwrap();
        assert_eq!(exceeding(interval.clone(), &[(0, 5), (1, 10)]), 0);
        assert_eq!(exceeding(interval, &[(0, 5), (1, 11)]), 11);
    }

    #[test]
    fn units_are_judged_when_no_earlier_ones_can_follow() {
        let quota = Quota::token_bucket(Rate::new(1, Micros::SECOND).unwrap(), 1).unwrap();
        let (policies, mut admissions) = ([Policy::new("a", quota)], Admissions::default());
        let charge = Charge::take(PolicyId(0), Key([1; 16]), 1);
        admissions.add(Timestamp(7), charge);
        admissions.add(Timestamp(8), charge);
        admissions.judge(Timestamp(8), &policies);
        assert_eq!((admissions.exceeding(), admissions.unjudged.len()), (0, 1));
    }
}
