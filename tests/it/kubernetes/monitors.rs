//! The `ServiceMonitor` of the chart and the `PodMonitor`s: they scrape what the pods have. The `PrometheusRule` of the chart.

use std::collections::BTreeSet;

use serde_json::Value;

use super::setup::{Installation, by, chart, installations, list, text, yaml};

/// The keys of an object.
fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

/// Whether labels have all that a selector names.
pub fn selects(selector: &Value, labels: &Value) -> bool {
    let wanted = selector.as_object().unwrap();
    assert!(!wanted.is_empty(), "an empty selector selects everything");
    wanted.iter().all(|(key, value)| labels[key] == *value)
}

/// What a monitor selects has this port, and its token is the one that may read only.
#[track_caller]
fn check_endpoint(endpoint: &Value, installation: &Installation) {
    let known = BTreeSet::from([
        "authorization",
        "interval",
        "path",
        "port",
        "relabelings",
        "scheme",
        "scrapeTimeout",
        "tlsConfig",
    ]);
    assert!(keys(endpoint).is_subset(&known), "{endpoint}");
    assert_eq!((text(&endpoint["port"]), text(&endpoint["path"])), ("admin", "/metrics"));
    let probe = &installation.proxy()["readinessProbe"]["httpGet"];
    assert_eq!(endpoint["scheme"], probe["scheme"].as_str().unwrap_or("HTTP").to_lowercase());
    let variable = by(&installation.proxy()["env"], "name", "ADMIN_READ_TOKEN");
    assert_eq!(endpoint["authorization"]["credentials"], variable["valueFrom"]["secretKeyRef"]);
    assert_eq!(endpoint["authorization"]["type"], "Bearer");
    // The alert rules and the dashboard expect this name.
    let job = by(&endpoint["relabelings"], "targetLabel", "job");
    assert_eq!(job["replacement"], "tidegate");
}

#[test]
fn monitors_scrape_the_pods_once() {
    let mut kinds = BTreeSet::new();
    for installation in installations() {
        let services = installation.all("Service");
        for monitor in installation.all("ServiceMonitor") {
            kinds.insert("ServiceMonitor");
            let selector = &monitor["spec"]["selector"]["matchLabels"];
            let selected: Vec<_> =
                services.iter().filter(|service| selects(selector, &service["metadata"]["labels"])).collect();
            let [service] = selected[..] else { panic!("{} Services", selected.len()) };
            assert_eq!(service["spec"]["clusterIP"], "None");
            by(&service["spec"]["ports"], "name", "admin");
            assert_eq!(monitor["spec"]["namespaceSelector"]["matchNames"], serde_json::json!(["shop"]));
            let [endpoint] = list(&monitor["spec"]["endpoints"]) else { panic!() };
            check_endpoint(endpoint, installation);
        }
        for monitor in installation.all("PodMonitor") {
            kinds.insert("PodMonitor");
            let selector = &monitor["spec"]["selector"]["matchLabels"];
            assert!(selects(selector, &installation.pods()["metadata"]["labels"]));
            by(&installation.proxy()["ports"], "name", "admin");
            let [endpoint] = list(&monitor["spec"]["podMetricsEndpoints"]) else { panic!() };
            check_endpoint(endpoint, installation);
        }
    }
    assert_eq!(kinds.len(), 2);
}

#[test]
fn the_rules_of_the_chart_are_those_of_the_file_with_its_runbook() {
    let file = yaml("config/prometheus/alerts.yaml").remove(0);
    let rules = |values: &str| {
        let objects = chart(&format!("prometheusRule: {{ enabled: true, {values} }}"));
        Installation { name: "chart", objects }.one("PrometheusRule")["spec"].clone()
    };
    assert_eq!(rules(""), file);
    let (own, moved) =
        ("https://git.example.com/tidegate/docs/alerts.md", "https://runbooks.internal/tidegate");
    let expected = file.to_string().replace(&format!("{own}#"), &format!("{moved}#"));
    assert_eq!(rules(&format!("runbookUrl: '{moved}'")).to_string(), expected);
}
