//! The lane of requests: a mark for each at its time, stacked where marks would overlap.

use super::axis::Axis;
use super::drawing::{Drawing, escape, round};
use super::model::{Mark, MarkKind};

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
pub(super) fn draw(drawing: &mut Drawing, axis: &Axis, marks: &[Mark]) {
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
