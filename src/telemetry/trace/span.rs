//! A span of OpenTelemetry, in the encoding of `opentelemetry.proto.trace.v1.Span`.

use std::borrow::Cow;

use super::id::{SpanId, TraceId};
use super::protobuf::Message;
use crate::time::Timestamp;

/// The most bytes of a text that is an attribute.
const MAX_TEXT: usize = 1024;
/// Bytes of a span: enough for most.
const CAPACITY: usize = 768;

/// The kind of a span.
#[derive(Clone, Copy, Debug)]
pub(super) enum SpanKind {
    /// A request from a client.
    Server = 2,
    /// An attempt to forward it.
    Client = 3,
}

/// A span that is written while it lasts.
#[derive(Debug)]
pub struct Span {
    message: Message,
    is_failed: bool,
}

/// The value of an attribute.
#[derive(Clone, Copy, Debug)]
pub enum AttributeValue<'a> {
    /// A text; what is not UTF-8 is replaced.
    Text(&'a [u8]),
    /// A number.
    Integer(u64),
    /// A truth value.
    Boolean(bool),
}

impl Span {
    /// Starts a span. Its parent is a span of the sender of the request if `is_remote`.
    pub(super) fn new(
        kind: SpanKind,
        (trace, span): (&TraceId, &SpanId),
        parent: Option<&SpanId>,
        is_remote: bool,
    ) -> Self {
        let mut message = Message::with_capacity(CAPACITY);
        message.nested(1, |id| id.extend(trace.binary()));
        message.nested(2, |id| id.extend(span.binary()));
        if let Some(parent) = parent {
            message.nested(4, |id| id.extend(parent.binary()));
        }
        message.integer(6, kind as u64);
        // The sampled flag, and in the next byte whether it is known that the parent is remote, and whether it is.
        message.fixed32(16, 0x101 | u32::from(is_remote) << 9);
        Self { message, is_failed: false }
    }

    /// Adds an attribute.
    pub fn attribute<'a>(&mut self, key: &str, value: impl Into<AttributeValue<'a>>) {
        push_attribute(&mut self.message, 9, key, value.into());
    }

    /// Adds an event with attributes.
    pub fn event(&mut self, name: &str, at: Timestamp, attributes: &[(&str, AttributeValue<'_>)]) {
        self.message.nested(11, |event| {
            event.fixed64(1, nanoseconds(at));
            event.bytes(2, name.as_bytes());
            for (key, value) in attributes {
                push_attribute(event, 3, key, *value);
            }
        });
    }

    /// Records that the span has failed, with the reason.
    pub(super) fn fail(&mut self, error_type: &str) {
        if !std::mem::replace(&mut self.is_failed, true) {
            self.attribute("error.type", error_type);
            // STATUS_CODE_ERROR
            self.message.nested(15, |status| status.integer(3, 2));
        }
    }

    /// The encoded span.
    pub(super) fn finish(mut self, name: &str, [start, end]: [Timestamp; 2]) -> Vec<u8> {
        self.message.bytes(5, name.as_bytes());
        self.message.fixed64(7, nanoseconds(start));
        self.message.fixed64(8, nanoseconds(end));
        self.message.into_bytes()
    }
}

/// Adds an attribute as a field of a message.
pub fn push_attribute(message: &mut Message, field: u32, key: &str, value: AttributeValue<'_>) {
    message.nested(field, |pair| {
        pair.bytes(1, key.as_bytes());
        pair.nested(2, |any| match value {
            AttributeValue::Text(text) => any.bytes(1, cut(text).as_bytes()),
            AttributeValue::Boolean(value) => any.integer(2, value.into()),
            AttributeValue::Integer(number) => any.integer(3, number),
        });
    });
}

/// The start of a text.
fn cut(text: &[u8]) -> Cow<'_, str> {
    let is_start = |at: &usize| text.get(*at).is_none_or(|byte| byte & 0xc0 != 0x80);
    let end = (0..=text.len().min(MAX_TEXT)).rev().find(is_start).unwrap_or_default();
    String::from_utf8_lossy(&text[..end])
}

fn nanoseconds(at: Timestamp) -> u64 {
    at.0.saturating_mul(1000)
}

impl<'a> From<&'a str> for AttributeValue<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(text.as_bytes())
    }
}

impl<'a> From<&'a [u8]> for AttributeValue<'a> {
    fn from(text: &'a [u8]) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for AttributeValue<'_> {
    fn from(number: u64) -> Self {
        Self::Integer(number)
    }
}

impl From<u16> for AttributeValue<'_> {
    fn from(number: u16) -> Self {
        Self::Integer(number.into())
    }
}

impl From<bool> for AttributeValue<'_> {
    fn from(value: bool) -> Self {
        Self::Boolean(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        let long = format!("{}é", "a".repeat(MAX_TEXT - 1));
        assert_eq!(cut(long.as_bytes()), "a".repeat(MAX_TEXT - 1));
        let fits = format!("{}é", "a".repeat(MAX_TEXT - 2));
        assert_eq!(cut(format!("{fits}b").as_bytes()), fits);
        assert_eq!(cut(b"a\xffb"), "a\u{fffd}b");
        assert_eq!(cut(&[0x80; 2000]), "");
    }
}
