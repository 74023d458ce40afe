//! The state of reading one file: the environment, the problems found so far, and the files that it names.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::keys::Keys;
use super::report::Problem;
use super::secrets::{self, ExpandError};

/// The state of reading one file: the environment, and the problems found so far.
pub(super) struct Reader<'a> {
    /// The keys of the file itself, to find where a key belongs that is in the wrong table.
    pub top: &'static Keys,
    env: &'a dyn Fn(&str) -> Option<String>,
    /// Whether the file is read for the library, where nothing listens or forwards.
    is_for_library: bool,
    problems: RefCell<Vec<Problem>>,
    /// Every variable that was filled in.
    variables: RefCell<Vec<(String, String)>>,
    files: RefCell<FilesRead>,
}

/// The other files that were read, with hashes of their content, by the byte offset of the value that names them.
pub(super) type FilesRead = BTreeMap<usize, (PathBuf, blake3::Hash)>;

/// A string whose variables are filled in.
pub(super) struct Filled {
    pub text: String,
    /// Whether any of it comes from the environment, so that it may be a secret.
    pub from_env: bool,
}

impl<'a> Reader<'a> {
    pub fn new(top: &'static Keys, env: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            top,
            env,
            is_for_library: false,
            problems: RefCell::default(),
            variables: RefCell::default(),
            files: RefCell::default(),
        }
    }

    /// The reader of a file of which the library needs the limits alone.
    pub fn for_library(top: &'static Keys, env: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self { is_for_library: true, ..Self::new(top, env) }
    }

    pub fn is_for_library(&self) -> bool {
        self.is_for_library
    }

    pub fn report(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    /// The other files that were read so far.
    pub fn files(&self) -> FilesRead {
        self.files.borrow().clone()
    }

    /// Every variable that was filled in so far, with its value.
    pub fn variables(&self) -> Vec<(String, String)> {
        self.variables.borrow().clone()
    }

    /// All problems. Where a name or a path came from the environment, the message has its variable.
    pub fn into_problems(self) -> Vec<Problem> {
        let mut variables = self.variables.into_inner();
        variables.sort_unstable();
        variables.dedup();
        let clean = |message: &str| secrets::without_values(message, &variables);
        let problems = self.problems.into_inner().into_iter();
        if variables.is_empty() {
            problems.collect()
        } else {
            problems.map(|one| one.reworded(clean)).collect()
        }
    }

    /// Fills in the variables of a string.
    pub fn fill_in(&self, raw: &str) -> Result<Filled, ExpandError> {
        let expanded = secrets::expand(raw, self.env)?;
        let from_env = !expanded.variables.is_empty();
        self.variables.borrow_mut().extend(expanded.variables);
        Ok(Filled { text: expanded.text, from_env })
    }

    /// Reads a file that the value at byte `at` names; `path` is relative to `directory`.
    pub fn read_file(&self, at: usize, directory: &Path, path: &str) -> (PathBuf, io::Result<Vec<u8>>) {
        let path = directory.join(path);
        let bytes = std::fs::read(&path);
        // Also a file that can't be read is recorded: a watcher must see when it appears.
        let hash = blake3::hash(bytes.as_deref().unwrap_or_default());
        self.files.borrow_mut().insert(at, (path.clone(), hash));
        (path, bytes)
    }
}
