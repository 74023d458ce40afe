//! Header fields.

mod lines;

pub use self::lines::{FieldLine, Values};
use self::lines::{FieldLines, LinePosition, NO_LINES, keep_spare, take_spare};
use super::name::{FieldName, NameSet};

/// The header fields of a message, in their order: one buffer of text, and the position of each line in it.
///
/// Names are in lower case. Values have no surrounding whitespace, and no control characters except tabs; the parser and the
/// callers of [`Fields::push`] ensure that. The default allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    /// Boxed because heads are moved often.
    lines: Option<Box<FieldLines>>,
}

impl Fields {
    /// No fields, with memory for those that most messages have.
    #[must_use]
    pub fn new() -> Self {
        Self { lines: Some(take_spare()) }
    }

    /// Fields over the text of a head, whose lines [`Fields::add_line`] adds.
    pub(super) fn over(head: &[u8]) -> Self {
        let mut lines = take_spare();
        lines.text.extend_from_slice(head);
        Self { lines: Some(lines) }
    }

    /// Adds a line of the text by the positions and lengths of its name and its value. Changes the name to lower case.
    pub(super) fn add_line(&mut self, name: (usize, usize), value: (usize, usize)) {
        self.lines_mut().add(name, value);
    }

    /// The number of lines.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lines().positions.len()
    }

    /// Whether there is no line.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their memory in bytes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let FieldLines { text, positions, .. } = self.lines();
        text.capacity() + positions.capacity() * size_of::<LinePosition>()
    }

    /// The lines in their order.
    pub fn iter(&self) -> impl Iterator<Item = FieldLine<'_>> + Clone {
        let FieldLines { text, positions, .. } = self.lines();
        positions.iter().map(|line| line.field(text))
    }

    /// The lines in their order, and whether the value of each is sensitive.
    pub(super) fn iter_with_sensitivity(&self) -> impl Iterator<Item = (FieldLine<'_>, bool)> {
        let FieldLines { text, positions, .. } = self.lines();
        positions.iter().map(|line| (line.field(text), line.is_sensitive))
    }

    /// The value of the first line with this name.
    #[must_use]
    pub fn get<'n>(&self, name: impl Into<FieldName<'n>>) -> Option<&[u8]> {
        self.get_all(name).next()
    }

    /// The value of the first line with this name, if it is ASCII.
    #[must_use]
    pub fn get_str<'n>(&self, name: impl Into<FieldName<'n>>) -> Option<&str> {
        self.get(name).and_then(ascii)
    }

    /// The values of all lines with this name.
    pub fn get_all<'n>(&self, name: impl Into<FieldName<'n>>) -> Values<'_, 'n> {
        let (name, lines) = (name.into(), self.lines());
        // Most names that are looked up are absent.
        let positions = if lines.may_contain(name) { &lines.positions[..] } else { &[] };
        Values { text: &lines.text, lines: positions.iter(), name }
    }

    /// The elements of the list that all lines with this name form together, without surrounding whitespace
    /// (RFC 9110 §5.6.1). Only for fields whose elements have no quoted commas.
    pub fn elements<'n>(&self, name: impl Into<FieldName<'n>>) -> impl Iterator<Item = &[u8]> {
        self.get_all(name).flat_map(|value| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii)
    }

    /// Whether there is a line with this name.
    #[must_use]
    pub fn contains<'n>(&self, name: impl Into<FieldName<'n>>) -> bool {
        let name = name.into();
        if name.id() != 0 { self.lines().present.contains(name) } else { self.get(name).is_some() }
    }

    /// Whether there is a line with any of these names.
    #[must_use]
    pub fn contains_any(&self, names: NameSet) -> bool {
        self.lines().present.intersects(names)
    }

    /// Adds a line.
    pub fn push<'n>(&mut self, name: impl Into<FieldName<'n>>, value: &[u8]) {
        self.push_with(name, |text| text.extend_from_slice(value));
    }

    /// Adds a line whose value `write` appends.
    pub fn push_with<'n>(&mut self, name: impl Into<FieldName<'n>>, write: impl FnOnce(&mut Vec<u8>)) {
        self.lines_mut().push_with(name.into(), write);
    }

    /// Adds a line with a sensitive value: over HTTP/2 it is sent as a literal that is never indexed (RFC 7541 §7.1.3).
    pub fn push_sensitive<'n>(&mut self, name: impl Into<FieldName<'n>>, value: &[u8]) {
        self.push(name, value);
        if let Some(line) = self.lines_mut().positions.last_mut() {
            line.is_sensitive = true;
        }
    }

    /// Replaces all lines with this name by one.
    pub fn set<'n>(&mut self, name: impl Into<FieldName<'n>>, value: &[u8]) {
        self.set_with(name, |text| text.extend_from_slice(value));
    }

    /// Replaces all lines with this name by one whose value `write` appends.
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

    /// Removes all lines with this name; returns whether there was one.
    pub fn remove<'n>(&mut self, name: impl Into<FieldName<'n>>) -> bool {
        let name = name.into();
        if !self.lines().may_contain(name) {
            return false;
        }
        let FieldLines { text, positions, present } = self.lines_mut();
        let before = positions.len();
        positions.retain(|line| !line.is_named(text, name));
        present.remove(name.id());
        positions.len() < before
    }

    /// Removes all lines that have one of these names.
    pub fn remove_all(&mut self, names: NameSet) {
        if self.contains_any(names) {
            let lines = self.lines_mut();
            lines.positions.retain(|line| !names.contains_id(line.id));
            lines.present.remove_all(names);
        }
    }

    /// Adds the lines of other fields.
    #[inline]
    pub fn extend(&mut self, other: &Self) {
        let other = other.lines();
        if !other.positions.is_empty() {
            self.lines_mut().extend(other);
        }
    }

    /// Keeps the lines for which `keeps` returns true.
    pub fn retain(&mut self, mut keeps: impl FnMut(FieldLine<'_>) -> bool) {
        let lines = self.lines_mut();
        let mut present = NameSet::default();
        lines.positions.retain(|line| {
            let is_kept = keeps(line.field(&lines.text));
            if is_kept {
                present.insert(line.id);
            }
            is_kept
        });
        lines.present = present;
    }

    /// Removes all lines.
    pub fn clear(&mut self) {
        self.lines_mut().clear();
    }

    /// Writes the lines, each with its CRLF.
    pub fn write(&self, out: &mut Vec<u8>) {
        self.write_without(NameSet::default(), out);
    }

    /// Writes the lines that have none of these names.
    pub(super) fn write_without(&self, names: NameSet, out: &mut Vec<u8>) {
        self.lines().write_without(names, out);
    }

    fn lines(&self) -> &FieldLines {
        self.lines.as_deref().unwrap_or(&NO_LINES)
    }

    fn lines_mut(&mut self) -> &mut FieldLines {
        self.lines.get_or_insert_with(take_spare)
    }
}

impl Drop for Fields {
    fn drop(&mut self) {
        if let Some(lines) = self.lines.take() {
            keep_spare(lines);
        }
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

/// A value as text, if it is ASCII.
#[must_use]
pub fn ascii(value: &[u8]) -> Option<&str> {
    std::str::from_utf8(value).ok().filter(|text| text.is_ascii())
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
        assert!(Fields::default().is_empty() && !Fields::default().contains(HOST));
    }

    #[test]
    fn lines_of_a_head_are_written_in_canonical_form() {
        let head = b"GET / HTTP/1.1\nHost:a\nX-Y: b\r\n\r\n";
        let mut fields = Fields::over(head);
        fields.add_line((15, 4), (20, 1));
        fields.add_line((22, 3), (27, 1));
        assert_eq!(written(&fields), "host: a\r\nx-y: b\r\n");
    }

    #[test]
    fn values_are_text_if_they_are_ascii() {
        let mut fields = Fields::new();
        fields.push(HOST, "é".as_bytes());
        fields.push(VIA, b"a\tb");
        assert_eq!((fields.get_str(HOST), fields.get_str(VIA)), (None, Some("a\tb")));
    }

    /// RFC 9110 §5.6.1.
    #[test]
    fn the_elements_of_all_lines_form_one_list() {
        let fields: Fields =
            [("TE", "gzip;q=0.5,\t trailers"), ("te", ""), ("TE", "a,")].into_iter().collect();
        let elements: Vec<&[u8]> = fields.elements(TE).collect();
        assert_eq!(elements, [&b"gzip;q=0.5"[..], b"trailers", b"", b"a", b""]);
        assert_eq!(fields.elements(VIA).count(), 0);
    }
}
