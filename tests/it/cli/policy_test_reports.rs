//! `tidegate test`: where tests are, and what it prints.

use std::fs;

use serde_json::{Value, json};

use super::policy_tests::{CONFIG, directory, run};
use super::*;
use crate::docs::pages::{Page, pages};
use crate::support::{Tidegate, get};

/// Three tests, of which two fail.
const FAILING: &str = r#"[[tests]]
name = "passes"
request = { path = "/old" }
expect = { status = 410 }

[[tests]]
name = "everything differs"
request = { method = "POST", path = "/login" }
repeat = 11
expect = { outcome = "rejected", route = "api", limits = ["per-key"], keys = { sign-in = "192.0.2.9", per-key = "k" }, tiers = { sign-in = "pro" }, consumer = "acme", status = 410, limit = "per-key", retry_after = "1m", delay = "1s", allowed = 11, remaining = { sign-in = 3 } }

[[tests]]
name = "the <second> step & \"more\""
steps = [
    { request = { path = "/old" }, expect = { status = 410 } },
    { request = { path = "/guess" }, expect = { status = 429, route = "" } },
]
"#;

#[test]
fn differences_are_shown_with_their_places() {
    let expected = r#"tidegate.toml:52: everything differs
  expected outcome "rejected", got "denied" (by the limit sign-in)
  expected route "api", got "login"
  expected limits ["per-key"], got ["sign-in"]
  expected keys.sign-in "192.0.2.9", got "192.0.2.1"
  expected keys.per-key "k", got none: the limit does not count the request
  expected tiers.sign-in "pro", got none
  expected consumer "acme", got none
  expected status 410, got 429 (by the limit sign-in)
  expected limit "per-key", got "sign-in"
  expected retry_after "1m", got "6s"
  expected delay "1s", got "0s"
  expected allowed 11, got 10
  expected remaining.sign-in 3, got 0

tidegate.toml:58: the <second> step & "more"
  step 2: expected route none, got "guess"
  step 2: expected status 429, got none: it is forwarded (to http://127.0.0.1:9000)

2 of 3 tests failed
"#;
    assert_eq!(run(CONFIG, FAILING), Finished { status: 1, ..ok(expected) });
}

#[test]
fn json_has_the_same_results() {
    let directory = directory(CONFIG, FAILING);
    let Finished { status, stdout, stderr } = tidegate(directory.path(), &["test", "--json"]);
    assert_eq!((status, stderr.as_str()), (1, ""));
    let found: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&found["passed"], &found["failed"]), (&json!(1), &json!(2)));
    assert_eq!(
        found["tests"][0],
        json!({ "name": "passes", "file": "tidegate.toml", "line": 43, "passed": true })
    );
    let second = &found["tests"][2];
    assert_eq!((&second["step"], &second["passed"]), (&json!(2), &json!(false)));
    let route = json!({ "key": "route", "expected": "none", "actual": "\"guess\"" });
    assert_eq!(second["differences"][0], route);
}

#[test]
fn junit_has_the_same_results() {
    let directory = directory(CONFIG, FAILING);
    let file = directory.path().join("report.xml");
    let finished = tidegate(directory.path(), &["test", "--junit", "report.xml"]);
    assert_eq!(finished.status, 1);
    let text = fs::read_to_string(&file).unwrap();
    let document = roxmltree::Document::parse(&text).unwrap();
    let suite = document.descendants().find(|node| node.has_tag_name("testsuite")).unwrap();
    let attributes = ["name", "tests", "failures", "errors"].map(|name| suite.attribute(name).unwrap());
    assert_eq!(attributes, ["tidegate.toml", "3", "2", "0"]);
    let cases: Vec<_> = suite.children().filter(|node| node.has_tag_name("testcase")).collect();
    assert_eq!(cases[2].attribute("name"), Some("the <second> step & \"more\""));
    assert!(cases[0].children().next().is_none());
    let failure = cases[2].children().find(|node| node.has_tag_name("failure")).unwrap();
    assert!(failure.text().unwrap().contains("step 2: expected route none, got \"guess\"\n"), "{text}");
    let unwritable = tidegate(directory.path(), &["test", "--junit", "missing/report.xml"]);
    assert_eq!(unwritable.status, 1);
    assert!(
        unwritable.stderr.starts_with("error: can't write to missing/report.xml: "),
        "{}",
        unwritable.stderr
    );
}

/// A test that passes for the configuration of these tests.
const PASSING: &str = "[[tests]]\nname = \"old\"\nrequest = { path = \"/old\" }\nexpect = { status = 410 }\n";

#[test]
fn tests_are_in_the_configuration_beside_it_or_in_named_files() {
    let directory = directory(CONFIG, "");
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    let test = |args: &[&str]| tidegate(directory.path(), &[&["test"], args].concat());
    let none = "error: tidegate.toml has no tests\nhelp: write [[tests]] into the configuration, or into \
                tidegate.tests.toml\nhelp: name another file with --tests FILE\n";
    assert_eq!(test(&[]), wrong(none));
    write("a.toml", PASSING);
    write("b.toml", &format!("{PASSING}{}", PASSING.replace("old", "older").replace("/older", "/old")));
    assert_eq!(test(&["--tests", "a.toml", "--tests", "b.toml"]), ok("3 tests passed\n"));
    write("tidegate.tests.toml", PASSING);
    assert_eq!(test(&[]), ok("1 test passed\n"));
    assert_eq!(test(&["tidegate.toml"]), ok("1 test passed\n"));
    assert_eq!(test(&["--tests", "b.toml"]), ok("2 tests passed\n"));
    write("tidegate.toml", &format!("{CONFIG}{PASSING}"));
    assert_eq!(test(&[]), ok("2 tests passed\n"));
    write("tidegate.tests.toml", &PASSING.replace("410", "411"));
    let failed = "tidegate.tests.toml:4: old\n  expected status 411, got 410\n\n1 of 2 tests failed\n";
    assert_eq!(test(&[]), Finished { status: 1, ..ok(failed) });
}

#[test]
fn files_that_are_no_tests_are_rejected() {
    let directory = directory(CONFIG, PASSING);
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    let test = |file: &str| tidegate(directory.path(), &["test", "--tests", file]);
    write("unknown.toml", &PASSING.replace("expect = { ", "expect = { route = \"odl\", "));
    let expected = r#"error: unknown route `odl`
 --> unknown.toml:4:20
  |
4 | expect = { route = "odl", status = 410 }
  |                    ^^^^^
  |
  = help: did you mean `old`?

unknown.toml: 1 problem
"#;
    assert_eq!(test("unknown.toml"), wrong(expected));
    write("other.toml", CONFIG);
    let other = test("other.toml");
    assert_eq!(other.status, 2);
    assert!(other.stderr.starts_with("error: unknown key `listen`\n"), "{}", other.stderr);
    let missing = test("missing.toml");
    assert_eq!(missing.status, 2);
    assert!(missing.stderr.contains("name another file with --tests FILE"), "{}", missing.stderr);
    write("tidegate.toml", "listen = 1\n");
    assert_eq!(test("unknown.toml").status, 2);
}

#[test]
fn secrets_of_the_environment_are_not_shown() {
    let tests = r#"[[tests]]
name = "a key"
request = { host = "api.example.com", path = "/v1/a", headers = { x-api-key = "${REDIS_URL}" } }
expect = { keys = { per-key = "k-1" } }
"#;
    let text = "tidegate.toml:46: a key\n  expected keys.per-key \"k-1\", got \"${REDIS_URL}\"\n\n1 of 1 test failed\n";
    assert_eq!(run(CONFIG, tests), Finished { status: 1, ..ok(text) });
    // A credential has no name.
    let config = CONFIG.replace("header:x-api-key", "header:authorization");
    let tests = tests.replace("x-api-key", "authorization").replace("${REDIS_URL}", "Bearer hush-hush");
    let Finished { stdout, .. } = run(&config, &tests);
    assert!(stdout.contains("got another key, which is not shown"), "{stdout}");
    assert!(!stdout.contains("hush"), "{stdout}");
}

/// A proxy starts with a configuration that has tests.
#[test]
fn a_proxy_ignores_tests() {
    let config = CONFIG.replace("127.0.0.1:8080", "127.0.0.1:0");
    let proxy = Tidegate::start(&format!("{config}{FAILING}"));
    assert_eq!(get(proxy.addr(), "/old", &[]).status(), 410);
}

#[test]
fn tests_of_templates_pass() {
    let directory = tempfile::tempdir().unwrap();
    for purpose in ["api", "login", "static", "llm"] {
        let file = format!("{purpose}.toml");
        assert_eq!(tidegate(directory.path(), &["init", "--for", purpose, "-o", &file]).status, 0);
        let Finished { status, stdout, stderr } = tidegate(directory.path(), &["test", &file]);
        assert_eq!((status, stderr.as_str()), (0, ""), "{purpose}: {stdout}");
        let text = fs::read_to_string(directory.path().join(&file)).unwrap();
        assert!(text.contains("[[tests]]"), "{purpose}");
    }
}

/// Runs the tests of a page, if its files have some; returns whether they have.
fn run_page(page: &Page) -> bool {
    let blocks = page.blocks();
    let files: Vec<_> = blocks.iter().filter_map(|block| Some((block.file_name()?, block))).collect();
    if !files.iter().any(|(_, block)| block.text.contains("[[tests]]")) {
        return false;
    }
    let directory = tempfile::tempdir().unwrap();
    for (name, block) in files {
        fs::write(directory.path().join(name), &block.text).unwrap();
    }
    let Finished { status, stdout, stderr } = tidegate(directory.path(), &["test"]);
    assert_eq!((status, stderr.as_str()), (0, ""), "{}: {stdout}", page.path);
    true
}

#[test]
fn tests_of_the_documentation_pass() {
    let pages = pages();
    let with_tests: Vec<&str> = pages.iter().filter(|page| run_page(page)).map(|page| &*page.path).collect();
    assert_eq!(with_tests, ["docs/recipes/api-keys.md", "docs/recipes/login.md", "docs/testing.md"]);
}
