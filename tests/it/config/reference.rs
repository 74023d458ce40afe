//! docs/configuration.md compared with the code: every key, default, range and choice, in both directions.
//!
//! The document's side is read from its tables. The code's side is what it says of itself when it is asked in the wrong
//! way: an unknown key is answered with the keys of its table, a number out of range with the range, an unknown word
//! with the choices. So neither side has a list in this test.

mod document;
mod schema;

use std::collections::BTreeSet;

use tidegate::config;
use toml::{Table, Value};

use self::document::{Default, Row};
use self::schema::{Range, Schema};

/// A right configuration that has every table.
const SCAFFOLD: &str = include_str!("reference.toml");

/// No text may be longer than this.
const LONGEST: i64 = 10_000;

/// A step from a table or an array to one of its values.
#[derive(Clone, Debug)]
enum Step {
    Key(String),
    Index(usize),
}

/// The problems of a configuration, one line each.
fn complaints(text: &str) -> Vec<String> {
    match config::parse(text, "tidegate.toml", &|_| None) {
        Ok(_) => Vec::new(),
        Err(report) => report.lines().collect(),
    }
}

/// All that the configuration says, or what is wrong with it. Equal configurations have equal texts: its lines are
/// sorted, since the order of a hash map is random.
fn meaning(configuration: &Table) -> Result<String, String> {
    let text = toml::to_string(configuration).unwrap();
    let loaded = config::parse(&text, "tidegate.toml", &|_| None).map_err(|report| report.to_string())?;
    let text = format!("{:#?}", loaded.config);
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    Ok(lines.join("\n"))
}

/// Where `path` can be set below `value`: in each element of an array, and for each name where the path has a star.
fn places(value: &Value, path: &[&str], at: &[Step], found: &mut Vec<Vec<Step>>) {
    let below = |step| [at, &[step]].concat();
    match (value, path) {
        (Value::Array(values), _) => {
            values
                .iter()
                .enumerate()
                .for_each(|(index, value)| places(value, path, &below(Step::Index(index)), found));
        }
        (Value::Table(table), ["*", rest @ ..]) => {
            table.iter().for_each(|(key, value)| places(value, rest, &below(Step::Key(key.clone())), found));
        }
        (Value::Table(_), [key]) => found.push(below(Step::Key((*key).to_owned()))),
        (Value::Table(table), [key, rest @ ..]) => {
            if let Some(value) = table.get(*key) {
                places(value, rest, &below(Step::Key((*key).to_owned())), found);
            }
        }
        _ => {}
    }
}

/// A configuration that is the scaffold with one value set.
struct Changed {
    configuration: Table,
    /// Whether the scaffold has a value there itself.
    is_replaced: bool,
}

/// The scaffold with this value at a place.
fn scaffold_with(place: &[Step], new: &Value) -> Option<Changed> {
    let mut root = Value::Table(SCAFFOLD.parse().unwrap());
    let (last, way) = place.split_last()?;
    let mut value = &mut root;
    for step in way {
        value = match step {
            Step::Key(key) => value.get_mut(key)?,
            Step::Index(index) => value.get_mut(*index)?,
        };
    }
    let (Step::Key(key), Value::Table(table)) = (last, value) else { return None };
    let is_replaced = table.insert(key.clone(), new.clone()).is_some();
    Some(Changed { configuration: root.as_table().cloned()?, is_replaced })
}

/// Every configuration that is the scaffold with this value for the key.
fn scaffolds_with(path: &str, value: &Value) -> Vec<Changed> {
    let path: Vec<&str> = path.split('.').collect();
    let mut found = Vec::new();
    places(&Value::Table(SCAFFOLD.parse().unwrap()), &path, &[], &mut found);
    found.iter().filter_map(|place| scaffold_with(place, value)).collect()
}

/// Says where the documented default is not what holds without the key.
fn default_is_true(row: &Row, literal: &Value, plain: &str) -> Result<(), String> {
    let mut refused = "the scaffold has no table for it".to_owned();
    let mut is_accepted = false;
    for changed in scaffolds_with(&row.path, literal).iter().filter(|changed| !changed.is_replaced) {
        match meaning(&changed.configuration) {
            Ok(same) if same == plain => is_accepted = true,
            Ok(_) => return Err(format!("{}: {literal} is not its default", row.path)),
            Err(report) => refused = report,
        }
    }
    if is_accepted { Ok(()) } else { Err(format!("{}: {literal} is refused: {refused}", row.path)) }
}

/// Says where a bound is refused, the next value beyond one is accepted, or the value changes nothing.
fn range_is_true(row: &Row, range: &Range, schema: &Schema, plain: &str) -> Result<(), String> {
    for (value, is_inside) in range.edges() {
        if schema.is_in_range(&row.path, &value) != is_inside {
            let verb = if is_inside { "refused" } else { "accepted" };
            return Err(format!("{}: {value} is {verb}, and its range is {range}", row.path));
        }
    }
    let values = range.inside();
    let configurations = values.into_iter().flat_map(|value| scaffolds_with(&row.path, &value));
    let mut meanings = configurations.filter_map(|changed| meaning(&changed.configuration).ok());
    if meanings.any(|meaning| meaning != plain) {
        Ok(())
    } else {
        Err(format!("{}: no value of it changes the configuration", row.path))
    }
}

/// The range of a key that takes text is that of its length.
fn length_is_true(row: &Row, low: i64, high: i64, schema: &Schema) -> Result<(), String> {
    if high > LONGEST {
        return Err(format!("{}: the code does not know the range {low} to {high}", row.path));
    }
    for (length, is_inside) in [(low, true), (high, true), (low - 1, false), (high + 1, false)] {
        if schema.takes_text(&row.path, length) != is_inside {
            let verb = if is_inside { "refused" } else { "accepted" };
            return Err(format!("{}: {length} characters are {verb}", row.path));
        }
    }
    Ok(())
}

#[test]
fn the_document_has_the_keys_of_the_code() {
    let (schema, document) = (Schema::of_the_code(), document::rows());
    let mut documented: BTreeSet<&str> = document.iter().map(|row| &*row.path).collect();
    assert_eq!(documented.len(), document.len(), "a key is there twice");
    for table in document::tables() {
        documented.insert(table);
    }
    let known: BTreeSet<&str> = schema.paths().collect();
    assert!(known.len() > 100, "{known:?}");
    let undocumented: Vec<_> = known.difference(&documented).collect();
    assert!(undocumented.is_empty(), "the document does not have {undocumented:?}");
    let invented: Vec<_> = documented.difference(&known).collect();
    assert!(invented.is_empty(), "the code does not know {invented:?}");
    let required = |row: &&Row| row.default == Default::Required;
    let required: BTreeSet<&str> = document.iter().filter(required).map(|row| &*row.path).collect();
    assert_eq!(required, schema.required().collect());
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let scaffold: Table = SCAFFOLD.parse().unwrap();
    let plain = meaning(&scaffold).unwrap();
    assert_eq!(meaning(&scaffold).unwrap(), plain, "equal configurations must have equal texts");
    let rows = document::rows();
    let literals = rows.iter().filter_map(|row| Some((row, row.default.literal()?)));
    let checked: Vec<_> = literals.map(|(row, literal)| default_is_true(row, literal, &plain)).collect();
    assert!(checked.len() > 50, "{} defaults", checked.len());
    let wrong: Vec<String> = checked.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A table that is there and empty is as one that is not there.
#[test]
fn empty_tables_change_nothing() {
    let with: Table = SCAFFOLD.parse().unwrap();
    let mut without = with.clone();
    let empty = with.iter().filter(|(_, value)| value.as_table().is_some_and(Table::is_empty));
    let removed: Vec<_> = empty.map(|(name, _)| without.remove(name).unwrap()).collect();
    assert!(removed.len() >= 2);
    assert_eq!(meaning(&with), meaning(&without));
}

#[test]
fn ranges_are_those_of_the_documentation() {
    let schema = Schema::of_the_code();
    let plain = meaning(&SCAFFOLD.parse().unwrap()).unwrap();
    let mut wrong = Vec::new();
    for row in document::rows() {
        match (row.range, schema.range(&row.path)) {
            (None, None) => {}
            (Some((low, high)), Some(range)) if (range.low, range.high) == (low, high) => {
                wrong.extend(range_is_true(&row, range, &schema, &plain).err());
            }
            (Some((low, high)), None) => wrong.extend(length_is_true(&row, low, high, &schema).err()),
            (found, Some(range)) => {
                wrong.push(format!("{}: the code's range is {range}, the document's {found:?}", row.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn choices_are_those_of_the_documentation() {
    let schema = Schema::of_the_code();
    let mut count = 0;
    for row in document::rows() {
        let text = row.text();
        for choice in schema.choices(&row.path) {
            count += 1;
            assert!(text.contains(choice), "{}: the document does not have \"{choice}\"", row.path);
        }
    }
    assert!(count > 30, "{count} choices");
}
