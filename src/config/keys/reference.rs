//! The tables of keys in docs/configuration, and the JSON schema of the file for editors.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::key::{ConfigKey, Default, TableKeys, ValueKind};

/// The table of one section.
#[derive(Debug)]
pub struct Block {
    /// The table of the file, such as `listeners` or `listeners.tls`; `top` for the top level.
    pub name: String,
    /// The table in Markdown.
    pub table: String,
}

/// The document that has the tables.
const DOCUMENT: &str = "docs/configuration.md";

/// Units of durations, the largest first.
const UNITS: [(u128, &str); 4] = [(86_400_000, "days"), (3_600_000, "h"), (60_000, "min"), (1_000, "s")];

/// The keys of one table of the document.
pub struct Section {
    /// The table of the file, such as `listeners` or `listeners.tls`; `top` for the top level.
    pub name: String,
    /// The table as the file writes it, such as `[[listeners]]`; empty for the top level.
    pub heading: String,
    pub keys: Vec<ListedKey>,
}

/// A key of a section.
pub struct ListedKey {
    /// Its name, after those of the tables between the section's and its own: `health.path`.
    pub path: String,
    pub key: &'static ConfigKey,
}

/// The keys of another file, with its name and its heading in the document.
pub type OtherFile = (&'static str, &'static str, &'static TableKeys);

/// All sections, in the order of the document: those of the file, which has the keys `file`, and those of other files.
#[must_use]
pub fn sections(file: &'static TableKeys, others: &[OtherFile]) -> Vec<Section> {
    let is_table = |key: &&ConfigKey| !key.kind.tables().is_empty();
    let mut top = Section { name: "top".to_owned(), heading: String::new(), keys: Vec::new() };
    top.keys.extend(file.all.iter().filter(|key| !is_table(key)).map(|key| ListedKey::new("", key)));
    let mut all = vec![top];
    for key in file.all.iter().filter(is_table) {
        for (keys, _) in key.kind.tables() {
            add_sections(keys, (key.name, &key.heading()), "", &mut all);
        }
    }
    for (name, heading, keys) in others {
        add_sections(keys, (name, heading), "", &mut all);
    }
    all
}

/// Adds the section of these keys, and those of the inner tables that have a section of their own: one, even if several keys have
/// the same table.
fn add_sections(
    keys: &'static TableKeys,
    (name, heading): (&str, &str),
    prefix: &str,
    all: &mut Vec<Section>,
) {
    let mut section = Section { name: name.to_owned(), heading: heading.to_owned(), keys: Vec::new() };
    let mut apart = section.add(keys, prefix);
    all.push(section);
    let mut seen: Vec<*const TableKeys> = Vec::new();
    apart.retain(|(keys, _)| {
        let is_new = !seen.contains(&std::ptr::from_ref(*keys));
        seen.push(*keys);
        is_new
    });
    for (keys, inner) in apart {
        add_sections(keys, (&format!("{name}.{inner}"), heading), &format!("{inner}."), all);
    }
}

impl Section {
    /// Adds keys with those of the tables in them; returns the tables that are listed apart, with their names.
    fn add(&mut self, keys: &'static TableKeys, prefix: &str) -> Vec<(&'static TableKeys, &'static str)> {
        let mut apart = Vec::new();
        for key in keys.all {
            self.keys.push(ListedKey::new(prefix, key));
            for (inner, _) in key.kind.tables().iter().filter(|(_, has_names)| !has_names) {
                if inner.has_own_table {
                    apart.push((*inner, key.name));
                } else {
                    apart.extend(self.add(inner, &format!("{prefix}{}.", key.name)));
                }
            }
        }
        apart
    }

    /// The table in Markdown.
    #[must_use]
    pub fn into_block(self) -> Block {
        let rows = self.keys.iter().map(|ListedKey { path, key }| {
            let range = key.range().map_or_else(String::new, |range| format!("; {range}"));
            format!("| `{path}` | {} | {}{range} |\n", key.default_words(), key.meaning())
        });
        let table = format!("| key | default | meaning |\n| --- | --- | --- |\n{}", rows.collect::<String>());
        Block { name: self.name, table }
    }
}

impl ListedKey {
    fn new(prefix: &str, key: &'static ConfigKey) -> Self {
        Self { path: format!("{prefix}{}", key.name), key }
    }
}

impl ConfigKey {
    /// Its default in Markdown.
    #[must_use]
    pub fn default_words(&self) -> String {
        match self.default {
            Default::Required(_) => "required".to_owned(),
            Default::Toml(literal) => code(literal),
            Default::Words(words) => words.to_owned(),
        }
    }

    /// The bounds of its values, such as `1 to 1,024`.
    #[must_use]
    pub fn range(&self) -> Option<String> {
        range(&self.kind).map(|(low, high)| format!("{low} to {high}"))
    }
}

/// A literal on one line: `stringify!` breaks long ones.
fn code(literal: &str) -> String {
    format!("`{}`", literal.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The bounds of a kind for people.
fn range(kind: &ValueKind) -> Option<(String, String)> {
    match kind {
        ValueKind::Integer(low, high) => Some((number(*low), number(*high))),
        ValueKind::Decimal(low, high) => Some((low.to_string(), high.to_string())),
        ValueKind::Duration(low, high) | ValueKind::DurationOrOff(low, high) => {
            Some((duration(*low), duration(*high)))
        }
        ValueKind::Size(low, high) => Some((size(*low), size(*high))),
        ValueKind::List(kind) => range(kind),
        ValueKind::Either(kinds) => kinds.iter().find_map(range),
        _ => None,
    }
}

/// `10,000`, and `2^53` for large powers of two.
fn number(number: u64) -> String {
    if number > 1 << 40 && number.is_power_of_two() {
        return format!("2^{}", number.trailing_zeros());
    }
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis == 0 {
        return "0".to_owned();
    }
    // A single day is 24 h.
    let fits = |(length, _): &&(u128, &str)| {
        millis.is_multiple_of(*length) && (*length < 86_400_000 || millis > *length)
    };
    let (length, unit) = UNITS.iter().find(fits).copied().unwrap_or((1, "ms"));
    format!("{} {unit}", millis / length)
}

fn size(bytes: u64) -> String {
    let units = [(50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fits = |(shift, _): &&(u32, &str)| bytes > 0 && bytes.trailing_zeros() >= *shift;
    units
        .iter()
        .find(fits)
        .map_or_else(|| number(bytes), |(shift, unit)| format!("{} {unit}", bytes >> shift))
}

/// A string that reads the environment may become any value.
const VARIABLE: &str = r"\$\{[A-Za-z_][A-Za-z0-9_]*\}";
const DURATION: &str = r"^\s*([0-9]+(\.[0-9]+)?\s*[A-Za-zµ]+\s*)+$|^0$";
const SIZE: &str = r"^\s*[0-9]+\s*(([KMGkmg][Ii]?)?[Bb])?\s*$";

/// The schema of the whole file, which has these keys (JSON Schema draft 2020-12).
#[must_use]
pub fn schema(file: &TableKeys) -> Value {
    let mut schema = table(file);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("The configuration file of tidegate");
    schema["$defs"] = json!({ "variable": { "type": "string", "pattern": VARIABLE } });
    schema
}

fn table(keys: &TableKeys) -> Value {
    let required: Vec<&str> = keys
        .all
        .iter()
        .filter(|key| matches!(key.default, Default::Required(_)))
        .map(|key| key.name)
        .collect();
    let mut schema = json!({
        "type": "object",
        "properties": properties(keys),
        "additionalProperties": false,
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

fn properties(keys: &TableKeys) -> Map<String, Value> {
    keys.all.iter().map(|key| (key.name.to_owned(), property(key))).collect()
}

fn property(key: &ConfigKey) -> Value {
    let mut schema = value(&key.kind);
    schema["description"] = json!(without_links(&key.meaning()));
    if let Some(default) = default(key) {
        schema["default"] = default;
    }
    schema
}

fn value(kind: &ValueKind) -> Value {
    match kind {
        ValueKind::Boolean => json!({ "type": "boolean" }),
        ValueKind::Integer(low, high) => json!({ "type": "integer", "minimum": low, "maximum": high }),
        ValueKind::Decimal(low, high) => json!({ "type": "number", "minimum": low, "maximum": high }),
        ValueKind::Duration(..) => or_variable(&json!({ "type": "string", "pattern": DURATION })),
        ValueKind::DurationOrOff(..) => {
            or_variable(&json!({ "type": "string", "pattern": format!("{DURATION}|^off$") }))
        }
        ValueKind::Size(low, high) => json!({ "anyOf": [
            { "type": "integer", "minimum": low, "maximum": high },
            { "type": "string", "pattern": SIZE },
            { "$ref": "#/$defs/variable" },
        ] }),
        ValueKind::Choice(words) => or_variable(&json!({ "enum": words })),
        ValueKind::Text => json!({ "type": "string" }),
        // JSON has no dates, and editors of TOML check none.
        ValueKind::Time => json!({}),
        ValueKind::List(element) => json!({ "type": "array", "items": value(element) }),
        ValueKind::Table(keys) => table(keys()),
        ValueKind::Named(of_names) => json!({ "type": "object", "additionalProperties": value(of_names) }),
        ValueKind::Mixed(keys, of_names) => {
            let mut schema = table(keys());
            schema["additionalProperties"] = value(of_names);
            schema
        }
        ValueKind::Either(kinds) => json!({ "anyOf": kinds.iter().map(value).collect::<Vec<_>>() }),
    }
}

fn or_variable(schema: &Value) -> Value {
    json!({ "anyOf": [schema, { "$ref": "#/$defs/variable" }] })
}

/// The default as JSON.
fn default(key: &ConfigKey) -> Option<Value> {
    let literal = key.default.literal()?;
    let table: toml::Table = toml::from_str(&format!("x = {literal}")).ok()?;
    serde_json::to_value(table.get("x")?).ok()
}

/// The text of Markdown without the targets of its links. What is below in the document is not below this text.
#[must_use]
pub fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("](") {
        let (before, after) = rest.split_at(at);
        // The text of the link may have pairs of brackets itself.
        let mut depth = 1;
        let opens = |char| {
            depth += i32::from(char == ']') - i32::from(char == '[');
            depth == 0
        };
        let open = before.rfind(opens).unwrap_or(at);
        plain += &before[..open];
        let words = before.get(open + 1..).unwrap_or_default();
        plain += if words == "below" { DOCUMENT } else { words };
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    (plain + rest).replace("see below", &format!("see {DOCUMENT}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_short() {
        let texts = [0, 100, 1_024, 10_000_000, 1 << 53].map(number);
        assert_eq!(texts, ["0", "100", "1,024", "10,000,000", "2^53"]);
        let texts =
            [0, 1, 1_000, 60_000, 86_400_000, 30 * 86_400_000].map(|ms| duration(Duration::from_millis(ms)));
        assert_eq!(texts, ["0", "1 ms", "1 s", "1 min", "24 h", "30 days"]);
        assert_eq!([0, 500, 1_024, 1 << 20, 1 << 50].map(size), ["0", "500", "1 KiB", "1 MiB", "1 PiB"]);
    }

    #[test]
    fn cells_hold_no_bars_and_no_line_ends() {
        for block in crate::config::reference() {
            for line in block.table.lines() {
                assert_eq!(line.matches('|').count(), 4, "{}: {line}", block.name);
            }
        }
    }

    #[test]
    fn descriptions_have_no_links() {
        let text = without_links("see [below](#a) and [x](b.md#c); see below");
        assert_eq!(text, "see docs/configuration.md and x; see docs/configuration.md");
        assert_eq!(without_links("`[[listeners]]` [a](b)"), "`[[listeners]]` a");
        assert_eq!(without_links("by [`[[a]]`](b) and [`c`](d)"), "by `[[a]]` and `c`");
        assert_eq!(without_links("plain"), "plain");
    }
}
