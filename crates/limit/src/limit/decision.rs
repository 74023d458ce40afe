//! The decision of one limit on one request.

use std::cmp::Ordering;

use crate::time::{Micros, Timestamp};

/// The decision of one limit on one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the limit allows the request.
    pub allowed: bool,
    /// The most units that can ever be available at once, with slots that are reserved for other requests.
    pub limit: u64,
    /// How many more requests of cost 1 would be allowed now; at most `limit`. Slots that are reserved for other requests are not
    /// among them.
    pub remaining: u64,
    /// Time until `remaining` is as large as it can be if nothing more is spent; zero if and only if it is.
    pub reset_after: Micros,
    /// On denial: the shortest time after which the same request would be allowed if nothing else were
    /// spent; `None` if it never can be. Zero if allowed.
    pub retry_after: Option<Micros>,
    /// How long to delay an allowed request before it is forwarded.
    pub delay: Micros,
    /// On denial: why.
    pub reason: DenyReason,
    /// When it was decided, by the clock of the store; set by `Policy::decide`.
    pub at: Timestamp,
}

/// What a process knows of a key of a limit with `ahead`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreView {
    /// The decision of the store, which counts all granted units as spent.
    pub decision: Decision,
    /// Units of these that the process held then.
    pub held: u64,
    /// The decision of the process' share if only its own units are counted, without those that it held; `None` if they were
    /// not counted.
    pub own: Option<Decision>,
}

impl StoreView {
    /// A decision of the store, of a process that holds no units.
    pub(super) fn of(decision: Decision) -> Self {
        Self { decision, held: 0, own: None }
    }
}

/// What the share of a process in a key does not count yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareUpdate {
    /// The last view of the store, and how old it is; `None` if the share has it.
    pub view: Option<(StoreView, Micros)>,
    /// Units taken from grants since; less than zero if more were put back.
    pub taken: i64,
}

/// Why a limit denies a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DenyReason {
    /// The quota is used up.
    #[default]
    Quota,
    /// The key was denied too often, and is banned for a while.
    Ban,
    /// An operator has blocked the key.
    Block,
}

impl Decision {
    /// Whether fewer units remain than by `other`; of equally many, whether they are back later.
    #[must_use]
    pub(super) fn is_stricter(&self, other: &Self) -> bool {
        (self.remaining, other.reset_after) < (other.remaining, self.reset_after)
    }

    /// A request is allowed without delay, and `remaining` units are left after it.
    #[must_use]
    pub fn allowed(limit: u64, remaining: u64, reset_after: Micros) -> Self {
        Self {
            allowed: true,
            limit,
            remaining,
            reset_after,
            retry_after: Some(Micros::ZERO),
            delay: Micros::ZERO,
            reason: DenyReason::Quota,
            at: Timestamp::default(),
        }
    }
}

/// One step of an algorithm: its decision, and the state to store if it changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<S> {
    /// The decision.
    pub decision: Decision,
    /// The state after the charge. On a denial it is set only if the clock was set back and the state had to move with it:
    /// otherwise a key could stay denied until the clock shows the old time again.
    pub next: Option<S>,
}

impl<S> Step<S> {
    /// This step, with its state converted.
    pub(super) fn map<T>(self, convert: impl FnOnce(S) -> T) -> Step<T> {
        Step { decision: self.decision, next: self.next.map(convert) }
    }
}

/// The index of the decision to report: among denials the one with the longest `retry_after`, where `None` is longest;
/// otherwise the one with the smallest remaining/limit. Ties go to the longer `reset_after`, then to the first. `None` if
/// there are no decisions.
pub fn binding<'a>(decisions: impl IntoIterator<Item = &'a Decision>) -> Option<usize> {
    let mut best: Option<(usize, &Decision)> = None;
    for (index, candidate) in decisions.into_iter().enumerate() {
        if best.is_none_or(|(_, so_far)| tighter(candidate, so_far) == Ordering::Greater) {
            best = Some((index, candidate));
        }
    }
    best.map(|(index, _)| index)
}

fn tighter(a: &Decision, b: &Decision) -> Ordering {
    let by_verdict = match (a.allowed, b.allowed) {
        (false, true) => Ordering::Greater,
        (true, false) => Ordering::Less,
        (false, false) => wait(a).cmp(&wait(b)),
        // a.remaining/a.limit < b.remaining/b.limit, cross-multiplied to stay in whole numbers.
        (true, true) => {
            let (left, right) = (u128::from(a.remaining), u128::from(b.remaining));
            (right * u128::from(a.limit)).cmp(&(left * u128::from(b.limit)))
        }
    };
    by_verdict.then(a.reset_after.cmp(&b.reset_after))
}

fn wait(denied: &Decision) -> Micros {
    denied.retry_after.unwrap_or(Micros(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(remaining: u64, limit: u64, reset: u64) -> Decision {
        Decision::allowed(limit, remaining, Micros(reset))
    }

    fn denied(retry: Option<u64>, reset: u64) -> Decision {
        Decision { allowed: false, retry_after: retry.map(Micros), ..allowed(0, 10, reset) }
    }

    #[test]
    fn no_decision_binds_if_there_is_none() {
        assert_eq!(binding([]), None);
    }

    #[test]
    fn the_longest_wait_binds_among_denials() {
        let all = [allowed(0, 10, 99), denied(Some(5), 5), denied(Some(9), 9), denied(Some(7), 50)];
        assert_eq!(binding(&all), Some(2));
        let never = [denied(Some(u64::MAX - 1), 1), denied(None, 0)];
        assert_eq!(binding(&never), Some(1));
    }

    #[test]
    fn the_smallest_share_binds_among_allowed() {
        assert_eq!(binding(&[allowed(5, 10, 1), allowed(49, 100, 1), allowed(6, 10, 9)]), Some(1));
    }

    #[test]
    fn ties_go_to_the_longer_reset_then_to_the_first() {
        assert_eq!(binding(&[allowed(5, 10, 1), allowed(50, 100, 2), allowed(5, 10, 2)]), Some(1));
    }
}
