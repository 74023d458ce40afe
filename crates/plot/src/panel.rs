//! The panel of one limit: its name, its requests and its remaining units over time; and the legend of all panels.

use std::fmt::Write as _;

use tidegate_limit::text::plural;
use tidegate_limit::time::Timestamp;

use super::axis::Axis;
use super::drawing::{Drawing, LEFT, Position, RIGHT, escape, float, round, truncate};
use super::model::{Level, Mark, MarkKind, Panel, Plot};

/// Draws a panel at the bottom of the drawing.
pub(super) fn draw_panel(drawing: &mut Drawing, axis: &Axis, panel: &Panel) {
    drawing.y += 16.0;
    let heading = match truncate(&panel.name, 40) {
        name if name == panel.algorithm => name,
        name => format!("{name}: {}", panel.algorithm),
    };
    drawing.text("name", Position::left(24.0, drawing.y), &heading);
    drawing.text("", Position::right(RIGHT, drawing.y), &panel.counts);
    drawing.y += 17.0;
    drawing.text("muted", Position::left(24.0, drawing.y), &truncate(&panel.description, 118));
    drawing.y += 10.0;
    let top = drawing.y;
    // The grid lines are drawn first, since they are behind everything else, but their length is known last.
    let mut above = Drawing::new();
    above.y = drawing.y;
    draw_lane(&mut above, axis, &panel.marks);
    let floor = above.y;
    draw_level(&mut above, axis, panel);
    for (x, _) in axis.ticks() {
        drawing.path("line", &format!("M{} {}V{}", round(x), round(top), round(above.y)));
    }
    drawing.path("line", &format!("M{LEFT} {}H{RIGHT}", round(floor)));
    drawing.text("small", Position::right(LEFT - 8.0, floor - 4.0), "requests");
    drawing.y = above.y;
    drawing.append(&above);
    drawing.y += 15.0;
    for (x, label) in axis.ticks() {
        drawing.text("small", Position::middle(x, drawing.y), &label);
    }
    if let Some(origin) = axis.origin() {
        drawing.y += 14.0;
        drawing.text("small", Position::right(RIGHT, drawing.y), &origin);
    }
}

/// Sizes of marks, in order of preference: the first that fits is used.
const SIZES: [f64; 6] = [10.0, 8.0, 6.5, 5.0, 4.0, 3.0];
/// The range of the lane's height.
const MAX_HEIGHT: f64 = 132.0;
const MIN_HEIGHT: f64 = 30.0;

/// The arrangement of marks in rows.
struct Stacking {
    size: f64,
    /// The row of each mark, counted from the bottom.
    rows: Vec<usize>,
    /// The distance between rows.
    pitch: f64,
    height: f64,
}

/// Draws the lane at the bottom of the drawing.
pub(super) fn draw_lane(drawing: &mut Drawing, axis: &Axis, marks: &[Mark]) {
    let layout = arrange(axis, marks);
    drawing.y += layout.height;
    let floor = drawing.y - 3.0;
    drawing.add("<g>");
    for (mark, row) in marks.iter().zip(&layout.rows) {
        #[expect(clippy::cast_precision_loss, reason = "there are at most a few thousand rows")]
        let y = floor - layout.size / 2.0 - *row as f64 * layout.pitch;
        let x = axis.x(mark.released);
        if mark.kind == MarkKind::Delayed {
            let from = axis.x(mark.arrived);
            let (half, from, x, y) = (round(layout.size / 4.0), round(from), round(x), round(y));
            drawing.path("held", &format!("M{from} {}v{}M{from} {y}H{x}", y - half, 2.0 * half));
        }
        let tip = escape(&mark.tip);
        drawing.add(&format!(
            "<g class=\"mark\"><title>{tip}</title>{}</g>",
            shape(mark.kind, x, y, layout.size)
        ));
    }
    drawing.add("</g>");
}

/// The shape of a mark, centred at `x` and `y`.
pub(super) fn shape(kind: MarkKind, x: f64, y: f64, size: f64) -> String {
    let (half, x, y) = (size / 2.0, round(x), round(y));
    match kind {
        MarkKind::Admitted => {
            format!("<circle class=\"ok\" cx=\"{x}\" cy=\"{y}\" r=\"{}\"/>", round(half - size / 14.0))
        }
        MarkKind::Delayed => {
            let (up, long) = (round(half), round(2.0 * half));
            format!(
                "<path class=\"wait\" d=\"M{x} {}l{up} {up}l-{up} {up}l-{up} -{up}z\"/>",
                round(y - long / 2.0)
            )
        }
        MarkKind::Denied => {
            let (arm, long) = (half * 0.74, round(half * 1.48));
            let (left, top, low) = (round(x - arm), round(y - arm), round(y + arm));
            let width = round(size / 5.0);
            format!(
                "<path class=\"no\" stroke-width=\"{width}\" d=\"M{left} {top}l{long} {long}M{left} {low}l{long} -{long}\"/>"
            )
        }
        MarkKind::DeniedElsewhere => {
            let width = round(size / 8.0);
            format!(
                "<circle class=\"other\" stroke-width=\"{width}\" cx=\"{x}\" cy=\"{y}\" r=\"{}\"/>",
                round(half - size / 6.0)
            )
        }
    }
}

/// Chooses the largest marks whose rows fit; the smallest ones may overlap.
fn arrange(axis: &Axis, marks: &[Mark]) -> Stacking {
    let mut smallest = None;
    for size in SIZES {
        let (rows, count) = stack(axis, marks, size);
        #[expect(clippy::cast_precision_loss, reason = "there are at most a few thousand rows")]
        let height = count as f64 * size;
        if height <= MAX_HEIGHT {
            return Stacking { size, rows, pitch: size, height: (height + 6.0).max(MIN_HEIGHT) };
        }
        smallest = Some(Stacking { size, rows, pitch: size * MAX_HEIGHT / height, height: MAX_HEIGHT + 6.0 });
    }
    smallest.unwrap_or(Stacking { size: 1.0, rows: vec![0; marks.len()], pitch: 0.0, height: MIN_HEIGHT })
}

/// Puts each mark, from left to right, into the lowest free row; returns the rows of the marks and their number.
fn stack(axis: &Axis, marks: &[Mark], size: f64) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..marks.len()).collect();
    order.sort_by_key(|index| marks[*index].arrived); // Stable: keeps the order of simultaneous requests.
    let (mut rows, mut ends) = (vec![0; marks.len()], Vec::<f64>::new());
    for index in order {
        let (from, to) = (axis.x(marks[index].arrived), axis.x(marks[index].released));
        let row = ends.iter().position(|end| *end <= from).unwrap_or(ends.len());
        if row == ends.len() {
            ends.push(0.0);
        }
        // Marks are narrower than their rows are high, so neighbours don't touch.
        ends[row] = to + 0.88 * size;
        rows[index] = row;
    }
    (rows, ends.len())
}

/// The height of the scale.
const HEIGHT: f64 = 84.0;
/// The CSS classes of the lines, by the index of the key.
pub(super) const LINES: [&str; 4] = ["a", "b", "c", "d"];

/// Draws the levels at the bottom of the drawing, with the limit as a line at the top of the scale.
pub(super) fn draw_level(drawing: &mut Drawing, axis: &Axis, panel: &Panel) {
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

/// The approximate width of a character.
const CHARACTER: f64 = 6.4;
/// The height of a line.
const LINE: f64 = 18.0;
const MARGIN: f64 = 24.0;

/// Items from left to right, in as many lines as they need.
struct Items<'a> {
    drawing: &'a mut Drawing,
    x: f64,
}

/// Draws the legend at the bottom of the drawing, with items only for what the plot has.
pub(super) fn draw_legend(drawing: &mut Drawing, plot: &Plot) {
    drawing.y += LINE;
    let mut items = Items { drawing, x: MARGIN };
    let kinds = [
        (MarkKind::Admitted, "admitted"),
        (MarkKind::Delayed, "admitted after a delay (the line)"),
        (MarkKind::Denied, "denied"),
        (MarkKind::DeniedElsewhere, "denied by another limit"),
    ];
    let occurs = |kind| plot.panels.iter().any(|panel| panel.marks.iter().any(|mark| mark.kind == kind));
    for (kind, text) in kinds.into_iter().filter(|(kind, _)| occurs(*kind)) {
        items.add(14.0, text, |drawing, x, y| drawing.add(&shape(kind, x + 5.0, y - 4.0, 10.0)));
    }
    let several = plot.keys.len() > 1;
    for (class, key) in LINES.into_iter().zip(&plot.keys) {
        let text =
            if several { format!("remaining for {}", truncate(key, 20)) } else { "remaining".to_owned() };
        items.add(26.0, &text, |drawing, x, y| {
            drawing.path(&format!("level {class}"), &format!("M{} {}h22", round(x), round(y - 4.0)));
        });
    }
    if plot.other_keys > 0 {
        let others = plot.other_keys;
        items.add(0.0, &format!("({others} more key{} not shown)", plural(others)), |_, _, _| {});
    }
    items.add(26.0, "limit", |drawing, x, y| {
        drawing.path("limit", &format!("M{} {}h22", round(x), round(y - 4.0)));
    });
}

impl Items<'_> {
    /// Adds an item: a symbol of this width, and its meaning.
    fn add(&mut self, symbol_width: f64, text: &str, draw_symbol: impl FnOnce(&mut Drawing, f64, f64)) {
        #[expect(clippy::cast_precision_loss, reason = "the text is short")]
        let width = symbol_width + text.chars().count() as f64 * CHARACTER;
        if self.x > MARGIN && self.x + width > RIGHT {
            self.x = MARGIN;
            self.drawing.y += LINE;
        }
        let y = self.drawing.y;
        draw_symbol(self.drawing, self.x, y);
        self.drawing.text("muted", Position::left(self.x + symbol_width, y), text);
        self.x += width + 16.0;
    }
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
