//! Memory of fields that are gone, for the next ones on the same thread: most messages are about as large as the last.

use std::cell::RefCell;

use super::Line;

/// Text that most heads fit in, with what the proxy adds.
const USUAL_TEXT: usize = 1024;
/// Lines that most heads have at most, with those that the proxy adds.
const USUAL_LINES: usize = 24;
/// The largest memory that is kept, and how many times.
const MAX_TEXT: usize = 4 * USUAL_TEXT;
const MAX_LINES: usize = 4 * USUAL_LINES;
const MAX_KEPT: usize = 64;

type Memory = (Vec<u8>, Vec<Line>);

thread_local! {
    static SPARE: RefCell<Vec<Memory>> = const { RefCell::new(Vec::new()) };
}

/// Empty memory.
pub(super) fn take() -> Memory {
    let spare = SPARE.with_borrow_mut(Vec::pop);
    spare.unwrap_or_else(|| (Vec::with_capacity(USUAL_TEXT), Vec::with_capacity(USUAL_LINES)))
}

/// Keeps memory, unless it is large.
pub(super) fn give(mut text: Vec<u8>, mut lines: Vec<Line>) {
    if text.capacity() < USUAL_TEXT || text.capacity() > MAX_TEXT || lines.capacity() > MAX_LINES {
        return;
    }
    text.clear();
    lines.clear();
    // When the thread ends it may be gone.
    let _ = SPARE.try_with(|spare| {
        let mut spare = spare.borrow_mut();
        if spare.len() < MAX_KEPT {
            spare.push((text, lines));
        }
    });
}
