//! Exports spans to an OpenTelemetry collector: OTLP over HTTP with Protocol Buffers.
//!
//! With `[tracing]` a request has a `telemetry::RequestTrace`: two ids as text, and for the sampled ones the spans, which are
//! encoded as Protocol Buffers field by field while the request runs (`telemetry::trace::protobuf`). A finished span goes into
//! a bounded queue, and a task of the main thread exports it (`otlp`). The OpenTelemetry SDK is not used: its batch processor
//! has a thread of its own, and it keeps each attribute as an allocated value until the export, while the part of the protocol
//! that is needed has ten messages. There is no cargo feature for it, since it adds no dependency. The tests decode with the
//! official messages (`opentelemetry-proto`).

mod client;
mod exporter;
mod spec;

pub use client::{ExportError, check_collector};
pub use exporter::Exporter;
pub use spec::{CollectorUrl, EndpointError, ExportSpec, TracingSpec};
