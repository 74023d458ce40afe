//! A table of the file, read by the list of its keys.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::LazyLock;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::item::Item;
use super::keys::{self, Default, Key, Keys, Kind, default_value};
use super::reader::Reader;
use super::report::Problem;
use super::suggest::nearest;
use crate::text::join_and;

/// A table of the file, and the keys that it may have.
pub(super) struct Table<'a> {
    pub reader: &'a Reader<'a>,
    /// Its name in messages; empty for the file itself.
    label: String,
    span: Range<usize>,
    entries: &'a DeTable<'a>,
    keys: &'static Keys,
    /// Keys that do not belong to this table although `keys` has them; another message reports them.
    excluded: Vec<&'static str>,
}

static NO_ENTRIES: LazyLock<DeTable<'static>> = LazyLock::new(DeTable::new);

/// A key that the user chose.
#[derive(Clone)]
pub(super) struct Name<'a> {
    pub text: &'a str,
    pub span: Range<usize>,
}

/// The value of a key is invalid, and the problem has been reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported;

impl<'a> Table<'a> {
    /// The file itself.
    pub fn top(reader: &'a Reader<'a>, entries: &'a DeTable<'a>, keys: &'static Keys) -> Self {
        Self { reader, label: String::new(), span: 0..0, entries, keys, excluded: Vec::new() }
    }

    /// Reads a table that has these keys; `label` is its name in messages.
    pub fn of(item: Item<'a>, label: impl Into<String>, keys: &'static Keys) -> Option<Self> {
        let examples: Vec<&str> = keys.all.iter().filter_map(|key| key.default.example()).collect();
        let help = if examples.is_empty() {
            String::new()
        } else {
            format!("such as {} = {{ {} }}", item.name, examples.join(", "))
        };
        Self::of_or(item, label, keys, &help)
    }

    /// The same; `help` is for a value that is not a table.
    pub fn of_or(item: Item<'a>, label: impl Into<String>, keys: &'static Keys, help: &str) -> Option<Self> {
        let table = Self {
            reader: item.reader,
            label: label.into(),
            span: item.span(),
            entries: item.entries_or(help)?,
            keys,
            excluded: Vec::new(),
        };
        Some(table)
    }

    /// A table without entries: every key has its default.
    pub fn empty(reader: &'a Reader<'a>, keys: &'static Keys) -> Self {
        Self::top(reader, &NO_ENTRIES, keys)
    }

    /// The table that is the value of a key; one without entries if the file does not have the key.
    pub fn section(&self, name: &'static str) -> Option<Self> {
        let Kind::Table(keys) = self.key(name).kind else { return wrong_kind(name) };
        match self.given(name) {
            Some(item) => Self::of(item, format!("[{name}]"), keys),
            None => Some(Self::empty(self.reader, keys)),
        }
    }

    /// The span of its header, or of the whole inline table.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The span of a key, if the file has it.
    pub fn key_span(&self, key: &str) -> Option<Range<usize>> {
        self.entries.get_key_value(key).map(|(key, _)| key.span())
    }

    /// Excludes a key, which another message reports; returns whether the file has it.
    pub fn exclude(&mut self, key: &'static str) -> bool {
        self.excluded.push(key);
        self.entries.contains_key(key)
    }

    /// The value that the file has for a key that is not excluded, if it has one.
    pub fn given(&self, name: &'static str) -> Option<Item<'a>> {
        let name = self.key(name).name;
        let value = self.entries.get(name).filter(|_| !self.excluded.contains(&name));
        value.map(|value| Item::new(self.reader, name, value))
    }

    /// The value that the file has for a key, or else the default of the key.
    pub fn item(&self, name: &'static str) -> Item<'a> {
        let given = self.given(name);
        given.unwrap_or_else(|| Item::new(self.reader, name, default_of(self.key(name))))
    }

    /// The value of a required key; reports a problem if it is missing.
    pub fn required(&self, name: &'static str) -> Option<Item<'a>> {
        match self.key(name).default {
            Default::Required(example) => self.require(name, example),
            Default::Toml(_) | Default::Words(_) | Default::AtMost(..) => wrong_kind(name),
        }
    }

    /// The same for a key that is required only in some cases; `example` is a line with it.
    pub fn require(&self, name: &'static str, example: &str) -> Option<Item<'a>> {
        let item = self.given(name);
        if item.is_none() {
            let problem = Problem::error(self.span(), format!("{} has no `{name}`", self.label));
            self.reader.report(problem.help(format!("add a line such as: {example}")).derived());
        }
        item
    }

    /// Reads a key that may be missing.
    pub fn optional<T>(
        &self,
        name: &'static str,
        read: impl FnOnce(Item<'a>) -> Option<T>,
    ) -> Result<Option<T>, Reported> {
        self.given(name).map(|item| read(item).ok_or(Reported)).transpose()
    }

    /// Reads an array, or the default of the key; `help` says how to write it.
    pub fn list<T>(
        &self,
        name: &'static str,
        help: &str,
        read: impl FnMut(Item<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        self.item(name).list_of(help, read)
    }

    pub fn boolean(&self, name: &'static str) -> Option<bool> {
        self.item(name).boolean()
    }

    pub fn integer(&self, name: &'static str) -> Option<u64> {
        self.integer_in(name, self.item(name))
    }

    /// A whole number that fits 32 bits.
    pub fn small(&self, name: &'static str) -> Option<u32> {
        self.integer(name).and_then(|number| u32::try_from(number).ok())
    }

    /// A whole number that fits the machine's size.
    pub fn count(&self, name: &'static str) -> Option<usize> {
        self.integer(name).and_then(|number| usize::try_from(number).ok())
    }

    /// A number within the range of a key, which `item` is the value of.
    pub fn integer_in(&self, name: &'static str, item: Item<'a>) -> Option<u64> {
        match integers(&self.key(name).kind) {
            Some((low, high)) => item.integer(&(low..=high)),
            None => wrong_kind(name),
        }
    }

    pub fn decimal(&self, name: &'static str) -> Option<f64> {
        match self.key(name).kind {
            Kind::Decimal(low, high) => self.item(name).decimal(&(low..=high)),
            _ => wrong_kind(name),
        }
    }

    pub fn duration(&self, name: &'static str) -> Option<Duration> {
        self.duration_in(name, self.item(name))
    }

    /// A duration within the range of a key, which `item` is the value of.
    pub fn duration_in(&self, name: &'static str, item: Item<'a>) -> Option<Duration> {
        match durations(&self.key(name).kind) {
            Some((low, high)) => item.duration(&(low..=high)),
            None => wrong_kind(name),
        }
    }

    /// A duration, or nothing for `"off"`.
    pub fn duration_or_off(&self, name: &'static str) -> Result<Option<Duration>, Reported> {
        let item = self.item(name);
        match self.key(name).kind {
            Kind::DurationOrOff(..)
                if item.is_string() && item.string().is_some_and(|text| text.value == "off") =>
            {
                Ok(None)
            }
            Kind::DurationOrOff(low, high) => item.duration(&(low..=high)).map(Some).ok_or(Reported),
            _ => wrong_kind(name),
        }
    }

    /// A number of bytes within the range of a key, which `item` is the value of.
    pub fn size_in(&self, name: &'static str, item: Item<'a>) -> Option<usize> {
        match self.key(name).kind {
            Kind::Size(low, high) => item.size(&(low..=high)),
            _ => wrong_kind(name),
        }
    }

    /// One of the words that the key takes; `meanings` has each of them.
    pub fn choice<T: Copy>(&self, name: &'static str, meanings: &[(&str, T)]) -> Option<T> {
        self.choice_in(name, self.item(name), meanings)
    }

    /// The same for `item`, which is the value of the key or an element of it.
    pub fn choice_in<T: Copy>(
        &self,
        name: &'static str,
        item: Item<'a>,
        meanings: &[(&str, T)],
    ) -> Option<T> {
        match words(&self.key(name).kind) {
            Some(words) => item.choice(words, meanings),
            None => wrong_kind(name),
        }
    }

    /// Every entry, in the order of the file.
    pub fn entries(&self) -> Vec<(Name<'a>, Item<'a>)> {
        in_order(self.reader, self.entries)
    }

    /// Rejects every unknown key.
    pub fn close(self) {
        for (name, item) in self.entries() {
            if self.has_key(name.text) || self.excluded.contains(&name.text) {
                continue;
            }
            item.reject::<()>(self.unknown(&name).help(self.cure(name.text)));
        }
    }

    /// The error for a key that the table does not have.
    pub fn unknown(&self, name: &Name<'_>) -> Problem {
        let table = if self.label.is_empty() { String::new() } else { format!(" in {}", self.label) };
        Problem::error(name.span.clone(), format!("unknown key `{}`{table}", name.text))
    }

    /// What to write in place of an unknown key.
    fn cure(&self, name: &str) -> String {
        let known: Vec<&str> =
            self.keys.all.iter().map(|key| key.name).filter(|name| self.has_key(name)).collect();
        if let Some(cure) = keys::cure(self.keys, name) {
            return cure.to_owned();
        }
        if let Some(near) = nearest(name, known.iter().copied()) {
            return format!("did you mean `{near}`?");
        }
        let places = keys::places(name);
        if !places.is_empty() && self.keys.get(name).is_none() {
            return format!("`{name}` is a key of {}", join_and(&places));
        }
        format!("its keys are {}", known.join(", "))
    }

    /// Whether the table may have this key.
    fn has_key(&self, name: &str) -> bool {
        self.keys.get(name).is_some() && !self.excluded.contains(&name)
    }

    #[expect(
        clippy::expect_used,
        reason = "the code names the key, not the file: every test that reads the table finds it"
    )]
    fn key(&self, name: &'static str) -> &'static Key {
        self.keys.get(name).expect("a table is read by keys of its list")
    }
}

/// Reads a table in which every key has its default.
#[expect(clippy::expect_used, reason = "a test reads every default")]
pub(super) fn read_defaults<T>(keys: &'static Keys, read: impl FnOnce(Table<'_>) -> Option<T>) -> T {
    let reader = Reader::new(&|_| None);
    read(Table::empty(&reader, keys)).expect("every default is valid")
}

/// The entries of a table whose keys are names that the user chose, in the order of the file.
pub(super) fn entries(item: Item<'_>) -> Option<Vec<(Name<'_>, Item<'_>)>> {
    Some(in_order(item.reader, item.entries()?))
}

pub(super) fn in_order<'a>(reader: &'a Reader<'a>, entries: &'a DeTable<'a>) -> Vec<(Name<'a>, Item<'a>)> {
    let entry = |(key, value): (&'a Spanned<Cow<'a, str>>, &'a Spanned<DeValue<'a>>)| {
        let name = Name { text: key.get_ref(), span: key.span() };
        (name, Item::new(reader, key.get_ref(), value))
    };
    let mut entries: Vec<_> = entries.iter().map(entry).collect();
    entries.sort_by_key(|(name, _)| name.span.start);
    entries
}

fn words(kind: &Kind) -> Option<&'static [&'static str]> {
    match kind {
        Kind::Choice(words) => Some(words),
        Kind::List(kind) => words(kind),
        Kind::Either(kinds) => kinds.iter().find_map(words),
        _ => None,
    }
}

fn integers(kind: &Kind) -> Option<(u64, u64)> {
    match kind {
        Kind::Integer(low, high) => Some((*low, *high)),
        Kind::List(kind) => integers(kind),
        Kind::Either(kinds) => kinds.iter().find_map(integers),
        _ => None,
    }
}

fn durations(kind: &Kind) -> Option<(Duration, Duration)> {
    match kind {
        Kind::Duration(low, high) => Some((*low, *high)),
        Kind::Either(kinds) => kinds.iter().find_map(durations),
        _ => None,
    }
}

#[expect(
    clippy::expect_used,
    reason = "a test parses every default, and the code reads no other key in this way"
)]
fn default_of(key: &'static Key) -> &'static Spanned<DeValue<'static>> {
    let value = key.default.literal().and_then(default_value);
    value.expect("the key has a default that is TOML")
}

#[expect(
    clippy::panic,
    reason = "the code names the key, not the file: every test that reads the table finds it"
)]
fn wrong_kind<T>(name: &str) -> T {
    panic!("`{name}` is read as another kind than its list of keys has")
}
