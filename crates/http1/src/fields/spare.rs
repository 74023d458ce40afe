//! Reuses the memory of fields on the same thread: most messages are about as large as the last one.

use std::cell::RefCell;

use super::lines::Lines;
use crate::NameSet;

/// Bytes that are enough for most heads, with the lines that the proxy adds.
const USUAL_TEXT: usize = 1024;
/// Lines that are enough for most heads, with those that the proxy adds.
const USUAL_LINES: usize = 24;
/// The largest memory that is kept.
const MAX_TEXT: usize = 4 * USUAL_TEXT;
const MAX_LINES: usize = 4 * USUAL_LINES;
/// The most of them that are kept on each thread.
const MAX_KEPT: usize = 64;

thread_local! {
    #[expect(clippy::vec_box, reason = "the boxes are kept and reused")]
    static SPARE: RefCell<Vec<Box<Lines>>> = const { RefCell::new(Vec::new()) };
}

/// Empty lines, with memory.
#[expect(clippy::unnecessary_box_returns, reason = "the box is kept and reused")]
pub(super) fn take() -> Box<Lines> {
    let spare = SPARE.with_borrow_mut(Vec::pop);
    spare.unwrap_or_else(|| {
        Box::new(Lines {
            text: Vec::with_capacity(USUAL_TEXT),
            positions: Vec::with_capacity(USUAL_LINES),
            present: NameSet::EMPTY,
        })
    })
}

/// Keeps the memory of lines, unless it is large.
pub(super) fn keep(mut lines: Box<Lines>) {
    if lines.text.capacity() > MAX_TEXT || lines.positions.capacity() > MAX_LINES {
        return;
    }
    lines.clear();
    // While the thread exits, the list may be dropped already.
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < MAX_KEPT {
            spare.push(lines);
        }
    });
}
