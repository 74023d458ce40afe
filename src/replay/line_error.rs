//! Why a line of a log has no entry.

use std::borrow::Cow;

use thiserror::Error;

/// Why a line of a log has no entry.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LineError {
    /// The line is not in the format.
    #[error("column {column}: expected {expected}")]
    Column {
        /// The column, in bytes; the first is 1.
        column: usize,
        /// What the format has there.
        expected: &'static str,
    },
    /// A field of a JSON line is missing, or has no valid value.
    #[error("field `{field}`: expected {expected}")]
    Field {
        /// The path of the field.
        field: Cow<'static, str>,
        /// What the format has there.
        expected: &'static str,
    },
    /// The line is not JSON.
    #[error("column {column}: {reason}")]
    Json {
        /// The column, in bytes; the first is 1.
        column: usize,
        /// What the parser says.
        reason: String,
    },
    /// The format is right, but the server got no valid request line: it has answered 400 or 408, or nothing.
    #[error("there is no request, only a connection or invalid bytes")]
    NoRequest,
}

impl LineError {
    /// How far the line was in the format, to find the nearest of several formats.
    #[must_use]
    pub fn column(&self) -> usize {
        match self {
            Self::Column { column, .. } | Self::Json { column, .. } => *column,
            Self::Field { .. } | Self::NoRequest => usize::MAX,
        }
    }
    /// The same error in a line that has this many bytes before the text in which it was found.
    #[must_use]
    pub fn after(mut self, length: usize) -> Self {
        if let Self::Column { column, .. } | Self::Json { column, .. } = &mut self {
            *column += length;
        }
        self
    }
}
