//! Server-sent events (HTML Standard §9.2).

use bytes::Bytes;
use serde::Serialize;

/// An event with a value as JSON.
pub(super) fn event(name: &str, value: &impl Serialize) -> Bytes {
    // Serialization can't fail: the values have string keys and finite numbers. The text has no line breaks.
    let data = serde_json::to_string(value).unwrap_or_default();
    format!("event: {name}\ndata: {data}\n\n").into()
}

/// Asks the client to wait this long before it connects again.
pub(super) fn retry(milliseconds: u32) -> Bytes {
    format!("retry: {milliseconds}\n\n").into()
}
