//! A key of the file: its name, the values that it takes, its default, and its documentation.

use std::time::Duration;

/// Names that have the same cure, and the cure: what to write instead.
pub type Mistaken = (&'static [&'static str], &'static str);

/// In the place of a name: the cure of all names that have no other one.
pub const ANY_NAME: &str = "*";

/// The keys of one TOML table.
#[derive(Debug)]
pub struct TableKeys {
    /// In the order in which the documentation lists them.
    pub all: &'static [ConfigKey],
    /// Whether the documentation lists them in a table of their own, apart from the keys of the outer table.
    pub has_own_table: bool,
    /// Names that people try in the table because other programs have them.
    pub mistaken: &'static [Mistaken],
}

/// The keys of a table, as declared with `keys!`.
pub trait DeclaredKeys {
    /// The keys.
    const KEYS: &'static TableKeys;

    /// The keys, for a kind that refers to them.
    fn keys() -> &'static TableKeys {
        Self::KEYS
    }
}

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct ConfigKey {
    /// As the file has it.
    pub name: &'static str,
    /// The values that it takes.
    pub kind: ValueKind,
    /// The value if the file does not have it.
    pub default: Default,
    /// The lines of its documentation in Markdown, each after a space. Range and unit are added from the kind.
    pub doc: &'static [&'static str],
}

/// The values that a key takes.
#[derive(Clone, Copy, Debug)]
pub enum ValueKind {
    /// `true` or `false`.
    Boolean,
    /// A whole number from the first to the second.
    Integer(u64, u64),
    /// A number from the first to the second.
    Decimal(f64, f64),
    /// A string such as "30s", from the first to the second.
    Duration(Duration, Duration),
    /// A string such as "30s", from the first to the second, or "off".
    DurationOrOff(Duration, Duration),
    /// A date, or a date and time with its offset.
    Time,
    /// A number of bytes or a string such as "32KiB", from the first to the second.
    Size(u64, u64),
    /// One of several words.
    Choice(&'static [&'static str]),
    /// A string, which the reader of the key parses.
    Text,
    /// An array.
    List(&'static ValueKind),
    /// A table.
    Table(fn() -> &'static TableKeys),
    /// A table whose keys are names that the user chooses.
    Named(&'static ValueKind),
    /// A table with some known keys; all others are names that the user chooses.
    Mixed(fn() -> &'static TableKeys, &'static ValueKind),
    /// A value of any of these kinds.
    Either(&'static [ValueKind]),
}

/// The value of a key that the file does not have.
#[derive(Clone, Copy, Debug)]
pub enum Default {
    /// None: the file is invalid without the key. The text is an example of a line with it.
    Required(&'static str),
    /// This value, written in TOML.
    Toml(&'static str),
    /// Nothing, or what these words describe.
    Words(&'static str),
}

impl TableKeys {
    /// The key of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'static ConfigKey> {
        self.all.iter().find(|key| key.name == name)
    }

    /// The cure for a name that the table does not have: the text to write in its place.
    #[must_use]
    pub fn cure(&self, name: &str) -> Option<&'static str> {
        let name = name.replace('-', "_").to_ascii_lowercase();
        self.mistaken.iter().find(|(names, _)| names.contains(&&*name)).map(|(_, cure)| *cure)
    }
}

/// More places than these say nothing.
const MAX_PLACES: usize = 2;

impl TableKeys {
    /// The tables that have a key of this name, as the file writes them: `[store]`, or `health` in `[upstreams.NAME]`. None
    /// if there are many. These are the keys of the file itself. Tests are no place for a setting.
    #[must_use]
    pub fn places(&self, name: &str) -> Vec<String> {
        let mut found = Vec::new();
        for key in self.all.iter().filter(|key| key.name != "tests") {
            for (keys, _) in key.kind.tables() {
                keys.add_places(name, &key.heading(), &mut found);
            }
        }
        if found.len() > MAX_PLACES { Vec::new() } else { found }
    }

    fn add_places(&self, name: &str, place: &str, found: &mut Vec<String>) {
        if self.get(name).is_some() {
            found.push(place.to_owned());
        }
        for key in self.all {
            // Tables below names that the user chooses repeat the keys of the table above them.
            for (inner, _) in key.kind.tables().into_iter().filter(|(_, has_names)| !has_names) {
                inner.add_places(name, &format!("`{}` in {place}", key.name), found);
            }
        }
    }
}

impl ConfigKey {
    /// The header of its table, if it is a key of the file itself.
    #[must_use]
    pub fn heading(&self) -> String {
        match &self.kind {
            ValueKind::Named(_) => format!("[{}.NAME]", self.name),
            ValueKind::List(_) => format!("[[{}]]", self.name),
            _ => format!("[{}]", self.name),
        }
    }

    /// Its documentation as one line.
    #[must_use]
    pub fn meaning(&self) -> String {
        self.doc.concat().trim_start().to_owned()
    }
}

impl Default {
    /// The value in TOML, if there is one.
    #[must_use]
    pub fn literal(&self) -> Option<&'static str> {
        match self {
            Self::Toml(literal) => Some(literal),
            Self::Required(_) | Self::Words(_) => None,
        }
    }

    /// An example of a line with the key, if it is required.
    #[must_use]
    pub fn example(&self) -> Option<&'static str> {
        match self {
            Self::Required(example) => Some(example),
            Self::Toml(_) | Self::Words(_) => None,
        }
    }
}

impl ValueKind {
    /// The tables of keys that a value of this kind can have in it, each with whether the user chooses its name.
    pub(in crate::config) fn tables(&self) -> Vec<(&'static TableKeys, bool)> {
        match self {
            Self::Table(keys) => vec![(keys(), false)],
            Self::Mixed(keys, of_names) => [(keys(), false)].into_iter().chain(named(of_names)).collect(),
            Self::Named(of_names) => named(of_names).collect(),
            Self::List(element) => element.tables(),
            Self::Either(kinds) => kinds.iter().flat_map(Self::tables).collect(),
            _ => Vec::new(),
        }
    }
}

fn named(kind: &ValueKind) -> impl Iterator<Item = (&'static TableKeys, bool)> + use<> {
    kind.tables().into_iter().map(|(keys, _)| (keys, true))
}

#[cfg(test)]
mod tests {
    use super::DeclaredKeys as _;
    use crate::config::top::TopKeys;

    fn places(name: &str) -> Vec<String> {
        TopKeys::KEYS.places(name)
    }

    #[test]
    fn a_key_is_found_in_its_tables() {
        assert_eq!(places("trusted_proxies"), ["[client_ip]"]);
        assert_eq!(places("strip_prefix"), ["`rewrite` in [[routes]]"]);
        assert_eq!(places("unhealthy_after"), ["`health` in [upstreams.NAME]"]);
        assert_eq!(places("burst"), ["[limits.NAME]"]);
        assert!(places("tls").is_empty(), "there are more than two");
        assert!(places("colour").is_empty());
    }
}
