//! Numbers that people choose for limits.

/// One to two digits, in ascending order over a decade.
const DECADE: [u64; 12] = [10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120];
/// Numbers below the first decade.
const SMALL: [u64; 8] = [1, 2, 3, 4, 5, 6, 8, 10];

/// The least round number that is at least `number`: 1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, …
pub(super) fn round_up(number: u64) -> u64 {
    let least = |numbers: &[u64], scale: u64| {
        numbers.iter().filter_map(|round| round.checked_mul(scale)).find(|round| *round >= number)
    };
    let scales = (0..18).map(|power| 10_u64.pow(power));
    least(&SMALL, 1).or_else(|| scales.into_iter().find_map(|scale| least(&DECADE, scale))).unwrap_or(number)
}

/// The least round number that is at least `factor` times the number.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
pub(super) fn with_headroom(number: u64, factor: f64) -> u64 {
    // Doubles are exact far beyond the largest number of units that a limit can count.
    round_up((number as f64 * factor).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_rounded_up_to_round_ones() {
        let rounded = [0, 1, 7, 9, 11, 13, 16, 61, 101, 121, 151, 8_001, 1_000_001].map(round_up);
        assert_eq!(rounded, [1, 1, 8, 10, 12, 15, 20, 80, 120, 150, 200, 10_000, 1_200_000]);
    }

    #[test]
    fn rounding_adds_at_most_a_half() {
        for number in 2..100_000 {
            let rounded = round_up(number);
            assert!(rounded >= number && rounded < 2 * number, "{number}: {rounded}");
        }
    }

    #[test]
    fn headroom_comes_before_rounding() {
        assert_eq!([with_headroom(50, 1.2), with_headroom(51, 1.2), with_headroom(1, 1.2)], [60, 80, 2]);
    }
}
