//! The messages of OTLP: `ExportTraceServiceRequest` and the response to it.

use crate::telemetry::protobuf::{FieldValue, Message, fields};
use crate::telemetry::push_attribute;

/// A request with encoded spans of a process with these attributes.
pub(super) fn encode(resource: &[(Box<str>, Box<str>)], spans: &[Vec<u8>]) -> Vec<u8> {
    let length: usize = spans.iter().map(|span| span.len() + 8).sum();
    let mut request = Message::with_capacity(length + 1024);
    // ResourceSpans
    request.nested(1, |of_resource| {
        of_resource.nested(1, |message| {
            for (key, value) in resource {
                push_attribute(message, 1, key, (&**value).into());
            }
        });
        // ScopeSpans
        of_resource.nested(2, |of_scope| {
            of_scope.nested(1, |scope| {
                scope.bytes(1, b"tidegate");
                scope.bytes(2, env!("CARGO_PKG_VERSION").as_bytes());
            });
            for span in spans {
                of_scope.bytes(2, span);
            }
        });
    });
    request.into_bytes()
}

/// The number of spans that a collector has rejected, by its response.
pub(super) fn rejected(response: &[u8]) -> u64 {
    // The field `partial_success`, and in that `rejected_spans`.
    let partial = fields(response).filter_map(|(field, value)| match (field, value) {
        (1, FieldValue::Bytes(partial)) => Some(partial),
        _ => None,
    });
    let rejected = partial.flat_map(fields).filter_map(|(field, value)| match (field, value) {
        (1, FieldValue::Integer(count)) => Some(count),
        _ => None,
    });
    rejected.last().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_spans_are_read() {
        assert_eq!(rejected(b""), 0);
        let mut response = Message::default();
        response.nested(1, |partial| {
            partial.integer(1, 300);
            partial.bytes(2, b"quota exceeded");
        });
        assert_eq!(rejected(&response.into_bytes()), 300);
        assert_eq!(rejected(b"\x0a\x7fnot a message"), 0);
    }
}
