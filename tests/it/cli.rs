//! The commands of the program.

mod commands;
mod explain;
mod keys;
mod output;
mod simulate;

use std::path::Path;
use std::process::{Command, Output};

/// What a run of the program says and comes to.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    pub status: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs the program in `directory`, with one variable set.
fn tidegate(directory: &Path, args: &[&str]) -> Said {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_tidegate"))
        .args(args)
        .current_dir(directory)
        .env("REDIS_URL", "redis://app:hush@redis.internal:6380/2")
        .env_remove("NOT_SET")
        .env_remove("CLICOLOR_FORCE")
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { status: status.code().unwrap(), stdout: text(stdout), stderr: text(stderr) }
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn ok(stdout: &str) -> Said {
    Said { status: 0, stdout: stdout.to_owned(), stderr: String::new() }
}

fn wrong(stderr: &str) -> Said {
    Said { status: 2, stdout: String::new(), stderr: stderr.to_owned() }
}
