//! The queue of finished spans, between the workers and the exporter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;

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
    use super::*;

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
