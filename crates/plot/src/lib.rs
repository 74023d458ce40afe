#![doc = include_str!("../README.md")]

mod axis;
mod bars;
mod calendar;
mod chart;
mod drawing;
mod lane;
mod layout;
mod legend;
mod level;
mod model;
mod palette;
mod panel;
mod scale;
mod steps;

pub use self::bars::bars;
pub use self::chart::{Chart, ChartPanel, Curve, CurveForm, GUTTER};
use self::drawing::{Drawing, Position, truncate};
pub use self::model::{Level, Mark, MarkKind, Panel, Plot};
pub use self::palette::root_rules;
pub use self::scale::{AxisTick, Scale, short};

/// Draws a plot; returns the SVG file.
#[must_use]
pub fn draw(plot: &Plot) -> String {
    let mut drawing = Drawing::new();
    drawing.y = 30.0;
    drawing.text("title", Position::left(24.0, drawing.y), &truncate(&plot.title, 84));
    drawing.y += 12.0;
    legend::draw(&mut drawing, plot);
    let axis = axis::Axis::new(plot.span.0, plot.span.1);
    for panel in &plot.panels {
        drawing.y += 22.0;
        panel::draw(&mut drawing, &axis, panel);
    }
    drawing.finish(&plot.title)
}
