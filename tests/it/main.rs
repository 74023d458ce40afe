//! Tests of the whole, in one binary so that they link once: the real binary, real sockets, a real Redis and
//! the real curl.

// A test that panics has failed, which is what a failed `unwrap` should come to.
#![allow(clippy::unwrap_used)]

mod answer;
mod cli;
mod config;
mod curl;
mod forward;
mod hostile;
mod lifecycle;
mod limit;
mod matching;
mod proof;
mod reports;
mod serve;
mod sliding;
mod stores;
mod support;
mod tidy;
