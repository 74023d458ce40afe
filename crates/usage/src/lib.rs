//! Token usage of language models: read from responses beside the stream, and estimated from requests. No I/O.

pub mod usage;
