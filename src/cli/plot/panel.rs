//! The panel of one limit: its name, its requests, and its remaining units.

use super::axis::Axis;
use super::layout::{LEFT, RIGHT};
use super::model::Panel;
use super::page::{Page, Position, round, truncate};
use super::{lane, level};

/// Draws a panel at the bottom of the page.
pub(super) fn draw(page: &mut Page, axis: &Axis, panel: &Panel) {
    page.y += 16.0;
    let heading = match truncate(&panel.name, 40) {
        name if name == panel.algorithm => name,
        name => format!("{name}: {}", panel.algorithm),
    };
    page.text("name", Position::left(24.0, page.y), &heading);
    page.text("", Position::right(RIGHT, page.y), &panel.counts);
    page.y += 17.0;
    page.text("muted", Position::left(24.0, page.y), &truncate(&panel.description, 118));
    page.y += 10.0;
    let top = page.y;
    // The grid lines are drawn first, since they are behind everything else, but their length is known last.
    let mut above = Page::new();
    above.y = page.y;
    lane::draw(&mut above, axis, &panel.marks);
    let floor = above.y;
    level::draw(&mut above, axis, panel);
    for (x, _) in axis.ticks() {
        page.path("line", &format!("M{} {}V{}", round(x), round(top), round(above.y)));
    }
    page.path("line", &format!("M{LEFT} {}H{RIGHT}", round(floor)));
    page.text("small", Position::right(LEFT - 8.0, floor - 4.0), "requests");
    page.y = above.y;
    page.append(&above);
    page.y += 15.0;
    for (x, label) in axis.ticks() {
        page.text("small", Position::middle(x, page.y), &label);
    }
    if let Some(origin) = axis.origin() {
        page.y += 14.0;
        page.text("small", Position::right(RIGHT, page.y), &origin);
    }
}
