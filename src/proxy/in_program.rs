//! Heads and responses of requests that a program checks itself, without a connection of the proxy (`tidegate::limits`): they
//! are normalized, rejected and described as those that the proxy serves.

use std::net::IpAddr;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName};
use http::{Response, StatusCode, Version};
use hyper::ext::Protocol;

use super::grpc;
use super::grpc_error::to_grpc_error;
use super::http2;
use super::local_reply::{RejectedRequest, RejectionContext};
use super::rate_headers::RateHeaderSource;
use super::rejection::Rejection;
use super::request_id::RequestId;
use super::response::ProxyResponse;
use super::response_body::BodySource;
use super::snapshot::ConfigSnapshot;
use super::soft_headers::{self, SoftHeaders};
use super::upgrade;
use crate::gate::{RequestError, RouteId};
use crate::http1::{Fields, RequestHead, ResponseHead, names};
use crate::limiter::LimitStatus;
use crate::time::Clock;

/// The headers that show limits.
const RATE_HEADERS: [HeaderName; 12] = [
    soft_headers::WARNING,
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
    HeaderName::from_static("ratelimit-policy"),
    HeaderName::from_static("ratelimit"),
    HeaderName::from_static("x-ratelimit-limit-requests"),
    HeaderName::from_static("x-ratelimit-remaining-requests"),
    HeaderName::from_static("x-ratelimit-reset-requests"),
    HeaderName::from_static("x-ratelimit-limit-tokens"),
    HeaderName::from_static("x-ratelimit-remaining-tokens"),
    HeaderName::from_static("x-ratelimit-reset-tokens"),
];

static CLOCK: Clock = Clock::System;

/// What responses depend on besides limits.
#[derive(Debug)]
pub(crate) struct RequestFacts {
    id: RequestId,
    is_grpc: bool,
    version: Version,
}

impl RequestFacts {
    /// Normalizes a head to the form of HTTP/1.1, which the gate reads; `protocol` is that of an extended CONNECT. The facts are
    /// known also where this fails.
    pub(crate) fn read(
        snapshot: &ConfigSnapshot,
        peer: IpAddr,
        head: &mut RequestHead,
        protocol: Option<&Protocol>,
    ) -> (Self, Result<(), RequestError>) {
        let version = head.version;
        let handshake = match protocol.filter(|_| version == Version::HTTP_2) {
            Some(protocol) => upgrade::from_connect(head, protocol.as_str()),
            None => Ok(()),
        };
        let normalized = handshake.and_then(|()| http2::normalize(head, None, usize::MAX));
        if let Some(authority) = head.uri.authority().filter(|_| !head.fields.contains(names::HOST)) {
            // A request that the program has made, not received.
            head.fields.set(names::HOST, authority.as_str().as_bytes());
        }
        let id = RequestId::new(&head.fields, snapshot.gate.client_ip.is_trusted(peer));
        (Self { id, is_grpc: grpc::is_call(head), version }, normalized)
    }

    /// The status by which `charge_on` refunds units: for a gRPC call that of its own status, which is none while that is still
    /// to come in the trailers.
    pub(crate) fn final_status(&self, status: StatusCode, headers: &HeaderMap) -> Option<u16> {
        if !self.is_grpc || status != StatusCode::OK {
            return Some(status.as_u16());
        }
        Self::grpc_status(headers)
    }

    /// The HTTP status for the gRPC status of a call.
    pub(crate) fn grpc_status(headers: &HeaderMap) -> Option<u16> {
        headers.get("grpc-status").and_then(|status| grpc::http_status(status.as_bytes()))
    }
}

/// A response to a rejected request.
#[derive(Debug)]
pub(crate) struct LocalResponse {
    head: ResponseHead,
    body: Bytes,
    /// The time to wait in seconds, as `Retry-After` has it.
    pub(crate) retry_after: Option<u64>,
    is_grpc: bool,
}

impl LocalResponse {
    /// The response to the rejection of a request with this route and these limits.
    pub(crate) fn new(
        snapshot: &ConfigSnapshot,
        facts: &RequestFacts,
        (route, statuses): (Option<RouteId>, &[LimitStatus]),
        rejection: &Rejection,
    ) -> Self {
        // The program writes the response: its connections are not closed here.
        let action = snapshot.action(route);
        let context = RejectionContext { gate: &snapshot.gate, action, may_close: false };
        let request = RejectedRequest::new(source(snapshot, statuses), &facts.id, context, rejection);
        let wait = request.wait(rejection);
        let mut response = request.response(rejection, wait);
        response.head.fields.set_default(names::X_REQUEST_ID, facts.id.as_bytes());
        if facts.version >= Version::HTTP_2 {
            response.head.fields.remove(names::CONNECTION);
        }
        if let Some(action) = action {
            action.edit_local_reply(&mut response.head.fields);
        }
        let retry_after = wait.map(|wait| snapshot.response_policy.retry_after(wait));
        let ProxyResponse { head, body, .. } = response;
        let body = if let BodySource::Local(body) = body { body } else { Bytes::new() };
        Self { head, body, retry_after, is_grpc: facts.is_grpc }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.head.status
    }

    /// The response with the headers of these limits; of a gRPC call it is an error of gRPC.
    pub(crate) fn finish(self, snapshot: &ConfigSnapshot, statuses: &[LimitStatus]) -> Response<Bytes> {
        let mut response = ProxyResponse::new(self.head, BodySource::Local(self.body));
        source(snapshot, statuses).write(&mut response.head.fields, self.retry_after);
        if self.is_grpc {
            to_grpc_error(&mut response);
        }
        let ProxyResponse { head, body, .. } = response;
        head.into_response(if let BodySource::Local(body) = body { body } else { Bytes::new() })
    }
}

/// Writes the headers of these limits. Those that the response has already are kept if their remaining count is not above ours.
pub(crate) fn write_rate_headers(
    snapshot: &ConfigSnapshot,
    statuses: &[LimitStatus],
    soft: Option<&SoftHeaders>,
    headers: &mut HeaderMap,
) {
    let mut fields = Fields::new();
    for name in &RATE_HEADERS {
        headers.get_all(name).iter().for_each(|value| fields.push(name, value.as_bytes()));
    }
    source(snapshot, statuses).with_soft(soft).write(&mut fields, None);
    for name in &RATE_HEADERS {
        headers.remove(name);
    }
    headers.extend(HeaderMap::from(&fields));
}

fn source<'a>(snapshot: &'a ConfigSnapshot, statuses: &'a [LimitStatus]) -> RateHeaderSource<'a> {
    RateHeaderSource::new(snapshot, statuses, &CLOCK)
}
