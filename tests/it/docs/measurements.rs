//! The measurements behind docs/performance.md: its pictures are drawn from the measured points that are committed, and
//! the comparison with other proxies runs.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::time::Duration;

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
