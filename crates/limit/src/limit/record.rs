//! The record of a store for one policy and key.
//!
//! A refund applies only to the state that took the units. So a record of a limit with `charge_on` or settled costs begins with the time
//! at which its state was created (`Record::created`, 8 bytes), and a refund of what was taken earlier changes nothing: the state
//! was reset, evicted or lost in between. Units of a grant count as taken when the grant was opened. Entries of a log and slots
//! need no such time: they are found by their own time and by their holder. Two states of one microsecond are not told apart.

use super::penalty::Penalty;
use super::state::State;
use crate::time::{Micros, Timestamp};

/// The record of a store for one policy and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The state of the algorithm.
    pub state: Option<State>,
    /// Denials, ban and block of the key.
    pub penalty: Option<Penalty>,
    /// When the state was created, of a limit whose units may be refunded after the response; else zero.
    pub created: Timestamp,
}

impl Record {
    /// The record with a block for `length` from `now`.
    #[must_use]
    pub fn blocked(self, now: Timestamp, length: Micros) -> Self {
        let (penalty, _) = self.penalty.unwrap_or_default().updated(now);
        Self { penalty: Some(Penalty { blocked: penalty.end_after(length), ..penalty }), ..self }
    }

    /// The record without block and ban.
    #[must_use]
    pub fn unblocked(self) -> Self {
        Self { penalty: None, ..self }
    }

    /// The record of a key that has spent nothing and was never denied; a block stays.
    #[must_use]
    pub fn reset(self, now: Timestamp) -> Self {
        let penalty = self.penalty.map(|penalty| penalty.updated(now).0).filter(Penalty::is_blocked);
        let kept = |penalty: Penalty| Penalty {
            stamp: penalty.stamp,
            blocked: penalty.blocked,
            ..Penalty::default()
        };
        Self { penalty: penalty.map(kept), ..Self::default() }
    }
}
