//! Futures on the heap.

use std::pin::Pin;

/// Boxes the future of a step that few requests take. An `async fn` has the space of the largest future that it awaits, so without
/// a box all requests would carry, and all moves of their futures would copy, the space of what few of them need.
pub fn rare<F: Future>(future: F) -> Pin<Box<F>> {
    Box::pin(future)
}
