//! The panel of one limit: its name, its requests, and its remaining units.

use super::axis::Axis;
use super::drawing::{Drawing, Position, round, truncate};
use super::layout::{LEFT, RIGHT};
use super::model::Panel;
use super::{lane, level};

/// Draws a panel at the bottom of the drawing.
pub(super) fn draw(drawing: &mut Drawing, axis: &Axis, panel: &Panel) {
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
    lane::draw(&mut above, axis, &panel.marks);
    let floor = above.y;
    level::draw(&mut above, axis, panel);
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
