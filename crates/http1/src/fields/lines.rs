//! The lines of a head: a buffer of text, and the positions of names and values in it.

use std::cell::RefCell;
use std::ops::Range;
use std::slice::Iter;

use super::super::name::{FieldName, KNOWN, NameSet};

/// Bytes that are enough for most heads, with the lines that the proxy adds.
const USUAL_TEXT: usize = 1024;
/// Field lines that are enough for most heads, with those that the proxy adds.
const USUAL_LINES: usize = 24;
/// The largest memory that is kept.
const MAX_TEXT: usize = 4 * USUAL_TEXT;
const MAX_LINES: usize = 4 * USUAL_LINES;
/// The most of them that are kept on each thread.
const MAX_KEPT: usize = 64;

/// No lines.
pub(super) static NO_LINES: FieldLines =
    FieldLines { text: Vec::new(), positions: Vec::new(), present: NameSet::EMPTY };

/// The lines of a head.
#[derive(Clone, Debug)]
pub(super) struct FieldLines {
    pub text: Vec<u8>,
    /// The position of each line in the text.
    pub positions: Vec<LinePosition>,
    /// The known names among the lines.
    pub present: NameSet,
}

/// One line of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldLine<'a> {
    /// The name.
    pub name: FieldName<'a>,
    /// The value.
    pub value: &'a [u8],
}

/// The position of a line in the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinePosition {
    name: u32,
    name_length: u32,
    value: u32,
    value_length: u32,
    /// The id of its name; 0 if the name is not known.
    pub id: u8,
    /// Whether the text has `name: value CRLF` there, so that it can be copied as it is.
    is_canonical: bool,
    /// Whether its value must not enter an HPACK table.
    pub is_sensitive: bool,
}

impl FieldLines {
    /// Adds a line of the text by the positions and lengths of its name and its value. Changes the name, which is a token,
    /// to lower case.
    pub fn add(&mut self, (name, name_length): (usize, usize), (value, value_length): (usize, usize)) {
        let (before, end) = (name + name_length, value + value_length);
        let text = &mut self.text[name..before];
        let id = FieldName::id_of_token(text);
        if id == 0 {
            text.make_ascii_lowercase();
        } else {
            // Cheaper than changing the case of each byte.
            text.copy_from_slice(KNOWN[usize::from(id)]);
        }
        let is_canonical = value == before + 2
            && self.text[before..].starts_with(b": ")
            && self.text[end..].starts_with(b"\r\n");
        self.push_line([name, name_length, value, value_length], id, is_canonical);
    }

    /// Adds a line whose value `write` appends.
    pub fn push_with(&mut self, name: FieldName<'_>, write: impl FnOnce(&mut Vec<u8>)) {
        let begin = self.text.len();
        self.text.extend_from_slice(name.as_bytes());
        self.text.extend_from_slice(b": ");
        let value = self.text.len();
        write(&mut self.text);
        let value_length = self.text.len() - value;
        debug_assert!(
            self.text[value..].iter().all(|byte| is_valid(*byte)),
            "a value must not have control characters"
        );
        self.text.extend_from_slice(b"\r\n");
        self.push_line([begin, name.as_bytes().len(), value, value_length], name.id(), true);
    }

    /// Adds a line of the text: the position and length of its name, and the same of its value.
    fn push_line(&mut self, positions: [usize; 4], id: u8, is_canonical: bool) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "heads and what is added to them are far below 4 GiB"
        )]
        let line = LinePosition {
            name: positions[0] as u32,
            name_length: positions[1] as u32,
            value: positions[2] as u32,
            value_length: positions[3] as u32,
            id,
            is_canonical,
            is_sensitive: false,
        };
        self.present.insert(id);
        self.positions.push(line);
    }

    /// Adds the lines of another head.
    #[inline]
    pub fn extend(&mut self, other: &Self) {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "heads and what is added to them are far below 4 GiB"
        )]
        let offset = self.text.len() as u32;
        self.text.extend_from_slice(&other.text);
        self.present.insert_all(other.present);
        let moved = |line: &LinePosition| LinePosition {
            name: line.name + offset,
            value: line.value + offset,
            ..*line
        };
        self.positions.extend(other.positions.iter().map(moved));
    }

    pub fn clear(&mut self) {
        self.text.clear();
        self.positions.clear();
        self.present = NameSet::EMPTY;
    }

    /// Whether a line may have this name: exact for known names, and always true for others.
    pub fn may_contain(&self, name: FieldName<'_>) -> bool {
        name.id() == 0 || self.present.contains(name)
    }

    /// Writes the lines that have none of these names.
    pub fn write_without(&self, names: NameSet, out: &mut Vec<u8>) {
        // Canonical lines that are adjacent in the text are copied together.
        let mut run = 0..0;
        for line in self.positions.iter().filter(|line| !names.contains_id(line.id)) {
            if !line.is_canonical {
                self.write_run(&mut run, out);
                out.extend_from_slice(slice(&self.text, line.name, line.name_length));
                out.extend_from_slice(b": ");
                out.extend_from_slice(slice(&self.text, line.value, line.value_length));
                out.extend_from_slice(b"\r\n");
                continue;
            }
            if line.name != run.end {
                self.write_run(&mut run, out);
                run.start = line.name;
            }
            // With its CRLF.
            run.end = line.value + line.value_length + 2;
        }
        self.write_run(&mut run, out);
    }

    fn write_run(&self, run: &mut Range<u32>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.text[run.start as usize..run.end as usize]);
        *run = 0..0;
    }
}

impl LinePosition {
    pub fn is_named(&self, text: &[u8], name: FieldName<'_>) -> bool {
        self.id == name.id() && (self.id != 0 || slice(text, self.name, self.name_length) == name.as_bytes())
    }

    /// The line with its name and value.
    pub fn field<'t>(&self, text: &'t [u8]) -> FieldLine<'t> {
        let name = FieldName::with_id(self.id, slice(text, self.name, self.name_length));
        FieldLine { name, value: self.value(text) }
    }

    pub fn value<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        slice(text, self.value, self.value_length)
    }
}

fn slice(text: &[u8], begin: u32, length: u32) -> &[u8] {
    &text[begin as usize..(begin + length) as usize]
}

/// Whether a value may contain this byte (RFC 9110 §5.5).
fn is_valid(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

/// The values of the lines with one name.
#[derive(Clone, Debug)]
pub struct Values<'f, 'n> {
    pub(super) text: &'f [u8],
    pub(super) lines: Iter<'f, LinePosition>,
    pub(super) name: FieldName<'n>,
}

impl<'f> Iterator for Values<'f, '_> {
    type Item = &'f [u8];

    fn next(&mut self) -> Option<Self::Item> {
        let Self { text, lines, name } = self;
        lines.find(|line| line.is_named(text, *name)).map(|line| line.value(text))
    }
}

impl DoubleEndedIterator for Values<'_, '_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let Self { text, lines, name } = self;
        lines.rfind(|line| line.is_named(text, *name)).map(|line| line.value(text))
    }
}

thread_local! {
    #[expect(clippy::vec_box, reason = "the boxes are kept and reused")]
    static SPARE: RefCell<Vec<Box<FieldLines>>> = const { RefCell::new(Vec::new()) };
}

/// Empty lines with memory of earlier ones on the same thread, if there are any: most messages are about as large as the last
/// one.
#[expect(clippy::unnecessary_box_returns, reason = "the box is kept and reused")]
pub(super) fn take_spare() -> Box<FieldLines> {
    let spare = SPARE.with_borrow_mut(Vec::pop);
    spare.unwrap_or_else(|| {
        Box::new(FieldLines {
            text: Vec::with_capacity(USUAL_TEXT),
            positions: Vec::with_capacity(USUAL_LINES),
            present: NameSet::EMPTY,
        })
    })
}

/// Keeps the memory of lines, unless it is large.
pub(super) fn keep_spare(mut lines: Box<FieldLines>) {
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

#[cfg(test)]
mod tests {
    use super::super::Fields;
    use super::*;
    use crate::name::names::{TE, VIA};

    #[test]
    fn values_are_iterated_from_both_ends() {
        let lines = [("via", "1"), ("host", "a"), ("via", "2"), ("x-one", "b"), ("via", "3")];
        let fields: Fields = lines.into_iter().collect();
        assert_eq!(fields.get_all(VIA).rev().collect::<Vec<_>>(), [b"3", b"2", b"1"]);
        let mut values = fields.get_all(VIA);
        assert_eq!((values.next_back(), values.next()), (Some(&b"3"[..]), Some(&b"1"[..])));
        assert_eq!((values.next_back(), values.next()), (Some(&b"2"[..]), None));
        assert_eq!(
            (fields.get_all(FieldName::new(b"x-one")).next_back(), fields.get_all(TE).next_back()),
            (Some(&b"b"[..]), None)
        );
    }
}
