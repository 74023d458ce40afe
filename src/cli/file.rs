//! The configuration file as an argument of commands.

use std::path::PathBuf;

use clap::Args;

use super::outcome::Failure;
use super::output::complain;
use crate::config::{self, Loaded};

/// The argument that names the configuration file.
#[derive(Debug, Args)]
pub(super) struct FileArgs {
    /// The configuration file.
    #[arg(short, long, value_name = "FILE", default_value = "tidegate.toml")]
    pub config: PathBuf,
}

impl FileArgs {
    /// Reads and checks the file; prints all of its problems if there are any.
    pub fn load(&self) -> Result<Loaded, Failure> {
        config::load(&self.config).map_err(|report| {
            // Write errors are ignored: the exit status reports the failure, too.
            let _ = report.print();
            if let Some(summary) = report.summary() {
                complain(format!("\n{summary}"));
            }
            Failure::Usage
        })
    }
}
