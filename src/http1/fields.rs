//! The header fields of a message.

mod spare;
mod values;

pub use values::Values;

use super::name::{FieldName, NameSet};

/// The header fields of a message, in their order: one buffer of text, and where each line is in it.
///
/// Names are in lower case, and values have no blanks around them and no control characters but tabs: the parser and those
/// who call [`Fields::push`] see to it. The default has no memory.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    text: Vec<u8>,
    lines: Vec<Line>,
    /// The known names among the lines.
    present: NameSet,
}

/// Where a line is in the text.
#[derive(Clone, Copy, Debug)]
struct Line {
    name: u32,
    name_length: u32,
    value: u32,
    value_length: u32,
    /// The number of its name.
    id: u8,
    /// Whether the text has `name: value CRLF` there.
    is_canonical: bool,
    /// Whether its value must not enter a compression table.
    is_sensitive: bool,
}

/// One line of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// Its name.
    pub name: FieldName<'a>,
    /// Its value.
    pub value: &'a [u8],
}

impl Fields {
    /// No fields, with room for those that most messages have.
    #[must_use]
    pub fn new() -> Self {
        let (text, lines) = spare::take();
        Self { text, lines, present: NameSet::default() }
    }

    /// Fields whose lines are in the text of this head, to be named by [`Fields::add_line`].
    pub(super) fn over(head: &[u8]) -> Self {
        let mut fields = Self::new();
        fields.text.extend_from_slice(head);
        fields
    }

    /// Adds a line of the text: where its name and its value begin, and how long they are. Puts the name into lower case.
    pub(super) fn add_line(
        &mut self,
        (name, name_length): (usize, usize),
        (value, value_length): (usize, usize),
    ) {
        let (before, end) = (name + name_length, value + value_length);
        let text = &mut self.text[name..before];
        text.make_ascii_lowercase();
        let id = FieldName::new(text).id();
        let is_canonical = value == before + 2
            && matches!(self.text[before..], [b':', b' ', ..])
            && matches!(self.text[end..], [b'\r', b'\n', ..]);
        self.push_line([name, name_length, value, value_length], id, is_canonical);
    }

    /// Adds a line of the text: where its name begins, how long that is, and the same of its value.
    fn push_line(&mut self, places: [usize; 4], id: u8, is_canonical: bool) {
        // A head that the parser takes is far shorter than 4 GiB, and so is what the configuration adds.
        #[allow(clippy::cast_possible_truncation)]
        let [name, name_length, value, value_length] = places.map(|it| it as u32);
        self.present.insert(id);
        self.lines.push(Line {
            name,
            name_length,
            value,
            value_length,
            id,
            is_canonical,
            is_sensitive: false,
        });
    }

    /// How many lines there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lines.len()
    }

    /// Whether there is no line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// The lines in their order.
    pub fn iter(&self) -> impl Iterator<Item = Field<'_>> + Clone {
        self.lines.iter().map(|line| self.field(line))
    }

    /// The lines in their order, and whether the value of each is a secret.
    pub(super) fn iter_marked(&self) -> impl Iterator<Item = (Field<'_>, bool)> {
        self.lines.iter().map(|line| (self.field(line), line.is_sensitive))
    }

    /// The value of the first line with this name.
    #[must_use]
    pub fn get<'n>(&self, name: impl Into<FieldName<'n>>) -> Option<&[u8]> {
        let name = name.into();
        if !self.may_contain(name) {
            return None;
        }
        let line = self.lines.iter().find(|line| line.is_named(&self.text, name))?;
        Some(slice(&self.text, line.value, line.value_length))
    }

    /// The value of the first line with this name, if it has visible ASCII characters, blanks and tabs only.
    #[must_use]
    pub fn get_str<'n>(&self, name: impl Into<FieldName<'n>>) -> Option<&str> {
        self.get(name).and_then(ascii)
    }

    /// The values of all lines with this name.
    pub fn get_all<'n>(&self, name: impl Into<FieldName<'n>>) -> Values<'_, 'n> {
        let name = name.into();
        // Most names that are looked for are not there.
        let lines = if self.may_contain(name) { &self.lines[..] } else { &[] };
        Values { text: &self.text, lines: lines.iter(), name }
    }

    /// Whether there is a line with this name.
    #[must_use]
    pub fn contains<'n>(&self, name: impl Into<FieldName<'n>>) -> bool {
        let name = name.into();
        if name.id() != 0 { self.present.contains(name) } else { self.get(name).is_some() }
    }

    /// Whether there is a line with any of these names.
    #[must_use]
    pub fn contains_any(&self, names: NameSet) -> bool {
        self.present.intersects(names)
    }

    /// Adds a line.
    pub fn push<'n>(&mut self, name: impl Into<FieldName<'n>>, value: &[u8]) {
        self.push_with(name, |text| text.extend_from_slice(value));
    }

    /// Adds a line whose value `write` appends.
    pub fn push_with<'n>(&mut self, name: impl Into<FieldName<'n>>, write: impl FnOnce(&mut Vec<u8>)) {
        let name = name.into();
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

    /// Adds a line with a secret value: HTTP/2 writes it as a literal that is never indexed (RFC 7541 §7.1.3).
    pub fn push_sensitive<'n>(&mut self, name: impl Into<FieldName<'n>>, value: &[u8]) {
        self.push(name, value);
        if let Some(line) = self.lines.last_mut() {
            line.is_sensitive = true;
        }
    }

    /// Puts a line in the place of all lines with this name.
    pub fn set<'n>(&mut self, name: impl Into<FieldName<'n>>, value: &[u8]) {
        self.set_with(name, |text| text.extend_from_slice(value));
    }

    /// Puts a line whose value `write` appends in the place of all lines with this name.
    pub fn set_with<'n>(&mut self, name: impl Into<FieldName<'n>>, write: impl FnOnce(&mut Vec<u8>)) {
        let name = name.into();
        self.remove(name);
        self.push_with(name, write);
    }

    /// Adds a line if there is none with this name.
    pub fn set_default<'n>(&mut self, name: impl Into<FieldName<'n>>, value: &[u8]) {
        let name = name.into();
        if !self.contains(name) {
            self.push(name, value);
        }
    }

    /// Removes all lines with this name; says whether there was one.
    pub fn remove<'n>(&mut self, name: impl Into<FieldName<'n>>) -> bool {
        let name = name.into();
        if !self.may_contain(name) {
            return false;
        }
        let before = self.lines.len();
        let text = &self.text;
        self.lines.retain(|line| !line.is_named(text, name));
        self.present.remove(name.id());
        self.lines.len() < before
    }

    /// Removes all lines that have one of these names.
    pub fn remove_all(&mut self, names: NameSet) {
        if self.present.intersects(names) {
            self.lines.retain(|line| !names.contains_id(line.id));
            self.present.remove_all(names);
        }
    }

    /// Adds the lines of other fields.
    pub fn extend(&mut self, other: &Self) {
        // Both texts are far shorter than 4 GiB.
        #[allow(clippy::cast_possible_truncation)]
        let offset = self.text.len() as u32;
        self.text.extend_from_slice(&other.text);
        self.present.insert_all(other.present);
        let moved = |line: &Line| Line { name: line.name + offset, value: line.value + offset, ..*line };
        self.lines.extend(other.lines.iter().map(moved));
    }

    /// Keeps the lines for which this holds.
    pub fn retain(&mut self, mut keeps: impl FnMut(Field<'_>) -> bool) {
        let text = &self.text;
        let mut present = NameSet::default();
        self.lines.retain(|line| {
            let is_kept = keeps(field(text, line));
            if is_kept {
                present.insert(line.id);
            }
            is_kept
        });
        self.present = present;
    }

    /// Removes all lines.
    pub fn clear(&mut self) {
        self.text.clear();
        self.lines.clear();
        self.present = NameSet::default();
    }

    /// Appends the lines as they are sent, each with its CRLF.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_without(NameSet::default(), out);
    }

    /// The same without the lines that have one of these names.
    pub(super) fn write_without(&self, names: NameSet, out: &mut Vec<u8>) {
        for line in self.lines.iter().filter(|line| !names.contains_id(line.id)) {
            if line.is_canonical {
                // Its blank, and CRLF.
                let length = line.name_length + line.value_length + 4;
                out.extend_from_slice(slice(&self.text, line.name, length));
            } else {
                out.extend_from_slice(slice(&self.text, line.name, line.name_length));
                out.extend_from_slice(b": ");
                out.extend_from_slice(slice(&self.text, line.value, line.value_length));
                out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// Whether a line may have this name: sure of a known name, and unknown of others.
    fn may_contain(&self, name: FieldName<'_>) -> bool {
        name.id() == 0 || self.present.contains(name)
    }

    fn field(&self, line: &Line) -> Field<'_> {
        field(&self.text, line)
    }
}

impl Line {
    fn is_named(&self, text: &[u8], name: FieldName<'_>) -> bool {
        self.id == name.id() && (self.id != 0 || slice(text, self.name, self.name_length) == name.as_bytes())
    }
}

impl Drop for Fields {
    fn drop(&mut self) {
        spare::give(std::mem::take(&mut self.text), std::mem::take(&mut self.lines));
    }
}

impl PartialEq for Fields {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<'f> FromIterator<(&'f str, &'f str)> for Fields {
    fn from_iter<I: IntoIterator<Item = (&'f str, &'f str)>>(lines: I) -> Self {
        let mut fields = Self::new();
        for (name, value) in lines {
            let name = name.to_ascii_lowercase();
            fields.push(FieldName::new(name.as_bytes()), value.as_bytes());
        }
        fields
    }
}

fn field<'t>(text: &'t [u8], line: &Line) -> Field<'t> {
    let name = FieldName::of(line.id, slice(text, line.name, line.name_length));
    Field { name, value: slice(text, line.value, line.value_length) }
}

fn slice(text: &[u8], begin: u32, length: u32) -> &[u8] {
    &text[begin as usize..(begin + length) as usize]
}

/// A value as text, if it has visible ASCII characters, blanks and tabs only.
#[must_use]
pub fn ascii(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok().filter(|text| text.is_ascii())
}

/// Whether a value may have this byte (RFC 9110 §5.5).
fn is_valid(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::super::name::names::{COOKIE, HOST, TE, VIA};
    use super::*;

    fn written(fields: &Fields) -> String {
        let mut out = Vec::new();
        fields.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    fn name(text: &str) -> FieldName<'_> {
        FieldName::new(text.as_bytes())
    }

    #[test]
    fn lines_keep_their_order_and_are_found_by_name() {
        let mut fields: Fields =
            [("Host", "a"), ("X-One", "1"), ("Cookie", "b"), ("x-one", "2")].into_iter().collect();
        assert_eq!(written(&fields), "host: a\r\nx-one: 1\r\ncookie: b\r\nx-one: 2\r\n");
        assert_eq!(fields.get(HOST), Some(&b"a"[..]));
        assert_eq!(fields.get_all(name("x-one")).collect::<Vec<_>>(), [b"1", b"2"]);
        assert!(fields.contains(COOKIE) && fields.contains(name("x-one")));
        assert!(!fields.contains(TE) && !fields.contains(name("x-on")) && fields.get(name("x-tw")).is_none());
        fields.set(name("x-one"), b"3");
        fields.set(TE, b"trailers");
        fields.set_default(TE, b"no");
        assert_eq!(written(&fields), "host: a\r\ncookie: b\r\nx-one: 3\r\nte: trailers\r\n");
        assert!(fields.remove(HOST) && !fields.remove(HOST) && !fields.remove(name("x-two")));
        assert!(!fields.contains(HOST) && !fields.contains_any(NameSet::of(&[HOST, VIA])));
        fields.retain(|field| field.name != TE);
        assert_eq!((written(&fields).as_str(), fields.len()), ("cookie: b\r\nx-one: 3\r\n", 2));
        assert!(!fields.contains(TE));
        fields.clear();
        assert!(fields.is_empty() && fields.iter().next().is_none());
    }

    #[test]
    fn lines_of_a_text_are_written_anew() {
        let head = b"GET / HTTP/1.1\nHost:a\nX-Y: b\r\n\r\n";
        let mut fields = Fields::over(head);
        fields.add_line((15, 4), (20, 1));
        fields.add_line((22, 3), (27, 1));
        assert_eq!(written(&fields), "host: a\r\nx-y: b\r\n");
    }

    #[test]
    fn text_is_ascii() {
        let mut fields = Fields::new();
        fields.push(HOST, "é".as_bytes());
        fields.push(VIA, b"a\tb");
        assert_eq!((fields.get_str(HOST), fields.get_str(VIA)), (None, Some("a\tb")));
    }
}
