//! Runs the body `log`; see `tests/it/fuzz/bodies.rs`. The seeds are in `tests/logs`.
#![no_main]

#[allow(dead_code, clippy::unwrap_used)]
#[path = "../../tests/it/fuzz/bodies.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::log(bytes));
