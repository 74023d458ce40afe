//! The configuration file as an argument of commands.

use std::env;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use super::outcome::Failure;
use super::output::complain;
use crate::config::{self, Loaded, Report};

/// The help of the argument.
pub(super) const HELP: &str = "The configuration file; by default the one that TIDEGATE_CONFIG names, or else tidegate.toml in \
                               the current directory, or /etc/tidegate/tidegate.toml";
/// The variable that names the file where no argument does.
const VARIABLE: &str = "TIDEGATE_CONFIG";
/// The file in the current directory.
const LOCAL: &str = "tidegate.toml";
/// The file of the system.
const SYSTEM: &str = "/etc/tidegate/tidegate.toml";

/// The argument that names the configuration file.
#[derive(Debug, Args)]
pub(super) struct FileArgs {
    #[arg(short, long, value_name = "FILE", help = HELP)]
    pub config: Option<PathBuf>,
}

impl FileArgs {
    /// The path of the file.
    ///
    /// # Errors
    /// If nothing names one, and neither default exists; the message has been printed.
    pub fn path(&self) -> Result<PathBuf, Failure> {
        let path = named(self.config.as_deref()).or_else(|| first([LOCAL, SYSTEM]));
        path.ok_or_else(|| {
            complain(format!("error: no configuration file: there is neither {LOCAL} nor {SYSTEM}"));
            complain(format!("help: name one with -c FILE or {VARIABLE}=FILE"));
            Failure::Usage
        })
    }

    /// Reads and checks the file; prints all of its problems if there are any.
    pub fn load(&self) -> Result<Loaded, Failure> {
        load(&self.path()?)
    }
}

/// The file that an argument names, or else the variable; an empty variable names none.
pub(super) fn named(argument: Option<&Path>) -> Option<PathBuf> {
    let variable = || env::var_os(VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from);
    argument.map(Path::to_owned).or_else(variable)
}

/// Reads and checks a file; prints all of its problems if there are any.
pub(super) fn load(path: &Path) -> Result<Loaded, Failure> {
    config::load(path).map_err(|report| complain_of(&report))
}

/// Prints the problems of a file.
pub(super) fn complain_of(report: &Report) -> Failure {
    // Write errors are ignored: the exit status reports the failure, too.
    let _ = report.print();
    if let Some(summary) = report.summary() {
        complain(format!("\n{summary}"));
    }
    Failure::Usage
}

/// The first of the files that exists. One that can't be examined counts: reading it tells why.
fn first<'a>(paths: impl IntoIterator<Item = &'a str>) -> Option<PathBuf> {
    let is_missing =
        |path: &&str| Path::new(path).metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    paths.into_iter().find(|path| !is_missing(path)).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_file_that_exists_is_the_default() {
        let directory = tempfile::tempdir().unwrap();
        let [local, system] = ["local.toml", "system.toml"].map(|name| directory.path().join(name));
        let paths = || [local.to_str().unwrap(), system.to_str().unwrap()];
        assert_eq!(first(paths()), None);
        std::fs::write(&system, "").unwrap();
        assert_eq!(first(paths()), Some(system.clone()));
        std::fs::write(&local, "").unwrap();
        assert_eq!(first(paths()), Some(local.clone()));
        // `local.toml/x` can't be examined: `local.toml` is no directory.
        let unreadable = local.join("x");
        assert_eq!(first([unreadable.to_str().unwrap()]), Some(unreadable.clone()));
    }
}
