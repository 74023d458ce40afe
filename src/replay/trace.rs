//! Traces of requests with known clients, for tests and examples: people who browse, programs that poll, offices, networks
//! that share an address, a crawler and retry storms.

mod behavior;
mod combined;
mod generate;
mod kind;

pub use self::combined::write_combined;
pub use self::generate::{Trace, TraceClient, TraceRequest, TraceSettings};
pub use self::kind::ClientKind;
