//! The lines of a head, and the text that they are in.

use std::ops::Range;

use super::super::name::{FieldName, KNOWN, NameSet};

/// No lines.
pub(super) static NO_LINES: Lines = Lines { text: Vec::new(), places: Vec::new(), present: NameSet::EMPTY };

/// The lines of a head, and the text that they are in.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    pub text: Vec<u8>,
    /// Where each line is in the text.
    pub places: Vec<Line>,
    /// The known names among the lines.
    pub present: NameSet,
}

/// One line of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its name.
    pub name: FieldName<'a>,
    /// Its value.
    pub value: &'a [u8],
}

/// Where a line is in the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    name: u32,
    name_length: u32,
    value: u32,
    value_length: u32,
    /// The number of its name.
    pub id: u8,
    /// Whether the text has `name: value CRLF` there.
    is_canonical: bool,
    /// Whether its value must not enter a compression table.
    pub is_sensitive: bool,
}

impl Lines {
    /// Adds a line of the text: where its name and its value begin, and how long they are. Puts the name, which is a
    /// token, into lower case.
    pub fn add(&mut self, (name, name_length): (usize, usize), (value, value_length): (usize, usize)) {
        let (before, end) = (name + name_length, value + value_length);
        let text = &mut self.text[name..before];
        let id = FieldName::id_of_token(text);
        if id == 0 {
            text.make_ascii_lowercase();
        } else {
            // Cheaper, since it is known.
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
            "a value has no control characters"
        );
        self.text.extend_from_slice(b"\r\n");
        self.push_line([begin, name.as_bytes().len(), value, value_length], name.id(), true);
    }

    /// Adds a line of the text: where its name begins, how long that is, and the same of its value.
    fn push_line(&mut self, places: [usize; 4], id: u8, is_canonical: bool) {
        // A head that the parser takes is far shorter than 4 GiB, and so is what the configuration adds.
        #[allow(clippy::cast_possible_truncation)]
        let [name, name_length, value, value_length] = places.map(|it| it as u32);
        self.present.insert(id);
        let is_sensitive = false;
        self.places.push(Line { name, name_length, value, value_length, id, is_canonical, is_sensitive });
    }

    /// Adds the lines of another head.
    pub fn extend(&mut self, other: &Self) {
        // Both texts are far shorter than 4 GiB.
        #[allow(clippy::cast_possible_truncation)]
        let offset = self.text.len() as u32;
        self.text.extend_from_slice(&other.text);
        self.present.insert_all(other.present);
        let moved = |line: &Line| Line { name: line.name + offset, value: line.value + offset, ..*line };
        self.places.extend(other.places.iter().map(moved));
    }

    pub fn clear(&mut self) {
        self.text.clear();
        self.places.clear();
        self.present = NameSet::EMPTY;
    }

    /// Whether a line may have this name: sure of a known name, and unknown of others.
    pub fn may_contain(&self, name: FieldName<'_>) -> bool {
        name.id() == 0 || self.present.contains(name)
    }

    /// Appends the lines as they are sent, without those that have one of these names.
    pub fn write_without(&self, names: NameSet, out: &mut Vec<u8>) {
        // Canonical lines that follow each other in the text are written together.
        let mut run = 0..0;
        for line in self.places.iter().filter(|line| !names.contains_id(line.id)) {
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
            // Its CRLF.
            run.end = line.value + line.value_length + 2;
        }
        self.write_run(&mut run, out);
    }

    fn write_run(&self, run: &mut Range<u32>, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.text[run.start as usize..run.end as usize]);
        *run = 0..0;
    }
}

impl Line {
    pub fn is_named(&self, text: &[u8], name: FieldName<'_>) -> bool {
        self.id == name.id() && (self.id != 0 || slice(text, self.name, self.name_length) == name.as_bytes())
    }

    /// The line with its name and value.
    pub fn field<'t>(&self, text: &'t [u8]) -> Field<'t> {
        let name = FieldName::of(self.id, slice(text, self.name, self.name_length));
        Field { name, value: self.value(text) }
    }

    pub fn value<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        slice(text, self.value, self.value_length)
    }
}

fn slice(text: &[u8], begin: u32, length: u32) -> &[u8] {
    &text[begin as usize..(begin + length) as usize]
}

/// Whether a value may have this byte (RFC 9110 §5.5).
fn is_valid(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}
