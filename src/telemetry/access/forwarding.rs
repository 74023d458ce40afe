//! What the access log says of a request's way to a server.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use crate::time::cached_now;

/// Where a request went. It is written down on the way, so that it is known wherever the way ends.
#[derive(Debug, Default)]
pub struct Forwarding {
    /// The upstream's label; none if the request was not meant for one, or did not get so far.
    pub(super) upstream: Option<Rc<str>>,
    /// The label of the server that was chosen last.
    pub(super) server: Option<Rc<str>>,
    /// How often one was chosen.
    pub(super) attempts: u32,
    /// When the upstream was given the request.
    pub(super) begun: Option<Instant>,
    /// From then to the head of the answer.
    pub(super) head_took: Option<Duration>,
}

impl Forwarding {
    /// The upstream of this label has the request now.
    pub fn begin(&mut self, upstream: &Rc<str>) {
        self.upstream = Some(Rc::clone(upstream));
        self.begun = Some(cached_now());
    }

    /// This attempt, counted from 1, is one at the server with this label.
    pub fn try_at(&mut self, server: &Rc<str>, attempt: usize) {
        self.server = Some(Rc::clone(server));
        self.attempts = u32::try_from(attempt).unwrap_or(u32::MAX);
    }

    /// The head of an answer has come. The socket has read the clock for it.
    pub fn head_came(&mut self) {
        self.head_took = self.begun.map(|begun| cached_now() - begun);
    }
}
