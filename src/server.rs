//! Listeners, workers, client connections and draining.
//!
//! Each worker is one thread with its own runtime, its own listening socket on every address, and its own connections to
//! upstream servers and to the store: on the path of a request no lock is contended, and no task moves to another thread.
//!
//! # Threads
//! ```text
//! main thread                     worker-0 … worker-N  (one per CPU)                 shared by all workers
//! ───────────                     ──────────────────────────────────                 ─────────────────────
//! app: signals, reload            single-threaded tokio runtime                      ConfigSnapshot (read only)
//! Acme: certificates
//! HealthMonitor: checks, DNS      own SO_REUSEPORT sockets                           in-process store (sharded locks)
//! jwt::Refresher                  own upstream connections (pools)                   SharedUpstream (atomics)
//! admin interface                 own RedisClient, Batcher, Breaker                  DenialCache, OutageLedger, ConnectionLimiter
//! sweep of the in-process store   own Counts                                         Breakers (how many are open)
//!                                         │ lines
//! log, access-log ◄───────────────────────┘   one writer thread each
//! ```
//!
//! A request stays on the thread that accepted it, so most of what serves it is `Rc` and `Cell`. Metrics add up the `Counts` of
//! all workers when they are read, in pages of 256 names, so that a reload never waits for all of them. Large responses of the
//! admin interface are rendered one at a time on a blocking thread. Metrics are streamed from there in chunks of 64 KiB: their
//! memory is bounded, and the main thread handles other requests between two chunks.
//!
//! Nothing wakes an idle process without need. A worker without connections has no timer: its sweep starts with the first
//! connection (`ActiveProxy::open_connection`), and the maintenance of slots and debts with the first of them. What is periodic
//! on the main thread shares its ticks (`time::periodic`). With Redis the main thread reads once a second; if there is no
//! reply, all workers probe their own connections (`Breakers::suspect`), and otherwise only every 15 seconds while they are
//! idle. fred's own periodic check for a silent server is off; `RedisClient::watch_silence` wakes fred after a call without a
//! reply.
//!
//! # Reload and drain
//! A worker's proxy is in a `proxy::ActiveProxy`. A reload creates a `ProxyConfig` for each worker, and waits until all have
//! applied it (`Worker::apply`). Whatever can fail, reading and binding, is done first, so an invalid file changes nothing. The
//! new proxy keeps the limiter (with connection, breaker and slots), unless `[store]` has changed, and each upstream whose spec
//! is equal, with its connections; an old limiter lives until its last slot is released. Counts are keyed by names, in the
//! stores and in the metrics, so they carry over. Each listener watches its own `ListenerSpec`, and ends when its
//! `ListenerHandle` is dropped. `config::Fingerprint`, hashes of the parts of a file and of the files that it names, shows what
//! has changed.
//!
//! With `SO_REUSEPORT` two processes could share a port unnoticed, so `server::listen` first binds each address once without
//! it. If a socket was inherited (`server::InheritedSockets`), all workers accept from it.
//!
//! On SIGTERM, `/ready` changes first (`server::Lifecycle`). Then each worker accepts what is in its backlog, lets connections
//! end after the current response, and waits for them up to `shutdown_grace`. An idle connection stays open for half a second
//! more, so that a request on its way is still served.

mod connection;
mod connection_limiter;
mod drain;
mod head_budget;
mod listen;
mod proxy_protocol;
mod refusal_pacer;
mod spec;
mod start_queue;
mod transport;
mod worker;

pub use connection_limiter::{ConnectionLimiter, TooManyConnections};
pub use drain::{Lifecycle, LifecycleSender, lifecycle};
pub use listen::InheritedSockets;
pub use listen::{ListenError, Listener, ListenerHandle, listen, listen_permission};
pub use proxy_protocol::{ProxyHeaderError, parse_proxy_header};
pub use spec::{HeaderCase, ListenerSpec, Protocols, Service};
pub use worker::{Worker, WorkerUpdate};
