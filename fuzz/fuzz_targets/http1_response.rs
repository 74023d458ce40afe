//! Runs the body `responses`; see `tests/it/fuzz/http1.rs`.
#![no_main]

#[allow(dead_code, clippy::unwrap_used)]
#[path = "../../tests/it/fuzz/http1.rs"]
mod http1;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http1::responses(bytes));
