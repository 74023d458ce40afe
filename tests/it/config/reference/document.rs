//! The documentation of each key in docs/configuration.md, and in the pages below it.

use std::sync::LazyLock;

use toml::Value;

use super::code::{amount, path};
use crate::docs::pages::{Page, configuration};

static PAGES: LazyLock<Vec<Page>> = LazyLock::new(configuration);

/// The header of a table of keys.
const HEAD: &str = "| key | default | meaning |";
/// The start of the sentence that lists the keys of tiers and overrides.
const NUMBERS: &str = "A tier or an override names any numbers of the limit's algorithm:";

/// The sentence about the tables of a step of a test.
const STEPS: &str = "The `request` and `expect` of a step have the same keys.";

/// The documentation of one key.
#[derive(Debug)]
pub(super) struct Row {
    /// Its tables and its name, with dots between them; a star is the placeholder of a name that the user chooses.
    pub path: String,
    pub default: Default,
    pub range: Option<(i64, i64)>,
    default_cell: &'static str,
    meaning: &'static str,
    section: &'static str,
}

/// The value of a missing key.
#[derive(Debug, PartialEq)]
pub(super) enum Default {
    /// None: the configuration is invalid.
    Required,
    Literal(Value),
    /// Nothing, or something that the document describes in words.
    Words,
}

impl Default {
    fn parse(cell: &str) -> Self {
        if cell.starts_with("required") {
            return Self::Required;
        }
        let Some((literal, _)) = cell.strip_prefix('`').and_then(|rest| rest.split_once('`')) else {
            return Self::Words;
        };
        let table: toml::Table =
            format!("x = {literal}").parse().unwrap_or_else(|error| panic!("{literal}: {error}"));
        Self::Literal(table["x"].clone())
    }

    pub fn literal(&self) -> Option<&Value> {
        if let Self::Literal(value) = self { Some(value) } else { None }
    }
}

impl Row {
    fn new(path: String, default_cell: &'static str, meaning: &'static str, section: &'static str) -> Self {
        let range = range(meaning);
        Self { path, default: Default::parse(default_cell), range, default_cell, meaning, section }
    }

    /// The same key in a step of a test, if the document says that steps have it.
    fn of_step(&self) -> Option<Self> {
        let below = self.path.strip_prefix("tests.").filter(|_| self.section.contains(STEPS))?;
        let is_table = below.starts_with("request.") || below.starts_with("expect.");
        let path = format!("tests.steps.{below}");
        is_table.then(|| Self::new(path, self.default_cell, self.meaning, self.section))
    }

    /// The text with the choices of the key: its row, or its section if the row refers to that.
    pub fn text(&self) -> String {
        let row = format!("{} {}", self.default_cell, self.meaning);
        if row.contains("below") { self.section.to_owned() } else { row }
    }
}

/// Each page, with the path of the table that is its heading.
fn sections() -> impl Iterator<Item = (String, &'static str)> {
    PAGES.iter().map(|page| {
        // Consumers and prices have files of their own.
        let section = page.text.split("\n## The file of ").next().unwrap_or(&page.text);
        let heading = section.lines().next().unwrap_or_default();
        let table = heading.strip_prefix("# `").map_or_else(String::new, |name| name.replace(".NAME", ".*"));
        (table.trim_matches(['`', '[', ']']).to_owned(), section)
    })
}

/// The keys that are tables with a page of their own.
pub(super) fn tables() -> impl Iterator<Item = &'static str> {
    let headings = PAGES.iter().filter_map(|page| page.text.lines().next()?.strip_prefix("# `"));
    headings.map(|heading| heading.trim_matches(['`', '[', ']']).trim_end_matches(".NAME"))
}

/// The rows of all tables of keys.
pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (table, section) in sections() {
        let table = &*table;
        let mut lines = section.lines();
        while lines.any(|line| line == HEAD) {
            let cells = lines.by_ref().skip(1).map_while(|line| line.strip_prefix('|'));
            for line in cells {
                let mut cells = line.trim_end_matches('|').splitn(3, '|').map(str::trim);
                let [keys, default, meaning] = [(); 3].map(|()| cells.next().unwrap_or_default());
                let keys = keys.split(", ").map(|key| key.trim_matches('`'));
                let path = |key: &str| path(table, &key.replace(".NAME.", ".*."));
                rows.extend(keys.map(|key| Row::new(path(key), default, meaning, section)));
            }
        }
        if let Some(at) = section.find(NUMBERS) {
            let (numbers, _) = section[at + NUMBERS.len()..].split_once('.').unwrap();
            for number in numbers.split('`').skip(1).step_by(2) {
                let of_limit = rows.iter().find(|row: &&Row| row.path == path(table, number)).unwrap();
                let (default_cell, meaning) = (of_limit.default_cell, of_limit.meaning);
                // Without the key, the number of the limit applies.
                rows.extend(["tiers", "overrides"].map(|kind| Row {
                    default: Default::Words,
                    ..Row::new(format!("{table}.{kind}.*.{number}"), default_cell, meaning, section)
                }));
            }
        }
    }
    let of_steps: Vec<Row> = rows.iter().filter_map(Row::of_step).collect();
    rows.extend(of_steps);
    assert!(rows.len() > 100, "{} rows", rows.len());
    rows
}

/// The first range in a text: `1 ms to 24 h`, `0 to 100`, `up to 24 h`.
fn range(text: &str) -> Option<(i64, i64)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let joined = |from: usize, to: usize| words.get(from..to).and_then(|words| amount(&words.concat()));
    (1..words.len()).filter(|at| words[*at] == "to").find_map(|at| {
        let low = if words[at - 1] == "up" {
            Some(0)
        } else {
            joined(at.saturating_sub(2), at).or_else(|| joined(at - 1, at))
        };
        Some((low?, joined(at + 1, at + 3).or_else(|| joined(at + 1, at + 2))?))
    })
}
