//! `tidegate test`: policy tests.

mod comparison;
mod junit;
mod observed;
mod report;
mod run;

use std::path::{Path, PathBuf};

use clap::Args;

use self::report::{TestReport, TestResult};
use super::file::{self, PathArgs};
use super::output::{CommandResult, Failure, print, print_json, report_write};
use crate::config::{self, Loaded, TestFile};
use crate::time::{Clock, Timestamp};

const EXAMPLES: &str = "\
Examples:
  tidegate test
  tidegate test /etc/tidegate/tidegate.toml
  tidegate test --tests login.tests.toml --tests api.tests.toml
  tidegate test --junit report.xml             (in CI)
  tidegate test --json | jq -r '.tests[] | select(.passed | not).name'

Exit status: 0 if all tests pass, 1 if one fails or the report can't be written, 2 for an invalid configuration, invalid tests, \
no tests or wrong usage.";

/// The arguments of `tidegate test`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct TestArgs {
    #[command(flatten)]
    file: PathArgs,
    /// A file with further `[[tests]]`; may be repeated. Without it, NAME.tests.toml beside the configuration NAME.toml is read
    /// if it exists
    #[arg(long, value_name = "FILE")]
    tests: Vec<PathBuf>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
    /// Also write the results into this file, in the format of `JUnit`
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// Runs the tests of a configuration.
pub(super) fn test(args: &TestArgs) -> CommandResult {
    let path = args.file.path()?;
    let mut loaded = file::load(&path)?;
    if let Some(consumers) = &mut loaded.config.snapshot.gate.consumers {
        // Consumers expire by the clock of each test.
        consumers.clock = Clock::manual(Timestamp::default());
    }
    let files = test_files(args, &path, &loaded)?;
    let tests = loaded.config.tests.iter().chain(files.iter().flat_map(|file| &file.tests));
    let results: Vec<TestResult> = tests.map(|test| TestResult::new(test, run::run(&loaded, test))).collect();
    if results.is_empty() {
        return Err(no_tests(&path));
    }
    let report = TestReport::new(results, |text| without_variables(&loaded, &files, text));
    if let Some(junit) = &args.junit {
        report_write(&junit.display().to_string(), std::fs::write(junit, junit::xml(&report)))?;
    }
    if args.json {
        print_json(&report)?;
    } else {
        print(&report.lines().join("\n"))?;
    }
    if report.failed == 0 { Ok(()) } else { Err(Failure::Running) }
}

/// Reads the files that the arguments name, or else the one beside the configuration.
fn test_files(args: &TestArgs, path: &Path, loaded: &Loaded) -> Result<Vec<TestFile>, Failure> {
    let beside = beside(path).filter(|file| args.tests.is_empty() && file.exists());
    let read = |path: &PathBuf| config::load_tests(path, loaded).map_err(|report| file::complain_of(&report));
    let files: Vec<TestFile> = args.tests.iter().chain(&beside).map(read).collect::<Result<_, _>>()?;
    for file in files.iter().filter(|file| !file.warnings.is_empty()) {
        report_write("standard error", file.warnings.print())?;
    }
    Ok(files)
}

/// The file of tests that is read by default: `tidegate.tests.toml` for `tidegate.toml`.
fn beside(path: &Path) -> Option<PathBuf> {
    (!file::is_stdin(path)).then(|| path.with_extension("tests.toml"))
}

fn no_tests(path: &Path) -> Failure {
    let beside = beside(path).map(|file| format!(", or into {}", file.display())).unwrap_or_default();
    Failure::Usage.error(format!("{} has no tests", file::name(path))).help([
        format!("write [[tests]] into the configuration{beside}"),
        "name another file with --tests FILE".to_owned(),
    ])
}

/// The text with the names of variables in place of their values, which may be secrets.
fn without_variables(loaded: &Loaded, files: &[TestFile], text: &str) -> String {
    files.iter().fold(loaded.without_variables(text), |text, file| file.without_variables(&text))
}
