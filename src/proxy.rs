//! The proxy: takes a request from the client's connection, applies the limits of its route, forwards it to an upstream
//! or rejects it, and returns the response. The pipeline is in `proxy::exchange`.

mod active;
mod client;
mod client_body;
mod consumer_forwarding;
mod exchange;
mod forward_plan;
mod forwarded;
mod grpc;
mod grpc_body;
mod grpc_error;
mod hop;
mod http2;
mod inbound;
mod local_reply;
mod log_entry;
mod max_forwards;
mod outbound;
mod protected;
mod rate_headers;
mod rejection;
mod request_id;
mod response;
mod response_body;
mod response_policy;
mod route_action;
mod settlement;
mod snapshot;
mod tunnel;
mod via;
mod websocket;

pub use active::ActiveProxy;
pub use client::{ClientConnection, ClientTimeouts};
pub use client_body::ClientBody;
pub use consumer_forwarding::ConsumerForwarding;
pub use exchange::serve;
pub use hop::{normalize_length, remove_hop_by_hop, takes_trailers};
pub use http2::Connect;
pub use protected::protected_headers;
pub use response::ProxyResponse;
pub use response_body::ReplyBody;
pub use response_policy::{CustomDenial, Escaping, RateHeaders, ResponsePolicy, Template};
pub use route_action::{HeaderEdits, Rewrite, RouteAction, Target};
pub use snapshot::{ConfigSnapshot, Proxy, ProxyConfig};
pub use tunnel::Tunnel;
