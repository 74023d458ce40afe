//! A collector of spans: OTLP over HTTP, decoded with the official messages.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};
use prost::Message as _;

use super::{Message, Upstream, eventually};

/// A collector of spans.
pub struct Collector {
    server: Upstream,
}

impl Collector {
    /// Accepts all spans.
    pub fn start() -> Self {
        Self::over(Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
    }

    /// Behaves as this server.
    pub fn over(server: Upstream) -> Self {
        Self { server }
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// The requests that it has received.
    pub fn requests(&self) -> Vec<Message> {
        self.server.requests()
    }

    /// What it has received, by process.
    pub fn resources(&self) -> Vec<ResourceSpans> {
        let decoded = |message: &Message| ExportTraceServiceRequest::decode(&*message.body).unwrap();
        self.requests().iter().flat_map(|message| decoded(message).resource_spans).collect()
    }

    /// All spans that it has received, after waiting for `count` of them.
    #[track_caller]
    pub fn spans(&self, count: usize) -> Vec<Span> {
        let mut spans = Vec::new();
        eventually("the spans are exported", || {
            let scopes = self.resources().into_iter().flat_map(|resource| resource.scope_spans);
            spans = scopes.flat_map(|scope| scope.spans).collect();
            spans.len() >= count
        });
        spans
    }
}

/// The value of an attribute as text; empty if it is absent.
pub fn attribute(attributes: &[KeyValue], key: &str) -> String {
    let value = attributes.iter().find(|pair| pair.key == key).and_then(|pair| pair.value.as_ref());
    match value {
        Some(AnyValue { value: Some(Value::StringValue(text)) }) => text.clone(),
        Some(AnyValue { value: Some(Value::IntValue(number)) }) => number.to_string(),
        Some(AnyValue { value: Some(Value::BoolValue(value)) }) => value.to_string(),
        other => other.map_or_else(String::new, |value| format!("{value:?}")),
    }
}
