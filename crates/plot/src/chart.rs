//! Charts for HTML documents: curves on one or more panels that share a horizontal axis.
//!
//! A chart is as wide as its container, and its text and lines have the same size at all widths: horizontal positions of
//! texts are percentages, and curves are in a nested drawing that is stretched. The style sheet of the document has the
//! classes; it leaves [`GUTTER`] pixels at the left for the labels.

use std::fmt::Write as _;

use super::drawing::{Drawing, Length, Position, escape, float, round};
use super::scale::Scale;

/// The width of the labels at the left, in pixels.
pub const GUTTER: f64 = 48.0;
/// The width of the coordinates of curves.
const WIDTH: f64 = 1_000.0;
/// The height of the title of a panel.
const HEADING: f64 = 24.0;
/// The height of the labels of the horizontal axis, and of its title.
const LABELS: f64 = 18.0;
/// The space between panels.
const GAP: f64 = 10.0;

/// Curves that share a horizontal axis.
#[derive(Debug)]
pub struct Chart {
    /// Its name, for people who can't see it.
    pub name: String,
    /// A description of the chart, for people who can't see it.
    pub description: String,
    /// The horizontal axis.
    pub x: Scale,
    /// The title of the horizontal axis; empty without one.
    pub x_title: String,
    /// From top to bottom.
    pub panels: Vec<ChartPanel>,
}

/// Curves that share both axes.
#[derive(Debug)]
pub struct ChartPanel {
    /// The quantity on the vertical axis, with its unit.
    pub title: String,
    /// The vertical axis.
    pub y: Scale,
    /// The height of the axis, in pixels.
    pub height: f64,
    /// The curves, of which later ones are in front.
    pub curves: Vec<Curve>,
    /// Vertical lines: their class, and where they are.
    pub lines: Vec<(&'static str, f64)>,
    /// Marked points: their class, and where they are.
    pub points: Vec<(&'static str, f64, f64)>,
}

/// A curve.
#[derive(Debug)]
pub struct Curve {
    /// The class of its elements.
    pub class: &'static str,
    /// How its points are connected.
    pub form: CurveForm,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// How the points of a curve are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurveForm {
    /// By straight lines.
    Straight,
    /// A value holds until the next point.
    Steps,
    /// A value holds until the next point, and the area below is filled.
    Area,
}

impl Chart {
    /// An SVG element for HTML.
    #[must_use]
    pub fn draw(&self) -> String {
        let mut drawing = Drawing::new();
        for panel in &self.panels {
            self.draw_panel(&mut drawing, panel);
        }
        let ticks = self.x.ticks();
        drawing.y += LABELS - 4.0;
        for tick in &ticks {
            let position = Position::middle(Length::Percent(tick.place * 100.0), drawing.y);
            drawing.text("tick", position, &tick.label);
        }
        if !self.x_title.is_empty() {
            drawing.y += LABELS;
            drawing.text("axis", Position::middle(Length::Percent(50.0), drawing.y), &self.x_title);
        }
        let (name, description) = (escape(&self.name), escape(&self.description));
        let height = round(drawing.y + 6.0);
        format!(
            "<svg class=\"chart\" role=\"img\" width=\"100%\" height=\"{height}\" aria-label=\"{name}\">\
             <desc>{description}</desc>\n{}</svg>",
            drawing.into_elements()
        )
    }

    /// Draws a panel below what is drawn.
    fn draw_panel(&self, drawing: &mut Drawing, panel: &ChartPanel) {
        if drawing.y > 0.0 {
            drawing.y += GAP;
        }
        drawing.text("axis", Position::left(-GUTTER, drawing.y + 12.0), &panel.title);
        drawing.y += HEADING;
        let (top, height) = (drawing.y, panel.height);
        for tick in panel.y.ticks() {
            let y = round(top + height * (1.0 - tick.place));
            drawing.add(&format!("<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"{y}\" y2=\"{y}\"/>"));
            drawing.text("tick", Position::right(-6.0, y + 4.0), &tick.label);
        }
        for tick in self.x.ticks() {
            vertical(drawing, "grid", tick.place, (top, height));
        }
        drawing.add(&format!(
            "<svg y=\"{top}\" width=\"100%\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" preserveAspectRatio=\"none\">"
        ));
        for curve in &panel.curves {
            self.draw_curve(drawing, panel, curve);
        }
        drawing.add("</svg>");
        for (class, x) in panel.lines.iter().filter(|(_, x)| self.x.contains(*x)) {
            vertical(drawing, class, self.x.place(*x), (top, height));
        }
        for (class, x, y) in &panel.points {
            let x = round(self.x.place(*x) * 100.0);
            let y = round(top + height * (1.0 - panel.y.place(*y)));
            drawing.add(&format!(
                "<svg x=\"{x}%\" y=\"{y}\" overflow=\"visible\"><path class=\"{class}\" d=\"M0 -7l7 7-7 7-7-7z\"/></svg>"
            ));
        }
        drawing.y = top + height;
    }

    fn draw_curve(&self, drawing: &mut Drawing, panel: &ChartPanel, curve: &Curve) {
        let place = |(x, y): (f64, f64)| {
            (round(self.x.place(x) * WIDTH), round(panel.height * (1.0 - panel.y.place(y))))
        };
        let points: Vec<(f64, f64)> = curve.points.iter().copied().map(place).collect();
        let Some((start, _)) = points.first() else { return };
        let line = path(&points, curve.form);
        if curve.form == CurveForm::Area {
            let base = panel.height;
            let area = format!("{line}V{base}H{start}Z");
            drawing.path(&format!("area {}", curve.class), &area);
        }
        drawing.path(&format!("curve {}", curve.class), &line);
    }
}

/// A vertical line over the height of a panel.
fn vertical(drawing: &mut Drawing, class: &str, place: f64, (top, height): (f64, f64)) {
    let (x, bottom) = (round(place * 100.0), top + height);
    drawing.add(&format!("<line class=\"{class}\" x1=\"{x}%\" x2=\"{x}%\" y1=\"{top}\" y2=\"{bottom}\"/>"));
}

/// The path through points; those of a step curve that change nothing are left out.
fn path(points: &[(f64, f64)], form: CurveForm) -> String {
    let mut text = String::new();
    let mut height = None;
    for (index, (x, y)) in points.iter().enumerate() {
        let is_last = index + 1 == points.len();
        let is_needed = height != Some(*y) || is_last || form == CurveForm::Straight;
        // Writing to a string can't fail.
        let _ = match (height, form) {
            (None, _) => write!(text, "M{x} {y}"),
            (_, CurveForm::Straight) => write!(text, "L{x} {y}"),
            _ if is_needed => write!(text, "H{x}V{y}"),
            _ => Ok(()),
        };
        height = Some(*y);
    }
    text
}

/// The width of a bar with the space after it, and of the bar, in pixels.
const PITCH: usize = 5;
const BAR: usize = 4;
/// The height of the longest bar.
const HEIGHT: f64 = 24.0;

/// An SVG element for HTML with a bar for each count. `name` says for people who can't see it what it shows.
#[must_use]
pub fn bars(counts: &[u64], name: &str) -> String {
    let most = float(counts.iter().copied().max().unwrap_or_default()).max(1.0);
    let mut path = String::new();
    for (index, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        // A bar for a single request can be seen.
        let height = round((float(*count) / most * HEIGHT).max(1.0));
        // Writing to a string can't fail.
        let _ = write!(path, "M{} {HEIGHT}v-{height}h{BAR}v{height}z", index * PITCH);
    }
    let (width, total, name) = (counts.len() * PITCH, HEIGHT + 1.0, escape(name));
    format!(
        "<svg class=\"bars\" role=\"img\" width=\"{width}\" height=\"{total}\" viewBox=\"0 0 {width} {total}\" \
         aria-label=\"{name}\"><title>{name}</title><path class=\"grid\" d=\"M0 {HEIGHT}.5h{width}\"/>\
         <path class=\"bar\" d=\"{path}\"/></svg>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_count_has_a_bar_and_zero_has_none() {
        let svg = bars(&[0, 1, 1_000], "<a>");
        assert!(svg.contains("d=\"M5 24v-1h4v1zM10 24v-24h4v24z\""), "{svg}");
        assert!(svg.contains("aria-label=\"&lt;a&gt;\"") && svg.contains("width=\"15\""), "{svg}");
    }
}
