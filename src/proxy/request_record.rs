//! What is recorded of a request for operators: its entry of the access log, and its trace.

use std::cell::Cell;
use std::task::Poll;

use http::StatusCode;

use super::client::ClientConnection;
use super::log_entry::{DescriptorDenial, LogEntry, PlannedRequest};
use super::rejection::Rejection;
use super::request_id::RequestId;
use super::server_span;
use super::settlement::LimitCost;
use super::snapshot::Proxy;
use crate::gate::{Gate, RouteMatch, Subject};
use crate::http1::RequestHead;
use crate::limit::PolicyId;
use crate::limiter::{Admission, Delivery};
use crate::telemetry::{Interface, KeyEvent, LimitNote, LogKeys, RequestTrace, TraceId, Verdict};
use crate::upstream::{AttemptLog, BodyError, PolledFrame};

/// What is recorded of a request until its response has ended. A single pointer, since it moves with each request: none for
/// a request that is neither logged nor traced.
#[derive(Debug, Default)]
pub(super) struct RequestRecord(Option<Box<Recorders>>);

/// What a request is recorded in.
#[derive(Debug)]
struct Recorders {
    log: Option<Box<LogEntry>>,
    trace: Option<RequestTrace>,
    /// Whether the response of a server has been read to its end.
    is_whole: bool,
}

impl RequestRecord {
    /// Starts the record of a request.
    pub fn begin(
        proxy: &Proxy,
        client: &ClientConnection,
        (head, scheme): (&RequestHead, Option<&'static str>),
        id: &RequestId,
    ) -> Self {
        let mut log = LogEntry::begin(proxy, client, head, id);
        let mut trace = None;
        if let Some(tracer) = &proxy.tracer {
            let (new_id, is_trusted) = (id.as_trace_id(), proxy.trusts(client.ip()));
            trace = tracer.start(&head.fields, new_id, is_trusted, &proxy.clock);
            if let (Some(entry), Some(id)) = (&mut log, trace.as_ref().map(|trace| *trace.id()).or(new_id)) {
                entry.record.set_trace_id(&id);
            }
            if let Some(trace) = &mut trace {
                server_span::begin(trace, client, (head, scheme), id);
            }
        }
        let is_recorded = log.is_some() || trace.is_some();
        Self(is_recorded.then(|| Box::new(Recorders { log, trace, is_whole: false })))
    }

    /// Records the client, consumer, host and route of a request, and the decisions of its limits.
    pub fn describe(&mut self, request: &PlannedRequest<'_>, admission: &Admission) {
        let Some(Recorders { log, trace, .. }) = self.0.as_deref_mut() else { return };
        if let Some(entry) = log {
            entry.describe(request, admission);
        }
        if let Some(trace) = trace {
            server_span::describe(trace, request, admission);
        }
    }

    /// Records the client, host and route of a request without a plan, as far as they are known.
    pub fn describe_match(
        &mut self,
        gate: &Gate,
        client: &ClientConnection,
        head: &RequestHead,
        matched: Option<&RouteMatch<'_>>,
    ) {
        let Some(Recorders { log, trace, .. }) = self.0.as_deref_mut() else { return };
        if let Some(entry) = log {
            entry.describe_match(gate, client, head, matched);
        }
        if let Some(trace) = trace {
            let address = gate.client_ip.client(client.ip(), &head.fields);
            server_span::describe_match(trace, (gate, address), head, matched);
        }
    }

    /// Records the consumer and the key of a request that the `block` list of a limit rejects.
    pub fn describe_blocked(&mut self, proxy: &Proxy, subject: &Subject<'_>, limit: PolicyId) {
        let log = self.0.as_deref_mut().and_then(|recorders| recorders.log.as_deref_mut());
        record_blocked(proxy, subject, limit, log);
    }

    /// Records why a request is rejected.
    pub fn describe_rejection(&mut self, gate: &Gate, rejection: &Rejection) {
        let Some(Recorders { log, trace, .. }) = self.0.as_deref_mut() else { return };
        if let Some(entry) = log {
            entry.describe_rejection(gate, rejection);
        }
        if let Some(trace) = trace {
            server_span::describe_rejection(trace, gate, rejection);
        }
    }

    /// Records through which interface the request came, if that is not the proxy.
    pub fn set_interface(&mut self, interface: Interface) {
        let Some(Recorders { log, trace, .. }) = self.0.as_deref_mut() else { return };
        if let Some(entry) = log {
            entry.record.interface = Some(interface.label());
        }
        if let Some(span) = trace.as_mut().and_then(RequestTrace::server_span) {
            span.attribute("tidegate.interface", interface.label());
        }
    }

    /// Records the domain of descriptors.
    pub fn set_domain(&mut self, domain: &str) {
        if let Some(entry) = self.log_entry() {
            entry.record.set_domain(domain);
        }
    }

    /// Records how descriptors were decided.
    pub fn set_verdict(&mut self, verdict: Verdict) {
        let Some(Recorders { log, trace, .. }) = self.0.as_deref_mut() else { return };
        if let Some(entry) = log {
            entry.record.set_verdict(verdict);
        }
        if let Some(span) = trace.as_mut().and_then(RequestTrace::server_span) {
            span.attribute("tidegate.limit.outcome", verdict.label());
        }
    }

    /// Records what limits note about descriptors.
    pub fn add_notes(&mut self, gate: &Gate, notes: impl Iterator<Item = (LimitNote, PolicyId)>) {
        if let Some(entry) = self.log_entry() {
            entry.add_notes(gate, notes);
        }
    }

    /// Records why a descriptor is over its limit.
    pub fn set_descriptor_denial(&mut self, gate: &Gate, denial: &DescriptorDenial<'_>) {
        if let Some(entry) = self.log_entry() {
            entry.set_descriptor_denial(gate, denial);
        }
    }

    /// Records what limits have charged whose cost the response decides.
    pub fn add_costs(&mut self, costs: &[LimitCost]) {
        let Some(entry) = self.log_entry() else { return };
        for LimitCost { limit, reserved, charged } in costs {
            entry.record.add_cost(limit, *reserved, *charged);
        }
    }

    /// Records that the stream of the response was ended since its units were used up.
    pub fn set_stopped(&mut self) {
        if let Some(entry) = self.log_entry() {
            entry.record.error = Some(BodyError::Stopped.word());
        }
    }

    /// Where the attempts to forward the request are recorded.
    pub fn attempts<'a>(&'a mut self, delivery: Option<&'a mut Delivery>) -> AttemptLog<'a> {
        let delivery = delivery.map(Cell::from_mut);
        let Some(Recorders { log, trace, .. }) = self.0.as_deref_mut() else {
            return AttemptLog { delivery, ..AttemptLog::default() };
        };
        AttemptLog {
            forwarding: log.as_deref_mut().map(|entry| &mut entry.record.forwarding),
            trace: trace.as_mut(),
            delivery,
        }
    }

    /// Records the status of the response.
    pub fn set_status(&mut self, status: StatusCode) {
        let Some(Recorders { log, trace, .. }) = self.0.as_deref_mut() else { return };
        if let Some(entry) = log {
            entry.record.status = Some(status);
        }
        if let Some(trace) = trace {
            trace.responded(status);
        }
    }

    /// Records bytes, end and error of the response's body.
    pub fn record_frame(&mut self, frame: &PolledFrame) {
        let Some(Recorders { log, trace, is_whole }) = self.0.as_deref_mut() else { return };
        match frame {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(entry) = log {
                    entry.record.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
                }
                *is_whole |= frame.is_trailers();
            }
            Poll::Ready(Some(Err(error))) => {
                if let Some(entry) = log {
                    entry.record.error = Some(error.word());
                }
                if let Some(trace) = trace {
                    trace.failed(error.word());
                }
            }
            Poll::Ready(None) => *is_whole = true,
            Poll::Pending => {}
        }
    }

    /// The id of the trace if it is sampled, for exemplars.
    pub fn sampled_trace_id(&self) -> Option<TraceId> {
        self.0.as_ref()?.trace.as_ref()?.sampled_id().copied()
    }

    /// Ends the record of a request whose response has ended; `is_whole` is whether it is complete for another reason than
    /// its frames.
    pub fn finish(&mut self, is_whole: bool) {
        if let Some(recorders) = self.0.take() {
            recorders.finish(is_whole);
        }
    }

    fn log_entry(&mut self) -> Option<&mut LogEntry> {
        self.0.as_deref_mut()?.log.as_deref_mut()
    }

    /// Ends the record of a tunnel, over which the server has sent this many bytes.
    pub fn finish_tunnel(&mut self, bytes: u64) {
        if let Some(entry) = self.0.as_mut().and_then(|recorders| recorders.log.as_mut()) {
            entry.record.bytes = bytes;
        }
        self.finish(true);
    }
}

impl Recorders {
    fn finish(self, is_whole: bool) {
        let is_whole = is_whole || self.is_whole;
        if let Some(mut entry) = self.log {
            if !is_whole {
                entry.record.error.get_or_insert("client_gone");
            }
            entry.write();
        }
        if let Some(mut trace) = self.trace
            && !is_whole
        {
            trace.failed("client_gone");
        }
    }
}

/// Counts a request that the `block` list of a limit rejects among those of its key, and records its consumer and its key
/// in the access log. A request without a key, whose address is blocked, has neither count nor key.
fn record_blocked(proxy: &Proxy, subject: &Subject<'_>, limit: PolicyId, log_entry: Option<&mut LogEntry>) {
    let gate = &proxy.snapshot.gate;
    let consumer = subject.identity.name();
    let key = gate.limit_rules[limit].key.find(subject, &gate.hasher).key();
    if let (Some(top), Some(key)) = (&proxy.top, key) {
        let event = KeyEvent { key, consumer, is_denied: true };
        top.record(limit, event, || gate.key_name_of(limit, key, subject));
    }
    let Some(entry) = log_entry else { return };
    entry.set_consumer(consumer);
    if let Some(key) = key.filter(|_| entry.keys() != LogKeys::Off) {
        let name = (entry.keys() == LogKeys::Plain).then(|| gate.key_name_of(limit, key, subject));
        entry.set_key(&key, name.flatten());
    }
}
