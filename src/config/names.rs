//! The names of limits and consumers, for completions: from a file that may be invalid in other respects.

use std::path::Path;

use toml::Table;

/// The names of the limits of a file; none if it can't be read.
#[must_use]
pub fn limit_names(file: &Path) -> Vec<String> {
    let table = read(file);
    table.get("limits").and_then(|limits| limits.as_table()).map(names).unwrap_or_default()
}

/// The names of the consumers in the file of consumers that a file names; none if one of them can't be read.
#[must_use]
pub fn consumer_names(file: &Path) -> Vec<String> {
    let table = read(file);
    let name = table.get("consumers").and_then(|consumers| consumers.get("file")?.as_str());
    let directory = file.parent().unwrap_or(Path::new(""));
    name.map(|name| names(&read(&directory.join(name)))).unwrap_or_default()
}

fn read(file: &Path) -> Table {
    std::fs::read_to_string(file).ok().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn names(table: &Table) -> Vec<String> {
    table.keys().cloned().collect()
}
