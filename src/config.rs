//! The configuration file: from text to checked types, or to a report of all its errors.

mod acme;
mod acme_names;
mod admin;
mod answers;
mod authorize;
mod client_ip;
mod conditions;
mod consumers;
mod cors;
pub mod defaults;
mod deny_status;
mod descriptors;
mod file_pattern;
mod geo;
mod headers;
mod include;
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
mod policy_tests;
mod priorities;
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
mod shares;
mod sources;
mod store;
mod table;
mod tls;
mod top;
mod upstreams;

use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;

use toml::de::DeTable;

pub use file_pattern::{FilePattern, NamedFiles};
pub use keys::{Block, KeyText, TableText};
pub use loaded::{Config, ConfigChange, ConfigPart, Fingerprint, Loaded};
pub use names::{consumer_names, limit_names};
pub use policy_tests::{Expectation, Outcome, PolicyTest, TestFile, TestRequest, TestStep, load_tests};
pub use report::Report;
pub use top::{describe, reference, schema, tables};

use self::consumers::ConsumerKeys;
use self::include::{Document, Included, directory_of};
use self::keys::{DeclaredKeys as _, TableKeys};
use self::reader::{BrokenText, Reader, reports};
use self::report::Problem;
use self::secrets::Variables;
use self::sections::Sections;
use self::sources::Sources;
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
    let (root, errors) = DeTable::parse_recoverable(text);
    let included = Included::read(Sources::new(file, text), &reader, root.get_ref());
    let Document { root, broken } = included.merge(&reader, root.into_inner(), errors);
    let directory = directory_of(Path::new(file));
    let mut top = Table::<TopKeys>::top(&reader, &root);
    library::exclude_sections(&mut top);
    // The file of consumers has a reader of its own: places in it are not places in the configuration file.
    let consumers = consumers::file(top.consumers().given(), directory);
    let consumers_sources =
        consumers.as_ref().map_or_else(|| Sources::new("", ""), |file| Sources::new(&file.name, &file.text));
    let (consumers_root, consumers_errors) = DeTable::parse_recoverable(&consumers_sources.main.text);
    let entries = consumers.as_ref().map(|_| (&consumers_reader, consumers_root.get_ref()));
    let incomplete = consumers.as_ref().and_then(|file| file.incomplete(consumers_root.get_ref()));
    if let Some(title) = &incomplete {
        let problem = Problem::without_span(title).into_warning();
        consumers_reader.report(problem.help("`watch` does not apply a change to such a file"));
    }
    let read = read_file(top, entries, directory);
    let (read_files, mut variables) = (reader.files(), reader.variables());
    variables.extend(consumers_reader.variables());
    let mut files = included.named.clone();
    files.files.extend(read_files.values().map(|(path, _)| path.clone()));
    let others = reader.take_others();
    let (warnings, errors) = reports(&included.sources, &broken, reader);
    let consumers_broken = [BrokenText { source: &consumers_sources.main, errors: consumers_errors }];
    let of_consumers = reports(&consumers_sources, &consumers_broken, consumers_reader);
    let others = others.chain([of_consumers]);
    let (warnings, errors) = others.fold((warnings, errors), |(warnings, errors), of_file| {
        (warnings.followed_by(of_file.0), errors.followed_by(of_file.1))
    });
    match read {
        Some(config) if errors.is_empty() => Ok(Loaded {
            config: config.with_places_of_tests(&included.sources),
            warnings,
            sha256: loaded::sha256(&included.sources),
            fingerprint: Fingerprint::of(&root, &read_files),
            files,
            included: included.named.files.clone(),
            incomplete,
            variables: Variables(variables),
        }),
        _ => Err(errors.naming(files)),
    }
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
    let tests = top.tests().given();
    top.close();
    for problem in lints::problems(&sections, reader.is_for_library()) {
        reader.report(problem);
    }
    let config = sections.into_config();
    // The names in tests are those of a valid configuration.
    let tests = policy_tests::tests(tests, config.as_ref());
    Some(Config { tests: tests?, ..config? })
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
    let (root, errors) = DeTable::parse_recoverable(text);
    let reader = Reader::new(TopKeys::KEYS, &reader::variable);
    let included = Included::read(Sources::new(file, text), &reader, root.get_ref());
    let Document { root, .. } = included.merge(&reader, root.into_inner(), errors);
    let read = read_interfaces(&Table::top(&reader, &root), directory_of(Path::new(file)));
    let errors = reader.into_problems().into_iter().filter(|problem| !problem.is_warning());
    let errors: Vec<Problem> = errors.collect();
    read.ok_or_else(|| Report::of(included.sources.clone(), errors))
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
