//! Listeners, workers, client connections and draining.
//!
//! Each worker is one thread with its own runtime, its own listening socket on every address, and its own connections to
//! upstream servers and to the store: on the path of a request no lock is contended, and no task moves to another thread.

mod connection;
mod connection_limiter;
mod connection_status;
mod drain;
mod head_budget;
mod inherit;
mod listen;
mod plain_http;
mod proxy_protocol;
mod refusal_pacer;
mod spec;
mod start_queue;
mod transport;
mod worker;

pub use connection_limiter::{ConnectionLimiter, TooManyConnections};
pub use drain::{Lifecycle, LifecycleSender, lifecycle};
pub use inherit::InheritedSockets;
pub use listen::{ListenError, Listener, ListenerHandle, listen};
pub use proxy_protocol::{ProxyHeaderError, parse_proxy_header};
pub use spec::{ListenerSpec, Protocols, Service};
pub use worker::{Worker, WorkerUpdate};
