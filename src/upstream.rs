//! Upstreams: load balancing, connection pools, retries, health checks and outlier ejection.
//!
//! # Connections
//! `Upstream::forward` (`upstream::client`) selects an endpoint and retries where that is safe (`upstream::retry`), at once or,
//! with `retry_for`, after a pause. `upstream::attempt` is one try, over a connection from the worker's `upstream::pool`: an
//! idle one, a new one within the connection limit, or one that it waits for (`pool::acquire`). `InFlight` counts the
//! request at its endpoint until the last byte of the response.
//!
//! `upstream::http1::Http1Connection` has no task of its own: the task that waits for the response polls it. So a request
//! crosses no task and no channel; a client that disconnects drops the body, and with it the connection; and an idle connection
//! costs memory only. One exchange has two independent state machines:
//!
//! ```text
//! request   Sending ──► Flushing ──► Done            response   AwaitingHead ──► Body ──► pooled
//!              └──────────┴────────► Refused                        └─────► Switched: a tunnel
//! ```
//!
//! The head stays in place, so a retry needs no copy; the body is rewound (`RequestBody::rewind`) if it is in memory or was
//! recorded completely (`body::stored`).
//!
//! A connection returns to its pool after the last byte of the body. Before it is reused it is read once: if the server has
//! closed it, or has sent unsolicited bytes, the request uses another. While there are connections, `ActiveProxy::sweep` checks
//! idle ones once a second.
//!
//! A response may begin before its request is sent, and a client that sends its whole request before it reads would deadlock
//! unless sending continues. Over HTTP/1.1 the client's connection does that while its writes block (`ReplyBody::poll_upload`);
//! over HTTP/2 a task does (`http1::early_upload`). A complete response ends the request, even if its body was not sent
//! completely.
//!
//! A request that holds slots of a concurrency limit continues after its client disconnects (`upstream::detached`): a task
//! waits for the response and reads it to the end, holding the slots. Requests without slots do not pay for this.
//!
//! HTTP/2 shares connections between requests (`upstream::http2::Http2Pool`), so a connection has a task, and a request is an
//! `Http2Stream`. `upstream::Connection` is either kind, and all that the rest of `upstream` sees. A cancelled request
//! (`http2::cancel`) resets its stream if the connection's `ResetBudget` allows it; otherwise a task keeps the stream, with its
//! `StreamSlot`, until the server has responded. A request body that fails is therefore not reported to hyper, which would
//! reset the stream.
//!
//! # Overload
//! With `overload` a request has a place (`overload::HeldPlace`) in each of its attempts (`upstream::admitted`), up to the limit of
//! requests in flight of `crate::overload::Admission`, which all workers share. Below the limit that is one atomic operation; each
//! worker collects latencies by itself. A waiting request has the receiver of a channel; whoever gives a place back sends it to the
//! next one, and each waiting request looks every 50 ms for others that have waited for too long, so no task is needed for that.
//! Tunnels give their places back at the handshake, and `client_counts` bounds those that a client has open.
//! `max_connections` is the bound behind it.
//!
//! # Endpoint selection
//! `SharedUpstream` is what workers share of an upstream; it can outlive a configuration. It has an `Endpoint` for each address
//! of a server, with atomics that workers read and write. Load balancing reads one number for each endpoint, its share, which
//! is 0 while the endpoint is excluded. Shares change seldom, so a worker's `Balancer` computes what it needs from them when
//! their version (`SharedLoad`) has changed, and a selection takes a constant or logarithmic number of steps: `selection::turns`
//! is a heap of the next turn of each endpoint, power of two draws from sums of the shares, least requests compares eight
//! endpoints, and `selection::ring` has the points of consistent hashing, of which each worker keeps those of available
//! endpoints.
//!
//! The servers of a service come from SRV records (`server::ServerPeer`), with priorities: endpoints get requests while none with
//! a lower number is available.
//!
//! `HealthState` is the history of one endpoint: checks, failures, time. `SharedUpstream::update_shares` computes the shares
//! from all of them, and never excludes all endpoints. It runs after each change, and when the `HealthMonitor` (main thread; a
//! task for the checks of each upstream and for each DNS name) knows that time will change something. A worker's `EndpointSet`
//! pairs the endpoints with its own pools; it is renewed when a `WorkerWaker` says that addresses have changed, so no worker
//! waits for DNS.
//!
//! An upstream connection holds a `ConnectionPermit` of its endpoint's `ConnectionLimit`. If none is free, a request joins the
//! queue (`crate::overload::Turns`: client addresses take turns). A returned connection is handed to a waiter of the same worker;
//! for one of another worker it is closed, and the permit is handed over. A waiting worker wakes the others (`WorkerWaker`), so
//! that they close idle connections. An HTTP/2 upstream must have at least one connection for each worker, so a worker without
//! one exceeds the bound (`acquire_over_limit`). When all endpoints are full, a request without hash key waits for all of them
//! (`pool::acquire`): the first free one serves it, and a second one is passed on.
//!
//! Each permit has a `ConnectionUse`: its worker writes, without a lock, which client uses the connection, since when that
//! client is too slow, and since when a tunnel or open-ended response is silent. While requests wait, any worker adds these up
//! four times a second, and reclaims a connection of a client that has more than a quarter (`ConnectionLimit::reclaim`). How
//! long a server sends nothing is observed by the waiting requests alone (`ConnectionUse::observe`), so that a request pays
//! nothing for it. Over HTTP/2 each worker has a `ConnectionLimit` of the streams in its connections to an endpoint, with the
//! same queue, shares and reclaiming. `server::connection_limiter` does the same for client connections.

mod admitted;
mod attempt;
mod client;
mod client_counts;
mod connection;
mod detached;
mod endpoint;
mod error;
mod health;
mod http1;
mod http2;
mod interim;
mod message;
mod overload;
mod pool;
mod response;
mod retry;
mod selection;
mod server;
mod shared;
mod spec;

pub use self::attempt::AttemptLog;
pub use self::client::Upstream;
pub use self::error::{Counted, ForwardError};
pub use self::health::check::{ServerCheck, ServerCheckError, check_servers};
pub use self::health::monitor::HealthMonitor;
pub use self::interim::InterimResponses;
pub use self::message::{AdmissionRequest, ForwardOptions, UpstreamRequest};
pub use self::pool::connection_limit::WorkerWaker;
pub use self::pool::connection_use::ConnectionUse;
pub(crate) use self::response::delegate_body;
pub use self::response::{ResponseBody, ServerEnd};
pub use self::selection::balance::Balancer;
pub use self::server::{ServerAddress, ServerSpec};
pub use self::shared::SharedUpstream;
pub use self::spec::{Balance, EjectSpec, ForwardPolicy, HealthSpec, HostRule, UpstreamId, UpstreamSpec};
pub use crate::body::{
    BodyError, BodyReceiver, BufferBudget, ClientStream, HeaderNames, HeaderScrub, PolledFrame, ReadBody,
    RequestBody, StreamBody, is_token, may_be_trailer,
};
