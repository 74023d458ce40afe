//! Whose turn it is.

use std::cell::RefCell;

/// Weighted round robin, smooth: a server of weight 2 among two of weight 1 gets every other request, not
/// two in a row. At each turn every server gains its weight, and the one that has most pays the sum of all.
#[derive(Debug)]
pub(super) struct RoundRobin {
    shares: RefCell<Vec<Share>>,
}

#[derive(Debug)]
struct Share {
    weight: i64,
    credit: i64,
}

impl RoundRobin {
    pub fn new(weights: impl Iterator<Item = u32>) -> Self {
        let shares = weights.map(|weight| Share { weight: i64::from(weight), credit: 0 });
        Self { shares: RefCell::new(shares.collect()) }
    }

    /// The place of the server whose turn it is; 0 if there is none.
    pub fn next(&self) -> usize {
        let mut shares = self.shares.borrow_mut();
        if shares.len() <= 1 {
            return 0;
        }
        let (mut sum, mut richest) = (0, 0);
        for place in 0..shares.len() {
            let share = &mut shares[place];
            share.credit += share.weight;
            sum += share.weight;
            if shares[place].credit > shares[richest].credit {
                richest = place;
            }
        }
        shares[richest].credit -= sum;
        richest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(weights: &[u32], count: usize) -> Vec<usize> {
        let turn = RoundRobin::new(weights.iter().copied());
        (0..count).map(|_| turn.next()).collect()
    }

    #[test]
    fn equals_take_turns() {
        assert_eq!(turns(&[1, 1, 1], 6), [0, 1, 2, 0, 1, 2]);
        assert_eq!(turns(&[7], 3), [0, 0, 0]);
    }

    #[test]
    fn weights_are_shares_and_spread_out() {
        assert_eq!(turns(&[1, 2, 1], 8), [1, 0, 2, 1, 1, 0, 2, 1]);
        let many = turns(&[5, 1], 600);
        assert_eq!(many.iter().filter(|&&place| place == 0).count(), 500);
    }
}
