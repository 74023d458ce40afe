//! Exports spans to an OpenTelemetry collector: OTLP over HTTP with Protocol Buffers.
//!
//! Instead of the OpenTelemetry SDK, which has threads, locks and an HTTP client of its own, a span is encoded where it is
//! recorded (`telemetry::trace`), and a task of the main thread sends batches of encoded spans.

mod client;
mod exporter;
mod request;
mod spec;

pub use client::{ExportError, check_collector};
pub use exporter::Exporter;
pub use spec::{CollectorUrl, EndpointError, ExportSpec, TracingSpec};
