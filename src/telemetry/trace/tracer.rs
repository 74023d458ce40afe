//! Which requests are sampled, and the queue of finished spans between the workers and the exporter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

use super::id::{SpanId, TraceId};
use super::request::RequestTrace;
use super::traceparent::Parent;
use crate::http1::{Fields, names};
use crate::time::Clock;

/// Which requests are sampled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// The share of traces that are sampled, from 0 to 1.
    pub ratio: f64,
    /// Whose decisions apply instead.
    pub trust: ParentTrust,
}

/// Whose decision about sampling applies to the requests of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParentTrust {
    /// That of trusted proxies.
    Proxies,
    /// That of any client.
    Any,
}

/// Starts the traces of requests, for one configuration.
#[derive(Clone, Debug)]
pub struct Tracer {
    sampling: Sampling,
    /// Where sampled spans are put, if they are exported.
    queue: Option<SpanQueue>,
}

impl Tracer {
    /// A tracer. Without a queue, traces are passed on, and no span is recorded.
    #[must_use]
    pub fn new(sampling: Sampling, queue: Option<SpanQueue>) -> Self {
        Self { sampling, queue }
    }

    /// Starts the part of a trace that is about one request, which has just been received: continues the trace of its
    /// `traceparent`, or else starts a new one. That has the ID of the request if it is valid as the ID of a trace, so that
    /// one ID finds both. None for such a new trace that is not sampled: nothing is to be remembered of it.
    #[must_use]
    pub fn start(
        &self,
        fields: &Fields,
        id: Option<TraceId>,
        is_trusted: bool,
        clock: &Clock,
    ) -> Option<RequestTrace> {
        let mut headers = fields.get_all(names::TRACEPARENT);
        let parent = headers.next().and_then(Parent::parse).filter(|_| headers.next().is_none());
        let trusts = is_trusted || self.sampling.trust == ParentTrust::Any;
        let (trace, is_sampled) = match &parent {
            Some(parent) if trusts => (parent.trace, parent.is_sampled),
            // An untrusted client must not choose what is sampled, neither by the flag nor by the id.
            Some(parent) => (parent.trace, self.samples()),
            None => match (id, self.samples()) {
                (Some(_), false) => return None,
                (id, is_sampled) => (id.unwrap_or_else(TraceId::random), is_sampled),
            },
        };
        let span = SpanId::random();
        let queue = self.queue.as_ref().filter(|_| is_sampled);
        let mut request = RequestTrace::new(trace, span, is_sampled, parent.is_some());
        if let Some(queue) = queue {
            request.record(queue.clone(), (span, parent.as_ref().map(|parent| &parent.span)), clock.now());
        }
        Some(request)
    }

    /// Whether a trace is sampled of which no trusted sender has decided that.
    fn samples(&self) -> bool {
        fastrand::f64() < self.sampling.ratio
    }
}

/// The most spans that wait for the exporter: the default of the OpenTelemetry specification.
const CAPACITY: usize = 2048;

/// The sending end of the queue: of encoded spans.
#[derive(Clone, Debug)]
pub struct SpanQueue {
    spans: mpsc::Sender<Vec<u8>>,
    counts: Arc<SpanCounts>,
}

/// What has become of finished spans since the start of the process.
#[derive(Debug, Default)]
pub struct SpanCounts {
    exported: AtomicU64,
    dropped: AtomicU64,
}

impl SpanQueue {
    /// A queue, and its receiving end.
    #[must_use]
    pub fn new(counts: Arc<SpanCounts>) -> (Self, mpsc::Receiver<Vec<u8>>) {
        let (spans, receiver) = mpsc::channel(CAPACITY);
        (Self { spans, counts }, receiver)
    }

    /// Adds a span; drops it if the queue is full.
    pub(super) fn push(&self, span: Vec<u8>) {
        if self.spans.try_send(span).is_err() {
            self.counts.record_dropped(1);
        }
    }
}

impl SpanCounts {
    /// Counts spans that the collector has accepted.
    pub fn record_exported(&self, count: u64) {
        self.exported.fetch_add(count, Ordering::Relaxed);
    }

    /// Counts spans that were dropped.
    pub fn record_dropped(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// Exported and dropped spans.
    #[must_use]
    pub fn totals(&self) -> [u64; 2] {
        [&self.exported, &self.dropped].map(|count| count.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::ParentTrust::{Any, Proxies};
    use super::*;

    fn started(sampling: Sampling, header: Option<&str>, is_trusted: bool) -> RequestTrace {
        let mut fields = Fields::new();
        if let Some(header) = header {
            fields.push(names::TRACEPARENT, header.as_bytes());
        }
        Tracer::new(sampling, None).start(&fields, None, is_trusted, &Clock::System).unwrap()
    }

    #[test]
    fn the_parent_decides_if_it_is_trusted_and_else_the_ratio() {
        let parent =
            |flags: &str| Some(format!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}"));
        for (ratio, trust, header, is_trusted, expected) in [
            (0.0, Proxies, None, true, false),
            (1.0, Proxies, None, false, true),
            (0.0, Proxies, parent("01"), true, true),
            (1.0, Proxies, parent("00"), true, false),
            (0.0, Proxies, parent("01"), false, false),
            (1.0, Proxies, parent("00"), false, true),
            (0.0, Any, parent("01"), false, true),
            (1.0, Any, parent("00"), false, false),
        ] {
            let trace = started(Sampling { ratio, trust }, header.as_deref(), is_trusted);
            assert_eq!(trace.sampled_id().is_some(), expected, "{ratio} {trust:?} {header:?} {is_trusted}");
            let is_continued = trace.id().as_str() == "4bf92f3577b34da6a3ce929d0e0e4736";
            assert_eq!(is_continued, header.is_some());
        }
    }

    #[test]
    fn a_ratio_is_that_share_of_new_traces() {
        let sampling = Sampling { ratio: 0.25, trust: ParentTrust::Proxies };
        let sampled = (0..4000).filter(|_| started(sampling, None, false).sampled_id().is_some()).count();
        // Twelve standard deviations.
        assert!((670..1330).contains(&sampled), "{sampled}");
    }

    #[test]
    fn a_new_trace_has_the_id_of_the_request() {
        let id = TraceId::parse(b"4bf92f3577b34da6a3ce929d0e0e4736");
        let trace = |ratio| {
            let tracer = Tracer::new(Sampling { ratio, trust: ParentTrust::Proxies }, None);
            tracer.start(&Fields::new(), id, false, &Clock::System).map(|trace| *trace.id())
        };
        assert_eq!((trace(1.0), trace(0.0)), (id, None));
    }

    #[test]
    fn several_headers_are_as_none() {
        let mut fields = Fields::new();
        for id in ["1", "2"] {
            let header = format!("00-{}-00f067aa0ba902b7-01", id.repeat(32));
            fields.push(names::TRACEPARENT, header.as_bytes());
        }
        let sampling = Sampling { ratio: 0.0, trust: ParentTrust::Any };
        let trace = Tracer::new(sampling, None).start(&fields, None, true, &Clock::System).unwrap();
        assert!(trace.sampled_id().is_none());
        assert!(!["1", "2"].map(|id| id.repeat(32)).contains(&trace.id().as_str().to_owned()));
    }

    #[test]
    fn spans_beyond_the_capacity_are_dropped_and_counted() {
        let counts = Arc::<SpanCounts>::default();
        let (queue, mut receiver) = SpanQueue::new(Arc::clone(&counts));
        (0..CAPACITY + 3).for_each(|_| queue.push(Vec::new()));
        assert_eq!(counts.totals(), [0, 3]);
        receiver.try_recv().unwrap();
        queue.push(Vec::new());
        drop(receiver);
        queue.push(Vec::new());
        assert_eq!(counts.totals(), [0, 4]);
    }
}
