//! Why a limiter can't be created.

use std::fmt;
use std::io;

use crate::config::Report;

/// Why a limiter can't be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file has errors.
    #[error("{0}")]
    Config(#[from] ConfigErrors),
    /// The thread of the limiter can't be started.
    #[error("can't start the thread of the limiter: {0}")]
    Thread(#[source] io::Error),
}

/// All errors of a configuration file. Displayed with the lines of the file and what to write instead, as `tidegate check` does.
#[derive(Clone, Debug)]
pub struct ConfigErrors(Report);

impl ConfigErrors {
    pub(super) fn new(report: Report) -> Self {
        Self(report)
    }

    /// One line for each error, with its position and its cure.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.0.lines()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ConfigErrors {}
