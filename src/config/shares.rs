//! The shares of a limit that are reserved for classes of requests.

use super::item::Item;

/// The most that reserved shares add up to: the rest is for every class.
const MAX_RESERVED: f64 = 0.9;

/// Rejects shares of a limit that reserve too much of it.
pub(super) fn check_shares(item: Item<'_>, shares: &[f64]) -> Option<()> {
    let sum: f64 = shares.iter().sum();
    // Sums of decimal numbers are not exact.
    if sum > MAX_RESERVED + 1e-9 {
        let problem = item.error(format!("the shares add up to {sum:.2}, and the most is {MAX_RESERVED}"));
        return item.reject(problem.help("reserve less: every class uses what is not reserved"));
    }
    Some(())
}
