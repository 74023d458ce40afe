//! The configuration file as an argument of commands.

use std::env;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use clap::Args;

use super::output::{Failure, complain};
use crate::config::{self, Interfaces, Loaded, Report};

/// The help of the argument.
pub(super) const HELP: &str = "The configuration file, or - for standard input; by default the one that TIDEGATE_CONFIG names, or else tidegate.toml in \
                               the current directory, or /etc/tidegate/tidegate.toml";
/// The variable that names the file where no argument does.
const VARIABLE: &str = "TIDEGATE_CONFIG";
/// The argument for standard input.
const STDIN: &str = "-";
/// The name of standard input in messages.
const STDIN_NAME: &str = "<stdin>";
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

/// The argument that names the configuration file, with `-c` or without.
#[derive(Debug, Args)]
pub(super) struct PathArgs {
    /// The configuration file, in place of -c FILE
    #[arg(value_name = "FILE", conflicts_with = "config")]
    path: Option<PathBuf>,
    #[command(flatten)]
    file: FileArgs,
}

impl PathArgs {
    /// The path of the file, as that of [`FileArgs`].
    pub fn path(&self) -> Result<PathBuf, Failure> {
        self.path.clone().map_or_else(|| self.file.path(), Ok)
    }
}

impl FileArgs {
    /// The path of the file. Fails if nothing names one, and neither default exists; the message has been printed.
    pub fn path(&self) -> Result<PathBuf, Failure> {
        found(self.config.as_deref()).ok_or_else(|| {
            let error = format!("no configuration file: there is neither {LOCAL} nor {SYSTEM}");
            Failure::Usage.error(error).help([format!("name one with -c FILE or {VARIABLE}=FILE")])
        })
    }

    /// Reads and checks the file; prints all of its problems if there are any.
    pub fn load(&self) -> Result<Loaded, Failure> {
        load(&self.path()?)
    }
}

/// The file that an argument or the variable names, or else the default that exists.
pub(super) fn found(argument: Option<&Path>) -> Option<PathBuf> {
    named(argument).or_else(|| first([LOCAL, SYSTEM]))
}

/// The file that an argument names, or else the variable; an empty variable names none.
pub(super) fn named(argument: Option<&Path>) -> Option<PathBuf> {
    let variable = || env::var_os(VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from);
    argument.map(Path::to_owned).or_else(variable)
}

/// Whether a file is standard input.
pub(super) fn is_stdin(path: &Path) -> bool {
    path == Path::new(STDIN)
}

/// The name of a file in messages.
pub(super) fn name(path: &Path) -> String {
    if is_stdin(path) { STDIN_NAME.to_owned() } else { path.display().to_string() }
}

/// Reads and checks a file, or standard input.
pub(super) fn read(path: &Path) -> Result<Loaded, Report> {
    if is_stdin(path) { config::load_from(io::stdin().lock(), STDIN_NAME) } else { config::load(path) }
}

/// Reads and checks a file, or standard input; prints all problems if there are any.
pub(super) fn load(path: &Path) -> Result<Loaded, Failure> {
    read(path).map_err(|report| complain_of(&report))
}

/// Reads and checks a file, or standard input, and returns its text too; prints all problems if there are any.
pub(super) fn load_with_text(path: &Path) -> Result<(Loaded, String), Failure> {
    let mut text = String::new();
    let read = if is_stdin(path) {
        io::stdin().lock().read_to_string(&mut text)
    } else {
        File::open(path).and_then(|mut file| file.read_to_string(&mut text))
    };
    let loaded = match read {
        Ok(_) => config::load_from(text.as_bytes(), &name(path)).map_err(|report| complain_of(&report)),
        // Reading it again says why it can't be read.
        Err(_) => load(path),
    };
    Ok((loaded?, text))
}

/// Reads what a file, or standard input, says about where its process is reached; prints all problems of that.
pub(super) fn interfaces(path: &Path) -> Result<Interfaces, Failure> {
    let read = if is_stdin(path) {
        config::interfaces_from(io::stdin().lock(), STDIN_NAME)
    } else {
        config::interfaces(path)
    };
    read.map_err(|report| complain_of(&report))
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
