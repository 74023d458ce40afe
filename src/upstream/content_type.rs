//! Media types that change how long a response may take.

use crate::http1::Fields;
use crate::http1::names::CONTENT_TYPE;

/// Whether the body is an event stream or a gRPC message stream. The server sends those events whenever they occur, so
/// no stall timeout applies to them.
pub(super) fn is_open_ended(fields: &Fields) -> bool {
    let starts_with = |media_type: &[u8], prefix: &[u8]| {
        media_type.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    fields.get(CONTENT_TYPE).is_some_and(|media_type| {
        starts_with(media_type, b"text/event-stream") || starts_with(media_type, b"application/grpc")
    })
}
