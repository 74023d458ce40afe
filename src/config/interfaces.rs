//! Where the process of a configuration is reached.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use toml::de::DeTable;

use super::keys::KeySet as _;
use super::reader::Reader;
use super::report::{Problem, Report};
use super::table::Table;
use super::top::TopKeys;
use super::{admin, listeners, source};
use crate::admin::AdminSpec;

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
    of_text(&source::read(path)?, &path.display().to_string())
}

/// Like [`interfaces`], from a stream; `name` is its name in messages.
///
/// # Errors
/// All errors of these sections.
pub fn interfaces_from(stream: impl io::Read, name: &str) -> Result<Interfaces, Report> {
    of_text(&source::read_from(stream, name)?, name)
}

fn of_text(text: &str, file: &str) -> Result<Interfaces, Report> {
    let (root, _) = DeTable::parse_recoverable(text);
    let reader = Reader::new(TopKeys::KEYS, &source::variable);
    let directory = Path::new(file).parent().unwrap_or(Path::new(""));
    let read = read(&Table::top(&reader, root.get_ref()), directory);
    let errors = reader.into_problems().into_iter().filter(|problem| !problem.is_warning());
    let errors: Vec<Problem> = errors.collect();
    read.ok_or_else(|| Report::new(file, text, errors))
}

/// Reads both sections; `None` if the admin interface is invalid, or there is none and the listeners are invalid.
fn read(top: &Table<'_, TopKeys>, directory: &Path) -> Option<Interfaces> {
    let context = listeners::Context { directory, client_ip: None };
    let listeners = listeners::listeners(top.listen().given(), top.listeners().given(), top, context);
    let admin = top.admin().with(|item| admin::admin(item, directory, listeners.as_deref())).ok()?;
    let addresses = listeners.map(|specs| specs.iter().map(|spec| spec.address).collect());
    let listeners = if admin.is_some() { addresses.unwrap_or_default() } else { addresses? };
    Some(Interfaces { listeners, admin })
}
