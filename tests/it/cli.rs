//! The commands of the program.

mod check;
mod check_connect;
mod check_redis;
mod check_tls;
mod commands;
mod convert;
mod explain;
mod explain_body;
mod explain_conditions;
mod explain_descriptor;
mod explain_json;
mod explain_routes;
mod health;
mod init;
mod key_consumers;
pub mod keys;
mod output;
mod policy_test_reports;
mod policy_test_responses;
mod policy_tests;
mod raises;
mod reload;
mod replay;
mod replay_page;
mod replay_suggest;
mod shell;
mod simulate;
mod status;
mod top;

use std::path::Path;
use std::process::Output;

use crate::support::{TIDEGATE, command};

/// The exit code and the output of the program.
#[derive(Debug, PartialEq, Eq)]
struct Finished {
    status: i32,
    stdout: String,
    stderr: String,
}

impl From<Output> for Finished {
    fn from(Output { status, stdout, stderr }: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { status: status.code().unwrap(), stdout: text(stdout), stderr: text(stderr) }
    }
}

/// Runs the program in `directory`, with one variable set.
fn tidegate(directory: &Path, args: &[&str]) -> Finished {
    let output = command(TIDEGATE)
        .args(args)
        .current_dir(directory)
        .env("REDIS_URL", "redis://app:hush@redis.internal:6380/2")
        .env_remove("NOT_SET")
        .env_remove("TIDEGATE_CONFIG")
        .env_remove("CLICOLOR_FORCE")
        .output();
    output.unwrap().into()
}

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn ok(stdout: &str) -> Finished {
    Finished { status: 0, stdout: stdout.to_owned(), stderr: String::new() }
}

fn wrong(stderr: &str) -> Finished {
    Finished { status: 2, stdout: String::new(), stderr: stderr.to_owned() }
}
