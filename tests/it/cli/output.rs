//! Colours of the output, and output that can't be written.

use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::repository;
use crate::support::{TIDEGATE, command};

const ESCAPE: char = '\u{1b}';

/// The program, without settings for colours in its environment.
fn tidegate(directory: &Path, args: &[&str]) -> Command {
    let mut command = command(TIDEGATE);
    for variable in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
        command.env_remove(variable);
    }
    command.args(args).current_dir(directory).env("TERM", "xterm").stdin(Stdio::null());
    command
}

/// A directory with an invalid configuration, one with warnings whose port is in use, and arrivals; the port is free when
/// the listener is dropped.
fn directory() -> (tempfile::TempDir, TcpListener) {
    let directory = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let odd = format!("listen = \"{}\"\n[limits.a]\nrate = \"1/s\"\n", listener.local_addr().unwrap());
    for (name, text) in [("wrong.toml", "listen = 1\n"), ("odd.toml", &*odd), ("arrivals", "0\n0\n")] {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    (directory, listener)
}

/// Commands whose output can have colours.
const COLOURED: [&[&str]; 6] = [
    &["--help"],
    &["serve"],
    &["check", "-c", "wrong.toml"],
    &["check", "-c", "odd.toml"],
    &["run", "-c", "odd.toml"],
    &["simulate", "-c", "odd.toml", "--limit", "a", "--arrivals", "arrivals"],
];

#[test]
fn colour_settings_apply_to_all_output() {
    let (directory, _taken) = directory();
    for args in COLOURED {
        let is_coloured = |variables: &[(&str, &str)]| {
            let run = tidegate(directory.path(), args).envs(variables.iter().copied()).output().unwrap();
            let output = [run.stdout, run.stderr].concat();
            assert!(!output.is_empty(), "{args:?}");
            String::from_utf8(output).unwrap().contains(ESCAPE)
        };
        assert!(!is_coloured(&[]), "{args:?}: a pipe has no colours");
        assert!(is_coloured(&[("CLICOLOR_FORCE", "1")]), "{args:?}");
        assert!(is_coloured(&[("CLICOLOR_FORCE", "1"), ("TERM", "dumb")]), "{args:?}");
        assert!(!is_coloured(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]), "{args:?}");
        assert!(
            is_coloured(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "")]),
            "{args:?}: an empty value is none"
        );
    }
}

#[test]
fn a_terminal_gets_colours_unless_disabled() {
    let (directory, _taken) = directory();
    for args in COLOURED {
        let line = format!("{} {}", TIDEGATE, args.join(" "));
        let is_coloured = |variable: (&str, &str)| {
            let mut script = command("script");
            for other in ["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "CI"] {
                script.env_remove(other);
            }
            script.args(["-qec", &line, "/dev/null"]).current_dir(directory.path()).stdin(Stdio::null());
            let run = script.env("TERM", "xterm").env(variable.0, variable.1).output().unwrap();
            let output = String::from_utf8(run.stdout).unwrap();
            assert!(!output.is_empty(), "{line}");
            output.contains(ESCAPE)
        };
        assert!(is_coloured(("TERM", "xterm")), "{line}");
        for variable in [("TERM", "dumb"), ("NO_COLOR", "1"), ("CLICOLOR", "0")] {
            assert!(!is_coloured(variable), "{line} with {variable:?}");
        }
    }
}

/// Commands that print to standard output.
const PRINTED: [&[&str]; 8] = [
    &["--help"],
    &["--version"],
    &["help", "keys"],
    &["simulate", "--help"],
    &["check", "-c", "config/quickstart.toml"],
    &["explain", "-c", "config/quickstart.toml", "GET", "/"],
    &[
        "simulate",
        "-c",
        "config/quickstart.toml",
        "--limit",
        "per-client",
        "--arrivals",
        "docs/pictures/burst.txt",
    ],
    &[
        "simulate",
        "-c",
        "config/quickstart.toml",
        "--limit",
        "per-client",
        "--arrivals",
        "docs/pictures/burst.txt",
        "--format",
        "jsonl",
    ],
];

#[test]
fn a_full_disk_fails_the_command() {
    for args in PRINTED {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let Output { status, stderr, .. } = tidegate(repository(), args).stdout(full).output().unwrap();
        let message = "error: can't write to standard output: No space left on device (os error 28)\n";
        assert_eq!((status.code(), &*String::from_utf8(stderr).unwrap()), (Some(1), message), "{args:?}");
    }
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    for args in PRINTED {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let Output { status, stderr, .. } = tidegate(repository(), args).stdout(writer).output().unwrap();
        assert_eq!((status.code(), &*String::from_utf8(stderr).unwrap()), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn unwritable_warnings_fail_the_command() {
    let (directory, _taken) = directory();
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let status =
        |args: &[&str]| tidegate(directory.path(), args).stderr(full()).output().unwrap().status.code();
    assert_eq!(status(&["check", "-c", "odd.toml"]), Some(1));
    // The exit code of an error has precedence.
    assert_eq!(status(&["check", "-c", "wrong.toml"]), Some(2));
    assert_eq!(status(&["serve"]), Some(2));
}
