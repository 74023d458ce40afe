//! The record of one request in the access log, with its fields about forwarding.

use std::net::IpAddr;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::limit::Key;
use crate::overload::Class;
use crate::telemetry::escape::{push_cut, push_cut_to};
use crate::telemetry::outcome::Verdict;
use crate::telemetry::trace::TraceId;
use crate::time::{Timestamp, cached_now};

/// The status of a request whose client disconnected before the response, as in nginx.
const CLIENT_GONE: [u8; 3] = *b"499";
/// Bytes for the host and the names of a route and a limit: enough for most records.
const NAMES: usize = 96;
/// The most bytes of the value of a logged header, of a domain and of a descriptor.
const MAX_HEADER: usize = 512;

/// The logged texts of a request's head.
#[derive(Clone, Copy, Debug)]
pub struct RequestText<'a> {
    /// Its method.
    pub method: &'a [u8],
    /// Its target with the query.
    pub target: &'a [u8],
    /// Its id.
    pub request_id: &'a [u8],
    /// The version of the protocol, such as `HTTP/1.1`.
    pub protocol: &'static str,
}

/// The record of one request in the access log.
#[derive(Debug)]
pub struct AccessRecord {
    /// When the head of the request was received.
    pub time: Timestamp,
    /// The client's address.
    pub client: IpAddr,
    /// The interface through which it came, if that is not the proxy.
    pub interface: Option<&'static str>,
    /// How it was decided, if its status does not say so.
    pub(super) outcome: Option<&'static str>,
    /// Where it was forwarded.
    pub forwarding: Forwarding,
    /// Whether it was denied by a limit, or by a rule of descriptors.
    pub is_denied: bool,
    /// A code for the failure of forwarding, if there is no complete response from a server.
    pub error: Option<&'static str>,
    /// The status of the response; none if the client disconnected first.
    pub status: Option<StatusCode>,
    /// Bytes of the response's body.
    pub bytes: u64,
    /// From the head of the request to the last byte of the response.
    pub took: Duration,
    pub(super) protocol: &'static str,
    pub(super) method: TextRange,
    pub(super) target: TextRange,
    pub(super) request_id: TextRange,
    pub(super) trace_id: Option<TextRange>,
    pub(super) host: TextRange,
    pub(super) route: Option<TextRange>,
    pub(super) consumer: Option<TextRange>,
    pub(super) domain: Option<TextRange>,
    pub(super) descriptor: Option<TextRange>,
    pub(super) denied_by: Option<TextRange>,
    pub(super) key: Option<TextRange>,
    pub(super) notes: SmallVec<[(LimitNote, TextRange); 2]>,
    /// What limits have charged whose cost the response decides.
    pub(super) costs: Vec<LoggedCost>,
    /// Names and values of headers.
    pub(super) headers: Vec<(TextRange, TextRange)>,
    /// All texts of the record, concatenated: copying them costs less than counting references that workers share.
    texts: Vec<u8>,
}

/// What a limit notes about a request that it does not deny.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitNote {
    /// In shadow mode it would have denied the request.
    ShadowDenied,
    /// In mark mode: it would have denied the request, which is forwarded with `X-RateLimit-Denied`.
    Marked,
    /// The share `warn_at` of the limit is used up: the request and the response have `X-RateLimit-Warning`.
    Warned,
}

impl LimitNote {
    /// Every variant with its name in the log.
    pub(super) const ALL: [(Self, &'static str); 3] =
        [(Self::ShadowDenied, "shadow_denied_by"), (Self::Marked, "marked_by"), (Self::Warned, "warned_by")];
}

/// What a limit has charged.
#[derive(Clone, Copy, Debug)]
pub(super) struct LoggedCost {
    pub limit: TextRange,
    pub reserved: u64,
    pub charged: Option<u64>,
}

/// The range of a text in [`AccessRecord::texts`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TextRange {
    start: u32,
    end: u32,
}

impl AccessRecord {
    /// The record of a request whose head was received at `time`.
    #[must_use]
    pub fn new(time: Timestamp, client: IpAddr, request: RequestText<'_>) -> Self {
        let RequestText { method, target, request_id, protocol } = request;
        let mut texts = Vec::with_capacity(method.len() + target.len() + request_id.len() + NAMES);
        let mut append = |text| append(&mut texts, |texts| push_cut(texts, text));
        let (method, target, request_id) = (append(method), append(target), append(request_id));
        Self {
            time,
            client,
            interface: None,
            outcome: None,
            forwarding: Forwarding::default(),
            is_denied: false,
            error: None,
            status: None,
            bytes: 0,
            took: Duration::ZERO,
            protocol,
            method,
            target,
            request_id,
            trace_id: None,
            host: TextRange::default(),
            route: None,
            consumer: None,
            domain: None,
            descriptor: None,
            denied_by: None,
            key: None,
            notes: SmallVec::new(),
            costs: Vec::new(),
            headers: Vec::new(),
            texts,
        }
    }

    /// Sets the id of the trace that it belongs to.
    pub fn set_trace_id(&mut self, id: &TraceId) {
        self.trace_id = Some(self.append_name(id.as_str()));
    }

    /// Sets the requested host.
    pub fn set_host(&mut self, host: &str) {
        self.host = append(&mut self.texts, |texts| push_cut(texts, host.as_bytes()));
    }

    /// Sets the name of the matching route.
    pub fn set_route(&mut self, name: &str) {
        self.route = Some(self.append_name(name));
    }

    /// Sets the name of the limit that denied it.
    pub fn set_denied_by(&mut self, limit: &str) {
        self.denied_by = Some(self.append_name(limit));
    }

    /// Sets how the descriptors of a rate-limit request were decided.
    pub fn set_verdict(&mut self, verdict: Verdict) {
        self.outcome = Some(verdict.label());
        self.is_denied = verdict == Verdict::Denied;
    }

    /// Sets the domain of descriptors.
    pub fn set_domain(&mut self, domain: &str) {
        self.domain =
            Some(append(&mut self.texts, |texts| push_cut_to(texts, domain.as_bytes(), MAX_HEADER)));
    }

    /// Sets the descriptor that is over its limit; a long one is cut.
    pub fn set_descriptor(&mut self, descriptor: &str) {
        let descriptor = descriptor.as_bytes();
        self.descriptor = Some(append(&mut self.texts, |texts| push_cut_to(texts, descriptor, MAX_HEADER)));
    }

    /// Sets the name of its consumer.
    pub fn set_consumer(&mut self, name: &str) {
        self.consumer = Some(self.append_name(name));
    }

    /// Sets the key under which the limit that denied it counts it, as a tag.
    pub fn set_key_tag(&mut self, key: &Key) {
        let tag = |texts: &mut Vec<u8>| {
            texts.extend_from_slice(Key::TAG.as_bytes());
            texts.extend_from_slice(&key.text());
        };
        self.key = Some(append(&mut self.texts, tag));
    }

    /// Sets the key under which the limit that denied it counts it, as the values of its parts.
    pub fn set_key_name(&mut self, name: &str) {
        self.key = Some(self.append_name(name));
    }

    /// Adds a header of the request; a long value is cut.
    pub fn add_header(&mut self, name: &str, value: &[u8]) {
        let name = self.append_name(name);
        let value = append(&mut self.texts, |texts| push_cut_to(texts, value, MAX_HEADER));
        self.headers.push((name, value));
    }

    /// Adds what a limit notes about it.
    pub fn add_note(&mut self, note: LimitNote, limit: &str) {
        let name = self.append_name(limit);
        self.notes.push((note, name));
    }

    /// Adds what a limit has reserved, and what it has charged, if that is known.
    pub fn add_cost(&mut self, limit: &str, reserved: u64, charged: Option<u64>) {
        let limit = self.append_name(limit);
        self.costs.push(LoggedCost { limit, reserved, charged });
    }

    /// All texts, concatenated.
    pub(super) fn all_texts(&self) -> &[u8] {
        &self.texts
    }

    pub(super) fn text(&self, span: TextRange) -> &[u8] {
        self.texts.get(Range::from(span)).unwrap_or_default()
    }

    fn append_name(&mut self, name: &str) -> TextRange {
        append(&mut self.texts, |texts| texts.extend_from_slice(name.as_bytes()))
    }

    pub(super) fn status_digits(&self) -> [u8; 3] {
        // The conversion never fails: a status code has three digits.
        self.status
            .as_ref()
            .and_then(|status| status.as_str().as_bytes().first_chunk())
            .copied()
            .unwrap_or(CLIENT_GONE)
    }
}

impl From<TextRange> for Range<usize> {
    fn from(span: TextRange) -> Self {
        span.start as usize..span.end as usize
    }
}

/// Appends a text with `push`; returns its range.
fn append(texts: &mut Vec<u8>, push: impl FnOnce(&mut Vec<u8>)) -> TextRange {
    // The texts of a record are cut to a few KiB, so their positions fit; a longer one would be logged as empty.
    let position = |texts: &Vec<u8>| u32::try_from(texts.len()).unwrap_or(u32::MAX);
    let start = position(texts);
    push(texts);
    TextRange { start, end: position(texts) }
}

/// Where a request was forwarded. Updated at each step, so that it is complete wherever forwarding fails.
#[derive(Debug, Default)]
pub struct Forwarding {
    /// The upstream's label; none if the request was not forwarded.
    pub(super) upstream: Option<Rc<str>>,
    /// The label of the last server that was selected.
    pub(super) server: Option<Rc<str>>,
    /// How often a server was selected.
    pub(super) attempts: u32,
    /// When forwarding started.
    pub(super) started: Option<Instant>,
    /// From `started` to the head of the response.
    pub(super) head_took: Option<Duration>,
    /// The class of the request, if the upstream has `overload`.
    pub(super) class: Option<Class>,
    /// How long it waited for its admission, if it did.
    pub(super) queued: Option<Duration>,
    /// Whether the upstream has admitted it above its limit, in shadow mode.
    pub(super) is_above_limit: bool,
}

impl Forwarding {
    /// Records that forwarding to an upstream has started.
    pub fn start(&mut self, upstream: &Rc<str>) {
        self.upstream = Some(Rc::clone(upstream));
        self.started = Some(cached_now());
    }

    /// Records the class of the request.
    pub fn set_class(&mut self, class: Class) {
        self.class = Some(class);
    }

    /// Records that the request has waited for its admission, in one of its attempts.
    pub fn add_queued(&mut self, waited: Duration) {
        *self.queued.get_or_insert_default() += waited;
    }

    /// Records that the upstream has admitted the request above its limit, in shadow mode.
    pub fn set_above_limit(&mut self) {
        self.is_above_limit = true;
    }

    /// Records an attempt at a server; `attempt` counts from 1.
    pub fn start_attempt(&mut self, server: &Rc<str>, attempt: usize) {
        self.server = Some(Rc::clone(server));
        self.attempts = u32::try_from(attempt).unwrap_or(u32::MAX);
    }

    /// Records that the head of the response was received. The cached time is recent: it was read after the socket's event.
    pub fn head_received(&mut self) {
        self.head_took = self.started.map(|started| cached_now() - started);
    }
}
