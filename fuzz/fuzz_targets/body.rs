//! Runs the body `body`; see `tests/it/fuzz/bodies.rs`.
#![no_main]

#[allow(dead_code, clippy::unwrap_used)]
#[path = "../../tests/it/fuzz/bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::body(bytes));
