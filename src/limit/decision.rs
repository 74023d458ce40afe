//! What a limit says to one request.

use std::cmp::Ordering;

use super::State;
use crate::time::{Micros, Timestamp};

/// The answer of one limit to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether this limit lets the request pass.
    pub allowed: bool,
    /// The most that could ever be available at once.
    pub limit: u64,
    /// How many more requests of cost 1 would be admitted at this instant; never above `limit`.
    pub remaining: u64,
    /// Time until `remaining` is back at `limit` if nothing more is spent; zero exactly when it is there.
    pub reset_after: Micros,
    /// On denial: the shortest time after which the same request would be allowed if nothing else were
    /// spent. `None` when it never can be; zero when allowed.
    pub retry_after: Option<Micros>,
    /// How long to hold an allowed request before it is forwarded.
    pub delay: Micros,
    /// On denial: what refuses.
    pub cause: DenyReason,
    /// When it was decided, by the clock of the store; [`Policy::decide`](super::Policy::decide) sets it.
    pub at: Timestamp,
}

/// What in a limit refuses a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DenyReason {
    /// The quota is used up.
    #[default]
    Quota,
    /// The key was refused too often, and is banned for a while.
    Ban,
    /// Somebody has blocked the key.
    Block,
}

impl Decision {
    /// Leave to pass at once, with what is left after it.
    #[must_use]
    pub fn allowed(limit: u64, remaining: u64, reset_after: Micros) -> Self {
        Self {
            allowed: true,
            limit,
            remaining,
            reset_after,
            retry_after: Some(Micros::ZERO),
            delay: Micros::ZERO,
            cause: DenyReason::Quota,
            at: Timestamp::default(),
        }
    }
}

/// One step of an algorithm: its answer, and the state to remember if it changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The answer.
    pub decision: Decision,
    /// The state after the charge. On a denial it is set only if the clock was found set back and the
    /// state had to move with it; without that a key could stay refused until the old time comes round.
    pub next: Option<State>,
}

/// The place among `decisions` of the one to show: among denials the longest `retry_after` (never is the
/// longest), otherwise the smallest remaining/limit; then the longer `reset_after`, then the first.
/// `None` when there are no decisions.
pub fn binding<'a>(decisions: impl IntoIterator<Item = &'a Decision>) -> Option<usize> {
    let mut best: Option<(usize, &Decision)> = None;
    for (place, candidate) in decisions.into_iter().enumerate() {
        if best.is_none_or(|(_, so_far)| tighter(candidate, so_far) == Ordering::Greater) {
            best = Some((place, candidate));
        }
    }
    best.map(|(place, _)| place)
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
    fn nothing_binds_when_there_is_nothing() {
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
