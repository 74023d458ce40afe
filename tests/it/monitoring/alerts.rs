//! The alert rules: the tests of promtool, and the runbook.

use std::collections::BTreeSet;

use super::setup::{path, text};
use crate::support::command;

/// Where the rules expect the runbook, until an operator replaces it.
const RUNBOOK: &str = "https://git.example.com/tidegate/docs/alerts.md";

/// The words after this one, at the beginnings of lines.
fn values(text: &str, key: &str) -> BTreeSet<String> {
    let lines = text.lines().map(|line| line.trim_start().trim_start_matches("- "));
    lines.filter_map(|line| line.strip_prefix(key)).map(|value| value.trim().to_owned()).collect()
}

#[track_caller]
fn promtool(arguments: &[&str]) -> String {
    let mut command = command("promtool");
    command.args(arguments).current_dir(path("config/prometheus"));
    let output = command.output().expect("promtool, from Debian's package prometheus");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    said.into_owned()
}

#[test]
fn the_rules_and_the_configuration_of_prometheus_are_valid() {
    promtool(&["check", "rules", "--lint-fatal", "alerts.yaml"]);
    promtool(&["check", "config", "prometheus.yml"]);
}

#[test]
fn each_alert_fires_when_it_should_and_not_otherwise() {
    promtool(&["test", "rules", "alerts.test.yaml"]);
    let (rules, tests) = (text("config/prometheus/alerts.yaml"), text("config/prometheus/alerts.test.yaml"));
    let cases: Vec<&str> = tests.split("expr: ALERTS{alertname=\"").skip(1).collect();
    for alert in values(&rules, "alert: ") {
        let own = || cases.iter().filter(|case| case.split('"').next() == Some(&alert));
        assert!(own().any(|case| case.contains("value: 1")), "{alert} has no case in which it fires");
        let is_quiet = |case: &&str| case.contains("exp_samples: []");
        assert!(own().any(is_quiet), "{alert} has no case in which it does not fire");
    }
}

#[test]
fn each_alert_has_a_section_in_the_runbook() {
    let (rules, runbook) = (text("config/prometheus/alerts.yaml"), text("docs/alerts.md"));
    let alerts = values(&rules, "alert: ");
    for rule in rules.split("- alert: ").skip(1) {
        let alert = rule.lines().next().unwrap();
        let url = format!("runbook_url: {RUNBOOK}#{}\n", alert.to_lowercase());
        assert!(rule.contains(&url), "{alert} has no {url}");
    }
    // The address is replaced as both say.
    for said in [&rules, &text("docs/monitoring.md")] {
        assert!(said.contains(&format!("'s|{RUNBOOK}|https://YOUR-ADDRESS/alerts.md|'")), "{said}");
    }
    let sections: BTreeSet<String> = values(&runbook, "## ").into_iter().collect();
    assert_eq!(sections, alerts);
    for section in runbook.split("\n## ").skip(1) {
        for part in ["**Meaning.**", "**First look.**", "**Cure.**"] {
            assert!(section.contains(part), "no {part} in {section}");
        }
    }
}
