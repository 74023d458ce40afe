//! `include`: other files of the configuration. Their tables are added to those of the main file, and their texts follow its
//! text, so that each span is still one place.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file_pattern::{FilePattern, NamedFiles};
use super::item::TextItem;
use super::keys::{DeclaredKeys as _, ValueKind};
use super::reader::{BrokenText, Reader, foreign_format, text_of};
use super::report::Problem;
use super::sources::{Source, Sources};
use super::table::Table;
use super::top::TopKeys;

const FORM: &str = "name files in brackets: include = [\"routes/*.toml\"]";

/// The texts of the configuration, and where the file names the others.
pub(super) struct Included {
    pub sources: Sources,
    /// For each included source, the span of the value that names it.
    spans: Vec<Range<usize>>,
    pub named: NamedFiles,
}

/// The tables of all files as one, and the texts that are not valid TOML.
pub(super) struct Document<'a> {
    pub root: DeTable<'a>,
    pub broken: Vec<BrokenText<'a>>,
}

impl Included {
    /// Reads the files that the main file includes, whose tables are `root`. Files that can't be read are reported.
    pub fn read(main: Sources, reader: &Reader<'_>, root: &DeTable<'_>) -> Self {
        let mut included = Self { sources: main, spans: Vec::new(), named: NamedFiles::default() };
        let directory = directory_of(Path::new(&included.sources.main.name)).to_owned();
        let main = fs::canonicalize(&included.sources.main.name).ok();
        let mut seen: Vec<PathBuf> = main.into_iter().collect();
        let item = Table::<TopKeys>::top(reader, root).include().item();
        // A value that is not a string is reported, and the others are read.
        for item in item.list(FORM).unwrap_or_default() {
            let Some(text) = item.string_like("the name of a file", "such as \"routes/*.toml\"") else {
                continue;
            };
            for path in included.paths(&text, &directory) {
                // A pattern may match the main file, or a file that has been included by its name.
                let canonical = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
                if !seen.contains(&canonical) {
                    seen.push(canonical);
                    included.add(&text, &path, reader);
                }
            }
        }
        included
    }

    /// The files that an entry of `include` names.
    fn paths(&mut self, text: &TextItem<'_>, directory: &Path) -> Vec<PathBuf> {
        let Some(pattern) = FilePattern::parse(&text.value, directory) else {
            return vec![directory.join(&text.value)];
        };
        if pattern.is_recursive() {
            let problem = text.error("`**` does not match several directories");
            let help = "name each level: include = [\"teams/*.toml\", \"teams/*/*.toml\"]";
            return text.reject(problem.help(help)).unwrap_or_default();
        }
        let matches = pattern.matches();
        self.named.patterns.push(pattern);
        match matches {
            Ok(matches) => {
                if matches.files.is_empty() {
                    let problem =
                        Problem::warning(text.item.span(), format!("no file matches {}", text.quoted()));
                    text.item.reader.report(
                        problem.help("relative paths begin at the directory of the file that names them"),
                    );
                }
                self.named.places.extend(matches.places);
                matches.files
            }
            Err(error) => {
                let problem = text.error(format!("can't read a directory of {}: {error}", text.quoted()));
                text.reject(problem).unwrap_or_default()
            }
        }
    }

    /// Adds the file at `path`, which `text` names.
    fn add(&mut self, text: &TextItem<'_>, path: &Path, reader: &Reader<'_>) {
        let name = path.display().to_string();
        let read = fs::read(path);
        self.named.files.push(path.to_owned());
        let content = match read {
            Ok(bytes) => text_of(bytes),
            Err(error) => return text.item.reader.report(text.unreadable(path, &error)),
        };
        match content {
            Ok(content) => {
                let start = self.sources.next_start();
                reader.add_directory(start, directory_of(path).to_owned());
                self.sources.included.push(Source { name, text: content, start });
                self.spans.push(text.item.span());
            }
            Err(at) => {
                let problem = text.error(format!("{name} is not valid UTF-8 at byte {at}"));
                reader.report(problem.help("TOML is written in UTF-8: save the file in that encoding"));
            }
        }
    }

    /// The tables of all files; `root` and `errors` are those of the main file.
    pub fn merge<'a>(
        &'a self,
        reader: &Reader<'_>,
        mut root: DeTable<'a>,
        errors: Vec<toml::de::Error>,
    ) -> Document<'a> {
        let mut broken = vec![BrokenText { source: &self.sources.main, errors }];
        for (source, span) in self.sources.included.iter().zip(&self.spans) {
            let (table, errors) = DeTable::parse_recoverable(&source.text);
            if let Some(format) = foreign_format(&source.text).filter(|_| !errors.is_empty()) {
                let title = format!("{} is {format}, and tidegate reads TOML", source.name);
                reader.report(Problem::error(span.clone(), title));
                continue;
            }
            broken.push(BrokenText { source, errors });
            let mut table = moved_table(table.into_inner(), source.start);
            if let Some((key, _)) = table.remove_entry("include") {
                let problem = Problem::error(key.span(), "an included file can't include others");
                reader.report(
                    problem
                        .related(span.clone(), "this file is included here")
                        .help("name them in the main file"),
                );
            }
            add_tables(&mut root, table, reader);
        }
        broken.retain(|text| !text.errors.is_empty());
        Document { root, broken }
    }
}

/// The files that an entry of `include` names, for a file in this directory.
pub(super) fn files_of(entry: &str, directory: &Path) -> Vec<PathBuf> {
    FilePattern::parse(entry, directory)
        .map_or_else(|| vec![directory.join(entry)], |pattern| pattern.files())
}

/// The directory of a file.
pub(super) fn directory_of(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new(""))
}

/// Adds the tables of an included file: names to tables of names, such as `[limits.NAME]`, and elements to arrays of tables, such as
/// `[[routes]]`. All others may be in one file only.
fn add_tables<'a>(root: &mut DeTable<'a>, other: DeTable<'a>, reader: &Reader<'_>) {
    for (key, value) in other {
        let Some((first, _)) = root.get_key_value(&**key.get_ref()) else {
            root.insert(key, value);
            continue;
        };
        let (first, name) = (first.span(), key.get_ref().to_string());
        let kind = TopKeys::KEYS.get(&name).map(|known| known.kind);
        let Some(present) = root.get_mut(&*name) else { continue };
        match (kind, present.get_mut(), value.into_inner()) {
            (Some(ValueKind::Named(_)), DeValue::Table(present), DeValue::Table(added)) => {
                add_names(&name, present, added, reader);
            }
            (Some(ValueKind::List(ValueKind::Table(_))), DeValue::Array(present), DeValue::Array(added)) => {
                added.into_iter().for_each(|element| present.push(element));
            }
            (_, _, value) => {
                let shown = if value.is_table() { format!("[{name}]") } else { format!("`{name}`") };
                let problem = Problem::error(key.span(), format!("{shown} is in two files"));
                let help = format!("keep {shown} in one of them: it is for the whole configuration");
                reader.report(problem.related(first, "the other").help(help));
            }
        }
    }
}

/// Adds the names of a table, such as those of limits; one that is there already is an error.
fn add_names<'a>(table: &str, present: &mut DeTable<'a>, added: DeTable<'a>, reader: &Reader<'_>) {
    for (name, value) in added {
        if let Some((first, _)) = present.get_key_value(&**name.get_ref()) {
            let title = format!("[{table}.{}] is in two files", name.get_ref());
            let problem = Problem::error(name.span(), title).related(first.span(), "the other");
            reader.report(problem.help("names are the same in all files: choose another one"));
        } else {
            present.insert(name, value);
        }
    }
}

/// A table with all spans moved by so many bytes.
fn moved_table(table: DeTable<'_>, by: usize) -> DeTable<'_> {
    let entry = |(key, value): (Spanned<_>, Spanned<_>)| {
        let span = moved(&key.span(), by);
        (Spanned::new(span, key.into_inner()), moved_value(value, by))
    };
    table.into_iter().map(entry).collect()
}

fn moved_value(value: Spanned<DeValue<'_>>, by: usize) -> Spanned<DeValue<'_>> {
    let span = moved(&value.span(), by);
    let value = match value.into_inner() {
        DeValue::Array(values) => {
            DeValue::Array(values.into_iter().map(|value| moved_value(value, by)).collect())
        }
        DeValue::Table(table) => DeValue::Table(moved_table(table, by)),
        other => other,
    };
    Spanned::new(span, value)
}

/// A span moved by so many bytes.
fn moved(span: &Range<usize>, by: usize) -> Range<usize> {
    span.start + by..span.end + by
}
