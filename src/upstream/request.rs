//! A request to forward, with its options.

use std::net::IpAddr;

use super::body::RequestBody;
use super::spec::HostRule;
use crate::http1::RequestHead;

/// A request to an upstream.
#[derive(Debug)]
pub struct UpstreamRequest {
    /// The request's head; its target is path and query.
    pub head: Box<RequestHead>,
    /// The request's body.
    pub body: RequestBody,
}

/// The client of a request, and how its server is selected and addressed.
#[derive(Clone, Copy, Debug)]
pub struct ForwardOptions<'a> {
    /// The client's address as limits count it.
    pub client: IpAddr,
    /// The Host header for the server.
    pub host: &'a HostRule,
    /// Whether the connection to the server may be reclaimed if the client reads the response too slowly.
    pub is_reclaimable: bool,
    /// Whether the caller calls `ResponseBody::poll_upload` while the client does not read the response.
    pub polls_upload: bool,
    /// Hash of the key that selects the server, if the upstream balances by a key.
    pub hash_key: Option<u64>,
}
