//! YAML and TOML files as one kind of tree, whose nodes know their lines.

use std::rc::Rc;

use saphyr::{LoadableYamlNode as _, MarkedYaml, Scalar, YamlData};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::note::{FileLine, Note, SyntaxError};

/// A file.
pub(super) struct Document {
    file: Rc<str>,
    /// Its documents; one, except in YAML.
    pub roots: Vec<DocNode>,
}

/// A value with its line.
#[derive(Debug)]
pub(super) struct DocNode {
    pub line: usize,
    pub value: DocValue,
}

/// A value.
#[derive(Debug)]
pub(super) enum DocValue {
    Null,
    /// A text, or a number or boolean as text.
    Scalar(String),
    List(Vec<DocNode>),
    Map(Vec<(String, DocNode)>),
}

static EMPTY: DocNode = DocNode { line: 1, value: DocValue::Null };

impl Document {
    /// Parses YAML.
    pub fn yaml(file: &str, text: &str) -> Result<Self, SyntaxError> {
        let file: Rc<str> = Rc::from(file);
        let documents = MarkedYaml::load_from_str(text).map_err(|error| SyntaxError {
            place: FileLine { order: 0, file: Rc::clone(&file), line: error.marker().line() },
            message: error.info().to_owned(),
        })?;
        Ok(Self { file, roots: documents.iter().map(of_yaml).collect() })
    }

    /// Parses TOML.
    pub fn toml(file: &str, text: &str) -> Result<Self, SyntaxError> {
        let file: Rc<str> = Rc::from(file);
        let table = DeTable::parse(text).map_err(|error| {
            let line = line_of(text, error.span().map_or(0, |span| span.start));
            let place = FileLine { order: 0, file: Rc::clone(&file), line };
            SyntaxError { place, message: error.message().to_owned() }
        })?;
        let root = DocNode { line: 1, value: of_table(table.get_ref(), text) };
        Ok(Self { file, roots: vec![root] })
    }

    /// The place of a node.
    pub fn place(&self, node: &DocNode) -> FileLine {
        FileLine { order: 0, file: Rc::clone(&self.file), line: node.line }
    }

    /// A note on a node that is not converted.
    pub fn finding(&self, node: &DocNode, text: &str, reason: impl Into<String>) -> Note {
        Note::finding(&self.place(node), text, reason)
    }

    /// A note on what a table or limit is made from.
    pub fn origin(&self, node: &DocNode, text: &str) -> Note {
        Note::text(format!("{}: {text}", self.place(node)))
    }

    /// Notes on the keys of a node that are not converted: all but these.
    pub fn remarks(&self, node: &DocNode, known: &[&str]) -> Vec<Note> {
        let unknown = node.entries().iter().filter(|(key, _)| !known.contains(&&**key));
        let unknown = unknown.filter(|(_, value)| !matches!(value.value, DocValue::Null));
        let text = |key: &str, value: &DocNode| match value.text() {
            Some(text) => format!("{key}: {text}"),
            None => key.to_owned(),
        };
        unknown
            .map(|(key, value)| self.finding(value, &text(key, value), "tidegate has no counterpart"))
            .collect()
    }
}

impl DocNode {
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

    /// Whether it is `true`.
    pub fn is_true(&self) -> bool {
        self.text() == Some("true")
    }
}

fn of_yaml(yaml: &MarkedYaml<'_>) -> DocNode {
    let value = match &yaml.data {
        YamlData::Value(scalar) => match scalar {
            Scalar::Null => DocValue::Null,
            Scalar::Boolean(value) => DocValue::Scalar(value.to_string()),
            Scalar::Integer(value) => DocValue::Scalar(value.to_string()),
            Scalar::FloatingPoint(value) => DocValue::Scalar(value.to_string()),
            Scalar::String(text) => DocValue::Scalar(text.to_string()),
        },
        YamlData::Representation(text, ..) => DocValue::Scalar(text.to_string()),
        YamlData::Sequence(items) => DocValue::List(items.iter().map(of_yaml).collect()),
        YamlData::Mapping(entries) => {
            let entry = |(key, value): (&MarkedYaml<'_>, &MarkedYaml<'_>)| {
                let name = of_yaml(key).text().unwrap_or_default().to_owned();
                let line = key.span.start.line();
                (name, DocNode { line, ..of_yaml(value) })
            };
            DocValue::Map(entries.iter().map(entry).collect())
        }
        YamlData::Tagged(_, inner) => of_yaml(inner).value,
        YamlData::Alias(_) | YamlData::BadValue => DocValue::Null,
    };
    DocNode { line: yaml.span.start.line(), value }
}

fn of_table(table: &DeTable<'_>, text: &str) -> DocValue {
    let mut entries: Vec<(usize, String, DocNode)> = Vec::new();
    for (key, value) in table {
        let node = DocNode { line: line_of(text, key.span().start), value: of_value(value, text) };
        entries.push((key.span().start, key.get_ref().to_string(), node));
    }
    // In the order of the file.
    entries.sort_by_key(|(start, ..)| *start);
    DocValue::Map(entries.into_iter().map(|(_, key, node)| (key, node)).collect())
}

fn of_value(value: &Spanned<DeValue<'_>>, text: &str) -> DocValue {
    match value.get_ref() {
        DeValue::String(string) => DocValue::Scalar(string.to_string()),
        DeValue::Boolean(value) => DocValue::Scalar(value.to_string()),
        DeValue::Array(items) => {
            let item = |item: &Spanned<DeValue<'_>>| DocNode {
                line: line_of(text, item.span().start),
                value: of_value(item, text),
            };
            DocValue::List(items.iter().map(item).collect())
        }
        DeValue::Table(table) => of_table(table, text),
        DeValue::Integer(number) => DocValue::Scalar(number.to_string()),
        DeValue::Float(_) | DeValue::Datetime(_) => {
            DocValue::Scalar(text.get(value.span()).unwrap_or_default().to_owned())
        }
    }
}

/// The line of a byte.
fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_and_toml_have_lines() {
        let yaml = Document::yaml("f", "a:\n  b: 5\n  c: [x, true]\n").unwrap();
        let toml = Document::toml("f", "[a]\nb = 5\nc = [\"x\", true]\n").unwrap();
        for (document, line) in [(yaml, 2), (toml, 2)] {
            let a = document.roots[0].get("a");
            assert_eq!((a.get("b").number(), a.get("b").line), (Some(5), line));
            assert_eq!(a.get("c").texts(), ["x", "true"]);
            assert!(!a.get("d").is_present());
        }
        let wrong = [Document::yaml("f", "a: [\nb"), Document::toml("f", "a = 1\nb =")];
        for error in wrong.map(|document| document.err().unwrap()) {
            assert!(error.place.line >= 1 && !error.message.is_empty(), "{error:?}");
        }
    }
}
