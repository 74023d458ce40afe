//! Reads the body of a response beside the stream.

use bytes::Bytes;

#[cfg(feature = "cli")]
use super::decoder::Decoder;
#[cfg(not(feature = "cli"))]
use super::without_decoder::Decoder;
use crate::http1::Fields;
use crate::http1::names::{CONTENT_ENCODING, CONTENT_TYPE};
use crate::usage::{Dialect, Framing, Observed, Unknown, UsageReader};

/// The most bytes that are passed on before they are read.
pub(super) const MAX_UNREAD: usize = 64 * 1024;

/// Reads a body after its bytes have been passed on.
pub(super) struct Observer {
    source: Source,
    /// Parts that were passed on, and not read yet.
    unread: Vec<Bytes>,
    unread_bytes: usize,
    is_stream: bool,
}

enum Source {
    /// Nothing is read, since no limit needs it, or nothing can be.
    None(Unknown),
    Plain(Box<UsageReader>),
    Encoded(Box<Decoder>),
}

impl Observer {
    /// Of a body that no limit reads.
    pub fn none() -> Self {
        Self::of(Source::None(Unknown::Absent), false)
    }

    /// Of the body of a response with these headers, for the numbers at `pointers`.
    pub fn new(fields: &Fields, pointers: &[&str]) -> Self {
        let Some(framing) = fields.get(CONTENT_TYPE).and_then(framing) else {
            return Self::of(Source::None(Unknown::Type), false);
        };
        let reader = UsageReader::new(framing, pointers);
        let mut codings =
            fields.elements(CONTENT_ENCODING).filter(|coding| !coding.eq_ignore_ascii_case(b"identity"));
        let source = match (codings.next(), codings.next()) {
            (None, _) => Source::Plain(Box::new(reader)),
            (Some(coding), None) => match Decoder::new(coding, reader) {
                Some(decoder) => Source::Encoded(Box::new(decoder)),
                None => Source::None(Unknown::Encoding),
            },
            (Some(_), Some(_)) => Source::None(Unknown::Encoding),
        };
        Self::of(source, framing != Framing::Json)
    }

    fn of(source: Source, is_stream: bool) -> Self {
        Self { source, unread: Vec::new(), unread_bytes: 0, is_stream }
    }

    /// Whether the body is a stream of events.
    pub fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// Adds bytes that are passed on.
    pub fn add(&mut self, bytes: &Bytes) {
        if !matches!(self.source, Source::None(_)) && !bytes.is_empty() {
            self.unread_bytes += bytes.len();
            self.unread.push(bytes.clone());
        }
    }

    /// Whether bytes were passed on that are not read yet.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Whether so many bytes are not read yet that they should be, before more are passed on.
    pub fn is_full(&self) -> bool {
        self.unread_bytes >= MAX_UNREAD
    }

    /// Reads what was passed on.
    pub fn read(&mut self) {
        for part in std::mem::take(&mut self.unread) {
            self.push(&part);
        }
        self.unread_bytes = 0;
    }

    /// Reads bytes that are not passed on yet, up to the end of the present event; returns their number, if it ends in them.
    pub fn read_event(&mut self, bytes: &[u8]) -> Option<usize> {
        for (index, byte) in bytes.iter().enumerate() {
            self.push(std::slice::from_ref(byte));
            if self.is_between_events() {
                return Some(index + 1);
            }
        }
        None
    }

    fn push(&mut self, bytes: &[u8]) {
        match &mut self.source {
            Source::None(_) => {}
            Source::Plain(reader) => reader.push(bytes),
            Source::Encoded(decoder) => decoder.push(bytes),
        }
    }

    /// What the body says so far.
    ///
    /// # Errors
    /// Why nothing can be read in it.
    pub fn so_far(&self) -> Result<&Observed, Unknown> {
        match &self.source {
            Source::None(why) => Err(*why),
            Source::Plain(reader) => Ok(reader.so_far()),
            Source::Encoded(decoder) => decoder.reader().map(UsageReader::so_far).ok_or(Unknown::Encoding),
        }
    }

    /// What the body says at its end, once all that was passed on is read.
    ///
    /// # Errors
    /// Why nothing can be read in it.
    pub fn finish(&mut self) -> Result<Observed, Unknown> {
        self.read();
        match std::mem::replace(&mut self.source, Source::None(Unknown::Absent)) {
            Source::None(why) => Err(why),
            Source::Plain(reader) => Ok(reader.finish()),
            Source::Encoded(decoder) => {
                decoder.into_reader().map(UsageReader::finish).ok_or(Unknown::Encoding)
            }
        }
    }

    /// Whether an event of the proxy may follow what was read.
    pub fn is_between_events(&self) -> bool {
        matches!(&self.source, Source::Plain(reader) if reader.is_between_events())
    }

    /// The form of the events, if an event of the proxy can be in their stream.
    pub fn dialect(&self) -> Option<Dialect> {
        match &self.source {
            Source::Plain(reader) if self.is_stream => reader.so_far().dialect,
            _ => None,
        }
    }
}

/// How a body of this media type consists of JSON texts; none if it does not.
fn framing(media_type: &[u8]) -> Option<Framing> {
    let essence = media_type.split(|byte| *byte == b';').next().unwrap_or_default();
    let essence = essence.trim_ascii().to_ascii_lowercase();
    match &*essence {
        b"text/event-stream" => Some(Framing::EventStream),
        b"application/x-ndjson"
        | b"application/ndjson"
        | b"application/jsonl"
        | b"application/x-jsonl"
        | b"application/jsonlines"
        | b"application/x-jsonlines" => Some(Framing::Lines),
        b"application/json" => Some(Framing::Json),
        other if other.ends_with(b"+json") => Some(Framing::Json),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_framing_is_that_of_the_media_type() {
        for (media_type, expected) in [
            ("application/json", Some(Framing::Json)),
            ("Application/JSON; charset=utf-8", Some(Framing::Json)),
            ("application/vnd.api+json", Some(Framing::Json)),
            ("text/event-stream;charset=utf-8", Some(Framing::EventStream)),
            ("application/x-ndjson", Some(Framing::Lines)),
            ("application/jsonl", Some(Framing::Lines)),
            ("text/html", None),
            ("", None),
        ] {
            assert_eq!(framing(media_type.as_bytes()), expected, "{media_type}");
        }
    }
}
