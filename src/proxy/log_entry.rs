//! The line of the access log of a request, from its head on.

use std::borrow::Cow;

use http::{Uri, Version};
use tokio::time::Instant;

use super::request_id::RequestId;
use super::{ClientConnection, Proxy};
use crate::gate::{RequestError, RequestPlan, RouteId};
use crate::http1::RequestHead;
use crate::limit::{PolicyId, binding};
use crate::limiter::Admission;
use crate::telemetry::{AccessWriter, Outcome, Record, RequestText};
use crate::time::{cached_now, monotonic};

/// A line of the access log that is not written yet.
#[derive(Debug)]
pub(super) struct LogEntry {
    pub record: Record,
    /// Whether a server's answer has come to its end.
    pub is_whole: bool,
    pub started: Instant,
    pub writer: AccessWriter,
}

impl Proxy {
    /// Begins a line of the access log, if there is one.
    pub(super) fn entry(
        &self,
        peer: &ClientConnection,
        head: &RequestHead,
        id: &RequestId,
    ) -> Option<Box<LogEntry>> {
        let writer = self.access.as_ref().filter(|writer| writer.draws())?.clone();
        let target = target(&head.uri);
        let request = RequestText {
            method: head.method.as_str().as_bytes(),
            target: target.as_bytes(),
            request_id: id.as_bytes(),
            protocol: protocol(head.version),
        };
        let record = Record::begin(self.clock.now(), peer.ip(), request);
        Some(Box::new(LogEntry { record, is_whole: false, started: cached_now(), writer }))
    }

    /// Counts and logs a request that is refused for what it is; says which route it matches, if that is known.
    pub(super) fn note_malformed(
        &self,
        peer: &ClientConnection,
        head: &RequestHead,
        error: &RequestError,
        entry: Option<&mut LogEntry>,
    ) -> Option<RouteId> {
        let gate = &self.site.gate;
        let located = gate.match_route(head).ok();
        let route = located.as_ref().and_then(|located| located.route);
        let blocked_by = if let RequestError::Blocked(limit) = error { Some(*limit) } else { None };
        if let Some(limit) = blocked_by {
            self.counts.decided(limit, Outcome::Blocked);
        }
        if let Some(entry) = entry {
            let record = &mut entry.record;
            record.client = gate.client_ip.client(peer.ip(), &head.fields);
            record.set_host(located.as_ref().map_or("", |located| &located.host));
            if let Some(route) = route {
                record.set_route(self.route_name(route));
            }
            if let Some(limit) = blocked_by {
                record.is_denied = true;
                record.set_denied_by(self.name_of(limit));
            }
        }
        route
    }

    /// Notes who asks for what, and what the limits say of it.
    pub(super) fn describe(&self, record: &mut Record, examined: &RequestPlan<'_>, ruling: &Admission) {
        let standings = &ruling.standings;
        record.client = examined.client;
        record.set_host(&examined.host);
        if let Some(route) = examined.route {
            record.set_route(self.route_name(route));
        }
        for limit in &ruling.shadow_denials {
            record.add_shadow_denied_by(self.name_of(*limit));
        }
        let binding = binding(standings.iter().map(|standing| &standing.decision));
        let denied = binding.map(|place| standings[place]).filter(|standing| !standing.decision.allowed);
        record.is_denied = ruling.verdict.is_err();
        let mut denied_by = denied.map(|standing| standing.policy);
        if let (Some(missing), Ok(_)) = (&examined.missing, &ruling.verdict) {
            (record.is_denied, denied_by) = (true, Some(missing.limit));
        }
        if let Some(limit) = denied_by {
            record.set_denied_by(self.name_of(limit));
        }
    }

    fn route_name(&self, route: RouteId) -> &str {
        &self.site.gate.routes.get(route).name
    }

    fn name_of(&self, limit: PolicyId) -> &str {
        &self.site.gate.limits.policies[limit].name
    }
}

impl LogEntry {
    /// Writes the line, now that the request has come to its end.
    pub fn write(&mut self) {
        self.record.took = monotonic() - self.started;
        self.writer.write(&self.record);
    }
}

/// A target as it was sent.
fn target(uri: &Uri) -> Cow<'_, str> {
    match uri.path_and_query() {
        Some(path) if uri.authority().is_none() => path.as_str().into(),
        _ => uri.to_string().into(),
    }
}

fn protocol(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "HTTP/1.0",
        Version::HTTP_2 => "HTTP/2",
        _ => "HTTP/1.1",
    }
}
