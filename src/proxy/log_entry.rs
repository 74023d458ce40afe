//! The access log entry of a request, from its head to the end of its response.

use std::borrow::Cow;

use http::header::HeaderName;
use http::{Uri, Version};
use tokio::time::Instant;

use super::client::ClientConnection;
use super::rejection::Rejection;
use super::request_id::RequestId;
use super::snapshot::Proxy;
use crate::gate::{Descriptor, Gate, RequestPlan, RouteId, RouteMatch, hide_credential};
use crate::http1::RequestHead;
use crate::limit::{Key, PolicyId, binding};
use crate::limiter::Admission;
use crate::telemetry::{AccessRecord, AccessWriter, LimitNote, LimitOutcome, LogKeys, RequestText};
use crate::time::{cached_now, monotonic};

/// An entry of the access log that is not written yet.
#[derive(Debug)]
pub(super) struct LogEntry {
    pub record: AccessRecord,
    pub started: Instant,
    pub writer: AccessWriter,
}

/// A request whose route and charges are known.
pub(super) struct PlannedRequest<'a> {
    pub gate: &'a Gate,
    pub client: &'a ClientConnection,
    pub head: &'a RequestHead,
    pub plan: &'a RequestPlan<'a>,
}

impl LogEntry {
    /// Starts the entry of a request; none if the access log is off or samples the request out.
    pub fn begin(
        proxy: &Proxy,
        client: &ClientConnection,
        head: &RequestHead,
        id: &RequestId,
    ) -> Option<Box<Self>> {
        let writer = proxy.access.as_ref().filter(|writer| writer.should_sample())?.clone();
        let mut target = target(&head.uri);
        if let Some(rules) = &proxy.snapshot.gate.consumers {
            target = hide_credential(&rules.source, target);
        }
        let request = RequestText {
            method: head.method.as_str().as_bytes(),
            target: target.as_bytes(),
            request_id: id.as_bytes(),
            protocol: protocol(head.version),
        };
        let mut record = AccessRecord::new(proxy.clock.now(), client.ip(), request);
        add_headers(&mut record, &proxy.snapshot.logged_headers, head);
        Some(Box::new(Self { record, started: cached_now(), writer }))
    }

    /// Records the client, consumer, host and route of a request, and the decisions of its limits.
    pub fn describe(&mut self, request: &PlannedRequest<'_>, admission: &Admission) {
        let PlannedRequest { gate, plan, .. } = *request;
        let statuses = &admission.statuses;
        self.record.client = plan.client;
        self.record.set_host(&plan.matched.host);
        self.set_route(gate, plan.matched.route);
        self.set_consumer(plan.identity.name());
        self.add_notes(gate, admission.notes(&gate.limits.policies));
        let binding = binding(statuses.iter().map(|status| &status.decision));
        self.record.is_denied = admission.verdict.is_err();
        // Of a request that only reads its limits, one may have a ban, which does not deny the request.
        let denied = binding.filter(|_| self.record.is_denied).map(|index| statuses[index]);
        let denied = denied.filter(|status| !status.decision.allowed);
        if let Some(status) = denied {
            self.record.set_denied_by(limit_name(gate, status.policy));
            self.describe_key(request, status.policy);
        }
    }

    /// Records what limits note about the request.
    pub fn add_notes(&mut self, gate: &Gate, notes: impl Iterator<Item = (LimitNote, PolicyId)>) {
        for (note, limit) in notes {
            self.record.add_note(note, limit_name(gate, limit));
        }
    }

    /// Records why a descriptor is over its limit. Its values are shown as those of keys are.
    pub fn set_descriptor_denial(&mut self, gate: &Gate, denial: &DescriptorDenial<'_>) {
        let DescriptorDenial { descriptor, limit, key } = *denial;
        if self.keys() == LogKeys::Plain {
            self.record.set_descriptor(&descriptor.to_string());
        }
        let Some(limit) = limit else { return };
        self.record.set_denied_by(limit_name(gate, limit));
        let Some(key) = key.filter(|_| self.keys() != LogKeys::Off) else { return };
        let name = (self.keys() == LogKeys::Plain).then(|| {
            gate.descriptors()
                .with_subject(descriptor, |subject| gate.key_name_of(gate.limit_of(limit), key, subject))
        });
        self.set_key(&key, name.flatten());
    }

    /// Records the consumer, if the request has one.
    pub fn set_consumer(&mut self, name: Option<&str>) {
        if let Some(name) = name {
            self.record.set_consumer(name);
        }
    }

    /// How keys are logged.
    pub fn keys(&self) -> LogKeys {
        self.writer.keys()
    }

    /// Records the key under which a limit counts the request: by its name, or by its tag if it has none.
    pub fn set_key(&mut self, key: &Key, name: Option<String>) {
        match name {
            Some(name) => self.record.set_key_name(&name),
            None => self.record.set_key_tag(key),
        }
    }

    fn describe_key(&mut self, request: &PlannedRequest<'_>, limit: PolicyId) {
        let PlannedRequest { gate, client, head, plan } = *request;
        let keys = self.keys();
        let charge = plan.charges.iter().find(|charge| charge.policy == limit);
        let Some(charge) = charge.filter(|_| keys != LogKeys::Off) else { return };
        let name = (keys == LogKeys::Plain).then(|| gate.key_name(client.identity(), head, plan, charge));
        self.set_key(&charge.key, name.flatten());
    }

    /// Records the client, host and route of a request without a plan, as far as they are known.
    pub fn describe_match(
        &mut self,
        gate: &Gate,
        client: &ClientConnection,
        head: &RequestHead,
        matched: Option<&RouteMatch<'_>>,
    ) {
        self.record.client = gate.client_ip.client(client.ip(), &head.fields);
        self.record.set_host(matched.map_or("", |matched| &matched.host));
        self.set_route(gate, matched.and_then(|matched| matched.route));
    }

    /// Records why a request is rejected.
    pub fn describe_rejection(&mut self, gate: &Gate, rejection: &Rejection) {
        if let Some((limit, LimitOutcome::Blocked | LimitOutcome::MissingKey)) = rejection.decision() {
            self.record.is_denied = true;
            self.record.set_denied_by(limit_name(gate, limit));
        }
        self.record.error = rejection.error_word().or(self.record.error);
    }

    fn set_route(&mut self, gate: &Gate, route: Option<RouteId>) {
        if let Some(route) = route {
            self.record.set_route(&gate.routes.get(route).name);
        }
    }

    /// Writes the entry, at the end of the request.
    pub fn write(&mut self) {
        self.record.took = monotonic() - self.started;
        self.writer.write(&self.record);
    }
}

/// Adds those of these headers that the request has; several lines of one are combined (RFC 9110 §5.3).
fn add_headers(record: &mut AccessRecord, logged: &[HeaderName], head: &RequestHead) {
    for name in logged {
        let mut values = head.fields.get_all(name);
        let Some(first) = values.next() else { continue };
        let rest: Vec<&[u8]> = values.collect();
        if rest.is_empty() {
            record.add_header(name.as_str(), first);
        } else {
            record.add_header(name.as_str(), &[&[first], &*rest].concat().join(&b", "[..]));
        }
    }
}

fn limit_name(gate: &Gate, limit: PolicyId) -> &str {
    &gate.limits.policies[limit].name
}

/// The request target as it was sent.
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

/// Why a descriptor is over its limit, for the access log and traces.
#[derive(Debug)]
pub struct DescriptorDenial<'d> {
    /// The descriptor.
    pub descriptor: &'d Descriptor<'d>,
    /// The limit or one of its variants; none if a rule blocks the descriptor.
    pub limit: Option<PolicyId>,
    /// The key, if it has denied by one.
    pub key: Option<Key>,
}
