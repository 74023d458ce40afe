//! The legend: the meaning of shapes and lines.

use super::drawing::{Drawing, Position, round, truncate};
use super::lane;
use super::layout::RIGHT;
use super::level::LINES;
use super::model::{MarkKind, Plot};
use tidegate_limit::text::plural;

/// The approximate width of a character.
const CHARACTER: f64 = 6.4;
/// The height of a line.
const LINE: f64 = 18.0;
const MARGIN: f64 = 24.0;

/// Items from left to right, in as many lines as they need.
struct Items<'a> {
    drawing: &'a mut Drawing,
    x: f64,
}

/// Draws the legend at the bottom of the drawing, with items only for what the plot has.
pub(super) fn draw(drawing: &mut Drawing, plot: &Plot) {
    drawing.y += LINE;
    let mut items = Items { drawing, x: MARGIN };
    let kinds = [
        (MarkKind::Admitted, "admitted"),
        (MarkKind::Delayed, "admitted after a delay (the line)"),
        (MarkKind::Denied, "denied"),
        (MarkKind::DeniedElsewhere, "denied by another limit"),
    ];
    let occurs = |kind| plot.panels.iter().any(|panel| panel.marks.iter().any(|mark| mark.kind == kind));
    for (kind, text) in kinds.into_iter().filter(|(kind, _)| occurs(*kind)) {
        items.add(14.0, text, |drawing, x, y| drawing.add(&lane::shape(kind, x + 5.0, y - 4.0, 10.0)));
    }
    let several = plot.keys.len() > 1;
    for (class, key) in LINES.into_iter().zip(&plot.keys) {
        let text =
            if several { format!("remaining for {}", truncate(key, 20)) } else { "remaining".to_owned() };
        items.add(26.0, &text, |drawing, x, y| {
            drawing.path(&format!("level {class}"), &format!("M{} {}h22", round(x), round(y - 4.0)));
        });
    }
    if plot.other_keys > 0 {
        let others = plot.other_keys;
        items.add(0.0, &format!("({others} more key{} not shown)", plural(others)), |_, _, _| {});
    }
    items.add(26.0, "limit", |drawing, x, y| {
        drawing.path("limit", &format!("M{} {}h22", round(x), round(y - 4.0)));
    });
}

impl Items<'_> {
    /// Adds an item: a symbol of this width, and its meaning.
    fn add(&mut self, symbol_width: f64, text: &str, draw_symbol: impl FnOnce(&mut Drawing, f64, f64)) {
        #[expect(clippy::cast_precision_loss, reason = "the text is short")]
        let width = symbol_width + text.chars().count() as f64 * CHARACTER;
        if self.x > MARGIN && self.x + width > RIGHT {
            self.x = MARGIN;
            self.drawing.y += LINE;
        }
        let y = self.drawing.y;
        draw_symbol(self.drawing, self.x, y);
        self.drawing.text("muted", Position::left(self.x + symbol_width, y), text);
        self.x += width + 16.0;
    }
}
