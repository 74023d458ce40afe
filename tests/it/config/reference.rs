//! docs/configuration compared with the code: every key, default, range and choice, in both directions.
//!
//! The document's side is read from its tables. The code's side is read from its errors: that of an unknown key lists the
//! keys of the table, that of a number out of range has the range, and that of an unknown word the choices. So neither
//! side has a list in this test.

mod code;
mod document;

use std::collections::BTreeSet;

use tidegate::config;
use toml::{Table, Value};

use self::code::{CodeKeys, Range};
use self::document::{Default, Row};

/// A valid configuration that has every table.
const SCAFFOLD: &str = include_str!("reference.toml");
/// The same for the keys of decisions, which need others beside them.
const DECISIONS: &str = include_str!("reference_decisions.toml");

/// The length of the longest text to try.
const MAX_TEXT: i64 = 10_000;

/// A step from a table or an array to one of its values.
#[derive(Clone, Debug)]
enum Step {
    Key(String),
    Index(usize),
}

/// The errors of a configuration, one line each.
fn errors(text: &str) -> Vec<String> {
    match config::parse(text, "tidegate.toml", &|_| None) {
        Ok(_) => Vec::new(),
        Err(report) => report.lines().collect(),
    }
}

/// The parsed configuration as text, or its errors. Equal configurations have equal texts: the lines are sorted, since the
/// order of a hash map is random.
fn debug_text(configuration: &Table) -> Result<String, String> {
    let text = toml::to_string(configuration).unwrap();
    let loaded = config::parse(&text, "tidegate.toml", &|_| None).map_err(|report| report.to_string())?;
    let text = format!("{:#?}", loaded.config);
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    Ok(lines.join("\n"))
}

/// The paths below `value` that match `path`: one for each element of an array, and for each name in place of a star.
fn paths_to(value: &Value, path: &[&str], at: &[Step], found: &mut Vec<Vec<Step>>) {
    let below = |step| [at, &[step]].concat();
    match (value, path) {
        (Value::Array(values), _) => {
            values
                .iter()
                .enumerate()
                .for_each(|(index, value)| paths_to(value, path, &below(Step::Index(index)), found));
        }
        (Value::Table(table), ["*", rest @ ..]) => {
            table
                .iter()
                .for_each(|(key, value)| paths_to(value, rest, &below(Step::Key(key.clone())), found));
        }
        (Value::Table(_), [key]) => found.push(below(Step::Key((*key).to_owned()))),
        (Value::Table(table), [key, rest @ ..]) => {
            if let Some(value) = table.get(*key) {
                paths_to(value, rest, &below(Step::Key((*key).to_owned())), found);
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

/// The scaffold in which a key can be set.
fn scaffold_of(path: &str) -> Table {
    let is_of_decisions = path.ends_with(".deny_status") && !path.starts_with("limits.");
    let text = if is_of_decisions { DECISIONS } else { SCAFFOLD };
    text.parse().unwrap()
}

/// A scaffold with this value at the end of a path.
fn scaffold_with(scaffold: Table, path: &[Step], new: &Value) -> Option<Changed> {
    let mut root = Value::Table(scaffold);
    let (last, parents) = path.split_last()?;
    let mut value = &mut root;
    for step in parents {
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
    let (scaffold, path): (Table, Vec<&str>) = (scaffold_of(path), path.split('.').collect());
    let mut found = Vec::new();
    paths_to(&Value::Table(scaffold.clone()), &path, &[], &mut found);
    found.iter().filter_map(|path| scaffold_with(scaffold.clone(), path, value)).collect()
}

/// Returns an error if the documented default is not the value without the key.
fn check_default(row: &Row, literal: &Value, plain: &str) -> Result<(), String> {
    let mut error = "the scaffold has no table for it".to_owned();
    let mut is_accepted = false;
    for changed in scaffolds_with(&row.path, literal).iter().filter(|changed| !changed.is_replaced) {
        match debug_text(&changed.configuration) {
            Ok(same) if same == plain => is_accepted = true,
            Ok(_) => return Err(format!("{}: {literal} is not its default", row.path)),
            Err(report) => error = report,
        }
    }
    if is_accepted { Ok(()) } else { Err(format!("{}: {literal} is rejected: {error}", row.path)) }
}

/// Returns an error if a bound is rejected, the next value beyond a bound is accepted, or no value has an effect.
fn check_range(row: &Row, range: &Range, code: &CodeKeys) -> Result<(), String> {
    let plain = debug_text(&scaffold_of(&row.path))?;
    for (value, is_inside) in range.edges() {
        if code.is_in_range(&row.path, &value) != is_inside {
            let verb = if is_inside { "rejected" } else { "accepted" };
            return Err(format!("{}: {value} is {verb}, and its range is {range}", row.path));
        }
    }
    let values = range.inside();
    let configurations = values.into_iter().flat_map(|value| scaffolds_with(&row.path, &value));
    let mut texts = configurations.filter_map(|changed| debug_text(&changed.configuration).ok());
    if texts.any(|debug_text| debug_text != plain) {
        Ok(())
    } else {
        Err(format!("{}: no value of it changes the configuration", row.path))
    }
}

/// Checks the range of a key that takes text, which is that of its length.
fn check_length(row: &Row, low: i64, high: i64, code: &CodeKeys) -> Result<(), String> {
    if high > MAX_TEXT {
        return Err(format!("{}: the code does not know the range {low} to {high}", row.path));
    }
    for (length, is_inside) in [(low, true), (high, true), (low - 1, false), (high + 1, false)] {
        if code.takes_text(&row.path, length) != is_inside {
            let verb = if is_inside { "rejected" } else { "accepted" };
            return Err(format!("{}: {length} characters are {verb}", row.path));
        }
    }
    Ok(())
}

#[test]
fn the_document_has_the_keys_of_the_code() {
    let (code, document) = (CodeKeys::from_errors(), document::rows());
    let mut documented: BTreeSet<&str> = document.iter().map(|row| &*row.path).collect();
    assert_eq!(documented.len(), document.len(), "a key is there twice");
    for table in document::tables() {
        documented.insert(table);
    }
    let known: BTreeSet<&str> = code.paths().collect();
    assert!(known.len() > 100, "{known:?}");
    let undocumented: Vec<_> = known.difference(&documented).collect();
    assert!(undocumented.is_empty(), "the document does not have {undocumented:?}");
    let invented: Vec<_> = documented.difference(&known).collect();
    assert!(invented.is_empty(), "the code does not know {invented:?}");
    let required = |row: &&Row| row.default == Default::Required;
    let required: BTreeSet<&str> = document.iter().filter(required).map(|row| &*row.path).collect();
    assert_eq!(required, code.required().collect());
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let scaffold: Table = SCAFFOLD.parse().unwrap();
    let plain = debug_text(&scaffold).unwrap();
    assert_eq!(debug_text(&scaffold).unwrap(), plain, "equal configurations must have equal texts");
    let rows = document::rows();
    let literals = rows.iter().filter_map(|row| Some((row, row.default.literal()?)));
    let checked: Vec<_> = literals.map(|(row, literal)| check_default(row, literal, &plain)).collect();
    assert!(checked.len() > 50, "{} defaults", checked.len());
    let wrong: Vec<String> = checked.into_iter().filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The table of keys refers to the list below it.
#[test]
fn the_document_has_the_default_of_remove_headers() {
    let plain = debug_text(&SCAFFOLD.parse().unwrap()).unwrap();
    let page = include_str!("../../../docs/configuration/client-ip.md");
    let (_, list) = page.split_once("```toml in [client_ip]\nremove_headers = ").unwrap();
    let table: Table = format!("x = {}", list.split_once("```").unwrap().0).parse().unwrap();
    let row = document::rows().into_iter().find(|row| row.path == "client_ip.remove_headers").unwrap();
    check_default(&row, &table["x"], &plain).unwrap();
}

/// An empty table is the same as none.
#[test]
fn empty_tables_change_nothing() {
    let with: Table = SCAFFOLD.parse().unwrap();
    let mut without = with.clone();
    let empty = with.iter().filter(|(_, value)| value.as_table().is_some_and(Table::is_empty));
    let removed: Vec<_> = empty.map(|(name, _)| without.remove(name).unwrap()).collect();
    assert!(removed.len() >= 2);
    assert_eq!(debug_text(&with), debug_text(&without));
}

#[test]
fn ranges_are_those_of_the_documentation() {
    let code = CodeKeys::from_errors();
    let mut wrong = Vec::new();
    for row in document::rows() {
        match (row.range, code.range(&row.path)) {
            (None, None) => {}
            (Some((low, high)), Some(range)) if (range.low, range.high) == (low, high) => {
                wrong.extend(check_range(&row, range, &code).err());
            }
            (Some((low, high)), None) => wrong.extend(check_length(&row, low, high, &code).err()),
            (found, Some(range)) => {
                wrong.push(format!("{}: the code's range is {range}, the document's {found:?}", row.path));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn choices_are_those_of_the_documentation() {
    let code = CodeKeys::from_errors();
    let mut count = 0;
    for row in document::rows() {
        let text = row.text();
        for choice in code.choices(&row.path) {
            count += 1;
            assert!(text.contains(choice), "{}: the document does not have \"{choice}\"", row.path);
        }
    }
    assert!(count > 30, "{count} choices");
}
