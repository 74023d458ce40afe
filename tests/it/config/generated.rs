//! What is generated from the list of keys: the tables of docs/configuration.md, and the JSON schema.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tidegate::config;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// The document with the tables of today between their marks.
fn with_tables(document: &str) -> String {
    let mut document = document.to_owned();
    for block in config::reference() {
        let start = format!("<!-- keys: {} -->\n", block.name);
        let from = document.find(&start).unwrap_or_else(|| panic!("docs/configuration.md has no {start}"));
        let from = from + start.len();
        let to = from + document[from..].find("<!-- end of keys -->").unwrap();
        document.replace_range(from..to, &block.table);
    }
    document
}

/// With `UPDATE=1` in the environment the tables are written instead of compared.
#[test]
fn the_document_has_the_generated_tables() {
    let path = root().join("docs/configuration.md");
    let document = fs::read_to_string(&path).unwrap();
    let generated = with_tables(&document);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(path, generated).unwrap();
        return;
    }
    assert!(
        document == generated,
        "the tables of docs/configuration.md are not those of src/config/keys: run `make reference`, and don't edit them by hand"
    );
    let marks = document.matches("<!-- keys: ").count();
    assert_eq!(marks, config::reference().len(), "docs/configuration.md has a table that is not generated");
}

/// Checks a value against the keywords of JSON Schema that the schema uses. Of patterns only that of variables counts.
fn check(schema: &Value, value: &Value, place: &str, root: &Value, found: &mut Vec<String>) {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(reference.trim_start_matches('#')).unwrap();
        return check(target, value, place, root, found);
    }
    if let Some(kinds) = schema["anyOf"].as_array() {
        let fits = |kind: &Value| {
            let mut problems = Vec::new();
            check(kind, value, place, root, &mut problems);
            problems.is_empty()
        };
        if !kinds.iter().any(fits) {
            found.push(format!("{place}: {value} is of no kind in {kinds:?}"));
        }
        return;
    }
    let is_right = match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_u64(),
        Some("number") => value.is_number(),
        Some(other) => panic!("the schema has an unknown type {other}"),
        None => schema["enum"].as_array().unwrap().contains(value),
    };
    let is_variable_pattern = schema["pattern"].as_str().is_some_and(|pattern| pattern.starts_with(r"\$\{"));
    let is_right =
        is_right && (!is_variable_pattern || value.as_str().is_some_and(|text| text.contains("${")));
    let number = value.as_f64().unwrap_or(0.0);
    let is_in_range = schema["minimum"].as_f64().is_none_or(|low| number >= low)
        && schema["maximum"].as_f64().is_none_or(|high| number <= high);
    if !is_right || !is_in_range {
        found.push(format!("{place}: {value} is not {schema}"));
        return;
    }
    for (index, element) in value.as_array().into_iter().flatten().enumerate() {
        check(&schema["items"], element, &format!("{place}[{index}]"), root, found);
    }
    for (key, value) in value.as_object().into_iter().flatten() {
        let place = format!("{place}.{key}");
        match (&schema["properties"][key], &schema["additionalProperties"]) {
            (Value::Null, Value::Bool(false)) => found.push(format!("{place} is unknown")),
            (Value::Null, others) => check(others, value, &place, root, found),
            (known, _) => check(known, value, &place, root, found),
        }
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        if value.get(required.as_str().unwrap()).is_none() {
            found.push(format!("{place} has no {required}"));
        }
    }
}

/// What the schema finds wrong with a file.
fn problems(text: &str) -> Vec<String> {
    let table: toml::Table = text.parse().unwrap();
    let (schema, mut found) = (config::schema(), Vec::new());
    check(&schema, &serde_json::to_value(table).unwrap(), "", &schema, &mut found);
    found
}

#[test]
fn the_schema_accepts_every_example() {
    let examples = fs::read_dir(root().join("config")).unwrap().map(|entry| entry.unwrap().path());
    let tests = ["every_key.toml", "reference.toml"].map(|name| root().join("tests/it/config").join(name));
    let mut count = 0;
    for path in examples.filter(|path| path.extension().is_some_and(|end| end == "toml")).chain(tests) {
        let found = problems(&fs::read_to_string(&path).unwrap());
        assert!(found.is_empty(), "{}:\n{}", path.display(), found.join("\n"));
        count += 1;
    }
    assert!(count >= 4, "{count} examples");
}

#[test]
fn the_schema_refuses_wrong_files() {
    for text in [
        "listn = \"127.0.0.1:80\"",
        "workers = 0",
        "workers = \"many\"",
        "watch = \"yes\"",
        "[[listeners]]\nprotocols = [\"h1\"]",
        "[limits.a]\nrate = \"1/s\"\nmode = \"watch\"",
        "[limits.a.tiers]\nby = \"method\"\nGET = { cost = 1 }",
        "[upstreams.a]\nservers = [{ weight = 1 }]",
        "[log]\naccess_sample = 1.5",
    ] {
        assert_eq!(problems(text).len(), 1, "{text}: {:?}", problems(text));
    }
}
