//! A table of the file, read by the list of its keys.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::sync::LazyLock;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::item::Item;
use super::keys::kinds::{self, Either, Kinded, List, ReadKind};
use super::keys::{ANY_NAME, DeclaredKeys, TableKeys};
use super::reader::Reader;
use super::report::Problem;
use super::suggest::nearest;
use crate::text::join_and;

/// A table of the file, and the keys that it may have.
pub(super) struct AnyTable<'a> {
    pub reader: &'a Reader<'a>,
    /// Its name in messages; empty for the file itself.
    label: String,
    span: Range<usize>,
    entries: &'a DeTable<'a>,
    keys: &'static TableKeys,
    /// Keys that do not belong to this table although `keys` has them; another message reports them.
    excluded: Vec<&'static str>,
}

/// A table with the keys of `K`: it has a method for each of them.
pub(super) struct Table<'a, K> {
    table: AnyTable<'a>,
    keys: PhantomData<K>,
}

/// A key of a table of the file, whose values are of the kind `K`. `P` says what its absence means.
pub(super) struct Field<'t, 'a, K, P> {
    table: &'t AnyTable<'a>,
    name: &'static str,
    presence: P,
    kind: PhantomData<K>,
}

/// The file is invalid without the key. The text is an example of a line with it.
pub(super) struct Required(pub &'static str);
/// The key has a default.
pub(super) struct Defaulted(pub &'static DefaultValue);
/// The key may be missing.
pub(super) struct Optional;

/// The default of a key, parsed when it is first used.
pub(super) type DefaultValue = LazyLock<Spanned<DeValue<'static>>>;

/// Help for a key of the file itself that is in a table.
const MISPLACED: &str =
    "move it above the first table: to TOML, each line below a table header is in that table";

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

/// The result of reading a key: its value, or that it is invalid.
pub(super) trait Filled {
    /// The value of the key.
    type Value;

    /// The value, unless the key is invalid.
    fn filled(self) -> Option<Self::Value>;
}

impl<T> Filled for Option<T> {
    type Value = T;

    fn filled(self) -> Option<T> {
        self
    }
}

impl<T> Filled for Result<Option<T>, Reported> {
    type Value = Option<T>;

    fn filled(self) -> Option<Option<T>> {
        self.ok()
    }
}

impl<'a, K> Deref for Table<'a, K> {
    type Target = AnyTable<'a>;

    fn deref(&self) -> &AnyTable<'a> {
        &self.table
    }
}

impl<K> DerefMut for Table<'_, K> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.table
    }
}

impl<'a, K: DeclaredKeys> Table<'a, K> {
    /// The file itself.
    pub fn top(reader: &'a Reader<'a>, entries: &'a DeTable<'a>) -> Self {
        let table = AnyTable {
            reader,
            label: String::new(),
            span: 0..0,
            entries,
            keys: K::KEYS,
            excluded: Vec::new(),
        };
        Self { table, keys: PhantomData }
    }

    /// A table without entries: every key has its default.
    pub fn empty(reader: &'a Reader<'a>) -> Self {
        Self::top(reader, &NO_ENTRIES)
    }

    /// Reads a table; `label` is its name in messages.
    pub fn of(item: Item<'a>, label: impl Into<String>) -> Option<Self> {
        let examples: Vec<&str> = K::KEYS.all.iter().filter_map(|key| key.default.example()).collect();
        let help = if examples.is_empty() {
            String::new()
        } else {
            format!("such as {} = {{ {} }}", item.name, examples.join(", "))
        };
        Self::of_or(item, label, &help)
    }

    /// Reads a table; `label` is its name in messages, and `help` is for a value that is not a table.
    pub fn of_or(item: Item<'a>, label: impl Into<String>, help: &str) -> Option<Self> {
        Self::with_some(item, label, K::KEYS, help)
    }

    /// Reads a table that has only some of the keys.
    pub fn with_some(
        item: Item<'a>,
        label: impl Into<String>,
        keys: &'static TableKeys,
        help: &str,
    ) -> Option<Self> {
        let table = AnyTable {
            reader: item.reader,
            label: label.into(),
            span: item.span(),
            entries: item.entries_or(help)?,
            keys,
            excluded: Vec::new(),
        };
        Some(Self { table, keys: PhantomData })
    }

    /// Rejects every unknown key.
    pub fn close(self) {
        for (name, item) in self.entries() {
            if self.has_key(name.text) || self.excluded.contains(&name.text) {
                continue;
            }
            let problem = self.unknown(&name);
            if self.is_misplaced(name.text) {
                self.reader.note_misplaced(name.text);
                item.reject::<()>(problem.help(MISPLACED));
            } else {
                item.reject::<()>(self.cures(name.text).into_iter().fold(problem, Problem::help));
            }
        }
    }
}

impl<'a> AnyTable<'a> {
    /// Its name in messages.
    pub fn label(&self) -> &str {
        &self.label
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
        let value = self.entries.get(name).filter(|_| !self.excluded.contains(&name));
        value.map(|value| Item::new(self.reader, name, value))
    }

    /// Every entry, in the order of the file.
    pub fn entries(&self) -> Vec<(Name<'a>, Item<'a>)> {
        in_order(self.reader, self.entries)
    }

    /// The error for a key that the table does not have.
    pub fn unknown(&self, name: &Name<'_>) -> Problem {
        let table = if self.label.is_empty() { String::new() } else { format!(" in {}", self.label) };
        Problem::error(name.span.clone(), format!("unknown key `{}`{table}", name.text))
    }

    /// Whether a key that the table does not have is one of the file itself.
    fn is_misplaced(&self, name: &str) -> bool {
        let key = self.reader.top.get(name).filter(|_| !self.label.is_empty());
        key.is_some_and(|key| key.kind.tables().is_empty()) && self.keys.cure(name).is_none()
    }

    /// Help for an unknown key: the key to write in its place, or else the keys of the table.
    fn cures(&self, name: &str) -> Vec<String> {
        let known: Vec<&str> =
            self.keys.all.iter().map(|key| key.name).filter(|name| self.has_key(name)).collect();
        if let Some(cure) = self.keys.cure(name) {
            return vec![cure.to_owned()];
        }
        if let Some(near) = nearest(name, known.iter().copied()) {
            return vec![format!("did you mean `{near}`?")];
        }
        let places = self.reader.top.places(name);
        if !places.is_empty() && self.keys.get(name).is_none() {
            return vec![format!("`{name}` is a key of {}", join_and(&places))];
        }
        let keys = format!("its keys are {}", known.join(", "));
        [keys].into_iter().chain(self.keys.cure(ANY_NAME).map(str::to_owned)).collect()
    }

    /// Whether the table may have this key.
    fn has_key(&self, name: &str) -> bool {
        self.keys.get(name).is_some() && !self.excluded.contains(&name)
    }
}

impl<'t, 'a, K: Kinded, P> Field<'t, 'a, K, P> {
    pub fn new(table: &'t AnyTable<'a>, name: &'static str, presence: P) -> Self {
        Self { table, name, presence, kind: PhantomData }
    }

    /// The value that the file has, if it has one.
    pub fn given(&self) -> Option<Item<'a>> {
        self.table.given(self.name)
    }

    /// Reads a key that may be missing.
    pub fn optional<T>(&self, read: impl FnOnce(Item<'a>) -> Option<T>) -> Result<Option<T>, Reported> {
        self.given().map(|item| read(item).ok_or(Reported)).transpose()
    }

    /// The value of a key that is required in some cases; reports a problem if it is missing. `example` is a line with it.
    pub fn require(&self, example: &str) -> Option<Item<'a>> {
        let item = self.given();
        if item.is_none() {
            let problem =
                Problem::error(self.table.span(), format!("{} has no `{}`", self.table.label, self.name));
            self.table.reader.report(problem.help(format!("add a line such as: {example}")).derived());
        }
        item
    }
}

impl<'a, K: Kinded> Field<'_, 'a, K, Required> {
    /// The value; reports a problem if it is missing.
    pub fn item(&self) -> Option<Item<'a>> {
        self.require(self.presence.0)
    }

    pub fn with<T>(&self, read: impl FnOnce(Item<'a>) -> Option<T>) -> Option<T> {
        self.item().and_then(read)
    }
}

impl<'a, K: ReadKind> Field<'_, 'a, K, Required> {
    pub fn read(&self) -> Option<K::Value<'a>> {
        self.with(K::read)
    }
}

impl<'a, K: Kinded> Field<'_, 'a, K, Defaulted> {
    /// The value that the file has, or else the default.
    pub fn item(&self) -> Item<'a> {
        self.given().unwrap_or_else(|| Item::new(self.table.reader, self.name, self.presence.0))
    }

    pub fn with<T>(&self, read: impl FnOnce(Item<'a>) -> Option<T>) -> Option<T> {
        read(self.item())
    }
}

impl<'a, K: ReadKind> Field<'_, 'a, K, Defaulted> {
    pub fn read(&self) -> Option<K::Value<'a>> {
        K::read(self.item())
    }
}

impl<'a, K: Kinded> Field<'_, 'a, K, Optional> {
    pub fn with<T>(&self, read: impl FnOnce(Item<'a>) -> Option<T>) -> Result<Option<T>, Reported> {
        self.optional(read)
    }
}

impl<'a, K: ReadKind> Field<'_, 'a, K, Optional> {
    pub fn read(&self) -> Result<Option<K::Value<'a>>, Reported> {
        self.optional(K::read)
    }
}

#[expect(clippy::unused_self, reason = "the field is there for its kind")]
impl<'a, K: ReadKind, P> Field<'_, 'a, K, P> {
    /// Reads a value of the key.
    pub fn value(&self, item: Item<'a>) -> Option<K::Value<'a>> {
        K::read(item)
    }
}

#[expect(clippy::unused_self, reason = "the field is there for its kind")]
impl<'a, K: ReadKind, P> Field<'_, 'a, List<K>, P> {
    /// Reads an element of the key's array.
    pub fn element(&self, item: Item<'a>) -> Option<K::Value<'a>> {
        K::read(item)
    }
}

#[expect(clippy::unused_self, reason = "the field is there for its kind")]
impl<'a, A: ReadKind, B: Kinded, P> Field<'_, 'a, Either<A, B>, P> {
    /// Reads a value of the first kind.
    pub fn first(&self, item: Item<'a>) -> Option<A::Value<'a>> {
        A::read(item)
    }
}

#[expect(clippy::unused_self, reason = "the field is there for its kind")]
impl<'a, A: Kinded, B: ReadKind, P> Field<'_, 'a, Either<A, B>, P> {
    /// Reads a value of the second kind.
    pub fn second(&self, item: Item<'a>) -> Option<B::Value<'a>> {
        B::read(item)
    }
}

impl<'a, T: DeclaredKeys> Field<'_, 'a, kinds::KeyTable<T>, Optional> {
    /// The table; one without entries if the file does not have it.
    pub fn section(&self) -> Option<Table<'a, T>> {
        match self.given() {
            Some(item) => Table::of(item, format!("[{}]", self.name)),
            None => Some(Table::empty(self.table.reader)),
        }
    }
}

/// Reads a table in which every key has its default.
#[expect(clippy::expect_used, reason = "a test reads every default")]
pub(super) fn read_defaults<K: DeclaredKeys, T>(read: impl FnOnce(Table<'_, K>) -> Option<T>) -> T {
    let reader = Reader::new(K::KEYS, &|_| None);
    read(Table::empty(&reader)).expect("every default is valid")
}

/// Parses the default of a key.
#[expect(clippy::expect_used, reason = "a test parses every default")]
pub(super) fn default_value(literal: &'static str) -> Spanned<DeValue<'static>> {
    DeValue::parse(literal).expect("the default is TOML")
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
