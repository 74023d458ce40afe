//! Draws a picture: an SVG that needs nothing else, readable on light and dark screens, for people who see
//! colours differently, and at the width of a page.

mod axis;
mod lane;
mod legend;
mod level;
mod page;
mod panel;

use super::picture::Picture;
use page::Page;

/// The width of the picture.
const WIDTH: f64 = 800.0;
/// Where time begins and ends in it.
const LEFT: f64 = 62.0;
const RIGHT: f64 = 776.0;

/// The whole picture.
pub(super) fn draw(picture: &Picture) -> String {
    let mut page = Page::new();
    page.y = 30.0;
    page.text("title", 24.0, page.y, "start", &page::cut(&picture.title, 84));
    page.y += 12.0;
    legend::draw(&mut page, picture);
    let axis = axis::Axis::new(picture.span.0, picture.span.1);
    for panel in &picture.panels {
        page.y += 22.0;
        panel::draw(&mut page, &axis, panel);
    }
    page.finish(&picture.title)
}

/// Numbers of a picture need no more digits than a screen has.
#[allow(clippy::cast_precision_loss)]
fn float(number: u64) -> f64 {
    number as f64
}
