//! The part of a trace that is about one request: its server span, and a client span for each attempt to forward it.

use http::{Method, StatusCode};
use tokio::time::Instant;

use super::id::{SpanId, TraceId};
use super::span::{Span, SpanKind};
use super::traceparent::{Traceparent, is_valid_tracestate};
use super::tracer::SpanQueue;
use crate::http1::{Fields, names};
use crate::time::{Micros, Timestamp, cached_now, monotonic};

/// The trace of one request. Its spans end at the latest when it is dropped.
#[derive(Debug)]
pub struct RequestTrace {
    id: TraceId,
    /// The span that is the parent of the next server's.
    span: SpanId,
    is_sampled: bool,
    /// Whether the request has a valid `traceparent`, without which its `tracestate` means nothing.
    has_parent: bool,
    recording: Option<Box<Recording>>,
}

/// The spans of a sampled request.
#[derive(Debug)]
struct Recording {
    queue: SpanQueue,
    /// When the request was received, by the clock of the system, to which the time since then is added.
    received: (Timestamp, Instant),
    /// Its method and its route.
    name: String,
    server_id: SpanId,
    /// None after its end.
    server: Option<Span>,
    /// The number of attempts so far, and the current one.
    attempts: u64,
    attempt: Option<AttemptSpan>,
    /// Why no server has responded.
    error: Option<&'static str>,
}

/// The current attempt.
#[derive(Debug)]
struct AttemptSpan {
    started: Timestamp,
    /// Its method.
    name: String,
    span: Span,
}

impl RequestTrace {
    pub(super) fn new(id: TraceId, span: SpanId, is_sampled: bool, has_parent: bool) -> Self {
        Self { id, span, is_sampled, has_parent, recording: None }
    }

    /// Records the spans of the request, which was received at `now`.
    #[cold]
    pub(super) fn record(
        &mut self,
        queue: SpanQueue,
        (span, parent): (SpanId, Option<&SpanId>),
        now: Timestamp,
    ) {
        let server = Span::new(SpanKind::Server, (&self.id, &span), parent, parent.is_some());
        // The id of the server span was the first; attempts have ids of their own.
        self.span = SpanId::random();
        self.recording = Some(Box::new(Recording {
            queue,
            received: (now, cached_now()),
            name: String::new(),
            server_id: span,
            server: Some(server),
            attempts: 0,
            attempt: None,
            error: None,
        }));
    }

    /// The id of the trace.
    #[must_use]
    pub fn id(&self) -> &TraceId {
        &self.id
    }

    /// The id of the trace if it is sampled: the traces that exemplars of metrics refer to.
    #[must_use]
    pub fn sampled_id(&self) -> Option<&TraceId> {
        self.is_sampled.then_some(&self.id)
    }

    /// The server span, if it is recorded.
    pub fn server_span(&mut self) -> Option<&mut Span> {
        self.recording.as_mut()?.server.as_mut()
    }

    /// Names the server span by its method and its route.
    pub fn set_name(&mut self, method: &Method, route: Option<&str>) {
        if let Some(recording) = &mut self.recording {
            let method = known_method(method).unwrap_or("HTTP");
            recording.name = route.map_or_else(|| method.to_owned(), |route| format!("{method} {route}"));
        }
    }

    /// Writes the `traceparent` of a new trace that is not sampled, and removes a `tracestate`.
    pub fn propagate_unsampled(id: &TraceId, fields: &mut Fields) {
        fields.set(names::TRACEPARENT, Traceparent::new(id, &SpanId::random(), false).as_bytes());
        fields.remove(names::TRACESTATE);
    }

    /// Writes `traceparent`, and removes a `tracestate` that is invalid or without a `traceparent`.
    pub fn propagate(&self, fields: &mut Fields) {
        let header = Traceparent::new(&self.id, &self.span, self.is_sampled);
        fields.set(names::TRACEPARENT, header.as_bytes());
        if fields.contains(names::TRACESTATE)
            && !(self.has_parent && is_valid_tracestate(fields.get_all(names::TRACESTATE)))
        {
            fields.remove(names::TRACESTATE);
        }
    }

    /// Starts the client span of an attempt with this method, whose attributes `describe` adds. The `traceparent` of each attempt
    /// after the first gets an id of its own, unless the route has removed the header.
    pub fn start_attempt(&mut self, fields: &mut Fields, method: &Method, describe: impl FnOnce(&mut Span)) {
        let Some(recording) = &mut self.recording else { return };
        let retries = recording.attempts;
        recording.attempts += 1;
        if retries > 0 {
            self.span = SpanId::random();
            if fields.contains(names::TRACEPARENT) {
                let header = Traceparent::new(&self.id, &self.span, self.is_sampled);
                fields.set(names::TRACEPARENT, header.as_bytes());
            }
        }
        let mut span = Span::new(SpanKind::Client, (&self.id, &self.span), Some(&recording.server_id), false);
        if retries > 0 {
            span.attribute("http.request.resend_count", retries);
        }
        describe(&mut span);
        let name = known_method(method).unwrap_or("HTTP").to_owned();
        recording.attempt = Some(AttemptSpan { started: recording.now(), name, span });
    }

    /// Ends the attempts of a request to an authorization server: those to forward the request are counted from the start.
    pub fn end_authorization(&mut self) {
        if let Some(recording) = &mut self.recording {
            recording.end_attempt(None);
            recording.attempts = 0;
            self.span = SpanId::random();
        }
    }

    /// Records the status of the response to the current attempt, whose span ends with that response.
    pub fn attempt_responded(&mut self, status: StatusCode) {
        if let Some(attempt) = self.recording.as_mut().and_then(|recording| recording.attempt.as_mut()) {
            attempt.span.attribute("http.response.status_code", status.as_u16());
            if status.is_client_error() || status.is_server_error() {
                attempt.span.fail(status.as_str());
            }
        }
    }

    /// Ends the current attempt, which has failed.
    pub fn attempt_failed(&mut self, error: &str) {
        if let Some(recording) = &mut self.recording {
            recording.end_attempt(Some(error));
        }
    }

    /// Records why no server has responded.
    pub fn set_error(&mut self, error: &'static str) {
        if let Some(recording) = &mut self.recording {
            recording.error = Some(error);
        }
    }

    /// Records the status of the response to the client. One below 500 is no failure of a server.
    pub fn responded(&mut self, status: StatusCode) {
        if let Some(Recording { server: Some(span), error, .. }) = self.recording.as_deref_mut() {
            span.attribute("http.response.status_code", status.as_u16());
            if status.is_server_error() {
                span.fail(error.unwrap_or(status.as_str()));
            }
        }
    }

    /// Records why there is no complete response.
    pub fn failed(&mut self, error: &str) {
        if let Some(recording) = &mut self.recording {
            recording.end_attempt(Some(error));
            if let Some(span) = &mut recording.server {
                span.fail(error);
            }
        }
    }
}

impl Recording {
    fn now(&self) -> Timestamp {
        let (received, at) = self.received;
        received.after(Micros::from(monotonic() - at))
    }

    fn end_attempt(&mut self, error: Option<&str>) {
        let now = self.now();
        if let Some(AttemptSpan { started, name, mut span }) = self.attempt.take() {
            if let Some(error) = error {
                span.fail(error);
            }
            self.queue.push(span.finish(&name, [started, now]));
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.end_attempt(None);
        let times = [self.received.0, self.now()];
        if let Some(span) = self.server.take() {
            self.queue.push(span.finish(&self.name, times));
        }
    }
}

/// The name of a method that the semantic conventions of HTTP know.
#[must_use]
pub fn known_method(method: &Method) -> Option<&str> {
    let known = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "CONNECT", "TRACE"];
    Some(method.as_str()).filter(|method| known.contains(method))
}
