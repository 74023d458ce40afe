//! Requests to another service of this process, such as the rate-limit service: they are recorded and counted as those to
//! upstreams are, and their responses are made elsewhere.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::client::ClientConnection;
use super::client_body::ClientBody;
use super::grpc;
use super::http2;
use super::log_entry::DescriptorDenial;
use super::rate_headers::RateHeaderSource;
use super::request_id::RequestId;
use super::request_record::RequestRecord;
use super::response::ProxyResponse;
use super::response_body::FrameStream;
use super::response_body::{BodySource, ReplyBody, RequestTiming};
use super::snapshot::Proxy;
use super::soft_headers::SoftHeaders;
use crate::gate::RequestError;
use crate::http1::names::RETRY_AFTER;
use crate::http1::{Fields, RequestHead, ResponseHead, push_decimal};
use crate::limit::{Policy, PolicyId, binding};
use crate::limiter::LimitStatus;
use crate::telemetry::{Interface, LimitNote, RequestCounts, Verdict};
use crate::time::Stopwatch;
use crate::upstream::ReadBody;

/// A request to a service, until its response is handed to the client's connection. If it is dropped before that, the client
/// has disconnected, which is counted and logged.
pub struct ServiceRequest<'p> {
    proxy: &'p Proxy,
    client: &'p ClientConnection,
    body: ClientBody,
    is_grpc: bool,
    stopwatch: Stopwatch,
    record: RequestRecord,
    is_finished: bool,
}

/// The response of a service.
#[derive(Debug)]
pub struct ServiceReply {
    /// The head.
    pub head: ResponseHead,
    /// The body.
    pub body: ServiceBody,
}

/// The body of a response of a service.
#[derive(Debug)]
pub enum ServiceBody {
    /// All of it.
    Whole(Bytes),
    /// All of it, and the trailers, over HTTP/2.
    WithTrailers(Bytes, Box<HeaderMap>),
    /// Frames that are made while they are sent.
    Frames(FrameStream),
}

/// Why the body of a request can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadBody {
    /// It is too long.
    TooLong,
    /// All memory for bodies is in use.
    NoMemory,
    /// It ends early, or arrives too slowly.
    Broken,
}

/// The headers that a response has for these decisions: rate headers as configured, and Retry-After for a denial. `limits`
/// are the policies of the decisions.
#[must_use]
pub fn limit_headers(
    proxy: &Proxy,
    limits: &[Policy],
    statuses: &[LimitStatus],
    soft: Option<&SoftHeaders>,
) -> Fields {
    let (policy, clock) = (&proxy.snapshot.response_policy, &proxy.clock);
    let mut fields = Fields::new();
    let denials = statuses.iter().map(|status| &status.decision).filter(|decision| !decision.allowed);
    let denials: Vec<_> = denials.collect();
    let denial = binding(denials.iter().copied()).map(|index| denials[index]);
    let wait = denial.and_then(|decision| decision.retry_after).map(|wait| policy.wait(wait));
    let retry_after = wait.map(|wait| policy.retry_after(wait));
    let gate = &proxy.snapshot.gate;
    RateHeaderSource { policy, gate, limits, statuses, clock, soft }.write(&mut fields, retry_after);
    if let Some(seconds) = retry_after {
        fields.set_with(RETRY_AFTER, |out| push_decimal(out, seconds));
    }
    fields
}

impl<'p> ServiceRequest<'p> {
    /// Starts a request, and gives its head the form of HTTP/1.1. Returns the request with the error if its head is malformed.
    pub fn begin(
        proxy: &'p Proxy,
        client: &'p ClientConnection,
        head: &mut RequestHead,
        body: ClientBody,
    ) -> (Self, Result<(), RequestError>) {
        let normalized = http2::normalize(head, None, client.max_headers());
        let id = RequestId::new(&head.fields, proxy.trusts(client.ip()));
        let mut record = RequestRecord::begin(proxy, client, (head, Some(client.scheme())), &id);
        record.set_interface(Interface::EnvoyRateLimit);
        let is_grpc = grpc::is_call(head);
        let stopwatch = Stopwatch::start();
        (Self { proxy, client, body, is_grpc, stopwatch, record, is_finished: false }, normalized)
    }

    /// The client's connection.
    #[must_use]
    pub fn client(&self) -> &'p ClientConnection {
        self.client
    }

    /// Whether it is a gRPC call.
    #[must_use]
    pub fn is_grpc(&self) -> bool {
        self.is_grpc
    }

    /// Reads the body, which has at most `most` bytes.
    pub async fn read_body(&mut self, most: usize) -> Result<Bytes, UnreadBody> {
        let Some(unread) = self.body.take(self.client, false) else { return Ok(Bytes::new()) };
        match unread.read(most as u64, self.client.buffer_budget()).await {
            Ok(ReadBody::Whole(_, bytes)) => Ok(bytes),
            Ok(ReadBody::TooLong(unread)) => {
                self.body = ClientBody::Read(Box::new(unread));
                Err(UnreadBody::TooLong)
            }
            Ok(ReadBody::NoMemory(unread)) => {
                self.body = ClientBody::Read(Box::new(unread));
                Err(UnreadBody::NoMemory)
            }
            Err(_) => Err(UnreadBody::Broken),
        }
    }

    /// Records the domain of its descriptors.
    pub fn set_domain(&mut self, domain: &str) {
        self.record.set_domain(domain);
    }

    /// Records what limits note about it.
    pub fn add_notes(&mut self, notes: impl Iterator<Item = (LimitNote, PolicyId)>) {
        self.record.add_notes(self.proxy.gate(), notes);
    }

    /// Records which limit has denied it.
    pub fn set_denial(&mut self, denial: &DescriptorDenial<'_>) {
        self.record.set_descriptor_denial(self.proxy.gate(), denial);
    }

    /// Counts and records how it was decided.
    pub fn record_verdict(&mut self, verdict: Verdict) {
        self.proxy.counts.record_request(Interface::EnvoyRateLimit, verdict);
        self.record.set_verdict(verdict);
    }

    /// Completes the request. The record moves into the body of the response, which finishes it at its end.
    pub async fn finish(mut self, reply: ServiceReply) -> ProxyResponse {
        let ServiceReply { head, body } = reply;
        let body = match body {
            ServiceBody::Whole(body) => BodySource::Local(body),
            ServiceBody::WithTrailers(body, trailers) => BodySource::WithTrailers(body, Some(trailers)),
            ServiceBody::Frames(frames) => BodySource::Frames(frames),
        };
        if !self.body.is_none() && body.is_empty() {
            // As in the pipeline: some clients miss a response without a body that arrives while they are still sending.
            std::mem::take(&mut self.body).drain().await;
        }
        self.is_finished = true;
        let counts = self.counts().clone();
        counts.record_response(head.status);
        let mut record = std::mem::take(&mut self.record);
        record.set_status(head.status);
        let timing = RequestTiming { stopwatch: self.stopwatch, counts };
        ProxyResponse::new(head, ReplyBody::new(body, record, timing))
    }

    fn counts(&self) -> &RequestCounts {
        self.proxy.counts.requests(None)
    }
}

impl Drop for ServiceRequest<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            self.counts().record_disconnect();
            self.record.finish(false);
        }
    }
}

impl ServiceReply {
    /// A response without trailers.
    #[must_use]
    pub fn new(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self { head: ResponseHead::new(status), body: ServiceBody::Whole(body.into()) }
    }
}
