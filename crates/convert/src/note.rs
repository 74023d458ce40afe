//! Comments in a converted configuration: explanations, and lines of the origin that are not converted.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

/// A line of a file of the origin. Files are in the order in which they were read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileLine {
    /// The number of the file, in the order of reading.
    pub order: usize,
    /// The name of the file, as in messages.
    pub file: Arc<str>,
    /// From 1.
    pub line: usize,
    /// Tells apart what is in one line.
    pub column: usize,
}

impl Display for FileLine {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A remark on a line of the origin: it is not converted, or not completely.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Where it is.
    pub place: FileLine,
    /// The line, shortened.
    pub text: String,
    /// Why, and what to do instead.
    pub reason: String,
    /// Whether requests are served differently than by the origin. If not, the remark is for information.
    pub changes_behaviour: bool,
    /// Whether it is about all that is in the line's block.
    pub(crate) is_of_block: bool,
    /// Whether the line, or what is in its block, is lost for some requests, also if the output has it for others.
    pub(crate) is_lost: bool,
}

impl Display for Finding {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: `{}`: {}", self.place, self.text, self.reason)
    }
}

/// A comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// An explanation of what was converted.
    Text(String),
    /// A line that was converted, with its place.
    Origin(FileLine, String),
    /// A line that was not converted.
    Finding(Finding),
}

impl Note {
    /// An explanation.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A line that is converted here.
    pub fn origin(place: &FileLine, text: impl Into<String>) -> Self {
        Self::Origin(place.clone(), text.into())
    }

    /// A line that is not converted, or not completely; `text` is shortened.
    pub fn finding(place: &FileLine, text: &str, reason: impl Into<String>) -> Self {
        const LONGEST: usize = 70;
        let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ").replace('`', "'");
        if text.chars().count() > LONGEST {
            text = text.chars().take(LONGEST - 1).chain(['…']).collect();
        }
        let (place, reason) = (place.clone(), reason.into());
        Self::Finding(Finding {
            place,
            text,
            reason,
            changes_behaviour: true,
            is_of_block: false,
            is_lost: false,
        })
    }

    /// The same, about a line that changes nothing about how requests are served: it is only for information.
    #[must_use]
    pub fn for_information(self) -> Self {
        match self {
            Self::Finding(finding) => Self::Finding(Finding { changes_behaviour: false, ..finding }),
            other => other,
        }
    }

    /// The same, about all that is in the line's block.
    #[must_use]
    pub fn of_block(self) -> Self {
        match self {
            Self::Finding(finding) => Self::Finding(Finding { is_of_block: true, ..finding }),
            other => other,
        }
    }

    /// The same, about a line or a block that is lost for some requests: a limit in it does not count as converted.
    #[must_use]
    pub fn lost(self) -> Self {
        match self {
            Self::Finding(finding) => Self::Finding(Finding { is_lost: true, ..finding }),
            other => other,
        }
    }
}

impl Display for Note {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Origin(place, text) => write!(f, "{place}: {text}"),
            Self::Finding(finding) if finding.changes_behaviour => write!(f, "NOT CONVERTED {finding}"),
            Self::Finding(finding) => write!(f, "FOR INFORMATION {finding}"),
        }
    }
}

/// An origin's file that can't be read at all.
#[derive(Debug)]
pub struct SyntaxError {
    /// Where reading ended.
    pub place: FileLine,
    /// The syntax error at that place.
    pub message: String,
}
