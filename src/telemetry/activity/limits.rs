//! What limits decided in a span of time.

use std::sync::Arc;

use serde::Serialize;

use super::sums::{Cursor, OutcomeSums, SortedByName};
use super::values::{DecisionSums, SharedName, largest};
use crate::telemetry::counters::counted_since;
use crate::telemetry::outcome::Outcome;

/// The decisions of a limit.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LimitActivity {
    name: SharedName,
    decisions: DecisionSums,
}

/// The limits that decided, and the decisions of all limits.
pub(super) struct LimitDecisions {
    pub all: DecisionSums,
    pub limits: Vec<LimitActivity>,
    pub left_out: usize,
}

const DENIALS: [Outcome; 4] = [Outcome::Denied, Outcome::Banned, Outcome::Blocked, Outcome::MissingKey];

/// What limits decided between two readings of their counters.
pub(super) fn decided(
    earlier: &SortedByName<Arc<str>, OutcomeSums>,
    later: &SortedByName<Arc<str>, OutcomeSums>,
) -> LimitDecisions {
    let mut known = Cursor::of(earlier);
    let mut all = DecisionSums::default();
    let mut active = Vec::new();
    for (name, later) in later {
        let counted = known.seek(name).map_or(*later, |earlier| counted_since(earlier, later));
        all.0.iter_mut().zip(counted).for_each(|(sum, count)| *sum += count);
        if counted.iter().any(|count| *count > 0) {
            active
                .push(LimitActivity { name: SharedName(Arc::clone(name)), decisions: DecisionSums(counted) });
        }
    }
    let rank = |LimitActivity { decisions, .. }: &LimitActivity| {
        let shadow_denials = decisions.count(&[Outcome::ShadowDenied]);
        (decisions.count(&DENIALS), shadow_denials, decisions.0.iter().sum::<u64>())
    };
    let (limits, left_out) = largest(active, rank);
    LimitDecisions { all, limits, left_out }
}
