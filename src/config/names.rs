//! The names of limits and consumers, for completions: from a file that may be invalid in other respects.

use std::path::{Path, PathBuf};

use toml::Table;

use super::include::{directory_of, files_of};

/// The names of the limits of a file and of those that it includes; none of one that can't be read.
#[must_use]
pub fn limit_names(file: &Path) -> Vec<String> {
    let of_file = |(_, table): (PathBuf, Table)| {
        table.get("limits").and_then(|limits| limits.as_table()).map(names).unwrap_or_default()
    };
    files(file).into_iter().flat_map(of_file).collect()
}

/// The names of the consumers in the file of consumers that a file names; none if one of them can't be read.
#[must_use]
pub fn consumer_names(file: &Path) -> Vec<String> {
    let consumers = files(file).into_iter().find_map(|(file, table)| {
        let name = table.get("consumers")?.get("file")?.as_str()?;
        Some(directory_of(&file).join(name))
    });
    consumers.map(|file| names(&read(&file))).unwrap_or_default()
}

/// A file, and those that it includes.
fn files(file: &Path) -> Vec<(PathBuf, Table)> {
    let main = read(file);
    let entries = main.get("include").and_then(|include| include.as_array()).cloned().unwrap_or_default();
    let paths =
        entries.iter().filter_map(toml::Value::as_str).flat_map(|entry| files_of(entry, directory_of(file)));
    let included: Vec<_> = paths.map(|path| (path.clone(), read(&path))).collect();
    [(file.to_owned(), main)].into_iter().chain(included).collect()
}

fn read(file: &Path) -> Table {
    std::fs::read_to_string(file).ok().and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn names(table: &Table) -> Vec<String> {
    table.keys().cloned().collect()
}
