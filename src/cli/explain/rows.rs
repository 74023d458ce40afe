//! Lines of a label and a text, in aligned columns.

use std::fmt::Write as _;

/// The column at which the text after a label starts.
const INDENT: usize = 10;

/// Lines of a label and a text.
#[derive(Default)]
pub(super) struct TextRows(String);

impl TextRows {
    /// Appends a line.
    pub fn row(&mut self, label: &str, text: impl AsRef<str>) {
        // Writing to a string can't fail.
        let _ = writeln!(self.0, "{label:<INDENT$}{}", text.as_ref());
    }

    /// Appends an indented line, with a label of its own.
    pub fn sub_row(&mut self, label: &str, text: impl AsRef<str>) {
        self.row("", format!("{label:<INDENT$}{}", text.as_ref()));
    }

    /// Appends an empty line.
    pub fn gap(&mut self) {
        self.0.push('\n');
    }

    /// Appends these lines.
    pub fn append(&mut self, other: &Self) {
        self.0.push_str(&other.0);
    }

    /// The text, without a line end after the last line.
    pub fn into_text(mut self) -> String {
        self.0.truncate(self.0.trim_end().len());
        self.0
    }
}
