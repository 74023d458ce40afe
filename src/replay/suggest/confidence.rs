//! What a share of a sample says about the share of all.

/// The error probability of an upper bound.
pub(super) const ERROR: f64 = 0.05;
/// The steps in which an interval is halved until a double is exact.
const STEPS: usize = 60;
/// Terms of a sum that are smaller than this part of it are left out.
const NEGLIGIBLE: f64 = 1e-17;

/// The upper bound of the share of all clients of which `count` in `of` were seen, with a confidence of 95 %: the share with
/// which at most `count` would be seen in 5 % of samples (Clopper, Pearson: The use of confidence or fiducial limits
/// illustrated in the case of the binomial, Biometrika 26, 1934).
pub(super) fn upper_bound(count: u64, of: u64) -> f64 {
    if count >= of {
        return 1.0;
    }
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if at_most(count, of, middle) > ERROR {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

/// The probability of at most `count` successes in `of` trials with this chance each.
#[allow(clippy::cast_precision_loss)]
fn at_most(count: u64, of: u64, chance: f64) -> f64 {
    let (k, n) = (count as f64, of as f64);
    if k >= n * chance {
        // The bound is above the mean, where the sum below has no negligible terms, and the answer is not near the error.
        return 1.0;
    }
    let ways = ln_factorial(of) - ln_factorial(count) - ln_factorial(of - count);
    let mut term = (ways + k * chance.ln() + (n - k) * (-chance).ln_1p()).exp();
    let mut sum = term;
    // Below the mean each term is smaller than the one after it.
    let mut successes = k;
    while successes > 0.0 && term > sum * NEGLIGIBLE {
        term *= successes * (1.0 - chance) / ((n - successes + 1.0) * chance);
        sum += term;
        successes -= 1.0;
    }
    sum
}

/// ln(n!): the sum for small n, otherwise Stirling's series, of which the first omitted term is below 1e-16.
#[allow(clippy::cast_precision_loss)]
fn ln_factorial(n: u64) -> f64 {
    if n < 64 {
        return (2..=n).map(|factor| (factor as f64).ln()).sum();
    }
    let x = n as f64;
    let series = (1.0 / 12.0 - (1.0 / 360.0 - 1.0 / (1_260.0 * x * x)) / (x * x)) / x;
    x * x.ln() - x + 0.5 * (std::f64::consts::TAU * x).ln() + series
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of R: `binom.test(k, n, alternative = "less")$conf.int[2]`.
    #[test]
    fn bounds_are_those_of_the_binomial_test() {
        for (count, of, bound) in [
            (0, 100, 0.029_513_05),
            (0, 1_000, 0.002_991_249),
            (1, 100, 0.046_559_81),
            (5, 100, 0.102_253_34),
            (10, 10, 1.0),
            (0, 1, 0.95),
        ] {
            let found = upper_bound(count, of);
            assert!((found - bound).abs() < 1e-6, "{count} of {of}: {found}");
        }
    }

    #[test]
    fn bounds_of_large_samples_are_near_their_shares() {
        let bound = upper_bound(1_000, 1_000_000);
        // The normal approximation: 1.645 standard deviations above the share.
        assert!((bound - 0.001_053).abs() < 2e-6, "{bound}");
        assert!(upper_bound(500_000, 1_000_000) < 0.501);
    }

    #[test]
    fn logarithms_of_factorials_meet() {
        let exact: f64 = (2..=64).map(|factor| f64::from(factor).ln()).sum();
        assert!((ln_factorial(64) - exact).abs() < 1e-10);
    }
}
