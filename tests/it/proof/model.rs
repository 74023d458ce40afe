//! A model of one limit and key: a rule, the stamp of its last change, and decisions whose fields are found by trial, from their
//! definition.

use tidegate::limit::{Decision, DenyReason};
use tidegate::time::{Micros, Timestamp};

use super::rules::Rule;

/// How far ahead of the clock a stamp may lie.
const SECOND: u64 = 1_000_000;

/// The expected decisions for one limit and key.
pub struct Model {
    rule: Box<dyn Rule>,
    stamp: Option<u64>,
}

impl Clone for Model {
    fn clone(&self) -> Self {
        Self { rule: self.rule.copy(), stamp: self.stamp }
    }
}

impl Model {
    pub fn new(rule: Box<dyn Rule>) -> Self {
        Self { rule, stamp: None }
    }

    pub fn limit(&self) -> u64 {
        self.rule.limit()
    }

    /// When the state expires.
    pub fn forgotten(&self, now: u64) -> u64 {
        self.rule.forgotten().unwrap_or_else(|| now + self.until_fits(now, self.limit()))
    }

    /// Decides, and charges if it allows.
    pub fn take(&mut self, now: u64, cost: u64) -> Decision {
        let (mut present, set_back) = self.moved(now);
        let at = present.time(now);
        let allowed = cost == 0 || (cost <= self.limit() && present.rule.fits(at, cost));
        let mut delay = 0;
        if allowed && cost > 0 {
            delay = present.rule.release(now) - now;
            present.rule.charge(at, cost);
            present.stamp = Some(at);
        }
        let decision = Decision {
            allowed,
            limit: self.limit(),
            remaining: present.remaining(now),
            reset_after: Micros(present.until_fits(now, self.limit())),
            retry_after: if allowed {
                Some(Micros::ZERO)
            } else {
                (cost <= self.limit()).then(|| Micros(present.until_fits(now, cost)))
            },
            delay: Micros(delay),
            reason: DenyReason::Quota,
            at: Timestamp(now),
        };
        // A peek writes nothing; nor does a denial, unless the clock was set back.
        if (allowed && cost > 0) || (!allowed && set_back) {
            *self = present;
        }
        decision
    }

    /// Charges without asking.
    pub fn extra(&mut self, now: u64, cost: u64) -> Decision {
        if cost > 0 {
            let (mut present, _) = self.moved(now);
            let at = present.time(now);
            present.rule.charge(at, cost);
            present.stamp = Some(at);
            *self = present;
        }
        self.take(now, 0)
    }

    /// The model after the clock was set back to `now`, and whether it was.
    fn moved(&self, now: u64) -> (Self, bool) {
        let mut present = self.clone();
        let mut set_back = false;
        if let Some(stamp) = self.stamp.filter(|stamp| *stamp > now + SECOND) {
            let moved = present.rule.shift(stamp - now, now);
            present.stamp = Some(stamp - moved);
            set_back = moved > 0;
        }
        (present, set_back)
    }

    /// Decides with that cost, and never charges.
    pub fn look(&mut self, now: u64, cost: u64) -> Decision {
        let mut tried = self.clone();
        let said = tried.take(now, cost);
        if said.allowed {
            return self.take(now, 0);
        }
        *self = tried;
        said
    }

    /// The time of the key, which never runs backwards.
    fn time(&self, now: u64) -> u64 {
        now.max(self.stamp.unwrap_or(0))
    }

    /// How many requests of cost 1 would be admitted at this instant.
    fn remaining(&self, now: u64) -> u64 {
        let at = self.time(now);
        let (mut fits, mut too_many) = (0, self.limit() + 1);
        while too_many - fits > 1 {
            let middle = fits + (too_many - fits) / 2;
            if self.rule.fits(at, middle) { fits = middle } else { too_many = middle }
        }
        fits
    }

    /// The shortest time after which `cost` units fit if nothing else is spent.
    fn until_fits(&self, now: u64, cost: u64) -> u64 {
        let fits = |wait: u64| self.rule.fits(self.time(now + wait), cost);
        if fits(0) {
            return 0;
        }
        let mut enough = 1;
        while !fits(enough) {
            enough *= 2;
        }
        let mut too_short = enough / 2;
        while enough - too_short > 1 {
            let middle = too_short + (enough - too_short) / 2;
            if fits(middle) { enough = middle } else { too_short = middle }
        }
        enough
    }
}
