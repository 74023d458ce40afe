//! A request to forward, with its options; and whether the body of a message is open-ended.

use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use super::interim::InterimResponses;
use super::spec::{ForwardPolicy, HostRule};
use crate::body::RequestBody;
use crate::http1::names::CONTENT_TYPE;
use crate::http1::{Fields, RequestHead};
use crate::overload::{Arrival, Class};

/// A request to an upstream.
#[derive(Debug)]
pub struct UpstreamRequest {
    /// The request's head; its target is path and query.
    pub head: Box<RequestHead>,
    /// The request's body.
    pub body: RequestBody,
    /// Where interim responses go over HTTP/1.1, if the client gets them.
    pub interim: Option<Rc<InterimResponses>>,
}

/// The client of a request, and how its server is selected and addressed.
#[derive(Clone, Copy, Debug)]
pub struct ForwardOptions<'a> {
    /// The client's address as limits count it.
    pub client: IpAddr,
    /// The Host header for the server.
    pub host: &'a HostRule,
    /// The timeouts and retries of the route.
    pub policy: &'a ForwardPolicy,
    /// Whether the connection to the server may be reclaimed if the client reads the response too slowly.
    pub is_reclaimable: bool,
    /// Whether the caller calls `ResponseBody::poll_upload` while the client does not read the response.
    pub polls_upload: bool,
    /// Hash of the key that selects the server, if the upstream balances by a key.
    pub hash_key: Option<u64>,
    /// How the request is admitted, if the upstream has `overload`.
    pub admission: Option<&'a AdmissionRequest>,
}

/// A request that is admitted to an upstream with `overload`.
#[derive(Clone, Copy, Debug)]
pub struct AdmissionRequest {
    /// The hash of the key by which it takes turns.
    pub key: u64,
    /// Its class.
    pub class: Class,
    /// The index of its route; see [`SharedUpstream::route_index`](super::SharedUpstream::route_index).
    pub route: u32,
}

impl AdmissionRequest {
    /// The index of requests that the proxy itself makes.
    pub const NO_ROUTE: u32 = u32::MAX;

    /// Its class and its key.
    pub(super) fn arrival(self) -> Arrival {
        Arrival { class: self.class, key: self.key }
    }
}

/// How long an exchange with a server may take.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExchangeTimeouts {
    /// The longest time from the end of the request to the head of the response.
    pub response: Duration,
    /// The longest time between two reads of the response's body, and of each write.
    pub stall: Duration,
    /// By when the exchange must be complete, including the response's body.
    pub deadline: Option<Instant>,
}

impl ExchangeTimeouts {
    /// The timeouts of an exchange by this policy that must be complete by `deadline`.
    pub fn new(policy: &ForwardPolicy, deadline: Option<Instant>) -> Self {
        Self { response: policy.response_timeout, stall: policy.stall_timeout, deadline }
    }
}

/// Whether the body is an event stream or a gRPC message stream. The server sends those events whenever they occur, so
/// no stall timeout applies to them.
pub(super) fn is_open_ended(fields: &Fields) -> bool {
    let starts_with = |media_type: &[u8], prefix: &[u8]| {
        media_type.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    fields.get(CONTENT_TYPE).is_some_and(|media_type| {
        starts_with(media_type, b"text/event-stream") || starts_with(media_type, b"application/grpc")
    })
}
