//! The event that ends a stream at its budget.

use bytes::Bytes;

use super::Dialect;

/// An error in the form of the stream, after which it may end. `sequence` is the number of the next event of `OpenAI` responses.
#[must_use]
pub fn stop_event(_dialect: Dialect, _message: &str, _sequence: u64) -> Bytes {
    Bytes::new()
}
