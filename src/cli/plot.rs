//! Plots as SVG files that need nothing else: readable on light and dark screens, for colour-blind
//! readers, and at the width of a page.

mod axis;
mod lane;
mod layout;
mod legend;
mod level;
mod model;
mod page;
mod panel;

pub(super) use self::model::{Level, Mark, MarkKind, Panel, Plot};
use self::page::{Page, Position, truncate};

/// Draws a plot; returns the SVG file.
pub(super) fn draw(plot: &Plot) -> String {
    let mut page = Page::new();
    page.y = 30.0;
    page.text("title", Position::left(24.0, page.y), &truncate(&plot.title, 84));
    page.y += 12.0;
    legend::draw(&mut page, plot);
    let axis = axis::Axis::new(plot.span.0, plot.span.1);
    for panel in &plot.panels {
        page.y += 22.0;
        panel::draw(&mut page, &axis, panel);
    }
    page.finish(&plot.title)
}
