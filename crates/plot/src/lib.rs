#![doc = include_str!("../README.md")]

mod axis;
mod chart;
mod curves;
mod drawing;
mod model;
mod panel;
mod scale;

pub use self::chart::{Chart, ChartPanel, Curve, CurveForm, GUTTER, bars};
pub use self::curves::{CurvePanel, Curves};
pub use self::drawing::root_rules;
use self::drawing::{Drawing, Position, truncate};
pub use self::model::{Level, Mark, MarkKind, Panel, Plot};
use self::panel::{draw_legend, draw_panel};
pub use self::scale::{AxisTick, Scale, short};

/// Draws a plot; returns the SVG file.
#[must_use]
pub fn draw(plot: &Plot) -> String {
    let mut drawing = Drawing::new();
    drawing.y = 30.0;
    drawing.text("title", Position::left(24.0, drawing.y), &truncate(&plot.title, 84));
    drawing.y += 12.0;
    draw_legend(&mut drawing, plot);
    let axis = axis::Axis::new(plot.span.0, plot.span.1);
    for panel in &plot.panels {
        drawing.y += 22.0;
        draw_panel(&mut drawing, &axis, panel);
    }
    drawing.finish(&plot.title)
}
