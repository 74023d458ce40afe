//! Results that become known in another order than that of the arrivals.

use std::collections::VecDeque;

use super::played::PlayedArrival;

/// The results of arrivals, from the first one whose result was not taken.
#[derive(Debug, Default)]
pub(super) struct ArrivalResults {
    waiting: VecDeque<Option<PlayedArrival>>,
    /// How many results were taken.
    taken: usize,
    /// How many results are not known.
    unknown: usize,
}

impl ArrivalResults {
    /// Adds an arrival without a result; returns its index.
    pub fn add(&mut self) -> usize {
        self.waiting.push_back(None);
        self.unknown += 1;
        self.taken + self.waiting.len() - 1
    }

    /// Sets the result of an arrival.
    pub fn set(&mut self, index: usize, played: PlayedArrival) {
        if let Some(waiting) = self.waiting.get_mut(index - self.taken) {
            *waiting = Some(played);
            self.unknown -= 1;
        }
    }

    /// Whether the result of every arrival is known.
    pub fn is_complete(&self) -> bool {
        self.unknown == 0
    }

    /// Takes the results that are known of the first arrivals, in their order.
    pub fn take(&mut self) -> impl Iterator<Item = PlayedArrival> {
        let known = self.waiting.iter().take_while(|result| result.is_some()).count();
        self.taken += known;
        self.waiting.drain(..known).flatten()
    }
}
