//! The configuration file: from text to checked types, or to a report of all its errors.

mod acme;
mod acme_hosts;
mod acme_names;
mod admin;
mod answers;
mod client_ip;
mod conditions;
mod consumers;
mod cors;
pub mod defaults;
mod descriptors;
mod fingerprint;
mod forward_auth;
mod geo;
mod headers;
mod interfaces;
mod item;
mod jwt;
mod keys;
mod library;
mod limits;
mod lints;
mod listeners;
mod literal_patterns;
mod loaded;
mod log;
mod numbers;
mod quota;
mod rate;
mod rate_form;
mod reader;
mod report;
mod rewrite;
mod route_keys;
mod routes;
mod secrets;
mod sections;
mod source;
mod store;
mod table;
mod tls;
mod top;
mod traces;
mod upstreams;

use std::io::Read;
use std::path::Path;

use toml::de::DeTable;

pub use fingerprint::{Change, Fingerprint, Part};
pub use interfaces::{Interfaces, interfaces, interfaces_from};
pub use keys::Block;
pub use loaded::{Config, Loaded, WrittenLimit};
pub use report::Report;
pub use top::{reference, schema};

use self::keys::KeySet as _;
use self::reader::Reader;
use self::report::Problem;
use self::secrets::Variables;
use self::sections::Sections;
use self::source::with_syntax_errors;
use self::table::Table;
use self::top::TopKeys;
use crate::id_vec::IdVec;
use crate::limit::PolicyId;
use crate::suggest;

/// Reads a file, with the variables of this process.
///
/// # Errors
/// All errors of the file.
pub fn load(path: &Path) -> Result<Loaded, Report> {
    let (text, file) = (source::read(path)?, path.display().to_string());
    supported(parse(&text, &file, &source::variable)?, &file, &text)
}

/// Reads a configuration from a stream, such as standard input, with the variables of this process. `name` is its name in
/// messages; files that it names are relative to the current directory.
///
/// # Errors
/// All errors of the configuration.
pub fn load_from(stream: impl Read, name: &str) -> Result<Loaded, Report> {
    let text = source::read_from(stream, name)?;
    supported(parse(&text, name, &source::variable)?, name, &text)
}

/// Reads the limits of a file for the library, with the variables of this process. What is about listening, forwarding and
/// operating a proxy is ignored.
///
/// # Errors
/// All errors of the file.
pub fn load_limits(path: &Path) -> Result<Loaded, Report> {
    parse_limits(&source::read(path)?, &path.display().to_string())
}

/// Parses the text of a file. `file` is its name in messages, and other files are relative to its directory.
///
/// # Errors
/// All errors of the text.
pub fn parse_limits(text: &str, file: &str) -> Result<Loaded, Report> {
    let reader = || Reader::for_library(TopKeys::KEYS, &source::variable);
    parse_with(text, file, reader(), reader())
}

/// Rejects a configuration that needs what this build does not have.
fn supported(loaded: Loaded, file: &str, text: &str) -> Result<Loaded, Report> {
    if loaded.config.acme.is_some() && !cfg!(feature = "acme") {
        return Err(Report::new(file, text, vec![acme::not_built()]));
    }
    Ok(loaded)
}

/// Reads the text of a file. `file` is its name in messages, and other files are relative to its directory; `env` looks
/// up variables of the environment.
///
/// # Errors
/// All errors of the file.
pub fn parse(text: &str, file: &str, env: &dyn Fn(&str) -> Option<String>) -> Result<Loaded, Report> {
    parse_with(text, file, Reader::new(TopKeys::KEYS, env), Reader::new(TopKeys::KEYS, env))
}

/// Parses the text with these readers of the file and of the file of consumers.
fn parse_with(
    text: &str,
    file: &str,
    reader: Reader<'_>,
    consumers_reader: Reader<'_>,
) -> Result<Loaded, Report> {
    let (root, broken) = DeTable::parse_recoverable(text);
    let directory = Path::new(file).parent().unwrap_or(Path::new(""));
    let mut top = Table::<TopKeys>::top(&reader, root.get_ref());
    library::exclude_sections(&mut top);
    // The file of consumers has a reader of its own: places in it are not places in the configuration file.
    let consumers = consumers::file(top.consumers().given(), directory);
    let consumers_text = consumers.as_ref().map_or("", |file| &file.text);
    let (consumers_root, consumers_broken) = DeTable::parse_recoverable(consumers_text);
    let entries = consumers.as_ref().map(|_| (&consumers_reader, consumers_root.get_ref()));
    let incomplete = consumers.as_ref().and_then(|file| file.incomplete(consumers_root.get_ref()));
    if let Some(title) = &incomplete {
        let problem = Problem::without_span(title).into_warning();
        consumers_reader.report(problem.help("`watch` does not apply a change to such a file"));
    }
    let read = read_file(top, entries, directory);
    let (read_files, mut variables) = (reader.files(), reader.variables());
    variables.extend(consumers_reader.variables());
    let files = read_files.values().map(|(path, _)| path.clone()).collect();
    let consumers_name = consumers.as_ref().map_or("", |file| &file.name);
    let (warnings, errors) = reports(file, text, &broken, reader);
    let of_consumers = reports(consumers_name, consumers_text, &consumers_broken, consumers_reader);
    let (warnings, errors) = (warnings.followed_by(of_consumers.0), errors.followed_by(of_consumers.1));
    match read {
        Some((config, limits)) if errors.is_empty() => Ok(Loaded {
            config,
            warnings,
            limits,
            sha256: fingerprint::sha256(text),
            fingerprint: Fingerprint::of(root.get_ref(), &read_files),
            files,
            incomplete,
            variables: Variables(variables),
        }),
        _ => Err(errors.naming(files)),
    }
}

/// The warnings and the errors of one file.
fn reports(file: &str, text: &str, broken: &[toml::de::Error], reader: Reader<'_>) -> (Report, Report) {
    let found = reader.into_problems();
    let problems = if broken.is_empty() { found } else { with_syntax_errors(text, broken, found) };
    let (warnings, errors): (Vec<Problem>, Vec<Problem>) =
        problems.into_iter().partition(Problem::is_warning);
    (Report::new(file, text, warnings), Report::new(file, text, errors))
}

/// Reads the whole file, with the file of consumers if there is one; `None` if any part of them is
/// invalid. Other files that it names are relative to `directory`.
fn read_file<'a>(
    top: Table<'a, TopKeys>,
    consumers: Option<(&'a Reader<'a>, &'a DeTable<'a>)>,
    directory: &Path,
) -> Option<(Config, IdVec<PolicyId, WrittenLimit>)> {
    let reader = top.reader;
    let sections = Sections::read(&top, consumers, directory);
    top.close();
    for problem in lints::problems(&sections, reader.is_for_library()) {
        reader.report(problem);
    }
    sections.into_config()
}
