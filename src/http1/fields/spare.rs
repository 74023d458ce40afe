//! Memory of fields that are gone, for the next ones on the same thread: most messages are about as large as the last.

use std::cell::RefCell;

use super::lines::Lines;
use crate::http1::NameSet;

/// Text that most heads fit in, with what the proxy adds.
const USUAL_TEXT: usize = 1024;
/// Lines that most heads have at most, with those that the proxy adds.
const USUAL_LINES: usize = 24;
/// The largest memory that is kept, and how many times.
const MAX_TEXT: usize = 4 * USUAL_TEXT;
const MAX_LINES: usize = 4 * USUAL_LINES;
const MAX_KEPT: usize = 64;

thread_local! {
    #[expect(clippy::vec_box, reason = "the boxes are what is kept")]
    static SPARE: RefCell<Vec<Box<Lines>>> = const { RefCell::new(Vec::new()) };
}

/// Empty memory.
#[expect(clippy::unnecessary_box_returns, reason = "the box is what is kept")]
pub(super) fn take() -> Box<Lines> {
    let spare = SPARE.with_borrow_mut(Vec::pop);
    spare.unwrap_or_else(|| {
        Box::new(Lines {
            text: Vec::with_capacity(USUAL_TEXT),
            places: Vec::with_capacity(USUAL_LINES),
            present: NameSet::EMPTY,
        })
    })
}

/// Keeps memory, unless it is large.
pub(super) fn give(mut lines: Box<Lines>) {
    if lines.text.capacity() > MAX_TEXT || lines.places.capacity() > MAX_LINES {
        return;
    }
    lines.clear();
    // When the thread ends it may be gone.
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < MAX_KEPT {
            spare.push(lines);
        }
    });
}
