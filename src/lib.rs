//! tidegate: a reverse proxy with exact, distributed rate limiting built in.
//!
//! ARCHITECTURE.md tells how the modules hang together. Each may import only those above it here.

pub mod limit;
pub mod time;
