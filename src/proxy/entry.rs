//! The line of the access log of a request, from its head on.

use std::time::Duration;

use http::HeaderValue;
use tokio::time::Instant;

use super::request_id::RequestId;
use super::{Peer, Proxy};
use crate::gate::{Examined, Malformed, RouteId};
use crate::http1::RequestHead;
use crate::limit::{PolicyId, binding};
use crate::limiter::Ruling;
use crate::telemetry::{AccessWriter, Forwarding, Outcome, Record};
use crate::time::monotonic;

/// A line of the access log that is not written yet.
#[derive(Debug)]
pub(super) struct Entry {
    pub record: Record,
    /// Whether a server's answer has come to its end.
    pub is_whole: bool,
    pub started: Instant,
    pub writer: AccessWriter,
}

impl Proxy {
    /// Begins a line of the access log, if there is one.
    pub(super) fn entry(&self, peer: &Peer, head: &RequestHead, id: &RequestId) -> Option<Box<Entry>> {
        let writer = self.access.as_ref().filter(|writer| writer.draws())?.clone();
        let record = Record {
            time: self.clock.now(),
            client: peer.ip(),
            version: head.version,
            method: head.method.clone(),
            host: String::new(),
            target: head.uri.clone(),
            route: None,
            // An id is visible ASCII.
            request_id: HeaderValue::from_bytes(id.as_bytes()).unwrap_or(HeaderValue::from_static("")),
            forwarding: Forwarding::default(),
            is_denied: false,
            denied_by: None,
            shadow_denied_by: Vec::new(),
            error: None,
            status: None,
            bytes: 0,
            took: Duration::ZERO,
        };
        Some(Box::new(Entry { record, is_whole: false, started: monotonic(), writer }))
    }

    /// Counts and logs a request that is refused for what it is; says which route it matches, if that is known.
    pub(super) fn note_malformed(
        &self,
        peer: &Peer,
        head: &RequestHead,
        error: &Malformed,
        entry: Option<&mut Entry>,
    ) -> Option<RouteId> {
        let gate = &self.site.gate;
        let located = gate.locate(head).ok();
        let route = located.as_ref().and_then(|located| located.route);
        let blocked_by = if let Malformed::Blocked(limit) = error { Some(*limit) } else { None };
        if let Some(limit) = blocked_by {
            self.counts.decided(limit, Outcome::Blocked);
        }
        if let Some(entry) = entry {
            let record = &mut entry.record;
            record.client = gate.client_ip.client(peer.ip(), &head.fields);
            record.host = located.map(|located| located.host.into_owned()).unwrap_or_default();
            record.route = route.map(|route| self.route_name(route));
            record.is_denied = blocked_by.is_some();
            record.denied_by = blocked_by.map(|limit| self.name_of(limit));
        }
        route
    }

    /// Notes who asks for what, and what the limits say of it.
    pub(super) fn describe(&self, record: &mut Record, examined: &Examined<'_>, ruling: &Ruling) {
        let standings = &ruling.standings;
        record.client = examined.client;
        record.host = examined.host.to_string();
        record.route = examined.route.map(|route| self.route_name(route));
        record.shadow_denied_by = ruling.shadow_denials.iter().map(|limit| self.name_of(*limit)).collect();
        let binding = binding(standings.iter().map(|standing| &standing.decision));
        let denied = binding.map(|place| standings[place]).filter(|standing| !standing.decision.allowed);
        record.is_denied = ruling.verdict.is_err();
        record.denied_by = denied.map(|standing| self.name_of(standing.policy));
        if let (Some(missing), Ok(_)) = (&examined.missing, &ruling.verdict) {
            (record.is_denied, record.denied_by) = (true, Some(self.name_of(missing.limit)));
        }
    }

    fn route_name(&self, route: RouteId) -> String {
        self.site.gate.routes.get(route).name.to_string()
    }

    fn name_of(&self, limit: PolicyId) -> String {
        self.site.gate.limits.policies[limit.0 as usize].name.to_string()
    }
}

impl Entry {
    /// Writes the line, now that the request has come to its end.
    pub fn write(&mut self) {
        self.record.took = monotonic() - self.started;
        self.writer.write(&self.record);
    }
}
