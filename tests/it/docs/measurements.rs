//! The measurements behind docs/performance.md: its pictures are drawn from the measured points that are committed, and
//! the comparison with other proxies runs.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::pages::root;
use crate::support::{TIDEGATE, command, free_ports, scaled};

fn python(package: &str) -> Command {
    let mut command = command("/usr/bin/python3");
    command.arg("-B").arg(root().join("benches").join(package));
    command
}

/// The names of the pictures of growth in a directory.
fn pictures(directory: &std::path::Path) -> BTreeSet<String> {
    let names =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with("growth-")).collect()
}

#[test]
fn the_pictures_of_growth_are_drawn_from_the_measured_points() {
    let drawn = tempfile::tempdir().unwrap();
    let status = python("growth").env("DRAW", drawn.path()).status().unwrap();
    assert!(status.success());
    let documented = root().join("docs/pictures");
    assert_eq!(pictures(drawn.path()), pictures(&documented));
    for name in pictures(drawn.path()) {
        let read = |directory: &std::path::Path| fs::read_to_string(directory.join(&name)).unwrap();
        assert_eq!(
            read(drawn.path()),
            read(&documented),
            "run `DRAW=docs/pictures python3 -B benches/growth`"
        );
    }
}

#[test]
fn the_comparison_with_nginx_measures_all_that_it_promises() {
    let scenarios = "plain overload";
    let output = python("compare")
        .env("TIDEGATE", TIDEGATE)
        .env("SCENARIOS", scenarios)
        .envs([("PEERS", "tidegate nginx"), ("ROUNDS", "1")])
        .env("SECONDS_EACH", scaled(Duration::from_millis(200)).as_secs_f64().to_string())
        .env("BASE_PORT", free_ports(5).to_string())
        .output()
        .unwrap();
    let (table, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{errors}");
    for part in scenarios.split(' ').map(|name| format!("\n{name}: ")).chain(["steal".to_owned()]) {
        assert!(table.contains(&part), "no {part:?} in {table}");
    }
    assert_eq!(table.matches("\n  nginx ").count(), 2, "{table}");
}

/// The proof runs the real Traefik: what docs/comparison.md says of it when Redis is down.
#[test]
fn the_proof_shows_traefik_and_tidegate_while_redis_is_down() {
    let directory = tempfile::tempdir().unwrap();
    let figures = directory.path().join("proof.json");
    let output = python("proof")
        .env("TIDEGATE", TIDEGATE)
        .envs([("KINDS", "tidegate-local,traefik"), ("SECONDS_EACH", "2")])
        .env("OUT", &figures)
        .env("BASE_PORT", free_ports(7).to_string())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let figures: Value = serde_json::from_str(&fs::read_to_string(&figures).unwrap()).unwrap();
    let outages = figures["dies"].as_object().unwrap();
    let statuses = |name: &str| {
        let (_, figures) = outages.iter().find(|(key, _)| key.starts_with(name)).unwrap();
        figures["outage"]["statuses"].to_string()
    };
    assert!(statuses("Traefik").contains("500"), "{figures}");
    assert_eq!(statuses("tidegate"), "[200,429]");
}

#[test]
fn the_tables_of_the_comparison_are_those_of_the_committed_figures() {
    let output = python("proof").env("TABLES", root().join("benches/proof.json")).output().unwrap();
    let page = fs::read_to_string(root().join("docs/comparison.md")).unwrap();
    let tables = String::from_utf8(output.stdout).unwrap();
    let mut tables = tables.trim().split("\n\n").peekable();
    assert!(tables.peek().is_some());
    for table in tables {
        assert!(page.contains(table.trim()), "{table}");
    }
}
