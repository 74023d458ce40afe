//! `tidegate check`, `run`, `--version`, and their errors.

use super::*;
use crate::support::{TIDEGATE, command};

/// Runs `check` on a file with this text.
fn check(text: &str) -> Finished {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tidegate.toml"), text).unwrap();
    tidegate(directory.path(), &["check"])
}

#[test]
fn check_accepts_the_example_files() {
    assert_eq!(
        tidegate(repository(), &["check", "-c", "config/quickstart.toml"]),
        ok("config/quickstart.toml is valid: 1 route, 1 limit, 0 upstreams, counts in this process\n")
    );
    assert_eq!(
        tidegate(repository(), &["check", "--config", "config/production.toml"]),
        ok(
            "config/production.toml is valid: 3 routes, 3 limits, 1 upstream, store redis://redis.internal:6380/2\n"
        )
    );
}

/// A file with a limit that grants units, one whose slots are kept, and one that does neither.
const GRANTING: &str = r#"
listen = "127.0.0.1:8080"
store = { url = "redis://127.0.0.1:6379" }
[limits.per-client]
rate = "1000/s"
burst = 1800
ahead = "auto"
[limits.in-flight]
algorithm = "concurrency"
max_in_flight = 100
ahead = "auto"
[limits.without]
rate = "5/minute"
[limits.few]
rate = "5/minute"
ahead = "auto"
[[routes]]
path = "/*"
limits = ["per-client", "in-flight", "without", "few"]
respond = {}
"#;
const GRANTED: &str = "a grant lasts for 300ms and has at most 1/8 of the available units, which are reserved for 600ms at most\n";
const KEPT: &str = "freed slots are kept: a proxy holds at most 2 of a key, for 100ms at most\n";
const TOO_FEW: &str = "Redis decides every request: the limit has too few units for a grant\n";

#[test]
fn check_and_explain_show_what_a_proxy_may_hold_of_a_limit() {
    let Finished { stdout, .. } = check(GRANTING);
    let valid = "tidegate.toml is valid: 1 route, 4 limits, 0 upstreams, store redis://127.0.0.1:6379\n";
    assert_eq!(
        stdout,
        format!("{valid}limit per-client: {GRANTED}limit in-flight: {KEPT}limit few: {TOO_FEW}")
    );
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tidegate.toml"), GRANTING).unwrap();
    let explained = tidegate(directory.path(), &["explain", "GET", "/"]).stdout;
    for meaning in [GRANTED, KEPT, TOO_FEW] {
        assert_eq!(explained.matches(&format!("          ahead     {meaning}")).count(), 1, "{explained}");
    }
    assert!(explained.contains(":per-client:B\n") && explained.contains(":in-flight:c\n"), "{explained}");
}

#[test]
fn check_reports_errors_and_exits_with_2() {
    let text = "listen = \"127.0.0.1:8080\"\n\n[limits.a]\nrate = \"0/s\"\n\n[[routes]]\npath = \"/\"\nlimits = [\"b\"]\nrespond = {}\n";
    assert_eq!(
        check(text),
        wrong(
            r#"error: a rate of zero would deny every request
 --> tidegate.toml:4:8
  |
4 | rate = "0/s"
  |        ^^^^^
  |
  = help: allow at least one request each period, such as "1/minute"; to deny everything, give the route `respond = { status = 403 }`

error: unknown limit `b`
 --> tidegate.toml:8:11
  |
8 | limits = ["b"]
  |           ^^^
  |
  = help: define it: [limits.b] with rate = "100/minute"

tidegate.toml: 2 problems
"#
        )
    );
}

#[test]
fn check_prints_warnings_and_exits_with_0() {
    let text = "listen = \"127.0.0.1:8080\"\n\n[limits.a]\nrate = \"5/s\"\n\n[[routes]]\npath = \"/*\"\nrespond = {}\n";
    let checked = check(text);
    assert_eq!(
        checked,
        Finished {
            stderr: "warning: no route uses this limit
 --> tidegate.toml:3:9
  |
3 | [limits.a]
  |         ^
  |
  = help: name it in a route's `limits`, or in `default_limits`
"
            .into(),
            ..ok("tidegate.toml is valid: 1 route, 1 limit, 0 upstreams, counts in this process\n")
        }
    );
}

#[test]
fn an_unreadable_file_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let message = "error: can't read config.toml: No such file or directory (os error 2)\nhelp: name another file with -c FILE\n";
    for command in ["check", "run"] {
        assert_eq!(tidegate(directory.path(), &[command, "-c", "config.toml"]), wrong(message), "{command}");
    }
    let explained = tidegate(directory.path(), &["explain", "-c", "config.toml", "GET", "/"]);
    assert_eq!(explained, wrong(message));
}

#[test]
fn a_variable_names_the_file_of_commands_without_an_argument() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tidegate.toml"), "listen = 1\n").unwrap();
    let check = |file: &str, args: &[&str]| {
        let mut command = command(TIDEGATE);
        command.arg("check").args(args).current_dir(directory.path()).env("TIDEGATE_CONFIG", file);
        Finished::from(command.output().unwrap())
    };
    let quickstart = repository().join("config/quickstart.toml");
    let quickstart = quickstart.to_str().unwrap();
    let valid = format!("{quickstart} is valid: 1 route, 1 limit, 0 upstreams, counts in this process\n");
    assert_eq!(check(quickstart, &[]), ok(&valid));
    assert_eq!(check("missing.toml", &["-c", quickstart]), ok(&valid));
    assert!(check("missing.toml", &[]).stderr.starts_with("error: can't read missing.toml: "));
    assert!(check("", &[]).stderr.contains("--> tidegate.toml:1:10"));
}

#[test]
fn the_file_may_be_an_argument_or_an_option_before_the_command() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a.toml"), "listen = 1\n").unwrap();
    let place = "--> a.toml:1:10";
    for args in [
        &["run", "a.toml"][..],
        &["check", "a.toml"],
        &["-c", "a.toml", "run"],
        &["--config", "a.toml", "check"],
        &["--config=a.toml", "run"],
        &["-ca.toml", "explain", "GET", "/"],
    ] {
        let output = tidegate(directory.path(), args);
        assert_eq!(output.status, 2, "{args:?}");
        assert!(output.stderr.contains(place), "{args:?}: {}", output.stderr);
    }
    for args in
        [&["-c", "a.toml", "schema"][..], &["-c", "a.toml"], &["-c"], &["run", "a.toml", "-c", "a.toml"]]
    {
        let output = tidegate(directory.path(), args);
        assert_eq!(output.status, 2, "{args:?}");
        assert!(!output.stderr.contains(place), "{args:?}: {}", output.stderr);
    }
}

#[test]
fn run_fails_with_an_invalid_file() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("tidegate.toml"), "listen = 1\n").unwrap();
    let output = tidegate(directory.path(), &["run"]);
    assert_eq!((output.status, output.stdout.as_str()), (2, ""));
    assert!(output.stderr.contains("--> tidegate.toml:1:10"), "{}", output.stderr);
}

#[test]
fn secrets_never_show() {
    for text in [
        "listen = \"127.0.0.1:8080\"\n[store]\nurl = \"${REDIS_URL}/x\"\nprefix = \"${REDIS_URL} \"\n",
        "listen = \"${REDIS_URL}\"\n[store]\ntimeout = \"${REDIS_URL}\"\nclock = \"${REDIS_URL}\"\n",
        "[limits.a]\nrate = \"${REDIS_URL}\"\nkey = \"${REDIS_URL}\"\n[[routes]]\npath = \"${REDIS_URL}\"\nlimits = [\"${REDIS_URL}\"]\nupstream = \"${REDIS_URL}\"\n",
        "[[routes]]\npath = \"/\"\nhost = \"${REDIS_URL}\"\nname = \"\"\nmethods = [\"${REDIS_URL}\", \"x${REDIS_URL}\"]\nrewrite = { host = \"${REDIS_URL}\", strip_prefix = \"${REDIS_URL}\" }\nrequest_headers = { set = { x = \"${REDIS_URL}\\n\" }, remove = [\"${REDIS_URL}\"] }\n",
        "[answers]\nrate_headers = \"${REDIS_URL}\"\n[client_ip]\ntrusted_proxies = [\"${REDIS_URL}\"]\nheader = \"${REDIS_URL}\"\n[[listeners]]\nmax_header_bytes = \"${REDIS_URL}\"\n",
        "[store]\nurl = \"redis://app:hush@h:x\"\nhash_key = \"hush\"\n",
        "[store]\nurl = \"redis://app:hush@h\n",
        "[store]\nhash_key = hush = \"hush\"\n",
    ] {
        let checked = check(text);
        assert_eq!(checked.status, 2, "{text}");
        assert!(
            !checked.stderr.contains("hush\"") && !checked.stderr.contains("app:hush"),
            "{}",
            checked.stderr
        );
    }
}

#[test]
fn invalid_arguments_exit_with_2() {
    for args in [
        &["explain", "-c", "config/quickstart.toml", "GET", "ftp://a"][..],
        &["explain", "-c", "config/quickstart.toml", "G T", "/"],
        &["explain", "-c", "config/quickstart.toml", "GET", "/", "-H", "no colon"],
        &["explain", "-c", "config/quickstart.toml", "GET", "/", "--from", "nobody"],
        &["explain", "-c", "config/quickstart.toml", "GET"],
        &["serve"],
        &[],
    ] {
        let output = tidegate(repository(), args);
        assert_eq!((output.status, output.stdout.as_str()), (2, ""), "{args:?}");
        assert!(!output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn the_version_is_printed() {
    assert_eq!(
        tidegate(repository(), &["--version"]),
        ok(concat!("tidegate ", env!("CARGO_PKG_VERSION"), "\n"))
    );
}

#[test]
fn version_shows_what_the_binary_was_built_from() {
    let Finished { status, stdout, .. } = tidegate(repository(), &["version"]);
    assert_eq!(status, 0);
    let names: Vec<&str> = stdout.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["tidegate", "commit", "target", "features", "profile"]);
    let features: Vec<&str> = [("acme", cfg!(feature = "acme")), ("mimalloc", cfg!(feature = "mimalloc"))]
        .iter()
        .filter_map(|(name, is_on)| is_on.then_some(*name))
        .collect();
    let features = if features.is_empty() { "none".to_owned() } else { features.join(", ") };
    assert!(stdout.contains(&format!("\nfeatures  {features}\n")), "{stdout}");
    assert!(stdout.contains(std::env::consts::ARCH), "{stdout}");
}
