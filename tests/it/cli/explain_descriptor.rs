//! `tidegate explain --descriptor`.

use std::fs;

use serde_json::Value;

use super::{Finished, tidegate};

const FILE: &str = r#"
[[listeners]]
address = "127.0.0.1:8081"
serve = "envoy-ratelimit"
[limits.checkout]
algorithm = "fixed_window"
rate = "5/minute"
key = ["client_ip", "descriptor:plan"]
block = ["198.51.100.0/24"]
[[descriptors]]
domain = "edge"
match = ["generic_key=checkout", "plan", "remote_address"]
limits = ["checkout"]
name = "checkout"
[[descriptors]]
domain = "edge"
match = ["free"]
[[descriptors]]
domain = "edge"
match = ["closed*"]
block = true
"#;

fn explain(args: &[&str]) -> Finished {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("tidegate.toml"), FILE).unwrap();
    tidegate(directory.path(), &[&["explain"], args].concat())
}

#[test]
fn explain_shows_the_rule_of_a_descriptor_and_its_keys() {
    let Finished { status, stdout, stderr } =
        explain(&["--descriptor", "edge", "generic_key=checkout,plan=pro,remote_address=203.0.113.9"]);
    assert_eq!((status, stderr.as_str()), (0, ""));
    assert_eq!(
        stdout,
        "domain    edge\n\
         entries   generic_key=checkout,plan=pro,remote_address=203.0.113.9\n\
         rule      1, checkout\n\
         \n\
         limit     checkout: fixed_window, 5/minute; at most 5 at once\n\
         \x20         key       client_ip = 203.0.113.9\n\
         \x20                   descriptor:plan = pro\n\
         \x20         cost      1\n\
         \x20         counted   in this process\n"
    );
    for (domain, entries, row) in [
        ("edge", "free=1", "rule      2: it is unlimited\n"),
        ("edge", "closed*=1", "rule      3: it is always over the limit (block)\n"),
        ("edge", "other=1", "rule      none of this domain matches: it is unlimited\n"),
        ("other", "free=1", "rule      the file has no rules for this domain: it is unlimited\n"),
        (
            "edge",
            "generic_key=checkout,plan=pro,remote_address=198.51.100.7",
            "denied    the address is in 198.51.100.0/24, which this limit blocks (`block`)\n",
        ),
        (
            "edge",
            "generic_key=checkout,plan=pro,remote_address=x",
            "error     the value of the entry `remote_address` is not an IP address\n",
        ),
    ] {
        let found = explain(&["--descriptor", domain, entries]);
        assert!(found.status == 0 && found.stdout.contains(row), "{}{}", found.stdout, found.stderr);
    }
}

#[test]
fn explain_has_json_for_descriptors() {
    let entries = "generic_key=checkout,plan=pro,remote_address=203.0.113.9";
    let found: Value =
        serde_json::from_str(&explain(&["--json", "--descriptor", "edge", entries]).stdout).unwrap();
    assert_eq!((&found["is_matched"], &found["is_blocked"]), (&true.into(), &false.into()));
    assert_eq!(found["limits"][0]["key"][1]["value"], "pro");
    let blocked: Value =
        serde_json::from_str(&explain(&["--json", "--descriptor", "edge", "closed*=1"]).stdout).unwrap();
    assert_eq!(blocked["is_blocked"], true);
}

#[test]
fn explain_rejects_what_is_no_descriptor() {
    let found = explain(&["--descriptor", "edge", "plan"]);
    assert_eq!(found, super::wrong("error: `plan` is no entry of a descriptor: write KEY=VALUE\n"));
    let both = explain(&["GET", "/", "--descriptor", "edge", "a=b"]);
    assert_eq!(both.status, 2);
    assert_eq!(explain(&["GET"]).status, 2);
    let twice = explain(&["--descriptor", "edge", "a=b", "--descriptor", "edge", "a=b"]);
    assert!(twice.status == 2 && twice.stderr.contains("cannot be used multiple times"), "{}", twice.stderr);
}
