//! Reads numbers from a response while it passes.

mod events;
mod facts;
mod json;
mod keys;
mod pointers;

use events::{EventLines, Part};
use facts::Facts;
use json::Parser;
use pointers::Pointers;

use super::tokens::{Dialect, Tokens};

const BOM: &[u8] = b"\xef\xbb\xbf";

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
    /// Why there are no tokens.
    pub unknown: Option<Unknown>,
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
    /// The `sequence_number` of the event that would follow, of `OpenAI` responses.
    pub next_sequence: u64,
}

impl Observed {
    /// Why the value at the pointer with this place is no number; none if it is one.
    #[must_use]
    pub fn unknown_value(&self, place: usize) -> Option<Unknown> {
        match self.values.get(place) {
            Some(Value::Number(_)) => None,
            Some(Value::Absent) | None if self.is_whole => Some(Unknown::Absent),
            _ => Some(Unknown::Malformed),
        }
    }
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

/// Why the cost of a response is not known.
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
    /// No price is for the model alone. The usage is known, and has the default prices.
    Model,
}

impl Unknown {
    /// Every reason with its label in metrics and logs, in the order of the type.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::Encoding, "encoding"),
        (Self::Type, "type"),
        (Self::Absent, "absent"),
        (Self::Malformed, "malformed"),
        (Self::Model, "model"),
    ];

    /// The reason in metrics and logs, such as `absent`.
    #[must_use]
    pub fn label(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// Reads a response while it passes, in bounded memory.
///
/// Reads leniently where that changes no number: invalid UTF-8 and control characters in strings are not noticed. Names with escapes,
/// and those longer than 40 bytes, are those of no usage. In an event stream, data that does not begin as an object or array is skipped.
#[derive(Debug)]
pub struct UsageReader {
    framing: Framing,
    parser: Parser,
    facts: Facts,
    lines: EventLines,
    data: Data,
    /// How many bytes of a byte order mark were read; all, if there is none.
    bom: usize,
    is_at_line_start: bool,
}

/// The data of the present event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    /// Whitespace so far.
    Blank,
    /// `[`, which begins `[DONE]` or an array.
    Bracket,
    Json,
    /// Something else.
    Other,
}

impl UsageReader {
    /// A reader of the usage that language models report, and of the numbers at `pointers` (RFC 6901).
    #[must_use]
    pub fn new(framing: Framing, pointers: &[&str]) -> Self {
        let values = pointers.len();
        let pointers = Pointers::new(pointers);
        let parser = Parser::new(pointers.max_name().max(keys::MAX_NAME));
        let mut facts = Facts::new(pointers, values, framing != Framing::EventStream);
        facts.update(framing != Framing::Json);
        let lines = EventLines::new();
        Self { framing, parser, facts, lines, data: Data::Blank, bom: 0, is_at_line_start: true }
    }

    /// Reads the next bytes of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut bytes = self.skip_bom(bytes);
        match self.framing {
            Framing::Json => self.parser.push(bytes, &mut self.facts),
            Framing::Lines => {
                while let Some(end) = memchr::memchr(b'\n', bytes) {
                    self.parser.push(&bytes[..end], &mut self.facts);
                    self.end_text();
                    self.is_at_line_start = true;
                    bytes = &bytes[end + 1..];
                }
                self.parser.push(bytes, &mut self.facts);
                self.is_at_line_start &= bytes.is_empty();
            }
            Framing::EventStream => {
                while let Some(part) = self.lines.next(&mut bytes) {
                    match part {
                        Part::Data(data) => self.data(data),
                        // Lines of data are joined by a newline.
                        Part::EndOfData => self.data(b"\n"),
                        Part::EndOfEvent => self.end_event(),
                    }
                }
            }
        }
        self.facts.update(self.is_whole());
    }

    /// What is known so far.
    #[must_use]
    pub fn so_far(&self) -> &Observed {
        &self.facts.observed
    }

    /// Whether the last byte was the end of an event or a line, so that another event may follow.
    #[must_use]
    pub fn is_between_events(&self) -> bool {
        match self.framing {
            Framing::Json => false,
            Framing::EventStream => self.lines.is_between_events(),
            Framing::Lines => self.is_at_line_start,
        }
    }

    /// What is known at the end of the body.
    #[must_use]
    pub fn finish(mut self) -> Observed {
        if self.framing == Framing::EventStream {
            self.end_event();
        } else {
            self.parser.end(&mut self.facts);
            let is_text = self.parser.has_begun();
            let is_done = self.parser.is_done();
            self.facts.has_malformed |= is_text && !is_done;
            self.facts.end_text();
        }
        let is_whole = self.is_whole();
        self.facts.update(is_whole);
        self.facts.observed
    }

    fn is_whole(&self) -> bool {
        let is_malformed = self.facts.has_malformed || self.parser.is_malformed();
        let has_part = self.parser.has_begun() && !self.parser.is_done();
        !is_malformed && !has_part && (self.framing != Framing::Json || self.parser.is_done())
    }

    fn end_text(&mut self) {
        self.parser.end(&mut self.facts);
        self.facts.has_malformed |= self.parser.is_malformed();
        self.facts.end_text();
        self.parser.reset();
    }

    fn end_event(&mut self) {
        if self.data == Data::Bracket {
            self.parser.push(b"[", &mut self.facts);
        }
        self.data = Data::Blank;
        self.end_text();
    }

    fn data(&mut self, mut data: &[u8]) {
        if self.data == Data::Blank {
            data = data.trim_ascii_start();
            self.data = match data.first() {
                None => Data::Blank,
                Some(b'{') => Data::Json,
                Some(b'[') => {
                    data = &data[1..];
                    Data::Bracket
                }
                Some(_) => Data::Other,
            };
        }
        if self.data == Data::Bracket
            && let Some(next) = data.first()
        {
            self.data = if *next == b'D' { Data::Other } else { Data::Json };
            if self.data == Data::Json {
                self.parser.push(b"[", &mut self.facts);
            }
        }
        if self.data == Data::Json {
            self.parser.push(data, &mut self.facts);
        }
    }

    /// Skips a byte order mark at the beginning of the body (RFC 8259 §8.1).
    fn skip_bom<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        while let (Some(expected), Some((first, rest))) = (BOM.get(self.bom), bytes.split_first()) {
            if first != expected {
                self.facts.has_malformed |= self.bom > 0;
                self.bom = BOM.len();
                break;
            }
            self.bom += 1;
            bytes = rest;
        }
        bytes
    }
}

#[cfg(test)]
mod tests;
