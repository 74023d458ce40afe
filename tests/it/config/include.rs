//! `include`: the tables of several files as one configuration, and errors that name the file.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tidegate::config::{self, Loaded, Report};

use crate::support::{Authority, TIDEGATE, command, output_with_input};

/// The first line of a main file.
const LISTEN: &str = "listen = \"127.0.0.1:8080\"\n";

/// A directory with these files.
fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    directory
}

fn load(directory: &Path) -> Result<Loaded, Report> {
    config::load(&directory.join("tidegate.toml"))
}

/// The report of these files, with paths relative to their directory.
fn report(files: &[(&str, &str)]) -> String {
    let directory = directory(files);
    let report = match load(directory.path()) {
        Ok(loaded) => loaded.warnings,
        Err(report) => report,
    };
    report.to_string().replace(&format!("{}/", directory.path().display()), "")
}

fn route(name: &str) -> String {
    format!("[[routes]]\nname = \"{name}\"\npath = \"/{name}\"\nrespond = {{}}\n")
}

#[test]
fn routes_are_tried_in_the_order_of_the_files() {
    let main = format!(
        "{LISTEN}include = [\"teams/z.toml\", \"teams/*.toml\", \"more/?/routes.toml\", \"*.toml\"]\n{}",
        route("main")
    );
    let (a, b, z) = (route("a"), route("b"), route("z"));
    let more = route("more");
    let directory = directory(&[
        ("tidegate.toml", &main),
        ("teams/b.toml", &b),
        ("teams/a.toml", &a),
        ("teams/z.toml", &z),
        ("teams/.hidden.toml", "not TOML"),
        ("teams/a.toml.orig", "not TOML"),
        ("more/1/routes.toml", &more),
        ("more/22/routes.toml", "not TOML"),
    ]);
    let loaded = load(directory.path()).unwrap_or_else(|report| panic!("{report}"));
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    let names: Vec<&str> =
        loaded.config.snapshot.gate.routes.routes().iter().map(|route| &*route.name).collect();
    assert_eq!(names, ["main", "z", "a", "b", "more"]);
    let included = ["teams/z.toml", "teams/a.toml", "teams/b.toml", "more/1/routes.toml"];
    assert_eq!(loaded.included, included.map(|name| directory.path().join(name)));
}

#[test]
fn names_are_global_and_paths_and_variables_are_those_of_the_file() {
    let authority = Authority::new();
    let authority_pem = fs::read_to_string(authority.file("ca.pem")).unwrap();
    let main = format!("{LISTEN}include = [\"teams/*.toml\"]\n[limits.shared]\nrate = \"5/s\"\n");
    let team = "default_limits = [\"own\"]\n[limits.own]\nrate = \"7/s\"\n[store]\nhash_key = \"${PATH}\"\n\
                [upstreams.api]\nservers = [\"https://10.0.0.1\"]\ntls = { ca = \"ca.pem\" }\n\
                [[routes]]\npath = \"/api/*\"\nlimits = [\"shared\"]\nupstream = \"api\"\n";
    let directory =
        directory(&[("tidegate.toml", &main), ("teams/a.toml", team), ("teams/ca.pem", &authority_pem)]);
    let loaded = load(directory.path()).unwrap_or_else(|report| panic!("{report}"));
    assert!(loaded.warnings.is_empty(), "{}", loaded.warnings);
    let snapshot = &loaded.config.snapshot;
    let names: Vec<&str> = snapshot.gate.limits().map(|(_, policy)| &*policy.name).collect();
    assert_eq!(names, ["shared", "own"]);
    assert_eq!(snapshot.gate.routes.routes()[0].limits.len(), 2);
    let files = ["teams/a.toml", "teams/ca.pem"].map(|name| directory.path().join(name));
    assert_eq!(loaded.files.files, files);
}

#[test]
fn errors_name_the_file_and_the_line() {
    let main = format!(
        "{LISTEN}include = [\"a.toml\", \"b.toml\"]\n[store]\nmax_keys = 5000\n[limits.x]\nrate = \"5/s\"\n"
    );
    let a = "# A comment.\n[limits.x]\nrate = \"6/s\"\n[[routes]]\npath = \"/a\"\nlimits = [\"none\"]\nrespond = {}";
    let b = "include = [\"c.toml\"]\n[store]\nmax_keys = 6000\n[[routes]]\nname = \"é\"\npath = \"/b\"\nrespnod = {}\n";
    let shown = report(&[("tidegate.toml", &main), ("a.toml", a), ("b.toml", b)]);
    let expected = "\
error: [limits.x] is in two files
 --> a.toml:2:9
  |
2 | [limits.x]
  |         ^
  |
 ::: tidegate.toml:5:9
  |
5 | [limits.x]
  |         - the other
  |
  = help: names are the same in all files: choose another one

error: unknown limit `none`
 --> a.toml:6:11
  |
6 | limits = [\"none\"]
  |           ^^^^^^
  |
  = help: define it: [limits.none] with rate = \"100/minute\"

error: an included file can't include others
 --> b.toml:1:1
  |
1 | include = [\"c.toml\"]
  | ^^^^^^^
  |
 ::: tidegate.toml:2:22
  |
2 | include = [\"a.toml\", \"b.toml\"]
  |                      -------- this file is included here
  |
  = help: name them in the main file

error: [store] is in two files
 --> b.toml:2:2
  |
2 | [store]
  |  ^^^^^
  |
 ::: tidegate.toml:3:2
  |
3 | [store]
  |  ----- the other
  |
  = help: keep [store] in one of them: it is for the whole configuration
";
    assert!(shown.starts_with(expected), "{shown}");
    assert!(shown.contains("error: unknown key `respnod` in route 2\n --> b.toml:7:1\n"), "{shown}");
}

#[test]
fn an_invalid_file_is_named_with_the_entry_or_the_line() {
    let main = format!(
        "{LISTEN}include = [\"none.toml\", \"*.txt\", \"broken.toml\", \"list.toml\", \"**/a.toml\"]\n"
    );
    let broken = "[[routes]]\npath = \"/a\nrespond = {}\n";
    let files = [("tidegate.toml", &*main), ("broken.toml", broken), ("list.toml", "- a: b\n- c\n")];
    let shown = report(&files);
    for expected in [
        "error: can't read none.toml: No such file or directory (os error 2)\n --> tidegate.toml:2:12\n",
        "error: this is not valid TOML: ",
        "--> broken.toml:2:",
        "error: list.toml is YAML, and tidegate reads TOML\n --> tidegate.toml:2:49\n",
        "error: `**` does not match several directories\n --> tidegate.toml:2:62\n",
    ] {
        assert!(shown.contains(expected), "{expected}\n{shown}");
    }
    // What follows from the broken line is not reported.
    assert_eq!(shown.matches("error: ").count(), 4, "{shown}");
    let main = format!("{LISTEN}include = [\"*.txt\"]\n{}", route("a"));
    let warned = report(&[("tidegate.toml", &main)]);
    assert!(warned.starts_with("warning: no file matches `*.txt`\n --> tidegate.toml:2:12\n"), "{warned}");
}

#[test]
fn check_counts_included_files_and_names_them_in_json() {
    let main = format!("{LISTEN}include = [\"a.toml\"]\n");
    let directory = directory(&[("tidegate.toml", &main), ("a.toml", &route("a"))]);
    let check = |args: &[&str]| {
        let mut command = command(TIDEGATE);
        command.arg("check").args(args).current_dir(directory.path());
        let checked = output_with_input(&mut command, b"");
        (checked.status.code(), String::from_utf8(checked.stdout).unwrap())
    };
    let valid =
        "tidegate.toml is valid: 1 route, 0 limits, 0 upstreams, counts in this process, 1 included file\n";
    assert_eq!(check(&["tidegate.toml"]), (Some(0), valid.to_owned()));
    fs::write(directory.path().join("a.toml"), "\n[[routes]]\npath = 5\nrespond = {}\n").unwrap();
    let (status, shown) = check(&["--json", "tidegate.toml"]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(status, Some(2));
    let error = &shown["errors"][0];
    assert_eq!((error["file"].as_str(), error["line"].as_u64()), (Some("a.toml"), Some(3)), "{error}");
}

#[test]
fn limits_of_included_files_complete_on_the_command_line() {
    let main = format!("{LISTEN}include = [\"*/limits.toml\"]\n[limits.a]\nrate = \"5/s\"\n");
    let directory = directory(&[("tidegate.toml", &main), ("x/limits.toml", "[limits.b]\nrate = \"5/s\"\n")]);
    assert_eq!(config::limit_names(&directory.path().join("tidegate.toml")), ["a", "b"]);
}
