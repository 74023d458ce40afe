//! One limit: its name, its arrivals, and what is left of it.

use super::axis::Axis;
use super::page::{Page, cut, round};
use super::{LEFT, RIGHT, lane, level};
use crate::cli::simulate::picture::Panel;

/// Draws a limit below what is there.
pub(super) fn draw(page: &mut Page, axis: &Axis, panel: &Panel) {
    page.y += 16.0;
    let heading = match cut(&panel.name, 40) {
        name if name == panel.algorithm => name,
        name => format!("{name}: {}", panel.algorithm),
    };
    page.text("name", 24.0, page.y, "start", &heading);
    page.text("", RIGHT, page.y, "end", &panel.counts);
    page.y += 17.0;
    page.text("muted", 24.0, page.y, "start", &cut(&panel.sentence, 118));
    page.y += 10.0;
    let top = page.y;
    // The lines of the grid belong behind everything else, and how far they go is not known yet.
    let mut above = Page::new();
    above.y = page.y;
    lane::draw(&mut above, axis, &panel.marks);
    let floor = above.y;
    level::draw(&mut above, axis, panel);
    for (x, _) in axis.ticks() {
        page.path("line", &format!("M{} {}V{}", round(x), round(top), round(above.y)));
    }
    page.path("line", &format!("M{LEFT} {}H{RIGHT}", round(floor)));
    page.text("small", LEFT - 8.0, floor - 4.0, "end", "requests");
    page.y = above.y;
    page.append(&above);
    page.y += 15.0;
    for (x, label) in axis.ticks() {
        page.text("small", x, page.y, "middle", &label);
    }
    if let Some(origin) = axis.origin() {
        page.y += 14.0;
        page.text("small", RIGHT, page.y, "end", &origin);
    }
}
