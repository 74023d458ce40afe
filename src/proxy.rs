//! The proxy: takes a request from the client's connection, applies the limits of its route, forwards it to an upstream
//! or rejects it, and returns the response. The pipeline is in `proxy::exchange`.

mod active;
mod admission_rule;
mod authorization;
mod authorization_cache;
mod authorize;
mod client;
mod client_body;
mod consumer_forwarding;
mod cors;
mod decision_counts;
mod early_reply;
mod exchange;
mod forward;
mod forward_auth;
mod forwarded;
mod grpc;
mod grpc_error;
mod header_template;
mod hop;
mod http2;
mod in_program;
mod inbound;
mod interim;
mod local_reply;
mod location;
mod log_entry;
mod max_forwards;
mod original_request;
mod outbound;
mod own_limits;
mod protected;
mod rate_headers;
mod read_missing;
mod redirect;
mod rejection;
mod request_decision;
mod request_id;
mod request_record;
mod response;
mod response_body;
mod response_policy;
mod route_action;
mod server_span;
mod service;
mod settlement;
mod snapshot;
mod soft_headers;
mod template;
mod tunnel;
mod upgrade;
mod upstream_failure;
mod via;

pub use active::ActiveProxy;
pub use admission_rule::AdmissionRule;
pub use authorization::{
    AuthorizationCaching, AuthorizationOrder, AuthorizationRule, OnFailure, SentHeaders,
};
pub use client::{ClientConnection, ClientTimeouts};
pub use client_body::ClientBody;
pub use consumer_forwarding::ConsumerForwarding;
pub use cors::{CorsPolicy, CorsRules, OriginPattern, Origins, Preflight};
pub use exchange::serve;
pub use forward_auth::ForwardAuth;
pub use header_template::{HEADER_PLACEHOLDERS, HeaderTemplate};
pub use hop::{normalize_length, remove_hop_by_hop, takes_trailers};
pub use http2::Connect;
pub(crate) use in_program::{LocalResponse, RequestFacts, write_rate_headers};
pub use interim::write_interim_responses;
pub use log_entry::DescriptorDenial;
pub use protected::protected_headers;
pub use redirect::{LOCATION_PLACEHOLDERS, LocationError, LocationTemplate, Redirect};
pub(crate) use rejection::Rejection;
pub use response::ProxyResponse;
pub use response_body::{FrameStream, ReplyBody};
pub use response_policy::{CustomReplies, CustomReply, RateHeaders, ResponsePolicy};
pub use route_action::{
    AuthorizedTarget, ForwardTarget, HeaderEdits, PathTemplate, Rewrite, RouteAction, Target, Upgrades,
};
pub use service::{ServiceBody, ServiceReply, ServiceRequest, UnreadBody, limit_headers};
pub use snapshot::{ConfigSnapshot, Proxy, ProxyConfig};
pub use soft_headers::SoftHeaders;
pub use template::{Escaping, Template};
pub use tunnel::Tunnel;

#[cfg(test)]
mod tests {
    use crate::upstream::Upstream;

    fn future_size<A, B, C, D, E, F: Future>(_: impl FnOnce(A, B, C, D, E) -> F) -> usize {
        size_of::<F>()
    }

    /// In bytes. A step that few requests take is in a box: `crate::boxed::rare`.
    #[test]
    fn the_futures_of_all_requests_are_small() {
        let (serve, forward) = (future_size(super::serve), future_size(Upstream::forward::<false>));
        assert!(serve <= 3_800 && forward <= 1_500, "serve {serve}, forward {forward}");
    }
}
