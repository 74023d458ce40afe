//! A table while it is read: it knows which keys were asked for, and reports the rest.

use std::borrow::Cow;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::reader::{Item, Reader};
use super::report::Problem;
use super::suggest::nearest;

/// A table while it is read.
pub(super) struct Table<'a> {
    pub reader: &'a Reader<'a>,
    /// What stands for it in messages; empty for the file itself.
    what: String,
    span: Range<usize>,
    entries: &'a DeTable<'a>,
    /// Keys that were asked for, whether they are there or not.
    known: Vec<&'static str>,
    /// Keys that have been dealt with, and that no message proposes.
    silent: Vec<&'static str>,
}

/// A key that the user chose.
#[derive(Clone)]
pub(super) struct Name<'a> {
    pub text: &'a str,
    pub span: Range<usize>,
}

impl<'a> Table<'a> {
    pub fn new(
        reader: &'a Reader<'a>,
        what: impl Into<String>,
        span: Range<usize>,
        entries: &'a DeTable<'a>,
    ) -> Self {
        Self { reader, what: what.into(), span, entries, known: Vec::new(), silent: Vec::new() }
    }

    /// Where it starts: its header, or the whole of an inline table.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The value of a key, if it is there.
    pub fn item(&mut self, key: &'static str) -> Option<Item<'a>> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.entries.get(key).map(|value| Item::new(self.reader, key, value))
    }

    /// Whether a key is there that the caller will refuse in words of its own, or let be.
    pub fn takes_silently(&mut self, key: &'static str) -> bool {
        self.silent.push(key);
        self.entries.contains_key(key)
    }

    /// Where a key stands, if it does.
    pub fn key_span(&self, key: &str) -> Option<Range<usize>> {
        self.entries.get_key_value(key).map(|(key, _)| key.span())
    }

    /// The value of a key that must be there; `example` is a line that would do.
    pub fn required(&mut self, key: &'static str, example: &str) -> Option<Item<'a>> {
        let item = self.item(key);
        if item.is_none() {
            let problem = Problem::error(self.span(), format!("{} has no `{key}`", self.what));
            self.reader.note(problem.help(format!("add a line such as: {example}")).derived());
        }
        item
    }

    /// Every entry, where the keys are names that the user chose, in the order of the file.
    pub fn entries(&self) -> Vec<(Name<'a>, Item<'a>)> {
        let entry = |(key, value): (&'a Spanned<Cow<'a, str>>, &'a Spanned<DeValue<'a>>)| {
            let name = Name { text: key.get_ref(), span: key.span() };
            (name, Item::new(self.reader, key.get_ref(), value))
        };
        let mut entries: Vec<_> = self.entries.iter().map(entry).collect();
        entries.sort_by_key(|(name, _)| name.span.start);
        entries
    }

    /// Refuses every key that was not asked for.
    pub fn close(self) {
        for (name, item) in self.entries() {
            if self.known.contains(&name.text) || self.silent.contains(&name.text) {
                continue;
            }
            let place = if self.what.is_empty() { String::new() } else { format!(" in {}", self.what) };
            let problem = Problem::error(name.span, format!("unknown key `{}`{place}", name.text));
            item.refuse::<()>(match nearest(name.text, self.known.iter().copied()) {
                Some(near) => problem.help(format!("did you mean `{near}`?")),
                None => problem.help(format!("its keys are {}", self.known.join(", "))),
            });
        }
    }
}
