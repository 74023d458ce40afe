//! The task that exports spans in batches.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::client::{CollectorClient, ExportError, encode, rejected};
use super::spec::ExportSpec;
use crate::telemetry::{SpanCounts, SpanQueue};
use crate::time::monotonic;

/// The most spans in a request, and the longest wait for them: the defaults of the OpenTelemetry specification.
const MAX_BATCH: usize = 512;
const MAX_DELAY: Duration = Duration::from_secs(5);
/// The wait before the first retry of a request; it doubles with each.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);

/// A running exporter. If it is dropped, it exports until the last [`SpanQueue`] is dropped as well.
#[derive(Debug)]
pub struct Exporter {
    task: JoinHandle<()>,
    stop: oneshot::Sender<()>,
}

/// The receiving end of the queue, until it is to be emptied.
struct Spans {
    receiver: mpsc::Receiver<Vec<u8>>,
    /// None once it has fired, or the exporter was dropped.
    stop: Option<oneshot::Receiver<()>>,
}

impl Exporter {
    /// Starts to export the spans of the returned queue.
    #[must_use]
    pub fn start(spec: ExportSpec, counts: Arc<SpanCounts>) -> (Self, SpanQueue) {
        let (queue, receiver) = SpanQueue::new(Arc::clone(&counts));
        let (stop, stopped) = oneshot::channel();
        let spans = Spans { receiver, stop: Some(stopped) };
        (Self { task: tokio::spawn(run(CollectorClient::new(spec), spans, counts)), stop }, queue)
    }

    /// Exports the spans in the queue, and ends. Returns whether it has ended within `limit`.
    pub async fn flush(self, limit: Duration) -> bool {
        // It fails if the exporter has ended.
        let _ = self.stop.send(());
        let abort = self.task.abort_handle();
        let is_flushed = timeout(limit, self.task).await.is_ok();
        abort.abort();
        is_flushed
    }
}

impl Spans {
    /// Waits for spans up to a deadline; adds at most as many as `batch` lacks.
    async fn receive(&mut self, batch: &mut Vec<Vec<u8>>, deadline: Option<Instant>) -> Received {
        let room = MAX_BATCH - batch.len();
        let Self { receiver, stop } = self;
        tokio::select! {
            biased;
            result = stopped(stop) => {
                *stop = None;
                if result {
                    // What is in the queue is still received.
                    receiver.close();
                }
                Received::Spans
            }
            count = receiver.recv_many(batch, room) => if count == 0 { Received::End } else { Received::Spans },
            () = sleep(deadline) => Received::Deadline,
        }
    }

    /// Waits for a batch: it is full, or its first span has waited long enough, or the queue has ended. Returns whether
    /// the queue continues.
    async fn fill(&mut self, batch: &mut Vec<Vec<u8>>) -> bool {
        let mut deadline = None;
        while batch.len() < MAX_BATCH {
            match self.receive(batch, deadline).await {
                Received::Spans if batch.is_empty() => {}
                Received::Spans => deadline = deadline.or_else(|| Some(monotonic() + MAX_DELAY)),
                Received::Deadline => return true,
                Received::End => return false,
            }
        }
        true
    }
}

/// Why [`Spans::receive`] has returned.
enum Received {
    Spans,
    Deadline,
    End,
}

/// Waits until the exporter is stopped, which is true, or dropped.
async fn stopped(stop: &mut Option<oneshot::Receiver<()>>) -> bool {
    match stop {
        Some(stop) => stop.await.is_ok(),
        None => std::future::pending().await,
    }
}

async fn sleep(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Exports until the queue has ended.
async fn run(mut client: CollectorClient, mut spans: Spans, counts: Arc<SpanCounts>) {
    let mut batch = Vec::with_capacity(MAX_BATCH);
    let mut is_failing = false;
    loop {
        let continues = spans.fill(&mut batch).await;
        if !batch.is_empty() {
            let count = batch.len() as u64;
            let request = Bytes::from(encode(&client.spec().resource, &batch));
            batch.clear();
            let result = export(&mut client, &request).await;
            report(&client, &result, &mut is_failing);
            let dropped = result.map_or(count, |rejected| rejected.min(count));
            counts.record_dropped(dropped);
            counts.record_exported(count - dropped);
        }
        if !continues {
            return;
        }
    }
}

/// Sends a request, and retries it within the timeout. Returns the number of spans that the collector has rejected.
async fn export(client: &mut CollectorClient, request: &Bytes) -> Result<u64, ExportError> {
    let deadline = monotonic() + client.spec().timeout;
    let mut backoff = FIRST_BACKOFF;
    loop {
        let sent = timeout_at(deadline, client.send(request.clone())).await;
        let error = match sent.unwrap_or(Err(ExportError::TimedOut)) {
            Ok(response) => return Ok(rejected(&response)),
            Err(error) => error,
        };
        // With jitter, so that many proxies do not return to a collector at once.
        let wait = error.retry_after().unwrap_or_else(|| backoff.mul_f64(0.5 + fastrand::f64()));
        let next = monotonic() + wait;
        if !error.is_retryable() || next >= deadline {
            return Err(error);
        }
        sleep_until(next).await;
        backoff *= 2;
    }
}

/// Logs the first failure in a row, and the recovery.
fn report(client: &CollectorClient, result: &Result<u64, ExportError>, is_failing: &mut bool) {
    let endpoint = &client.spec().endpoint;
    match result {
        Ok(_) if *is_failing => tracing::info!("spans are exported to {endpoint} again"),
        Err(error) if !*is_failing => {
            tracing::warn!("can't export spans to {endpoint}: {error}; they are dropped until that succeeds");
        }
        _ => {}
    }
    *is_failing = result.is_err();
}
