//! What the shapes and lines mean.

use super::level::LINES;
use super::page::{Page, cut, round};
use super::{RIGHT, lane};
use crate::cli::simulate::picture::{Kind, Picture};

/// About how wide a character is.
const CHARACTER: f64 = 6.4;
const LINE: f64 = 18.0;
const MARGIN: f64 = 24.0;

/// Items in a row, which go on below when it is full.
struct Items<'a> {
    page: &'a mut Page,
    x: f64,
}

/// Draws the legend below what is there: only what occurs.
pub(super) fn draw(page: &mut Page, picture: &Picture) {
    page.y += LINE;
    let mut items = Items { page, x: MARGIN };
    let kinds = [
        (Kind::Admitted, "admitted"),
        (Kind::Delayed, "admitted after a wait, which the line shows"),
        (Kind::Refused, "refused"),
        (Kind::RefusedElsewhere, "refused by another limit"),
    ];
    let occurs = |kind| picture.panels.iter().any(|panel| panel.marks.iter().any(|mark| mark.kind == kind));
    for (kind, text) in kinds.into_iter().filter(|(kind, _)| occurs(*kind)) {
        items.add(14.0, text, |page, x, y| page.add(&lane::shape(kind, x + 5.0, y - 4.0, 10.0)));
    }
    let several = picture.keys.len() > 1;
    for (class, key) in LINES.into_iter().zip(&picture.keys) {
        let text = if several { format!("left for {}", cut(key, 20)) } else { "what is left".to_owned() };
        items.add(26.0, &text, |page, x, y| {
            page.path(&format!("level {class}"), &format!("M{} {}h22", round(x), round(y - 4.0)));
        });
    }
    if picture.other_keys > 0 {
        let plural = if picture.other_keys == 1 { "" } else { "s" };
        items.add(0.0, &format!("({} more key{plural} not drawn)", picture.other_keys), |_, _, _| {});
    }
    items.add(26.0, "the limit", |page, x, y| {
        page.path("limit", &format!("M{} {}h22", round(x), round(y - 4.0)));
    });
}

impl Items<'_> {
    /// Adds one: what it looks like, in so much room, and what it means.
    fn add(&mut self, room: f64, text: &str, look: impl FnOnce(&mut Page, f64, f64)) {
        #[allow(clippy::cast_precision_loss)] // A short text.
        let width = room + text.chars().count() as f64 * CHARACTER;
        if self.x > MARGIN && self.x + width > RIGHT {
            self.x = MARGIN;
            self.page.y += LINE;
        }
        let y = self.page.y;
        look(self.page, self.x, y);
        self.page.text("muted", self.x + room, y, "start", text);
        self.x += width + 16.0;
    }
}
