//! Records what `tidegate version` shows: the target, the profile, the features, and the commit of a release build.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

/// How many digits of a commit are recorded.
const DIGITS: usize = 12;

fn main() {
    let variable = |name: &str| env::var(name).unwrap_or_default();
    println!("cargo::rustc-env=TIDEGATE_TARGET={}", variable("TARGET"));
    println!("cargo::rustc-env=TIDEGATE_PROFILE={}", variable("PROFILE"));
    let features = variable("CARGO_CFG_FEATURE");
    // The program always has `cli`.
    let is_shown = |feature: &&str| !["cli", "default"].contains(feature);
    let features: Vec<&str> = features.split(',').filter(is_shown).collect();
    println!("cargo::rustc-env=TIDEGATE_FEATURES={}", features.join(", "));
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TIDEGATE_COMMIT");
    // A debug build has no commit: it would be compiled again after each one.
    if variable("PROFILE") == "release"
        && let Some(commit) = given_commit().or_else(packaged_commit).or_else(checked_out_commit)
    {
        println!("cargo::rustc-env=TIDEGATE_COMMIT={commit}");
    }
}

/// The commit that the environment names, where the sources have no history, as in a container.
fn given_commit() -> Option<String> {
    env::var("TIDEGATE_COMMIT").ok().filter(|commit| !commit.is_empty()).map(|commit| shortened(&commit))
}

/// The commit of a crate that `cargo package` has made.
fn packaged_commit() -> Option<String> {
    let info = fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = info.split_once("\"sha1\"")?;
    rest.split('"').nth(1).map(shortened)
}

/// The commit of the repository whose root is this directory, with `-dirty` after it if files differ from it.
fn checked_out_commit() -> Option<String> {
    let root = git(&["rev-parse", "--show-toplevel"])?;
    if fs::canonicalize(root).ok()? != fs::canonicalize(".").ok()? {
        return None;
    }
    let history = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    // Cargo runs this program at each build if a file that it watches is missing.
    for path in [&*history, "src", "crates", "lua", "Cargo.toml", "Cargo.lock"] {
        if Path::new(path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    let commit = shortened(&git(&["rev-parse", "HEAD"])?);
    let changes = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changes.is_empty() { commit } else { format!("{commit}-dirty") })
}

/// The output of git; `None` if it fails or there is none.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

fn shortened(commit: &str) -> String {
    commit.trim().chars().take(DIGITS).collect()
}
