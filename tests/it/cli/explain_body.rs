//! `tidegate explain` for limits that count by the body.

use std::fs;

use super::{Finished, tidegate};

const FILE: &str = r#"
listen = "127.0.0.1:8080"
[limits.one]
rate = "5/minute"
key = "body:/user/name"
overrides = { Bot = { rate = "50/minute" } }
block = ["key:mallory"]
[limits.two]
rate = "5/minute"
key = "form:user"
on_missing = "deny"
[[routes]]
path = "/json"
limits = ["one"]
respond = {}
[[routes]]
path = "/form"
limits = ["two"]
respond = {}
"#;

/// The rows after the first gap: those about limits and the response.
fn explain(path: &str, args: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("tidegate.toml"), FILE).unwrap();
    fs::write(directory.path().join("body.json"), "{\"user\":\r\n{\"name\":\"Bot\"}}\n").unwrap();
    let Finished { status, stdout, stderr } =
        tidegate(directory.path(), &[&["explain", "POST", path], args].concat());
    assert_eq!((status, stderr.as_str()), (0, ""), "{args:?}");
    stdout[stdout.find("\n\n").unwrap() + 2..].to_owned()
}

#[test]
fn explain_reads_a_body() {
    const JSON: &str = "Content-Type: application/json";
    for (path, args, row) in [
        ("/json", &["-H", JSON, "-d", r#"{"user":{"name":"Eve"}}"#][..], "key       body:/user/name = eve\n"),
        ("/json", &["-H", JSON, "--data", "@body.json"], "override  Bot: "),
        ("/json", &["-H", JSON, "-d", r#"{"user":{"name":"Mallory"}}"#], "limit one blocks (`block`)"),
        (
            "/json",
            &[],
            "body:/user/name is missing (the request has no body; --data gives it one): the client's",
        ),
        ("/json", &["-d", "name=eve"], "body:/user/name is missing (the Content-Type is another one)"),
        ("/json", &["-H", JSON, "-d", "{}"], "body:/user/name is missing (the body does not have it)"),
        ("/json", &["-H", JSON, "-d", "{"], "body:/user/name is missing (the body is malformed)"),
        (
            "/json",
            &["-H", JSON, "-d", r#"{"user":{"name":"a","name":"b"}}"#],
            "400 Bad Request: the request has several values for body:/user/name that differ",
        ),
        ("/form", &["-d", "user=E%76e", "-d", "x=1"], "key       form:user = eve\n"),
        ("/form", &["-d", "user="], "form:user is missing (it is empty, null, an object or an array)"),
        (
            "/form",
            &["-d", "x=1"],
            "response  403 Forbidden: the request must have an unencoded form as its body, with the field user",
        ),
    ] {
        let explained = explain(path, args);
        assert!(explained.contains(row), "{args:?}: {row}\n{explained}");
    }
    let long = format!("user={}", "x".repeat(64 * 1024));
    let row = "413 Payload Too Large: the request body is longer than 64 KiB, the most that a limit of this route reads";
    assert!(explain("/form", &["-d", &long]).contains(row));
}

#[test]
fn a_missing_file_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("tidegate.toml"), FILE).unwrap();
    let finished = tidegate(directory.path(), &["explain", "POST", "/json", "-d", "@none.json"]);
    assert_eq!(finished.status, 2);
    assert!(finished.stderr.contains("error: can't read none.json: No such file"), "{}", finished.stderr);
}
