//! Observability: the log on standard error, the access log on standard output or in a file, and the metrics.

mod access;
mod acme_counts;
mod activity;
mod counts;
mod escape;
mod histogram;
mod journal;
mod listeners;
mod log;
mod metrics;
mod outcome;
mod output;
mod registry;
mod top;
mod trace;
mod upstreams;

pub use access::{AccessFile, AccessOutput, AccessRecord, AccessWriter, Forwarding, LimitNote, RequestText};
pub use acme_counts::{AcmeCounts, AcmeValues};
pub use activity::{CounterSums, Frame, Refusals};
pub use counts::{Counts, RequestCounts, StoreCounts};
pub use escape::escaped;
pub use journal::for_stderr;
pub use listeners::{Handshake, HandshakeFailure, ListenerCounts, ListenerSums, ListenerValues};
pub use log::{
    AccessLog, AccessOnly, DroppedLines, LogKeys, LogSpec, LogThrottle, dropped_log_lines, flush_log,
    has_colours, set_log_level, start_log, write_log,
};
pub use metrics::{GaugeValues, Metrics, MetricsFormat, StoreValues};
pub use outcome::{
    ChargeBack, DecisionSource, GrantEvent, GrantValues, Interface, LimitOutcome, SettledOutcome,
    StoreRequest, Verdict,
};
pub use top::{
    Counter, KeyConsumer, KeyEvent, KeyHistory, KeyLabel, KeySlot, Sketch, Summary, TopBy, TopKeys,
    TopRecorder, TopWindow,
};
pub use trace::{
    AttributeValue, ParentTrust, RequestTrace, Sampling, Span, SpanCounts, SpanId, SpanQueue, TraceId,
    Tracer, known_method, protobuf, push_attribute,
};
pub use upstreams::{
    AdmissionValues, AttemptOutcome, ServerValues, UpstreamCounts, UpstreamEvent, UpstreamValues,
};
