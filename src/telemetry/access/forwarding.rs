//! The access log's fields about forwarding.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use crate::time::cached_now;

/// Where a request was forwarded. Updated at each step, so that it is complete wherever forwarding fails.
#[derive(Debug, Default)]
pub struct Forwarding {
    /// The upstream's label; none if the request was not forwarded.
    pub(super) upstream: Option<Rc<str>>,
    /// The label of the last server that was selected.
    pub(super) server: Option<Rc<str>>,
    /// How often a server was selected.
    pub(super) attempts: u32,
    /// When forwarding started.
    pub(super) started: Option<Instant>,
    /// From `started` to the head of the response.
    pub(super) head_took: Option<Duration>,
}

impl Forwarding {
    /// Records that forwarding to an upstream has started.
    pub fn start(&mut self, upstream: &Rc<str>) {
        self.upstream = Some(Rc::clone(upstream));
        self.started = Some(cached_now());
    }

    /// Records an attempt at a server; `attempt` counts from 1.
    pub fn start_attempt(&mut self, server: &Rc<str>, attempt: usize) {
        self.server = Some(Rc::clone(server));
        self.attempts = u32::try_from(attempt).unwrap_or(u32::MAX);
    }

    /// Records that the head of the response was received. The cached time is recent: it was read after the socket's event.
    pub fn head_received(&mut self) {
        self.head_took = self.started.map(|started| cached_now() - started);
    }
}
