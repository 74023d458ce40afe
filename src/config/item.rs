//! Values of the file, read as a certain type. A value of another type is reported, and reading continues.

mod text;

use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

pub(super) use self::text::TextItem;
use super::reader::Reader;
use super::report::Problem;
use super::secrets::ExpandError;
use crate::http1::is_digits;
use crate::time::{Timestamp, format_duration};

/// A value with the key that leads to it.
#[derive(Clone, Copy)]
pub(super) struct Item<'a> {
    pub reader: &'a Reader<'a>,
    /// The key that leads to it, for messages.
    pub name: &'a str,
    value: &'a Spanned<DeValue<'a>>,
}

impl<'a> Item<'a> {
    pub fn new(reader: &'a Reader<'a>, name: &'a str, value: &'a Spanned<DeValue<'a>>) -> Self {
        Self { reader, name, value }
    }

    pub fn span(self) -> Range<usize> {
        self.value.span()
    }

    /// An error at this value.
    pub fn error(self, title: impl Into<String>) -> Problem {
        Problem::error(self.span(), title)
    }

    /// Reports a problem of this value, and returns `None` in place of the value.
    pub fn reject<T>(self, problem: Problem) -> Option<T> {
        self.reader.report(problem);
        None
    }

    fn wrong_type<T>(self, expected: &str, help: &str) -> Option<T> {
        let found = match self.value.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a decimal number",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "an array",
            DeValue::Table(_) => "a table",
        };
        let problem = self.error(format!("`{}` must be {expected}, not {found}", self.name));
        self.reject(if help.is_empty() { problem } else { problem.help(help) })
    }

    pub fn is_string(self) -> bool {
        self.value.get_ref().is_str()
    }

    /// Whether the file has exactly this string here.
    pub fn is_text(self, text: &str) -> bool {
        self.value.get_ref().as_str() == Some(text)
    }

    /// The string that the file has here, unless it has variables.
    pub fn text(self) -> Option<&'a str> {
        self.value.get_ref().as_str().filter(|text| !text.contains("${"))
    }

    pub fn is_array(self) -> bool {
        self.value.get_ref().is_array()
    }

    pub fn is_boolean(self) -> bool {
        self.value.get_ref().is_bool()
    }

    pub fn is_integer(self) -> bool {
        self.value.get_ref().is_integer()
    }

    /// The digits of a whole number, as the file has them.
    pub fn integer_text(self) -> Option<&'a str> {
        self.value.get_ref().as_integer().map(toml::de::DeInteger::as_str)
    }

    pub fn is_table(self) -> bool {
        self.value.get_ref().is_table()
    }

    /// A string.
    pub fn string(self) -> Option<TextItem<'a>> {
        let may_be_quoted = !self.is_array() && !self.is_table();
        self.string_like("a string", if may_be_quoted { "put it in quotes" } else { "" })
    }

    /// A string of a certain kind, such as "a rate".
    pub fn string_like(self, expected: &str, help: &str) -> Option<TextItem<'a>> {
        let DeValue::String(raw) = self.value.get_ref() else { return self.wrong_type(expected, help) };
        match self.reader.fill_in(raw) {
            Ok(filled) => {
                let text = TextItem { item: self, value: filled.text, from_env: filled.from_env };
                if let Some(help) = text.variable() {
                    let title = "this is the text itself, not the value of an environment variable";
                    self.reader.report(Problem::warning(self.span(), title).help(help));
                }
                Some(text)
            }
            Err(ExpandError::Missing(name)) => self.reject(
                self.error(format!("the environment variable `{name}` is not set"))
                    .help(format!("set {name}, or write `$${{` where `${{` itself is meant")),
            ),
            Err(ExpandError::Malformed) => self.reject(
                self.error("`${` must be followed by the name of an environment variable and `}`")
                    .help("write `$${` where `${` itself is meant"),
            ),
        }
    }

    /// `true` or `false`.
    pub fn boolean(self) -> Option<bool> {
        self.value.get_ref().as_bool().or_else(|| self.wrong_type("true or false", "without quotes"))
    }

    /// A whole number within bounds.
    pub fn integer(self, range: &RangeInclusive<u64>) -> Option<u64> {
        let Some(integer) = self.value.get_ref().as_integer() else {
            return self.wrong_type("a whole number", &self.without_quotes());
        };
        let digits = integer.as_str().replace('_', "");
        let number = i128::from_str_radix(&digits, integer.radix()).ok();
        let within = number.and_then(|n| u64::try_from(n).ok()).filter(|number| range.contains(number));
        within.or_else(|| self.out_of_range(range.start(), range.end(), &digits))
    }

    /// A number within bounds, whole or not.
    pub fn decimal(self, range: &RangeInclusive<f64>) -> Option<f64> {
        let Some(text) = self.decimal_text() else { return self.wrong_type("a number", "") };
        let number = text.parse::<f64>().ok().filter(|number| range.contains(number));
        number.or_else(|| self.out_of_range(range.start(), range.end(), &text))
    }

    /// The digits of a decimal number, whole or not, without those that separate thousands; none for another value.
    pub fn decimal_text(self) -> Option<String> {
        let text = match self.value.get_ref() {
            DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str(),
            DeValue::Float(float) => float.as_str(),
            _ => return None,
        };
        Some(text.replace('_', ""))
    }

    /// Help for a number that is a string.
    fn without_quotes(self) -> String {
        let number = self.value.get_ref().as_str().filter(|text| is_digits(text.as_bytes()));
        number.map_or_else(String::new, |number| format!("write it without quotes: {number}"))
    }

    fn out_of_range<T>(
        self,
        low: impl std::fmt::Display,
        high: impl std::fmt::Display,
        found: &str,
    ) -> Option<T> {
        self.reject(self.error(format!("`{}` must be from {low} to {high}, not {found}", self.name)))
    }

    /// A duration within bounds, such as "250ms".
    pub fn duration(self, range: &RangeInclusive<Duration>) -> Option<Duration> {
        let form = "write it with its unit, in quotes: \"250ms\", \"30s\", \"5m\", \"1h\"";
        let text = self.string_like("a duration", form)?;
        let Ok(span) = humantime::parse_duration(&text.value) else {
            return self.reject(text.error(format!("{} is not a duration", text.quoted())).help(form));
        };
        if range.contains(&span) {
            return Some(span);
        }
        let [low, high] = [range.start(), range.end()].map(|bound| format_duration(*bound));
        self.out_of_range(low, high, &text.quoted())
    }

    /// A number of bytes within bounds, such as 512 or "32KiB".
    pub fn size(self, range: &RangeInclusive<u64>) -> Option<usize> {
        let form = "write a number of bytes, or a number with its unit, in quotes: \"32KiB\", \"1MiB\"";
        if self.is_integer() {
            return self.integer(range).and_then(|size| usize::try_from(size).ok());
        }
        let text = self.string_like("a size", form)?;
        let Some(size) = bytes(&text.value) else {
            return self.reject(text.error(format!("{} is not a size", text.quoted())).help(form));
        };
        if range.contains(&size) {
            return usize::try_from(size).ok();
        }
        self.out_of_range(range.start(), format!("{} bytes", range.end()), &text.quoted())
    }

    /// A date and time with its offset, or a date, which is its start in UTC.
    pub fn time(self) -> Option<Timestamp> {
        let form = "write it without quotes: 2027-01-31T12:00:00Z or 2027-01-31";
        let Some(time) = self.value.get_ref().as_datetime() else { return self.wrong_type("a time", form) };
        // Local times have no offset.
        let is_whole = time.time.is_some() == time.offset.is_some();
        let parsed = is_whole.then(|| Timestamp::parse(&time.to_string())).flatten();
        parsed.or_else(|| {
            let problem =
                self.error(format!("`{}` must be a date, or a date and time with its offset", self.name));
            self.reject(problem.help(form))
        })
    }

    /// The meaning of one of several words.
    pub fn choice<T: Copy>(self, meanings: &[(&str, T)]) -> Option<T> {
        let may_be_quoted = !self.is_array() && !self.is_table();
        let text = self.string_like("a string", if may_be_quoted { "put it in quotes" } else { "" })?;
        text.choice(meanings, "")
    }

    /// The meaning of one of several words, in place of which there may be a table such as `example`.
    pub fn choice_or_table<T: Copy>(self, meanings: &[(&str, T)], example: &str) -> Option<T> {
        let words: Vec<String> = meanings.iter().map(|(word, _)| format!("\"{word}\"")).collect();
        let expected = format!("{} or a table", words.join(", "));
        let text = self.string_like(&expected, &format!("such as {example}"))?;
        text.choice(meanings, &format!(", or a table such as {example}"))
    }

    /// The values of an array; `None` for a value of another type.
    pub fn list(self, help: &str) -> Option<Vec<Item<'a>>> {
        let Some(array) = self.value.get_ref().as_array() else { return self.wrong_type("an array", help) };
        Some(array.iter().map(|value| Self { value, ..self }).collect())
    }

    /// An array whose elements `read` reads: all of them, so that all mistakes show at once. `None` if one is wrong.
    pub fn list_of<T>(self, help: &str, read: impl FnMut(Self) -> Option<T>) -> Option<Vec<T>> {
        let read: Vec<Option<T>> = self.list(help)?.into_iter().map(read).collect();
        read.into_iter().collect()
    }

    /// The entries of a table; `None` for a value of another type.
    pub fn entries(self) -> Option<&'a DeTable<'a>> {
        self.entries_or("")
    }

    /// The entries of a table; `None` for a value of another type, whose error has this help.
    pub fn entries_or(self, help: &str) -> Option<&'a DeTable<'a>> {
        let entries = self.value.get_ref().as_table();
        entries.or_else(|| self.wrong_type("a table", help))
    }

    /// The value that a table has for a key; none if this is no table.
    pub fn value_of(self, key: &'a str) -> Option<Self> {
        let value = self.value.get_ref().as_table()?.get(key)?;
        Some(Self { name: key, value, ..self })
    }

    /// The string without variables that a table has for a key.
    pub fn text_of(self, key: &str) -> Option<&'a str> {
        let value = self.value.get_ref().as_table()?.get(key)?;
        Self { value, ..self }.text()
    }
}

/// `512`, `32KiB`, `10 MB`.
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len());
    let unit: u64 = match text[digits..].trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return None,
    };
    text[..digits].parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, size) in [
            ("512", Some(512)),
            ("32KiB", Some(32_768)),
            ("10 MB", Some(10_000_000)),
            ("1gib", Some(1 << 30)),
            ("", None),
            ("KiB", None),
            ("1.5MiB", None),
            ("-1", None),
            ("32 kilobytes", None),
            ("99999999999999999999", None),
            ("99999999999999999GiB", None),
        ] {
            assert_eq!(bytes(text), size, "{text}");
        }
    }
}
