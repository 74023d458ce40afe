//! The configuration file: from text to checked types, or to a report of all its errors.

mod acme;
mod acme_names;
mod admin;
mod answers;
mod client_ip;
mod conditions;
mod consumers;
mod cors;
pub mod defaults;
mod descriptors;
mod geo;
mod headers;
mod item;
mod jwt;
mod keys;
mod library;
mod limits;
mod lints;
mod listeners;
mod loaded;
mod log;
mod names;
mod numbers;
mod quota;
mod rate;
mod rate_form;
mod reader;
mod redirects;
mod report;
mod route_actions;
mod route_keys;
mod routes;
mod secrets;
mod sections;
mod store;
mod table;
mod tls;
mod top;
mod upstreams;

use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;

use toml::de::DeTable;

pub use keys::{Block, KeyText, TableText};
pub use loaded::{Config, ConfigChange, ConfigPart, Fingerprint, Loaded};
pub use names::{consumer_names, limit_names};
pub use report::Report;
pub use top::{describe, reference, schema, tables};

use self::consumers::ConsumerKeys;
use self::keys::{DeclaredKeys as _, TableKeys};
use self::reader::{Reader, with_syntax_errors};
use self::report::Problem;
use self::secrets::Variables;
use self::sections::Sections;
use self::table::Table;
use self::top::TopKeys;
use crate::admin::AdminSpec;
use crate::suggest;

/// Reads a file, with the variables of this process.
///
/// # Errors
/// All errors of the file.
pub fn load(path: &Path) -> Result<Loaded, Report> {
    let (text, file) = (reader::read(path)?, path.display().to_string());
    supported(parse(&text, &file, &reader::variable)?, &file, &text)
}

/// Reads a configuration from a stream, such as standard input, with the variables of this process. `name` is its name in
/// messages; files that it names are relative to the current directory.
///
/// # Errors
/// All errors of the configuration.
pub fn load_from(stream: impl Read, name: &str) -> Result<Loaded, Report> {
    let text = reader::read_from(stream, name)?;
    supported(parse(&text, name, &reader::variable)?, name, &text)
}

/// Reads the limits of a file for the library, with the variables of this process. What is about listening, forwarding and
/// operating a proxy is ignored.
///
/// # Errors
/// All errors of the file.
pub fn load_limits(path: &Path) -> Result<Loaded, Report> {
    parse_limits(&reader::read(path)?, &path.display().to_string())
}

/// Parses the text of a file. `file` is its name in messages, and other files are relative to its directory.
///
/// # Errors
/// All errors of the text.
pub fn parse_limits(text: &str, file: &str) -> Result<Loaded, Report> {
    parse_with(text, file, |keys| Reader::for_library(keys, &reader::variable))
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
    parse_with(text, file, |keys| Reader::new(keys, env))
}

/// Parses the text; `reader` makes the readers of the file and of the file of consumers, which have these keys.
fn parse_with<'e>(
    text: &str,
    file: &str,
    reader: impl Fn(&'static TableKeys) -> Reader<'e>,
) -> Result<Loaded, Report> {
    let (reader, consumers_reader) = (reader(TopKeys::KEYS), reader(ConsumerKeys::KEYS));
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
        Some(config) if errors.is_empty() => Ok(Loaded {
            config,
            warnings,
            sha256: loaded::sha256(text),
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
) -> Option<Config> {
    let reader = top.reader;
    let sections = Sections::read(&top, consumers, directory);
    listeners::require(&top);
    top.close();
    for problem in lints::problems(&sections, reader.is_for_library()) {
        reader.report(problem);
    }
    sections.into_config()
}

/// The addresses of a process.
#[derive(Debug)]
pub struct Interfaces {
    /// The addresses of the listeners; none if they are invalid and there is an admin interface.
    pub listeners: Vec<SocketAddr>,
    /// The admin interface, if there is one.
    pub admin: Option<AdminSpec>,
}

/// Reads the listeners and the admin interface of a file. The rest of the file may be invalid: a running process serves the
/// configuration that was valid before.
///
/// # Errors
/// All errors of these sections.
pub fn interfaces(path: &Path) -> Result<Interfaces, Report> {
    interfaces_of_text(&reader::read(path)?, &path.display().to_string())
}

/// Reads the listeners and the admin interface of a configuration from a stream, as [`interfaces`] does; `name` is its name in
/// messages.
///
/// # Errors
/// All errors of these sections.
pub fn interfaces_from(stream: impl Read, name: &str) -> Result<Interfaces, Report> {
    interfaces_of_text(&reader::read_from(stream, name)?, name)
}

fn interfaces_of_text(text: &str, file: &str) -> Result<Interfaces, Report> {
    let (root, _) = DeTable::parse_recoverable(text);
    let reader = Reader::new(TopKeys::KEYS, &reader::variable);
    let directory = Path::new(file).parent().unwrap_or(Path::new(""));
    let read = read_interfaces(&Table::top(&reader, root.get_ref()), directory);
    let errors = reader.into_problems().into_iter().filter(|problem| !problem.is_warning());
    let errors: Vec<Problem> = errors.collect();
    read.ok_or_else(|| Report::new(file, text, errors))
}

/// Reads both sections; `None` if the admin interface is invalid, or there is none and the listeners are invalid.
fn read_interfaces(top: &Table<'_, TopKeys>, directory: &Path) -> Option<Interfaces> {
    let context = listeners::ListenerContext { directory, client_ip: None };
    let listeners = listeners::listeners(top.listen().given(), top.listeners().given(), top, context);
    listeners::require(top);
    let admin = top.admin().with(|item| admin::admin(item, directory, listeners.as_deref())).ok()?;
    let addresses = listeners.map(|specs| specs.iter().map(|spec| spec.address).collect());
    let listeners = if admin.is_some() { addresses.unwrap_or_default() } else { addresses? };
    Some(Interfaces { listeners, admin })
}
