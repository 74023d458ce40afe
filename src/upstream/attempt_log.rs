//! What is recorded of the attempts to forward a request: for the access log, and as spans of its trace.

use std::rc::Rc;

use http::StatusCode;

use super::error::ForwardError;
use super::pool::Pool;
use crate::http1::RequestHead;
use crate::limiter::Delivery;
use crate::telemetry::{Forwarding, RequestTrace, Span, known_method};

/// What is recorded of the attempts to forward a request. Borrowed, because it must survive a cancelled request.
#[derive(Debug, Default)]
pub struct AttemptLog<'a> {
    /// The access log's record, if the request is logged.
    pub forwarding: Option<&'a mut Forwarding>,
    /// The trace, if there is one.
    pub trace: Option<&'a mut RequestTrace>,
    /// Whether a server has the request, if its limits depend on that.
    pub delivery: Option<&'a mut Delivery>,
}

impl AttemptLog<'_> {
    /// Records the upstream.
    pub(super) fn start(&mut self, upstream: &Rc<str>) {
        if let Some(forwarding) = &mut self.forwarding {
            forwarding.start(upstream);
        }
    }

    /// Records the server that is selected for an attempt, counted from 1.
    pub(super) fn select(&mut self, pool: &Pool, number: usize) {
        if let Some(forwarding) = &mut self.forwarding {
            forwarding.start_attempt(pool.label(), number);
        }
    }

    /// Starts the span of an attempt, whose id the server is sent.
    pub(super) fn start_attempt(&mut self, pool: &Pool, head: &mut RequestHead) {
        if let Some(trace) = &mut self.trace {
            let RequestHead { method, uri, fields, .. } = head;
            trace.start_attempt(fields, |span| {
                let method = known_method(method).unwrap_or("_OTHER");
                describe(span, pool, (method, uri.path()));
            });
        }
    }

    fn delivered(&mut self, how: Delivery) {
        if let Some(delivery) = &mut self.delivery {
            **delivery = how;
        }
    }

    /// Records that the head of a response has arrived.
    pub(super) fn head(&mut self, status: StatusCode) {
        self.delivered(Delivery::Answered);
        if let Some(forwarding) = &mut self.forwarding {
            forwarding.head_received();
        }
        if let Some(trace) = &mut self.trace {
            trace.attempt_responded(status);
        }
    }

    /// Records a failed attempt: the head may have arrived all the same. `was_sent`: whether the server may have received the
    /// request.
    pub(super) fn failure(&mut self, error: &ForwardError, was_sent: bool) {
        if was_sent {
            self.delivered(Delivery::Unanswered);
        }
        if let Some(forwarding) = self.forwarding.as_mut().filter(|_| error.has_head()) {
            forwarding.head_received();
        }
        if let Some(trace) = &mut self.trace {
            trace.attempt_failed(error.word());
        }
    }
}

/// Adds the attributes of an attempt. The query may have credentials, so it is left out.
fn describe(span: &mut Span, pool: &Pool, (method, path): (&str, &str)) {
    let (server, address) = (pool.server(), pool.endpoint().address);
    span.attribute("http.request.method", method);
    span.attribute("url.full", &*format!("{}{path}", pool.label()));
    span.attribute("server.address", &*server.host);
    span.attribute("server.port", server.port);
    span.attribute("network.peer.address", &*address.ip().to_string());
    span.attribute("network.peer.port", address.port());
    span.attribute("network.protocol.version", if pool.is_multiplexed() { "2" } else { "1.1" });
}
