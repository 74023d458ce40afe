//! Measures that all parts of a plot share, in pixels.

/// The width of the plot.
pub(super) const WIDTH: f64 = 800.0;
/// The left and right ends of the time axis.
pub(super) const LEFT: f64 = 62.0;
pub(super) const RIGHT: f64 = 776.0;

/// Converts a value that is drawn; a screen has fewer digits than an `f64`.
#[expect(clippy::cast_precision_loss, reason = "an error of 2^-53 is no pixel")]
pub(super) fn float(number: u64) -> f64 {
    number as f64
}
