//! Leaves out requests whose dates are far from those of all others. One line with a wrong date would make a log begin or
//! end years away.

use std::collections::VecDeque;

use super::entry::LoggedRequest;
use crate::time::{Micros, Timestamp};

/// A date is far from others if there is no request for so long between them.
pub(super) const FAR: Micros = Micros(7 * 86_400 * Micros::SECOND.0);
/// The most requests that are left out at either end, or between others.
pub(super) const MOST_FAR: usize = 100;
/// One in so many requests may be left out.
const ONE_IN: usize = 100;

/// Requests in the order of their arrival, without the few at the beginning and at the end that are far from all others.
#[derive(Debug, Default)]
pub(super) struct FarDates {
    /// Requests of which it is not known yet whether they are left out.
    held: Vec<LoggedRequest<'static>>,
    /// How many of them are before the last long time without requests, while none has been returned.
    first: usize,
    ready: VecDeque<LoggedRequest<'static>>,
    last: Option<Timestamp>,
    /// How many are not left out.
    kept: usize,
    left_out: Vec<Timestamp>,
}

impl FarDates {
    /// Adds the next request.
    pub fn push(&mut self, entry: LoggedRequest<'static>) {
        let is_far = self.last.is_some_and(|last| entry.arrival > last.after(FAR));
        self.last = Some(entry.arrival);
        if self.kept > 0 {
            self.held.push(entry);
            // Those at the end follow the last long time without requests.
            if !is_far && self.held.len() == 1 || self.held.len() > MOST_FAR {
                self.keep();
            }
            return;
        }
        if is_far && self.held.len() <= MOST_FAR {
            self.first = self.held.len();
        }
        self.held.push(entry);
        let others = self.held.len() - self.first;
        if self.first > 0 && others >= self.first * ONE_IN {
            self.left_out.extend(self.held.drain(..self.first).map(|entry| entry.arrival));
            self.keep();
        } else if self.first == 0 && others > MOST_FAR {
            self.keep();
        }
    }

    /// No request follows.
    pub fn finish(&mut self) {
        if self.held.len() * ONE_IN <= self.kept {
            self.left_out.extend(self.held.drain(..).map(|entry| entry.arrival));
        }
        self.keep();
    }

    /// The next request; none until more are added.
    pub fn pop(&mut self) -> Option<LoggedRequest<'static>> {
        self.ready.pop_front()
    }

    /// The dates of the requests that were left out so far.
    pub fn left_out(&self) -> &[Timestamp] {
        &self.left_out
    }

    fn keep(&mut self) {
        self.kept += self.held.len();
        self.ready.extend(self.held.drain(..));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000_000;

    /// The days of the requests that are kept, and of those that are left out.
    fn filtered(days: impl IntoIterator<Item = u64>) -> (Vec<u64>, Vec<u64>) {
        let mut dates = FarDates::default();
        let mut kept = Vec::new();
        let mut pop = |dates: &mut FarDates| kept.extend(std::iter::from_fn(|| dates.pop()));
        for day in days {
            dates.push(LoggedRequest { arrival: Timestamp(day * DAY), ..LoggedRequest::default() });
            pop(&mut dates);
        }
        dates.finish();
        pop(&mut dates);
        let days = |entry: &LoggedRequest<'_>| entry.arrival.0 / DAY;
        (kept.iter().map(days).collect(), dates.left_out().iter().map(|date| date.0 / DAY).collect())
    }

    #[test]
    fn more_requests_of_more_others_are_left_out_also_near_each_other() {
        let many: Vec<u64> = (0..20_000).map(|request| 20_000 + request / 5_000).collect();
        let with = |first: &[u64], last: &[u64]| [first, &many, last].concat();
        let near: Vec<u64> = (0..MOST_FAR as u64).map(|request| 30_000 + request / 60).collect();
        for (first, last) in [(&[][..], &near[..]), (&[0; 60], &[]), (&[0, 0], &near)] {
            assert_eq!(filtered(with(first, last)), (many.clone(), [first, last].concat()));
        }
        let more = [30_000; MOST_FAR + 1];
        assert_eq!(filtered(with(&[], &more)), (with(&[], &more), Vec::new()));
    }

    #[test]
    fn few_requests_far_from_all_others_are_left_out() {
        let many = || (0..400).map(|request| 20_000 + request / 100);
        let all = |first: &[u64], last: &[u64]| -> Vec<u64> {
            first.iter().copied().chain(many()).chain(last.iter().copied()).collect()
        };
        let many: Vec<u64> = many().collect();
        for (first, last) in
            [(&[0][..], &[][..]), (&[0, 9, 900], &[]), (&[], &[30_000]), (&[0], &[20_011, 30_000])]
        {
            assert_eq!(filtered(all(first, last)), (many.clone(), [first, last].concat()));
        }
        // They are near, too many, or no fewer than the others.
        for (first, last) in [
            (&[19_993][..], &[20_010][..]),
            (&[0, 1, 2, 3, 4], &[]),
            (&[], &[30_000; 5]),
            (&[0; 20], &[30_000; 20]),
        ] {
            assert_eq!(filtered(all(first, last)), (all(first, last), Vec::new()), "{first:?} {last:?}");
        }
        let some: Vec<u64> = vec![0, 100, 101, 102];
        assert_eq!(filtered(some.clone()), (some, Vec::new()));
        assert_eq!(filtered([]), (Vec::new(), Vec::new()));
    }
}
