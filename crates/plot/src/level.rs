//! Remaining units over time, as step lines.

use std::fmt::Write as _;

use super::axis::Axis;
use super::drawing::{Drawing, Position, round};
use super::layout::{LEFT, RIGHT, float};
use super::model::{Level, Panel};
use tidegate_limit::time::Timestamp;

/// The height of the scale.
const HEIGHT: f64 = 84.0;
/// The CSS classes of the lines, by the index of the key.
pub(super) const LINES: [&str; 4] = ["a", "b", "c", "d"];

/// Draws the levels at the bottom of the drawing, with the limit as a line at the top of the scale.
pub(super) fn draw(drawing: &mut Drawing, axis: &Axis, panel: &Panel) {
    let (top, base) = (drawing.y + 12.0, drawing.y + 12.0 + HEIGHT);
    drawing.path("limit", &format!("M{LEFT} {}H{RIGHT}", round(top)));
    drawing.path("base", &format!("M{LEFT} {}H{RIGHT}", round(base)));
    drawing.text("small", Position::right(LEFT - 8.0, top + 4.0), &short(panel.limit));
    drawing.text("small", Position::right(LEFT - 8.0, base + 4.0), "0");
    drawing.text("small", Position::right(LEFT - 8.0, f64::midpoint(top, base) + 4.0), "remaining");
    let y = |remaining: u64| base - float(remaining.min(panel.limit)) / float(panel.limit.max(1)) * HEIGHT;
    for (level, class) in panel.levels.iter().zip(LINES).rev() {
        let line = steps(axis, level, &y);
        if panel.levels.len() == 1 {
            drawing.path("fill", &area(axis, level, &y, base));
        }
        drawing.path(&format!("level {class}"), &line);
    }
    drawing.y = base;
}

/// The path of a level: horizontal until the next time, then vertical.
fn steps(axis: &Axis, level: &Level, y: &impl Fn(u64) -> f64) -> String {
    level.iter().map(|line| line_path(axis, line, y).0).collect()
}

/// The area below a level: each line's path, closed along the base.
fn area(axis: &Axis, level: &Level, y: &impl Fn(u64) -> f64, base: f64) -> String {
    let closed = |line: &Vec<_>| {
        let (path, from) = line_path(axis, line, y);
        if path.is_empty() { path } else { format!("{path}V{}H{}Z", round(base), round(from)) }
    };
    level.iter().map(closed).collect()
}

/// The path of one line, and the x coordinate of its start.
fn line_path(axis: &Axis, line: &[(Timestamp, u64)], y: &impl Fn(u64) -> f64) -> (String, f64) {
    let Some((first, rest)) = line.split_first() else { return (String::new(), LEFT) };
    let (from, mut last) = (axis.x(first.0), *first);
    let mut path = format!("M{} {}", round(from), round(y(first.1)));
    for (index, point) in rest.iter().enumerate() {
        if point.1 != last.1 || index + 1 == rest.len() {
            // Writing to a string can't fail.
            let _ = write!(path, "H{}V{}", round(axis.x(point.0)), round(y(point.1)));
            last = *point;
        }
    }
    (path, from)
}

/// A short form of a number, such as `25k`; `~` marks a number that is rounded down.
fn short(number: u64) -> String {
    let (mut unit, mut name) = (1, "");
    for larger in ["k", "M", "G", "T", "P"] {
        if number / unit < 10_000 {
            break;
        }
        (unit, name) = (unit * 1_000, larger);
    }
    let about = if number.is_multiple_of(unit) { "" } else { "~" };
    format!("{about}{}{name}", number / unit)
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn large_numbers_have_a_short_form() {
        for (number, text) in [(9_999, "9999"), (25_000, "25k"), (12_345, "~12k"), (1 << 53, "~9007T")] {
            assert_eq!(short(number), text);
        }
    }
}
