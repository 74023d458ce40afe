//! The schema of the chart's values: it accepts the values that exist, and no others.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::setup::{CHARTS, read, values, yaml};
use crate::support::schema_problems;

fn schema() -> Value {
    serde_json::from_str(&read("charts/tidegate/values.schema.json")).unwrap()
}

/// The values of the chart.
fn defaults() -> Value {
    yaml("charts/tidegate/values.yaml").remove(0)
}

/// Puts values over others, as Helm does.
fn merge(into: &mut Value, from: &Value) {
    match (into.as_object_mut(), from.as_object()) {
        (Some(into), Some(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        _ => *into = from.clone(),
    }
}

/// What is wrong with the defaults after this change.
fn problems(change: &Value) -> Vec<String> {
    let (schema, mut values) = (schema(), defaults());
    merge(&mut values, change);
    schema_problems(&schema, &values, &schema)
}

#[test]
fn the_schema_accepts_the_values_of_the_chart() {
    assert_eq!(problems(&json!({})), [""; 0]);
    for name in CHARTS.iter().filter(|name| !values(name).is_empty()) {
        let given = yaml(&format!("charts/tidegate/ci/{name}-values.yaml")).remove(0);
        assert_eq!(problems(&given), [""; 0], "{name}");
    }
}

#[test]
fn the_schema_rejects_mistakes() {
    for wrong in [
        r#"{"replicas": 3}"#,
        r#"{"replicaCount": "3"}"#,
        r#"{"replicaCount": -1}"#,
        r#"{"image": {"tag": "a b"}}"#,
        r#"{"image": {"digest": "latest"}}"#,
        r#"{"image": {"pullPolicy": "Sometimes"}}"#,
        r#"{"config": {"listen": "0.0.0.0:8080"}}"#,
        r#"{"files": {"consumers.toml": 5}}"#,
        r#"{"redis": {"url": "redis.internal:6379"}}"#,
        r#"{"redis": {"host": "redis.internal"}}"#,
        r#"{"admin": {"port": 99000}}"#,
        r#"{"admin": {"scheme": "https"}}"#,
        r#"{"service": {"ports": [{"name": "http", "port": 80}]}}"#,
        r#"{"service": {"ports": [{"name": "HTTP", "port": 80, "targetPort": 8080}]}}"#,
        r#"{"service": {"type": "ExternalName"}}"#,
        r#"{"ingress": {"hosts": [{"host": "a", "paths": [{"path": "x", "pathType": "Prefix"}]}]}}"#,
        r#"{"autoscaling": {"maxReplicas": 0}}"#,
        r#"{"podDisruptionBudget": {"maxUnavailable": "all"}}"#,
        r#"{"serviceMonitor": {"interval": "15"}}"#,
        r#"{"readinessProbe": {"httpGet": {"path": "/"}}}"#,
        r#"{"extraEnv": {"A": "b"}}"#,
        r#"{"podLabels": {"a": true}}"#,
        r#"{"topologySpread": "zone"}"#,
    ] {
        assert_ne!(problems(&serde_json::from_str(wrong).unwrap()), [""; 0], "{wrong}");
    }
}

/// The names of all values, and of the tables in them.
fn names(value: &Value, schema: &Value, place: &str, found: &mut BTreeSet<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        found.insert(format!("{place}{key}"));
        // Tables of Kubernetes are not described by the schema.
        if schema["properties"][key]["properties"].is_object() {
            names(value, &schema["properties"][key], &format!("{place}{key}."), found);
        }
    }
}

#[test]
fn every_value_of_the_schema_is_in_the_file_of_values() {
    let (mut described, mut given) = (BTreeSet::new(), BTreeSet::new());
    names(&defaults(), &schema(), "", &mut given);
    let mut all = vec![(String::new(), schema())];
    while let Some((place, schema)) = all.pop() {
        for (key, below) in schema["properties"].as_object().into_iter().flatten() {
            described.insert(format!("{place}{key}"));
            all.push((format!("{place}{key}."), below.clone()));
        }
    }
    // Helm's own, and fields of probes that the chart leaves to Kubernetes.
    let is_optional = |name: &&String| {
        **name == "global" || name.ends_with("initialDelaySeconds") || name.ends_with("successThreshold")
    };
    let missing: Vec<_> = described.difference(&given).filter(|name| !is_optional(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(given.is_subset(&described), "{:?}", given.difference(&described));
}
