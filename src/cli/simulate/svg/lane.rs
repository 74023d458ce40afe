//! The lane of arrivals: one mark each, at its time, and above others where it would cover them.

use super::axis::Axis;
use super::page::{Page, escape, round};
use crate::cli::simulate::picture::{Kind, Mark};

/// Sizes of marks, the best first: the first that fits is taken.
const SIZES: [f64; 6] = [10.0, 8.0, 6.5, 5.0, 4.0, 3.0];
/// The lane is no higher than this, and no lower than that.
const HIGHEST: f64 = 132.0;
const LOWEST: f64 = 30.0;

/// Where marks stand.
struct Placed {
    size: f64,
    /// The row of each mark, from below.
    rows: Vec<usize>,
    /// How far apart rows are.
    apart: f64,
    height: f64,
}

/// Draws the lane below what is there.
pub(super) fn draw(page: &mut Page, axis: &Axis, marks: &[Mark]) {
    let placed = place(axis, marks);
    page.y += placed.height;
    let floor = page.y - 3.0;
    page.add("<g>");
    for (mark, row) in marks.iter().zip(&placed.rows) {
        #[allow(clippy::cast_precision_loss)] // At most a few thousand.
        let y = floor - placed.size / 2.0 - *row as f64 * placed.apart;
        let x = axis.x(mark.released);
        if mark.kind == Kind::Delayed {
            let from = axis.x(mark.arrived);
            let (half, from, x, y) = (round(placed.size / 4.0), round(from), round(x), round(y));
            page.path("held", &format!("M{from} {}v{}M{from} {y}H{x}", y - half, 2.0 * half));
        }
        let tip = escape(&mark.tip);
        page.add(&format!(
            "<g class=\"mark\"><title>{tip}</title>{}</g>",
            shape(mark.kind, x, y, placed.size)
        ));
    }
    page.add("</g>");
}

/// The shape of a mark of this size around a place.
pub(super) fn shape(kind: Kind, x: f64, y: f64, size: f64) -> String {
    let (half, x, y) = (size / 2.0, round(x), round(y));
    match kind {
        Kind::Admitted => {
            format!("<circle class=\"ok\" cx=\"{x}\" cy=\"{y}\" r=\"{}\"/>", round(half - size / 14.0))
        }
        Kind::Delayed => {
            let (up, long) = (round(half), round(2.0 * half));
            format!(
                "<path class=\"wait\" d=\"M{x} {}l{up} {up}l-{up} {up}l-{up} -{up}z\"/>",
                round(y - long / 2.0)
            )
        }
        Kind::Refused => {
            let (arm, long) = (half * 0.74, round(half * 1.48));
            let (left, top, low) = (round(x - arm), round(y - arm), round(y + arm));
            let width = round(size / 5.0);
            format!(
                "<path class=\"no\" stroke-width=\"{width}\" d=\"M{left} {top}l{long} {long}M{left} {low}l{long} -{long}\"/>"
            )
        }
        Kind::RefusedElsewhere => {
            let width = round(size / 8.0);
            format!(
                "<circle class=\"other\" stroke-width=\"{width}\" cx=\"{x}\" cy=\"{y}\" r=\"{}\"/>",
                round(half - size / 6.0)
            )
        }
    }
}

fn place(axis: &Axis, marks: &[Mark]) -> Placed {
    let mut smallest = None;
    for size in SIZES {
        let (rows, count) = rows(axis, marks, size);
        #[allow(clippy::cast_precision_loss)] // At most a few thousand.
        let height = count as f64 * size;
        if height <= HIGHEST {
            return Placed { size, rows, apart: size, height: (height + 6.0).max(LOWEST) };
        }
        smallest = Some(Placed { size, rows, apart: size * HIGHEST / height, height: HIGHEST + 6.0 });
    }
    smallest.unwrap_or(Placed { size: 1.0, rows: vec![0; marks.len()], apart: 0.0, height: LOWEST })
}

/// The lowest row that is free, for each mark from left to right, and how many rows there are.
fn rows(axis: &Axis, marks: &[Mark], size: f64) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..marks.len()).collect();
    order.sort_by_key(|place| marks[*place].arrived); // Stable: as they came.
    let (mut rows, mut ends) = (vec![0; marks.len()], Vec::<f64>::new());
    for place in order {
        let (from, to) = (axis.x(marks[place].arrived), axis.x(marks[place].released));
        let row = ends.iter().position(|end| *end <= from).unwrap_or(ends.len());
        if row == ends.len() {
            ends.push(0.0);
        }
        // No mark is as wide as its row is high: so they don't touch.
        ends[row] = to + 0.88 * size;
        rows[place] = row;
    }
    (rows, ends.len())
}
