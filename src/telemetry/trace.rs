//! Distributed tracing: the trace context of requests (W3C Trace Context), and the spans of those that are sampled.
//!
//! A worker encodes a finished span and puts it into a bounded queue, which the exporter empties (`otlp`). Workers never
//! wait for it: while the queue is full, spans are dropped and counted.

mod id;
pub mod protobuf;
mod request;
mod span;
mod traceparent;
mod tracer;

pub use self::id::{SpanId, TraceId};
pub use self::request::{RequestTrace, known_method};
pub use self::span::{AttributeValue, Span, push_attribute};
pub use self::tracer::{ParentTrust, Sampling, SpanCounts, SpanQueue, Tracer};
