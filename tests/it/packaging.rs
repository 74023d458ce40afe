//! The files with which tidegate is installed.

mod debian;
mod images;
mod install;
mod pgo;
mod systemd;
mod unit;
mod workflows;

use std::fs;
use std::path::Path;
use std::process::Command;

/// The binary that is installed.
const BINARY: &str = env!("CARGO_BIN_EXE_tidegate");

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command that must succeed; returns what it prints.
fn completed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{command:?}: {}\n{stdout}{stderr}", output.status);
    stdout
}

/// The paths of all files and links below a directory, from there, in order.
fn files(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()).iter().map(|path| format!("{name}/{path}")));
        } else {
            found.push(name);
        }
    }
    found.sort();
    found
}
