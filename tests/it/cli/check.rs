//! `tidegate check`: where the file comes from, JSON, and warnings as errors.

use serde_json::{Value, json};

use super::*;
use crate::support::{TIDEGATE, command, output_with_input};

const WARNED: &str =
    "listen = \"127.0.0.1:8080\"\n\n[limits.a]\nrate = \"5/s\"\n\n[[routes]]\npath = \"/*\"\nrespond = {}\n";
const INVALID: &str = "listen = \"127.0.0.1:8080\"\nworkers = \"é\"\n[[routes]]\npath = \"/\"\nlimits = [\"b\"]\nrespond = {}\n";

/// A directory with files of these names.
fn directory() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in [("warned.toml", WARNED), ("invalid.toml", INVALID)] {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    std::fs::create_dir(directory.path().join("folder.toml")).unwrap();
    directory
}

/// Runs the program with this text as standard input.
fn with_input(directory: &Path, args: &[&str], text: &str) -> Finished {
    let mut command = command(TIDEGATE);
    command.args(args).current_dir(directory).env_remove("TIDEGATE_CONFIG");
    output_with_input(&mut command, text.as_bytes()).into()
}

fn json_of(finished: &Finished) -> Value {
    assert_eq!(finished.stderr, "");
    serde_json::from_str(&finished.stdout).unwrap()
}

#[test]
fn the_file_is_an_argument_with_or_without_c() {
    let quickstart = "config/quickstart.toml";
    let valid =
        ok("config/quickstart.toml is valid: 1 route, 1 limit, 0 upstreams, counts in this process\n");
    assert_eq!(tidegate(repository(), &["check", quickstart]), valid);
    assert_eq!(tidegate(repository(), &["check", "-c", quickstart]), valid);
    let both = tidegate(repository(), &["check", "-c", quickstart, quickstart]);
    assert_eq!((both.status, both.stdout.as_str()), (2, ""));
}

#[test]
fn the_file_may_be_standard_input() {
    let directory = directory();
    let directory = directory.path();
    let valid = "<stdin> is valid: 1 route, 1 limit, 0 upstreams, counts in this process\n";
    for args in [&["check", "-"][..], &["check", "-c", "-"]] {
        let checked = with_input(directory, args, WARNED);
        assert_eq!((checked.status, checked.stdout.as_str()), (0, valid));
        assert!(checked.stderr.contains(" --> <stdin>:3:9\n"), "{}", checked.stderr);
    }
    let invalid = with_input(directory, &["check", "-"], INVALID);
    assert_eq!(invalid.status, 2);
    assert!(invalid.stderr.ends_with("\n<stdin>: 2 problems\n"), "{}", invalid.stderr);
    let explained = with_input(directory, &["explain", "-c", "-", "GET", "/"], WARNED);
    assert_eq!((explained.status, explained.stderr.as_str()), (0, ""));
    std::fs::write(directory.join("arrivals"), "0\n").unwrap();
    let simulated =
        with_input(directory, &["simulate", "-c", "-", "--limit", "a", "--arrivals", "arrivals"], WARNED);
    assert_eq!((simulated.status, simulated.stderr.as_str()), (0, ""));
}

#[test]
fn standard_input_is_used_for_one_thing_and_not_for_a_server() {
    for args in [
        &["run", "-c", "-"][..],
        &["simulate", "-c", "-", "--limit", "a"],
        &["simulate", "-c", "-", "--limit", "a", "--arrivals", "-"],
        &["replay", "-c", "-", "-"],
        &["replay", "-c", "warned.toml", "--compare", "-", "-"],
    ] {
        let directory = directory();
        let rejected = with_input(directory.path(), args, WARNED);
        assert_eq!((rejected.status, rejected.stdout.as_str()), (2, ""), "{args:?}");
        assert!(rejected.stderr.contains("standard input"), "{args:?}: {}", rejected.stderr);
    }
}

#[test]
fn strict_makes_warnings_errors() {
    let directory = directory();
    let strict = tidegate(directory.path(), &["check", "--strict", "warned.toml"]);
    assert_eq!((strict.status, strict.stdout.as_str()), (2, ""));
    assert!(
        strict.stderr.starts_with("warning: no route uses this limit\n --> warned.toml:3:9\n"),
        "{}",
        strict.stderr
    );
    assert!(
        strict.stderr.ends_with("\nwarned.toml: 1 warning, which --strict does not allow\n"),
        "{}",
        strict.stderr
    );
    assert_eq!(tidegate(directory.path(), &["check", "warned.toml"]).status, 0);
    assert_eq!(tidegate(repository(), &["check", "--strict", "config/quickstart.toml"]).status, 0);
}

#[test]
fn json_has_all_problems_with_their_places() {
    let directory = directory();
    let invalid = tidegate(directory.path(), &["check", "--json", "invalid.toml"]);
    assert_eq!(invalid.status, 2);
    let found = json_of(&invalid);
    assert_eq!((&found["file"], &found["valid"]), (&json!("invalid.toml"), &json!(false)));
    assert_eq!((&found["warnings"], &found["summary"]), (&json!([]), &Value::Null));
    let places: Vec<Value> = found["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| {
            json!([error["file"], error["line"], error["column"], error["end_line"], error["end_column"]])
        })
        .collect();
    assert_eq!(places, [json!(["invalid.toml", 2, 11, 2, 14]), json!(["invalid.toml", 5, 11, 5, 14])]);
    let unknown = &found["errors"][1];
    assert_eq!(unknown["message"], "unknown limit `b`");
    assert_eq!(unknown["help"], json!(["define it: [limits.b] with rate = \"100/minute\""]));

    let warned = tidegate(directory.path(), &["check", "--json", "warned.toml"]);
    assert_eq!(warned.status, 0);
    let found = json_of(&warned);
    assert_eq!((&found["valid"], &found["errors"]), (&json!(true), &json!([])));
    assert_eq!(found["warnings"][0]["line"], 3);
    assert_eq!(found["summary"], json!({"routes": 1, "limits": 1, "upstreams": 0, "store": "memory"}));
    let strict = tidegate(directory.path(), &["check", "--json", "--strict", "warned.toml"]);
    assert_eq!((strict.status, &json_of(&strict)["valid"]), (2, &json!(false)));
}

#[test]
fn json_has_files_that_cannot_be_read() {
    let directory = directory();
    for (file, message) in [
        ("missing.toml", "can't read missing.toml: No such file or directory (os error 2)"),
        ("folder.toml", "can't read folder.toml: Is a directory (os error 21)"),
    ] {
        let checked = tidegate(directory.path(), &["check", "--json", file]);
        assert_eq!(checked.status, 2);
        let error = &json_of(&checked)["errors"][0];
        assert_eq!(
            (&error["file"], &error["message"], &error["line"]),
            (&json!(file), &json!(message), &Value::Null)
        );
        let text = tidegate(directory.path(), &["check", file]);
        assert_eq!((text.status, text.stdout.as_str()), (2, ""));
        assert!(text.stderr.starts_with(&format!("error: {message}\nhelp: ")), "{}", text.stderr);
    }
}

#[test]
fn an_incomplete_file_of_consumers_is_a_warning() {
    let directory = directory();
    let config = "listen = \"127.0.0.1:8080\"\n[consumers]\nfile = \"consumers.toml\"\n[[routes]]\npath = \"/*\"\nrespond = {}\n";
    std::fs::write(directory.path().join("tidegate.toml"), config).unwrap();
    for (consumers, warning) in [
        ("", "warning: consumers.toml has no consumers\n"),
        ("# A comment.\n", "warning: consumers.toml has no consumers\n"),
        (
            "[a]\ncredentials = [\"k\"]",
            "warning: consumers.toml does not end with a line break: it may have been cut\n",
        ),
        ("[a]\ncredentials = [\"k\"]\r\n", ""),
    ] {
        std::fs::write(directory.path().join("consumers.toml"), consumers).unwrap();
        let checked = tidegate(directory.path(), &["check", "tidegate.toml"]);
        assert_eq!(checked.status, 0);
        assert!(
            checked.stderr.starts_with(warning) && checked.stderr.is_empty() == warning.is_empty(),
            "{checked:?}"
        );
    }
}
