//! The legend: the meaning of shapes and lines.

use super::lane;
use super::layout::RIGHT;
use super::level::LINES;
use super::model::{MarkKind, Plot};
use super::page::{Page, Position, round, truncate};
use crate::text::plural;

/// The approximate width of a character.
const CHARACTER: f64 = 6.4;
/// The height of a line.
const LINE: f64 = 18.0;
const MARGIN: f64 = 24.0;

/// Items from left to right, in as many lines as they need.
struct Items<'a> {
    page: &'a mut Page,
    x: f64,
}

/// Draws the legend at the bottom of the page, with items only for what the plot has.
pub(super) fn draw(page: &mut Page, plot: &Plot) {
    page.y += LINE;
    let mut items = Items { page, x: MARGIN };
    let kinds = [
        (MarkKind::Admitted, "admitted"),
        (MarkKind::Delayed, "admitted after a delay (the line)"),
        (MarkKind::Denied, "denied"),
        (MarkKind::DeniedElsewhere, "denied by another limit"),
    ];
    let occurs = |kind| plot.panels.iter().any(|panel| panel.marks.iter().any(|mark| mark.kind == kind));
    for (kind, text) in kinds.into_iter().filter(|(kind, _)| occurs(*kind)) {
        items.add(14.0, text, |page, x, y| page.add(&lane::shape(kind, x + 5.0, y - 4.0, 10.0)));
    }
    let several = plot.keys.len() > 1;
    for (class, key) in LINES.into_iter().zip(&plot.keys) {
        let text =
            if several { format!("remaining for {}", truncate(key, 20)) } else { "remaining".to_owned() };
        items.add(26.0, &text, |page, x, y| {
            page.path(&format!("level {class}"), &format!("M{} {}h22", round(x), round(y - 4.0)));
        });
    }
    if plot.other_keys > 0 {
        let others = plot.other_keys;
        items.add(0.0, &format!("({others} more key{} not shown)", plural(others)), |_, _, _| {});
    }
    items.add(26.0, "limit", |page, x, y| {
        page.path("limit", &format!("M{} {}h22", round(x), round(y - 4.0)));
    });
}

impl Items<'_> {
    /// Adds an item: a symbol of this width, and its meaning.
    fn add(&mut self, symbol_width: f64, text: &str, draw_symbol: impl FnOnce(&mut Page, f64, f64)) {
        #[expect(clippy::cast_precision_loss, reason = "the text is short")]
        let width = symbol_width + text.chars().count() as f64 * CHARACTER;
        if self.x > MARGIN && self.x + width > RIGHT {
            self.x = MARGIN;
            self.page.y += LINE;
        }
        let y = self.page.y;
        draw_symbol(self.page, self.x, y);
        self.page.text("muted", Position::left(self.x + symbol_width, y), text);
        self.x += width + 16.0;
    }
}
