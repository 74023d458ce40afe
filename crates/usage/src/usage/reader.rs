//! Reads numbers from a response while it passes.

use super::{Dialect, Tokens};

/// How a body consists of JSON texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// One JSON text (`application/json`).
    Json,
    /// Server-sent events with JSON in their data (`text/event-stream`).
    EventStream,
    /// A JSON text in each line (`application/x-ndjson`).
    Lines,
}

/// What is known of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The tokens that the response has reported; none if it has reported no usage.
    pub tokens: Option<Tokens>,
    /// The last value at each of the pointers that the reader was made with, in their order.
    pub values: Vec<Value>,
    /// The model that the response names.
    pub model: Option<Box<str>>,
    /// Tokens of output by count: one for each event with content, and never less than a sixth of the bytes of the text.
    pub counted_output: u64,
    /// Whether the body was one whole JSON text, or a stream of whole ones.
    pub is_whole: bool,
    /// The form of its events.
    pub dialect: Option<Dialect>,
}

/// The number at a pointer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Value {
    /// There is nothing at the pointer, or null.
    #[default]
    Absent,
    /// A whole number.
    Number(u64),
    /// Something else: a sign, a fraction, a text, a number that is too long.
    Invalid,
}

/// Why the usage of a response is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// A Content-Encoding that can't be decoded.
    Encoding,
    /// Another media type, or a usage that has no tokens.
    Type,
    /// The response does not say.
    Absent,
    /// Malformed JSON, or a value that is no whole number.
    Malformed,
}

/// Reads a response while it passes, in bounded memory.
#[derive(Debug)]
pub struct UsageReader {
    framing: Framing,
    observed: Observed,
}

impl UsageReader {
    /// A reader of the usage that language models report, and of the numbers at `pointers` (RFC 6901).
    #[must_use]
    pub fn new(framing: Framing, pointers: &[&str]) -> Self {
        let values = vec![Value::Absent; pointers.len()];
        Self { framing, observed: Observed { values, ..Observed::default() } }
    }

    /// Reads the next bytes of the body.
    pub fn push(&mut self, _bytes: &[u8]) {}

    /// What is known so far.
    #[must_use]
    pub fn so_far(&self) -> &Observed {
        &self.observed
    }

    /// Whether the last byte was the end of an event or a line, so that another event may follow.
    #[must_use]
    pub fn is_between_events(&self) -> bool {
        self.framing != Framing::Json
    }

    /// What is known at the end of the body.
    #[must_use]
    pub fn finish(self) -> Observed {
        self.observed
    }
}
