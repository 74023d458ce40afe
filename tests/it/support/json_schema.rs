//! A validator of the keywords of JSON Schema that our schemas use.

use regex::Regex;
use serde_json::{Map, Value};

/// The problems that a schema finds in a value, each with its place: `.limits.a.rate: …`. `root` resolves references.
pub fn schema_problems(schema: &Value, value: &Value, root: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, value, "", root, &mut found);
    found
}

/// Checks a value against a schema; `root` resolves references.
fn check(schema: &Value, value: &Value, place: &str, root: &Value, found: &mut Vec<String>) {
    if *schema == Value::Bool(true) || schema.as_object().is_some_and(Map::is_empty) {
        return;
    }
    if let Some(reference) = schema["$ref"].as_str() {
        let target = root.pointer(reference.trim_start_matches('#')).unwrap();
        return check(target, value, place, root, found);
    }
    if let Some(kinds) = schema["anyOf"].as_array() {
        return check_any(kinds, value, place, root, found);
    }
    if !is_of_type(schema, value) || !is_in_range(schema, value) || !matches_pattern(schema, value) {
        found.push(format!("{place}: {value} does not match {schema}"));
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

/// Checks a value against alternatives. If none of them matches, the problems are those within the value, or else one of
/// the value itself.
fn check_any(kinds: &[Value], value: &Value, place: &str, root: &Value, found: &mut Vec<String>) {
    let mut inner = Vec::new();
    for kind in kinds {
        let mut problems = Vec::new();
        check(kind, value, place, root, &mut problems);
        if problems.is_empty() {
            return;
        }
        if problems.iter().all(|problem| !problem.starts_with(&format!("{place}: "))) {
            inner = problems;
        }
    }
    if inner.is_empty() {
        inner.push(format!("{place}: {value} matches none of {kinds:?}"));
    }
    found.append(&mut inner);
}

fn is_of_type(schema: &Value, value: &Value) -> bool {
    match schema["type"].as_str() {
        Some("object") => value.is_object(),
        Some("array") => value.is_array(),
        Some("string") => value.is_string(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some(other) => panic!("the schema has an unknown type {other}"),
        None => schema["enum"].as_array().is_none_or(|values| values.contains(value)),
    }
}

fn is_in_range(schema: &Value, value: &Value) -> bool {
    if let (Some(number), Some(low), Some(high)) =
        (value.as_i64(), schema["minimum"].as_i64(), schema["maximum"].as_i64())
    {
        return (low..=high).contains(&number);
    }
    let Some(number) = value.as_f64() else { return true };
    schema["minimum"].as_f64().is_none_or(|low| number >= low)
        && schema["maximum"].as_f64().is_none_or(|high| number <= high)
}

fn matches_pattern(schema: &Value, value: &Value) -> bool {
    let (Some(pattern), Some(text)) = (schema["pattern"].as_str(), value.as_str()) else { return true };
    Regex::new(pattern).unwrap().is_match(text)
}
