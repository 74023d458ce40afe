//! The tracing of the running server: its tracer and its exporter, for one configuration after the other.

use std::sync::Arc;
use std::time::Duration;

use crate::otlp::{Exporter, TracingSpec};
use crate::telemetry::{SpanCounts, Tracer};

/// The tracing of the running server.
#[derive(Debug, Default)]
pub(super) struct Tracing {
    tracer: Option<Tracer>,
    exporter: Option<Exporter>,
    counts: Arc<SpanCounts>,
}

impl Tracing {
    /// Starts the tracing of the first configuration, within the runtime of the main thread.
    pub fn start(spec: Option<TracingSpec>) -> Self {
        let mut tracing = Self::default();
        tracing.apply(spec);
        tracing
    }

    /// Applies the settings of another configuration. The earlier exporter exports the spans of requests that have started
    /// before.
    pub fn apply(&mut self, spec: Option<TracingSpec>) {
        self.tracer = None;
        self.exporter = None;
        let Some(TracingSpec { sampling, export }) = spec else { return };
        let started = export.map(|export| {
            tracing::info!("spans are exported to {}", export.endpoint);
            Exporter::start(export, Arc::clone(&self.counts))
        });
        let (exporter, queue) = started.unzip();
        (self.tracer, self.exporter) = (Some(Tracer::new(sampling, queue)), exporter);
    }

    /// Starts the traces of requests, if tracing is on.
    pub fn tracer(&self) -> Option<Tracer> {
        self.tracer.clone()
    }

    /// What has become of spans.
    pub fn counts(&self) -> &Arc<SpanCounts> {
        &self.counts
    }

    /// Exports the last spans, within `limit`.
    pub async fn shut_down(self, limit: Duration) {
        if let Some(exporter) = self.exporter
            && !exporter.flush(limit).await
        {
            tracing::warn!("the last spans are lost: the collector did not accept them in time");
        }
    }
}
