//! Curves over time as an SVG file: a panel for each quantity, on one time axis.

use std::fmt::Write as _;

use tidegate_limit::time::Timestamp;

use super::axis::Axis;
use super::drawing::{Drawing, LEFT, Position, RIGHT, round, truncate};
use super::scale::Scale;

/// The height of a panel.
const HEIGHT: f64 = 130.0;
/// The classes of curves, by their order in a panel. The area below the first one is filled.
const CLASSES: [&str; 4] = ["a", "b", "c", "d"];
/// The width of a curve's sample in the legend.
const SAMPLE: f64 = 26.0;
/// The width of a character, to place the legend.
const CHARACTER: f64 = 6.3;

/// Everything that is drawn.
#[derive(Debug)]
pub struct Curves {
    /// The title.
    pub title: String,
    /// What is below the title; empty for nothing.
    pub subtitle: String,
    /// The times at the left and right end.
    pub span: (Timestamp, Timestamp),
    /// From top to bottom.
    pub panels: Vec<CurvePanel>,
}

/// Curves that share a vertical axis.
#[derive(Debug)]
pub struct CurvePanel {
    /// The quantity.
    pub name: String,
    /// The names and points of its curves, at most four. Each value holds until the next.
    pub curves: Vec<(String, Vec<(Timestamp, f64)>)>,
}

impl Curves {
    /// The SVG file.
    #[must_use]
    pub fn draw(&self) -> String {
        let mut drawing = Drawing::new();
        drawing.y = 30.0;
        drawing.text("title", Position::left(24.0, drawing.y), &truncate(&self.title, 84));
        if !self.subtitle.is_empty() {
            drawing.y += 20.0;
            drawing.text("muted", Position::left(24.0, drawing.y), &truncate(&self.subtitle, 118));
        }
        let axis = Axis::new(self.span.0, self.span.1);
        for panel in &self.panels {
            drawing.y += 32.0;
            draw_panel(&mut drawing, &axis, panel);
        }
        drawing.finish(&self.title)
    }
}

fn draw_panel(drawing: &mut Drawing, axis: &Axis, panel: &CurvePanel) {
    drawing.text("name", Position::left(24.0, drawing.y), &truncate(&panel.name, 40));
    draw_legend(drawing, panel);
    let (top, bottom) = (drawing.y + 12.0, drawing.y + 12.0 + HEIGHT);
    let values = || panel.curves.iter().flat_map(|(_, points)| points).map(|(_, value)| *value);
    let scale = Scale::linear(values().fold(0.0, f64::max));
    let height = |value: f64| bottom - HEIGHT * scale.place(value).clamp(0.0, 1.0);
    for (x, _) in axis.ticks() {
        drawing.path("line", &format!("M{} {}V{}", round(x), round(top), round(bottom)));
    }
    for tick in scale.ticks() {
        let y = bottom - HEIGHT * tick.place;
        drawing.path("line", &format!("M{LEFT} {}H{RIGHT}", round(y)));
        drawing.text("small", Position::right(LEFT - 8.0, y + 4.0), &tick.label);
    }
    for (index, ((_, points), class)) in panel.curves.iter().zip(CLASSES).enumerate() {
        let Some((first, _)) = points.first() else { continue };
        let place = |(at, value): &(Timestamp, f64)| (round(axis.x(*at)), round(height(*value)));
        let line = steps(points.iter().map(place));
        if index == 0 {
            drawing.path("fill", &format!("{line}V{}H{}Z", round(bottom), round(axis.x(*first))));
        }
        drawing.path(&format!("level {class}"), &line);
    }
    drawing.y = bottom + 15.0;
    for (x, label) in axis.ticks() {
        drawing.text("small", Position::middle(x, drawing.y), &label);
    }
}

/// The names of curves at the right of the heading, each after a sample of its line.
#[expect(clippy::cast_precision_loss, reason = "short names")]
fn draw_legend(drawing: &mut Drawing, panel: &CurvePanel) {
    let mut right = RIGHT;
    for ((name, _), class) in panel.curves.iter().zip(CLASSES).rev() {
        drawing.text("small", Position::right(right, drawing.y), name);
        right -= name.chars().count() as f64 * CHARACTER + 6.0;
        let (from, y) = (round(right - SAMPLE), round(drawing.y - 4.0));
        drawing.path(&format!("level {class}"), &format!("M{from} {y}h{SAMPLE}"));
        right -= SAMPLE + 14.0;
    }
}

/// The path in which each height holds until the next point; points that change nothing are left out.
fn steps(points: impl Iterator<Item = (f64, f64)>) -> String {
    let (mut path, mut height, mut end) = (String::new(), None, None);
    for (x, y) in points {
        // Writing to a string can't fail.
        let _ = match height {
            None => write!(path, "M{x} {y}"),
            _ if height != Some(y) => write!(path, "H{x}V{y}"),
            _ => Ok(()),
        };
        (height, end) = (Some(y), Some(x));
    }
    end.map_or(String::new(), |x| format!("{path}H{x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_are_steps_and_the_first_is_filled() {
        let at = |second: u64| Timestamp(second * 1_000_000);
        let panel = CurvePanel {
            name: "requests".to_owned(),
            curves: vec![
                ("limit".to_owned(), vec![(at(0), 5.0), (at(5), 5.0), (at(10), 10.0)]),
                ("<in flight>".to_owned(), vec![(at(0), 0.0)]),
            ],
        };
        let curves = Curves {
            title: "A".to_owned(),
            subtitle: "B".to_owned(),
            span: (at(0), at(10)),
            panels: vec![panel],
        };
        let svg = curves.draw();
        assert!(svg.contains("class=\"level a\" d=\"M62 159H776V94H776\""), "{svg}");
        assert!(svg.contains("class=\"fill\" d=\"M62 159H776V94H776V224H62Z\""), "{svg}");
        assert!(svg.contains("&lt;in flight&gt;"), "{svg}");
    }
}
