//! Files to convert.

use std::path::Path;

/// A file to convert.
#[derive(Clone, Copy, Debug)]
pub struct SourceFile<'a> {
    /// Its name, as in messages.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
    /// The directory of the files that it names.
    pub directory: &'a Path,
}
