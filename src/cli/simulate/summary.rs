//! Totals of a simulation.

use std::fmt::Write as _;

use super::arrivals::SimulatedArrival;
use super::played::PlayedArrival;
use super::player::ArrivalPlayer;
use crate::limit::{DecidedCharge, DenyReason};
use crate::time::{Micros, Timestamp, format_seconds};

/// Counts the decisions on the arrivals of one player.
#[derive(Debug)]
pub(super) struct DecisionSummary {
    limits: Vec<LimitDenials>,
    admitted: u64,
    delayed: u64,
    denied: u64,
    longest_delay: Micros,
    first: Option<Timestamp>,
    last: Timestamp,
}

/// Counts the arrivals that one limit denies.
#[derive(Debug)]
struct LimitDenials {
    name: Box<str>,
    denied: u64,
    blocked: u64,
    too_costly: u64,
    longest_retry: Micros,
}

impl DecisionSummary {
    /// An empty summary for the limits of a player.
    pub fn new(player: &ArrivalPlayer<'_>) -> Self {
        let limits = player.limits().map(|policy| LimitDenials {
            name: policy.stored.clone(),
            denied: 0,
            blocked: 0,
            too_costly: 0,
            longest_retry: Micros::ZERO,
        });
        Self {
            limits: limits.collect(),
            admitted: 0,
            delayed: 0,
            denied: 0,
            longest_delay: Micros::ZERO,
            first: None,
            last: Timestamp::default(),
        }
    }

    /// Counts an arrival.
    pub fn count(&mut self, arrival: &SimulatedArrival, played: &PlayedArrival) {
        self.first = Some(self.first.map_or(arrival.at, |first| first.min(arrival.at)));
        self.last = self.last.max(arrival.at);
        if played.allowed {
            self.admitted += 1;
            self.delayed += u64::from(played.delay > Micros::ZERO);
            self.longest_delay = self.longest_delay.max(played.delay);
        } else {
            self.denied += 1;
        }
        for (limit, DecidedCharge { decision, .. }) in self.limits.iter_mut().zip(&played.decided) {
            limit.denied += u64::from(!decision.allowed);
            match (decision.retry_after, decision.reason) {
                (Some(wait), _) => limit.longest_retry = limit.longest_retry.max(wait),
                (None, DenyReason::Block) => limit.blocked += 1,
                (None, _) => limit.too_costly += 1,
            }
        }
    }

    /// The number of arrivals.
    pub fn arrivals(&self) -> u64 {
        self.admitted + self.denied
    }

    /// The time from the first arrival to the last.
    pub fn span(&self) -> Micros {
        Micros(self.first.map_or(0, |first| self.last.0 - first.0))
    }

    /// Such as `12 admitted, 3 of them delayed by at most 0.4 s; 18 denied`.
    pub fn verdicts(&self) -> String {
        let mut text = format!("{} admitted", self.admitted);
        if self.delayed > 0 {
            let longest = format_seconds(self.longest_delay);
            let _ = write!(text, ", {} of them delayed by at most {longest} s", self.delayed);
        }
        let _ = write!(text, "; {} denied", self.denied);
        text
    }

    /// For each limit its name and its denials, such as `denied 18, retry after at most 12 s`.
    pub fn by_limit(&self) -> impl Iterator<Item = (&str, String)> {
        self.limits.iter().map(|limit| (&*limit.name, limit.text()))
    }
}

impl LimitDenials {
    fn text(&self) -> String {
        let mut text = format!("denied {}", self.denied);
        if self.denied > self.blocked + self.too_costly {
            let _ = write!(text, ", retry after at most {} s", format_seconds(self.longest_retry));
        }
        if self.blocked > 0 {
            let _ = write!(text, "; {} of them blocked", self.blocked);
        }
        if self.too_costly > 0 {
            let _ = write!(text, "; {} of them cost more than the limit", self.too_costly);
        }
        text
    }
}
