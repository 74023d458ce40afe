//! The admission to an upstream under overload: table, JSON and picture of one run, and errors.

use serde_json::Value;

use super::simulate;

const UPSTREAMS: &str = r#"
listen = "127.0.0.1:8080"
[upstreams.api]
servers = ["http://127.0.0.1:9001", "http://127.0.0.1:9002"]
overload = { limit = 12 }
[upstreams.plain]
servers = ["http://127.0.0.1:9003"]
[[routes]]
path = "/plain"
upstream = "plain"
[[routes]]
path = "/*"
upstream = "api"
"#;

#[test]
fn an_upstream_is_simulated_second_by_second() {
    let output = simulate(UPSTREAMS, "", &["--upstream", "api", "--format", "jsonl"]);
    assert_eq!((output.status, output.stderr.as_str()), (0, ""));
    let seconds: Vec<Value> = output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(seconds.len(), 55);
    assert!(seconds.iter().all(|second| second["limit"] == 12));
    let refused = |second: &Value, class: &str| second["refused"][class].as_u64().unwrap();
    assert!((0..10).all(|second| refused(&seconds[second], "low") == 0), "{output:?}");
    // At three times the capacity, the lowest class is refused most.
    let loaded = |class: &str| (15..40).map(|second| refused(&seconds[second], class)).sum::<u64>();
    assert!(loaded("low") > 1000 && loaded("critical") == 0, "{} {}", loaded("low"), loaded("critical"));
    let last = seconds.last().unwrap();
    assert_eq!((refused(last, "low"), refused(last, "normal")), (0, 0));
}

#[test]
fn the_table_and_the_picture_are_of_the_same_run() {
    let table = simulate(UPSTREAMS, "", &["--upstream", "api", "--slots", "8", "--load", "2"]);
    assert_eq!((table.status, table.stderr.as_str()), (0, ""));
    assert!(table.stdout.starts_with(
        "api at 2 times its capacity: a fixed limit of 12\n2 × 8 slots, 20ms each: 800 requests/s\n"
    ));
    assert_eq!(
        table
            .stdout
            .lines()
            .filter(|line| line.trim_start().starts_with(|c: char| c.is_ascii_digit()))
            .count(),
        56
    );
    let picture =
        simulate(UPSTREAMS, "", &["--upstream", "api", "--slots", "8", "--load", "2", "--format", "svg"]);
    assert_eq!((picture.status, picture.stderr.as_str()), (0, ""));
    let document = roxmltree::Document::parse(&picture.stdout).unwrap();
    assert_eq!(
        document.root_element().attribute("aria-label"),
        Some("api at 2 times its capacity: a fixed limit of 12")
    );
    for name in ["Requests in flight", "Requests that wait", "Refusals per second", "critical"] {
        assert!(document.descendants().any(|node| node.text() == Some(name)), "{name}: {}", picture.stdout);
    }
}

#[test]
fn upstreams_that_cannot_be_simulated_are_errors() {
    let fails = |args: &[&str], text: &str| {
        let output = simulate(UPSTREAMS, "", args);
        assert_eq!((output.status, output.stdout.as_str()), (2, ""), "{output:?}");
        assert!(output.stderr.contains(text), "{}", output.stderr);
    };
    fails(&["--upstream", "apu"], "error: unknown upstream `apu`\nhelp: did you mean `api`?");
    fails(&["--upstream", "plain"], "add overload = true to [upstreams.plain]");
    fails(&["--upstream", "api", "--limit", "a"], "cannot be used with");
    fails(&["--upstream", "api", "--load", "0"], "it must be from 0.01 to 20");
    fails(&["--limit", "a", "--slots", "4"], "cannot be used with");
}
