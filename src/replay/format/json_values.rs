//! Finds the values of a JSON line that a [`FieldMap`] asks for, in one pass and without a copy of the others.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use smallvec::SmallVec;

use crate::replay::entry::LogText;
use crate::replay::fields::{FieldMap, FieldRole};

/// A value that is not an object or an array.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum JsonValue<'l> {
    /// A string.
    Text(Cow<'l, str>),
    /// A whole number that is not negative.
    Unsigned(u64),
    /// Any other number.
    Float(f64),
    /// A boolean, or null.
    Word(&'static str),
}

/// The values of a line.
#[derive(Debug, Default)]
pub(super) struct JsonValues<'l> {
    /// The indices of fields of the map, and their values, in the order of the line.
    pub(super) fields: SmallVec<[(usize, JsonValue<'l>); 16]>,
    /// Headers of objects and prefixes.
    pub(super) headers: SmallVec<[(LogText<'l>, LogText<'l>); 4]>,
}

/// Where a visit of a line is.
struct Visit<'m, 'v, 'l> {
    map: &'m FieldMap,
    values: &'v mut JsonValues<'l>,
    /// The fields that have this value.
    here: u64,
    /// The fields that may be within this value: their paths agree with its path, which has `depth` bytes with its dot.
    below: u64,
    depth: usize,
}

/// A key of an object, which is borrowed if it has no escapes.
struct JsonKey;

/// A header: the value of an entry of an object.
struct JsonHeader;

impl<'l> JsonValue<'l> {
    /// As text; none if it is null, empty or a dash, as servers log what a request lacks.
    pub(super) fn text(self) -> Option<LogText<'l>> {
        let text = match self {
            Self::Text(Cow::Borrowed(text)) => Cow::Borrowed(text.as_bytes()),
            Self::Text(Cow::Owned(text)) => Cow::Owned(text.into_bytes()),
            Self::Unsigned(number) => Cow::Owned(number.to_string().into_bytes()),
            Self::Float(number) => Cow::Owned(number.to_string().into_bytes()),
            Self::Word(word) => Cow::Borrowed(word.as_bytes()),
        };
        (!text.is_empty() && *text != b"-"[..]).then_some(text)
    }
}

impl<'l> JsonValues<'l> {
    /// Finds the values of a line.
    pub(super) fn find(map: &FieldMap, line: &'l str) -> Result<Self, serde_json::Error> {
        let mut values = Self::default();
        let below = u64::MAX.checked_shr(64 - u32::try_from(map.fields().len()).unwrap_or(64)).unwrap_or(0);
        let mut json = serde_json::Deserializer::from_str(line);
        Visit { map, values: &mut values, here: 0, below, depth: 0 }.deserialize(&mut json)?;
        json.end()?;
        // The order of the map decides which of several fields with one role counts.
        values.fields.sort_by_key(|(index, _)| *index);
        Ok(values)
    }
}

impl<'l> Visit<'_, '_, 'l> {
    fn set(self, value: &JsonValue<'l>) {
        for index in ones(self.here) {
            self.values.fields.push((index, value.clone()));
        }
    }

    fn is_header_object(&self) -> bool {
        ones(self.here).any(|index| self.map.fields()[index].0 == FieldRole::Headers)
    }

    /// The visit of the value of a key; and the length of the prefix, if the key has one that is mapped to headers.
    fn enter(&mut self, key: &str) -> (Visit<'_, '_, 'l>, Option<usize>) {
        let (mut here, mut below, mut prefix) = (0, 0, None);
        for index in ones(self.below) {
            let (role, path) = &self.map.fields()[index];
            let path = &path[self.depth..];
            match path.strip_prefix(key) {
                Some("") => here |= 1 << index,
                Some(rest) if rest.starts_with('.') => below |= 1 << index,
                _ => {
                    let start = path.strip_suffix('*').filter(|_| *role == FieldRole::Headers);
                    prefix = prefix.or(start.filter(|start| key.starts_with(start)).map(str::len));
                }
            }
        }
        let depth = self.depth + key.len() + 1;
        (Visit { map: self.map, values: self.values, here, below, depth }, prefix)
    }
}

/// The name of a header in a key after a prefix. The names of variables, such as nginx's `$http_x_key`, have no dashes.
fn header_name(key: Cow<'_, str>, prefix: usize) -> LogText<'_> {
    match key {
        key if prefix > 0 && key[prefix..].contains('_') => {
            Cow::Owned(key[prefix..].replace('_', "-").into_bytes())
        }
        Cow::Borrowed(key) => Cow::Borrowed(&key.as_bytes()[prefix..]),
        Cow::Owned(key) => Cow::Owned(key.as_bytes()[prefix..].to_vec()),
    }
}

/// The positions of the bits that are set.
fn ones(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = bits.trailing_zeros();
        bits &= bits.checked_sub(1)?;
        usize::try_from(index).ok()
    })
}

impl<'l> DeserializeSeed<'l> for Visit<'_, '_, 'l> {
    type Value = ();

    fn deserialize<D: Deserializer<'l>>(self, deserializer: D) -> Result<(), D::Error> {
        if self.here == 0 && self.below == 0 {
            return deserializer.deserialize_ignored_any(IgnoredAny).map(drop);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'l> Visitor<'l> for Visit<'_, '_, 'l> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_borrowed_str<E>(self, text: &'l str) -> Result<(), E> {
        self.set(&JsonValue::Text(Cow::Borrowed(text)));
        Ok(())
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.set(&JsonValue::Text(Cow::Owned(text.to_owned())));
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        self.set(&JsonValue::Unsigned(number));
        Ok(())
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "negative numbers are no valid values, whatever they are exactly"
    )]
    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        self.set(&JsonValue::Float(number as f64));
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        self.set(&JsonValue::Float(number));
        Ok(())
    }

    fn visit_bool<E>(self, is_true: bool) -> Result<(), E> {
        self.set(&JsonValue::Word(if is_true { "true" } else { "false" }));
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.set(&JsonValue::Word(""));
        Ok(())
    }

    /// Of an array only the first element counts, as for a header in several lines.
    fn visit_seq<A: SeqAccess<'l>>(self, mut array: A) -> Result<(), A::Error> {
        array.next_element_seed(self)?;
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'l>>(mut self, mut object: A) -> Result<(), A::Error> {
        let is_headers = self.is_header_object();
        while let Some(key) = object.next_key_seed(JsonKey)? {
            let (visit, prefix) = self.enter(&key);
            // A field with this path takes precedence.
            let is_field = visit.here != 0 || visit.below != 0;
            let Some(prefix) = prefix.or(is_headers.then_some(0)).filter(|_| !is_field) else {
                object.next_value_seed(visit)?;
                continue;
            };
            if let Some(value) = object.next_value_seed(JsonHeader)? {
                self.values.headers.push((header_name(key, prefix), value));
            }
        }
        Ok(())
    }
}

impl<'l> DeserializeSeed<'l> for JsonKey {
    type Value = Cow<'l, str>;

    fn deserialize<D: Deserializer<'l>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'l> Visitor<'l> for JsonKey {
    type Value = Cow<'l, str>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, key: &'l str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(key.to_owned()))
    }
}

impl<'l> DeserializeSeed<'l> for JsonHeader {
    type Value = Option<LogText<'l>>;

    fn deserialize<D: Deserializer<'l>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// Only strings, and the first one of an array, are headers.
impl<'l> Visitor<'l> for JsonHeader {
    type Value = Option<LogText<'l>>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a header")
    }

    fn visit_borrowed_str<E>(self, text: &'l str) -> Result<Self::Value, E> {
        Ok(JsonValue::Text(Cow::Borrowed(text)).text())
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(JsonValue::Text(Cow::Owned(text.to_owned())).text())
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'l>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let first = array.next_element_seed(Self)?.flatten();
        while array.next_element::<IgnoredAny>()?.is_some() {}
        Ok(first)
    }

    fn visit_map<A: MapAccess<'l>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}
