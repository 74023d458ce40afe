//! YAML and TOML files as one kind of tree, whose nodes know their lines.

use std::sync::{Arc, LazyLock};

use saphyr::{LoadableYamlNode as _, MarkedYaml, Marker, Scalar, YamlData};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::note::{FileLine, Note, SyntaxError};
use super::source::SourceFile;

/// A value with its place.
#[derive(Clone, Debug)]
pub(super) struct DocNode {
    pub place: FileLine,
    pub value: DocValue,
}

/// A value.
#[derive(Clone, Debug)]
pub(super) enum DocValue {
    Null,
    /// A text, or a number or boolean as text.
    Scalar(String),
    List(Vec<DocNode>),
    Map(Vec<(String, DocNode)>),
}

static EMPTY: LazyLock<DocNode> = LazyLock::new(|| DocNode {
    place: FileLine { order: 0, file: Arc::from(""), line: 1, column: 1 },
    value: DocValue::Null,
});

/// The documents of files in YAML, and in TOML where `is_toml` says so.
pub(super) fn documents(
    files: &[SourceFile<'_>],
    is_toml: impl Fn(&SourceFile<'_>) -> bool,
) -> Result<Vec<DocNode>, SyntaxError> {
    let mut roots = Vec::new();
    for (order, file) in files.iter().enumerate() {
        let start = FileLine { order, file: Arc::from(file.name), line: 1, column: 1 };
        if is_toml(file) {
            roots.push(toml(&start, file.text)?);
        } else {
            roots.extend(yaml(&start, file.text)?);
        }
    }
    Ok(roots)
}

/// The documents of a text in YAML.
fn yaml(start: &FileLine, text: &str) -> Result<Vec<DocNode>, SyntaxError> {
    let documents = MarkedYaml::load_from_str(text).map_err(|error| SyntaxError {
        place: marked(start, error.marker()),
        message: error.info().to_owned(),
    })?;
    Ok(documents.iter().map(|document| of_yaml(document, start)).collect())
}

/// The document of a text in TOML.
fn toml(start: &FileLine, text: &str) -> Result<DocNode, SyntaxError> {
    let table = DeTable::parse(text).map_err(|error| {
        let place = at_byte(start, text, error.span().map_or(0, |span| span.start));
        SyntaxError { place, message: error.message().to_owned() }
    })?;
    Ok(DocNode { place: start.clone(), value: of_table(table.get_ref(), start, text) })
}

impl DocNode {
    /// A map that is not in a file, with its place there.
    pub fn map(place: &FileLine, entries: Vec<(String, Self)>) -> Self {
        Self { place: place.clone(), value: DocValue::Map(entries) }
    }

    /// A text that is not in a file, with its place there.
    pub fn scalar(place: &FileLine, text: impl Into<String>) -> Self {
        Self { place: place.clone(), value: DocValue::Scalar(text.into()) }
    }

    /// One document of several: their maps are joined down to this depth, and lists below them. Of two other values of a name
    /// the first one stays, with a note on the second one.
    pub fn joined(roots: Vec<Self>, depth: usize) -> (Self, Vec<Note>) {
        let mut notes = Vec::new();
        let mut roots = roots.into_iter();
        let first = roots.next();
        let mut all = first.unwrap_or_else(|| Self { place: EMPTY.place.clone(), value: DocValue::Null });
        for root in roots {
            notes.extend(all.join(root, depth));
        }
        (all, notes)
    }

    fn join(&mut self, other: Self, depth: usize) -> Vec<Note> {
        let place = other.place;
        match (&mut self.value, other.value) {
            (_, DocValue::Null) => Vec::new(),
            (value @ DocValue::Null, other) => {
                *value = other;
                Vec::new()
            }
            (DocValue::List(items), DocValue::List(others)) => {
                items.extend(others);
                Vec::new()
            }
            (DocValue::Map(entries), DocValue::Map(others)) if depth > 0 => {
                let mut notes = Vec::new();
                for (name, other) in others {
                    match entries.iter_mut().find(|(known, _)| *known == name) {
                        // They describe the file itself.
                        Some(_) if name.starts_with('_') => {}
                        Some((_, known)) if depth == 1 && !matches!(other.value, DocValue::List(_)) => {
                            let reason =
                                format!("there is another `{name}` at {}, which is converted", known.place);
                            notes.push(other.finding(&name, reason));
                        }
                        Some((_, known)) => notes.extend(known.join(other, depth - 1)),
                        None => entries.push((name, other)),
                    }
                }
                notes
            }
            (DocValue::Scalar(text), DocValue::Scalar(other)) if *text == other => Vec::new(),
            (_, DocValue::Scalar(text)) => {
                vec![Note::finding(&place, &text, "the value of another file is converted")]
            }
            _ => Vec::new(),
        }
    }

    /// A note on a node that is not converted, with all that is in it.
    pub fn finding(&self, text: &str, reason: impl Into<String>) -> Note {
        Note::finding(&self.place, text, reason).of_block()
    }

    /// A note on what a table or limit is made from.
    pub fn origin(&self, text: &str) -> Note {
        Note::origin(&self.place, text)
    }

    /// Notes on the keys of a node that are not converted: all but these.
    pub fn remarks(&self, known: &[&str]) -> Vec<Note> {
        self.remarks_for(known, "tidegate has no counterpart")
    }

    /// The same with another reason.
    pub fn remarks_for(&self, known: &[&str], reason: &str) -> Vec<Note> {
        let unknown = self.entries().iter().filter(|(key, _)| !known.contains(&&**key));
        let unknown = unknown.filter(|(_, value)| !matches!(value.value, DocValue::Null));
        let text = |key: &str, value: &Self| match value.text() {
            Some(text) => format!("{key}: {text}"),
            None => key.to_owned(),
        };
        unknown.map(|(key, value)| value.finding(&text(key, value), reason)).collect()
    }

    /// The value of a key, or an empty node.
    pub fn get(&self, key: &str) -> &Self {
        self.entries().iter().find(|(name, _)| name == key).map_or(&EMPTY, |(_, value)| value)
    }

    /// The keys and values of a map.
    pub fn entries(&self) -> &[(String, Self)] {
        if let DocValue::Map(entries) = &self.value { entries } else { &[] }
    }

    /// The items of a list.
    pub fn items(&self) -> &[Self] {
        if let DocValue::List(items) = &self.value { items } else { &[] }
    }

    /// The items of a list that are texts, or a text alone.
    pub fn texts(&self) -> Vec<String> {
        let alone = self.text().map(str::to_owned);
        self.items().iter().filter_map(Self::text).map(str::to_owned).chain(alone).collect()
    }

    /// The text of a scalar.
    pub fn text(&self) -> Option<&str> {
        if let DocValue::Scalar(text) = &self.value { Some(text) } else { None }
    }

    /// The number of a scalar.
    pub fn number(&self) -> Option<u64> {
        self.text()?.parse().ok()
    }

    /// Whether it is there at all.
    pub fn is_present(&self) -> bool {
        !matches!(self.value, DocValue::Null)
    }

    /// Whether it is a list.
    pub fn is_list(&self) -> bool {
        matches!(self.value, DocValue::List(_))
    }

    /// Whether it is a map.
    pub fn is_map(&self) -> bool {
        matches!(self.value, DocValue::Map(_))
    }

    /// Whether it is true.
    pub fn is_true(&self) -> bool {
        self.text().and_then(boolean) == Some(true)
    }

    /// Whether it is false, and not merely missing.
    pub fn is_false(&self) -> bool {
        self.text().and_then(boolean) == Some(false)
    }
}

/// A boolean in one of the forms that `ParseBool` of Go reads.
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

fn of_yaml(yaml: &MarkedYaml<'_>, start: &FileLine) -> DocNode {
    let value = match &yaml.data {
        YamlData::Value(scalar) => match scalar {
            Scalar::Null => DocValue::Null,
            Scalar::Boolean(value) => DocValue::Scalar(value.to_string()),
            Scalar::Integer(value) => DocValue::Scalar(value.to_string()),
            Scalar::FloatingPoint(value) => DocValue::Scalar(value.to_string()),
            Scalar::String(text) => DocValue::Scalar(text.to_string()),
        },
        YamlData::Representation(text, ..) => DocValue::Scalar(text.to_string()),
        YamlData::Sequence(items) => DocValue::List(items.iter().map(|item| of_yaml(item, start)).collect()),
        YamlData::Mapping(entries) => {
            let entry = |(key, value): (&MarkedYaml<'_>, &MarkedYaml<'_>)| {
                let name = of_yaml(key, start).text().unwrap_or_default().to_owned();
                (name, DocNode { place: marked(start, &key.span.start), ..of_yaml(value, start) })
            };
            DocValue::Map(with_merged(entries.iter().map(entry).collect()))
        }
        YamlData::Tagged(_, inner) => of_yaml(inner, start).value,
        YamlData::Alias(_) | YamlData::BadValue => DocValue::Null,
    };
    DocNode { place: marked(start, &yaml.span.start), value }
}

/// Entries with those of the maps that the key `<<` merges into them.
fn with_merged(entries: Vec<(String, DocNode)>) -> Vec<(String, DocNode)> {
    let (merged, mut own): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(name, _)| name == "<<");
    for (_, node) in merged {
        let maps = match node.value {
            DocValue::List(maps) => maps,
            value => vec![DocNode { value, ..node }],
        };
        for map in maps {
            let DocValue::Map(others) = map.value else { continue };
            for (name, other) in others {
                if own.iter().all(|(known, _)| *known != name) {
                    own.push((name, other));
                }
            }
        }
    }
    own
}

fn marked(start: &FileLine, marker: &Marker) -> FileLine {
    FileLine { line: marker.line(), column: marker.col() + 1, ..start.clone() }
}

fn of_table(table: &DeTable<'_>, start: &FileLine, text: &str) -> DocValue {
    let mut entries: Vec<(usize, String, DocNode)> = Vec::new();
    for (key, value) in table {
        let place = at_byte(start, text, key.span().start);
        let node = DocNode { place, value: of_value(value, start, text) };
        entries.push((key.span().start, key.get_ref().to_string(), node));
    }
    // In the order of the file.
    entries.sort_by_key(|(start, ..)| *start);
    DocValue::Map(entries.into_iter().map(|(_, key, node)| (key, node)).collect())
}

fn of_value(value: &Spanned<DeValue<'_>>, start: &FileLine, text: &str) -> DocValue {
    match value.get_ref() {
        DeValue::String(string) => DocValue::Scalar(string.to_string()),
        DeValue::Boolean(value) => DocValue::Scalar(value.to_string()),
        DeValue::Array(items) => {
            let item = |item: &Spanned<DeValue<'_>>| DocNode {
                place: at_byte(start, text, item.span().start),
                value: of_value(item, start, text),
            };
            DocValue::List(items.iter().map(item).collect())
        }
        DeValue::Table(table) => of_table(table, start, text),
        DeValue::Integer(number) => DocValue::Scalar(number.to_string()),
        DeValue::Float(_) | DeValue::Datetime(_) => {
            DocValue::Scalar(text.get(value.span()).unwrap_or_default().to_owned())
        }
    }
}

/// The place of a byte.
fn at_byte(start: &FileLine, text: &str, offset: usize) -> FileLine {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    FileLine { line, column: before.len() - line_start + 1, ..start.clone() }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn parsed(text: &str, is_toml: bool) -> Result<DocNode, SyntaxError> {
        let file = SourceFile { name: "f", text, directory: Path::new("") };
        documents(&[file], |_| is_toml).map(|mut roots| roots.remove(0))
    }

    #[test]
    fn yaml_and_toml_have_lines() {
        let yaml = parsed("a:\n  b: 5\n  c: [x, true]\n", false);
        let toml = parsed("[a]\nb = 5\nc = [\"x\", true]\n", true);
        for root in [yaml.unwrap(), toml.unwrap()] {
            let a = root.get("a");
            assert_eq!((a.get("b").number(), a.get("b").place.line), (Some(5), 2));
            assert_eq!(a.get("c").texts(), ["x", "true"]);
            assert!(!a.get("d").is_present());
        }
        let wrong = [parsed("a: [\nb", false), parsed("a = 1\nb =", true)];
        for error in wrong.map(|document| document.err().unwrap()) {
            assert!(error.place.line >= 1 && !error.message.is_empty(), "{error:?}");
        }
    }

    #[test]
    fn booleans_have_the_forms_of_go() {
        let text =
            "yes: [1, t, T, TRUE, true, True, \"True\"]\nno: [0, f, F, FALSE, false, False, \"False\"]\n";
        let root = parsed(text, false).unwrap();
        let (yes, no) = (root.get("yes").items(), root.get("no").items());
        assert!(yes.iter().all(DocNode::is_true) && !yes.iter().any(DocNode::is_false));
        assert!(no.iter().all(DocNode::is_false) && !no.iter().any(DocNode::is_true));
        let others = parsed("[tRue, yes, \"\", 2]", false).unwrap();
        assert!(!others.items().iter().any(|it| it.is_true() || it.is_false()));
    }

    #[test]
    fn maps_are_merged_by_a_key_and_joined() {
        let merged = parsed("a: &a { x: 1, y: 1 }\nb: { y: 2, <<: *a }\n", false).unwrap();
        let numbers = ["x", "y"].map(|name| merged.get("b").get(name).number());
        assert_eq!(numbers, [Some(1), Some(2)]);
        let roots = ["a: { b: { c: 1 }, d: [1] }", "a: { b: { c: 2, e: 3 }, d: [2] }"];
        let (joined, notes) = DocNode::joined(roots.map(|text| parsed(text, false).unwrap()).into(), 2);
        let a = joined.get("a");
        assert_eq!((a.get("b").get("c").number(), a.get("b").get("e").number()), (Some(1), None));
        assert_eq!((a.get("d").texts().len(), notes.len()), (2, 1));
    }
}
