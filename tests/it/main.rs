//! Tests of the whole: the real binary, real sockets, a real Redis and the real curl.

// A test that panics has failed, which is what a failed `unwrap` should come to.
#![allow(clippy::unwrap_used)]

mod answer;
mod curl;
mod forward;
mod hostile;
mod lifecycle;
mod limit;
mod matching;
mod serve;
mod support;
