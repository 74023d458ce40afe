//! A valid configuration, facts about its file, and a fingerprint to find what a reload changes.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file_pattern::NamedFiles;
use super::policy_tests::PolicyTest;
use super::reader::FilesRead;
use super::report::Report;
use super::secrets::Variables;
use super::sources::Sources;
use crate::acme::AcmeSpec;
use crate::admin::AdminSpec;
use crate::otlp::TracingSpec;
use crate::proxy::ConfigSnapshot;
use crate::server::ListenerSpec;
use crate::store::StoreSpec;
use crate::telemetry::LogSpec;

/// A valid configuration.
#[derive(Debug)]
pub struct Config {
    /// Where clients connect; at least one.
    pub listeners: Vec<ListenerSpec>,
    /// Threads that serve; at least one.
    pub workers: usize,
    /// How long a stopping process still accepts new requests while it reports that it is not ready.
    pub shutdown_delay: Duration,
    /// How long it then waits for requests in flight.
    pub shutdown_grace: Duration,
    /// Whether the file is reloaded whenever it changes.
    pub watch: bool,
    /// Where limits are counted.
    pub store: StoreSpec,
    /// The most keys that this process counts itself.
    pub max_keys: usize,
    /// Routes, limits, upstreams and the response policy.
    pub snapshot: ConfigSnapshot,
    /// Settings of the log.
    pub log: LogSpec,
    /// The file of the access log; without one, it goes to standard output.
    pub access_file: Option<PathBuf>,
    /// Settings of tracing, if it is on.
    pub tracing: Option<TracingSpec>,
    /// The admin interface, if there is one.
    pub admin: Option<AdminSpec>,
    /// From where certificates are obtained, if listeners ask for that.
    pub acme: Option<AcmeSpec>,
    /// The tests, which a process does not run.
    pub tests: Vec<PolicyTest>,
}

/// A configuration, with its warnings and facts about its file.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// Warnings: valid but suspicious configuration.
    pub warnings: Report,
    /// The SHA-256 hash of the file's text, in hexadecimal digits, as `sha256sum` prints it. The texts of included files follow
    /// that of the file.
    pub sha256: String,
    /// A hash of each part of the file.
    pub fingerprint: Fingerprint,
    /// The other files that it names: included files, keys and certificates.
    pub files: NamedFiles,
    /// The files that it includes.
    pub included: Vec<PathBuf>,
    /// Why the file of consumers seems to be incomplete, if it does.
    pub incomplete: Option<String>,
    pub(super) variables: Variables,
}

impl Config {
    /// The configuration, whose tests know the file that has them, and their lines in its text.
    pub(super) fn with_places_of_tests(mut self, sources: &Sources) -> Self {
        for test in &mut self.tests {
            test.locate(sources);
        }
        self
    }
}

impl Loaded {
    /// The text with `${NAME}` in place of the value of each variable that the file names.
    #[must_use]
    pub fn without_variables(&self, text: &str) -> String {
        self.variables.hide_in(text)
    }
}

/// A part of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigPart {
    /// A route, by its name, or else by its number.
    Route(String),
    /// A limit, by its name.
    Limit(String),
    /// An upstream, by its name.
    Upstream(String),
    /// A listener, by its address as it is written.
    Listener(String),
    /// Any other table.
    Table(String),
    /// A key before the first table.
    Key(String),
}

/// The change of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigChange {
    /// The part is new.
    Added,
    /// It has been removed.
    Removed,
    /// Its content, or that of a file that it names, has changed.
    Changed,
}

/// Hashes of the parts of a file, with the files that they name; the contents are not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fingerprint(BTreeMap<ConfigPart, blake3::Hash>);

impl Fingerprint {
    /// The fingerprint of a file.
    pub(super) fn of(root: &DeTable<'_>, files: &FilesRead) -> Self {
        let mut parts = BTreeMap::new();
        let mut add = |part, value: &Spanned<DeValue<'_>>| {
            let mut hasher = blake3::Hasher::new();
            feed(&mut hasher, value, files);
            parts.insert(part, hasher.finalize());
        };
        for (key, value) in root {
            let key = key.get_ref().to_string();
            match (&*key, value.get_ref()) {
                ("limits", DeValue::Table(limits)) => {
                    limits
                        .iter()
                        .for_each(|(name, limit)| add(ConfigPart::Limit(name.get_ref().to_string()), limit));
                }
                ("upstreams", DeValue::Table(all)) => {
                    all.iter()
                        .for_each(|(name, one)| add(ConfigPart::Upstream(name.get_ref().to_string()), one));
                }
                ("routes", DeValue::Array(routes)) => {
                    for (number, route) in (1..).zip(routes.iter()) {
                        let name = string(route, "name").unwrap_or_else(|| i32::to_string(&number));
                        add(ConfigPart::Route(name), route);
                    }
                }
                ("listeners", DeValue::Array(listeners)) => {
                    for listener in listeners {
                        add(ConfigPart::Listener(string(listener, "address").unwrap_or_default()), listener);
                    }
                }
                ("listen", DeValue::String(address)) => add(ConfigPart::Listener(address.to_string()), value),
                (_, DeValue::Table(_)) => add(ConfigPart::Table(key), value),
                _ => add(ConfigPart::Key(key), value),
            }
        }
        Self(parts)
    }

    /// The parts that have changed since `earlier`.
    #[must_use]
    pub fn changes_since(&self, earlier: &Self) -> Vec<(ConfigPart, ConfigChange)> {
        let now = self.0.iter().filter_map(|(part, hash)| match earlier.0.get(part) {
            None => Some((part.clone(), ConfigChange::Added)),
            Some(other) => (other != hash).then(|| (part.clone(), ConfigChange::Changed)),
        });
        let gone = earlier.0.keys().filter(|part| !self.0.contains_key(part));
        let mut all: Vec<_> = now.chain(gone.map(|part| (part.clone(), ConfigChange::Removed))).collect();
        all.sort();
        all
    }
}

impl fmt::Display for ConfigPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Route(name) | Self::Limit(name) | Self::Upstream(name) | Self::Key(name) => {
                write!(f, "`{name}`")
            }
            Self::Listener(address) => f.write_str(address),
            Self::Table(name) => write!(f, "[{name}]"),
        }
    }
}

/// A string in a table.
fn string(table: &Spanned<DeValue<'_>>, key: &str) -> Option<String> {
    Some(table.get_ref().as_table()?.get(key)?.get_ref().as_str()?.to_owned())
}

/// Hashes a value independently of its notation and its position; different values give different input.
fn feed(hasher: &mut blake3::Hasher, value: &Spanned<DeValue<'_>>, files: &FilesRead) {
    let mut put = |kind: u8, text: &str| {
        hasher.update(&[kind]);
        hasher.update(&text.len().to_le_bytes());
        hasher.update(text.as_bytes());
    };
    match value.get_ref() {
        DeValue::String(text) => {
            put(b's', text);
            if let Some((_, hash)) = files.get(&value.span().start) {
                hasher.update(hash.as_bytes());
            }
        }
        DeValue::Integer(number) => put(b'i', number.as_str()),
        DeValue::Float(number) => put(b'f', number.as_str()),
        DeValue::Boolean(is_true) => put(b'b', if *is_true { "1" } else { "" }),
        DeValue::Datetime(date) => put(b'd', &date.to_string()),
        DeValue::Array(values) => {
            put(b'a', &values.len().to_string());
            values.iter().for_each(|value| feed(hasher, value, files));
        }
        DeValue::Table(entries) => {
            put(b't', &entries.len().to_string());
            let mut entries: Vec<_> = entries.iter().collect();
            entries.sort_by(|(one, _), (other, _)| one.get_ref().cmp(other.get_ref()));
            for (key, value) in entries {
                hasher.update(key.get_ref().as_bytes());
                feed(hasher, value, files);
            }
        }
    }
}

/// The SHA-256 hash of the texts, one after the other, in hexadecimal digits.
pub(super) fn sha256(sources: &Sources) -> String {
    let mut context = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    sources.all().for_each(|source| context.update(source.text.as_bytes()));
    let hash = context.finish();
    // Writing to a string can't fail.
    hash.as_ref().iter().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(text: &str) -> Fingerprint {
        Fingerprint::of(DeTable::parse(text).unwrap().get_ref(), &FilesRead::default())
    }

    #[test]
    fn changed_parts_are_found() {
        let earlier = fingerprint(
            "listen = \"127.0.0.1:1\"\nworkers = 2\n[limits.a]\nrate = \"1/s\"\n[limits.b]\nrate = \"1/s\"\n\
             [log]\nlevel = \"info\"\n[[routes]]\nname = \"x\"\npath = \"/a\"\n[[routes]]\npath = \"/b\"\n",
        );
        let later = fingerprint(
            "workers = 2 # the same\n[[listeners]]\naddress = \"127.0.0.1:1\"\n[limits.b]\nrate = '1/s'\n\
             [limits.c]\nrate = \"1/s\"\n[log]\nlevel = \"warn\"\n\
             [[routes]]\npath = \"/b\"\nname = \"2\"\n[[routes]]\npath = \"/a\"\nname = \"x\"\n",
        );
        let changes: Vec<String> =
            later.changes_since(&earlier).iter().map(|(part, change)| format!("{part} {change:?}")).collect();
        let expected = ["`2` Changed", "`a` Removed", "`c` Added", "127.0.0.1:1 Changed", "[log] Changed"];
        assert_eq!(changes, expected);
        assert!(later.changes_since(&later).is_empty());
    }

    #[test]
    fn the_content_of_a_file_belongs_to_the_part_that_names_it() {
        let text = "[jwt]\njwks = \"keys.json\"\n[log]\nlevel = \"keys.json\"\n";
        let table = DeTable::parse(text).unwrap();
        let with = |bytes: &[u8]| {
            let hash = blake3::hash(bytes);
            let files = FilesRead::from([(text.find("\"keys").unwrap(), ("keys.json".into(), hash))]);
            Fingerprint::of(table.get_ref(), &files)
        };
        let changes = with(b"2").changes_since(&with(b"1"));
        assert_eq!(changes, [(ConfigPart::Table("jwt".to_owned()), ConfigChange::Changed)]);
    }
}
