//! The JSON schema of the file, for editors.

use serde_json::{Map, Value, json};

use super::key::{Default, Key, Keys, Kind};

/// A string that reads the environment may become any value.
const VARIABLE: &str = r"\$\{[A-Za-z_][A-Za-z0-9_]*\}";
const DURATION: &str = r"^\s*([0-9]+(\.[0-9]+)?\s*[A-Za-zµ]+\s*)+$|^0$";
const SIZE: &str = r"^\s*[0-9]+\s*(([KMGkmg][Ii]?)?[Bb])?\s*$";

/// The schema of the whole file, which has these keys (JSON Schema draft 2020-12).
#[must_use]
pub fn schema(file: &Keys) -> Value {
    let mut schema = table(file);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("The configuration file of tidegate");
    schema["$defs"] = json!({ "variable": { "type": "string", "pattern": VARIABLE } });
    schema
}

fn table(keys: &Keys) -> Value {
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

fn properties(keys: &Keys) -> Map<String, Value> {
    keys.all.iter().map(|key| (key.name.to_owned(), property(key))).collect()
}

fn property(key: &Key) -> Value {
    let mut schema = value(&key.kind);
    schema["description"] = json!(without_links(&key.meaning()));
    if let Some(default) = default(key) {
        schema["default"] = default;
    }
    schema
}

fn value(kind: &Kind) -> Value {
    match kind {
        Kind::Boolean => json!({ "type": "boolean" }),
        Kind::Integer(low, high) => json!({ "type": "integer", "minimum": low, "maximum": high }),
        Kind::Decimal(low, high) => json!({ "type": "number", "minimum": low, "maximum": high }),
        Kind::Duration(..) => or_variable(&json!({ "type": "string", "pattern": DURATION })),
        Kind::DurationOrOff(..) => {
            or_variable(&json!({ "type": "string", "pattern": format!("{DURATION}|^off$") }))
        }
        Kind::Size(low, high) => json!({ "anyOf": [
            { "type": "integer", "minimum": low, "maximum": high },
            { "type": "string", "pattern": SIZE },
            { "$ref": "#/$defs/variable" },
        ] }),
        Kind::Choice(words) => or_variable(&json!({ "enum": words })),
        Kind::Text => json!({ "type": "string" }),
        // JSON has no dates, and editors of TOML check none.
        Kind::Time => json!({}),
        Kind::List(element) => json!({ "type": "array", "items": value(element) }),
        Kind::Table(keys) => table(keys()),
        Kind::Named(of_names) => json!({ "type": "object", "additionalProperties": value(of_names) }),
        Kind::Mixed(keys, of_names) => {
            let mut schema = table(keys());
            schema["additionalProperties"] = value(of_names);
            schema
        }
        Kind::Either(kinds) => json!({ "anyOf": kinds.iter().map(value).collect::<Vec<_>>() }),
    }
}

fn or_variable(schema: &Value) -> Value {
    json!({ "anyOf": [schema, { "$ref": "#/$defs/variable" }] })
}

/// The default as JSON.
fn default(key: &Key) -> Option<Value> {
    let literal = key.default.literal()?;
    let table: toml::Table = toml::from_str(&format!("x = {literal}")).ok()?;
    serde_json::to_value(table.get("x")?).ok()
}

/// The text of Markdown without the targets of its links.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("](") {
        let (before, after) = rest.split_at(at);
        // The bracket that opens the text of the link is the last one.
        let open = before.rfind('[').unwrap_or(at);
        plain += &before[..open];
        plain += before[open..].trim_start_matches('[');
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_have_no_links() {
        assert_eq!(without_links("see [below](#a) and [x](b.md#c)."), "see below and x.");
        assert_eq!(without_links("`[[listeners]]` [a](b)"), "`[[listeners]]` a");
        assert_eq!(without_links("plain"), "plain");
    }
}
