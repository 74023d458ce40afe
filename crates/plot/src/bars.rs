//! Small bar charts for tables.

use std::fmt::Write as _;

use super::drawing::{escape, round};
use super::layout::float;

/// The width of a bar with the space after it, and of the bar, in pixels.
const PITCH: usize = 5;
const BAR: usize = 4;
/// The height of the longest bar.
const HEIGHT: f64 = 24.0;

/// An SVG element for HTML with a bar for each count. `name` says for people who can't see it what it shows.
#[must_use]
pub fn bars(counts: &[u64], name: &str) -> String {
    let most = float(counts.iter().copied().max().unwrap_or_default()).max(1.0);
    let mut path = String::new();
    for (index, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        // A bar for a single request can be seen.
        let height = round((float(*count) / most * HEIGHT).max(1.0));
        // Writing to a string can't fail.
        let _ = write!(path, "M{} {HEIGHT}v-{height}h{BAR}v{height}z", index * PITCH);
    }
    let (width, total, name) = (counts.len() * PITCH, HEIGHT + 1.0, escape(name));
    format!(
        "<svg class=\"bars\" role=\"img\" width=\"{width}\" height=\"{total}\" viewBox=\"0 0 {width} {total}\" \
         aria-label=\"{name}\"><title>{name}</title><path class=\"grid\" d=\"M0 {HEIGHT}.5h{width}\"/>\
         <path class=\"bar\" d=\"{path}\"/></svg>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_has_a_bar_and_zero_has_none() {
        let svg = bars(&[0, 1, 1_000], "<a>");
        assert!(svg.contains("d=\"M5 24v-1h4v1zM10 24v-24h4v24z\""), "{svg}");
        assert!(svg.contains("aria-label=\"&lt;a&gt;\"") && svg.contains("width=\"15\""), "{svg}");
    }
}
