//! A request of a log: its head, and its plan.

use std::net::IpAddr;

use http::{Method, Uri, Version};

use super::entry::LoggedRequest;
use crate::gate::{
    ClientIdentity, ClientLocation, Gate, KeyPart, KeySpec, PartValue, RecordedParts, RequestPlan, Subject,
};
use crate::http1::{RequestHead, names};
use crate::limit::{Charge, Key, PolicyId};

/// A request of a log with its plan.
#[derive(Debug)]
pub struct PlannedEntry<'p> {
    pub(super) gate: &'p Gate,
    pub(super) client: ClientIdentity<'p>,
    pub(super) head: &'p RequestHead,
    pub(super) plan: &'p RequestPlan<'p>,
    pub(super) recorded: &'p RecordedParts,
}

impl PlannedEntry<'_> {
    /// The client's address.
    #[must_use]
    pub fn client(&self) -> IpAddr {
        self.plan.client
    }

    /// The name of its consumer: that of the configuration, or else the one that the log has.
    pub(super) fn consumer<'e>(&'e self, entry: &'e LoggedRequest<'_>) -> Option<&'e [u8]> {
        let known = self.plan.identity.consumer.as_ref().map(|consumer| consumer.name.as_bytes());
        known.or(entry.consumer.as_deref())
    }

    /// The limits of its route.
    pub(super) fn limits(&self) -> &[PolicyId] {
        self.plan.matched.route.map_or(&self.gate.default_limits, |id| &self.gate.routes.get(id).limits)
    }

    /// The name of the key of a charge, as [`Gate::key_name`].
    #[must_use]
    pub fn key_name(&self, charge: &Charge) -> Option<String> {
        let limit = self.gate.limit_of(charge.policy);
        self.with_subject(|subject| self.gate.key_name_of(limit, charge.key, subject))
    }

    /// The name of the key of a charge. A key without one of its parts is that of the client's address.
    #[must_use]
    pub fn key_label(&self, charge: &Charge) -> Option<String> {
        let parts = &self.gate.limit_rules[self.gate.limit_of(charge.policy)].key.parts;
        let is_by_client = || self.lacks(parts).contains(&true);
        self.key_name(charge).or_else(|| is_by_client().then(|| format!("client {}", self.client())))
    }

    /// The key of the request as this key is made; none if it lacks a part.
    pub(super) fn key(&self, spec: &KeySpec) -> Option<Key> {
        self.with_subject(|subject| spec.find(subject, &self.gate.hasher).key())
    }

    /// The value of a part, if it has one that is UTF-8.
    pub(super) fn value_text(&self, part: &KeyPart) -> Option<String> {
        let value = self.with_subject(|subject| Some(part.value_or_recorded(subject).one()?.into_owned()))?;
        String::from_utf8(value).ok()
    }

    /// Calls `use_subject` with the attributes that keys are made of.
    pub(super) fn with_subject<T>(&self, use_subject: impl FnOnce(&Subject<'_>) -> T) -> T {
        let location = ClientLocation::new(self.plan.client, self.gate.geo.as_deref());
        let mut subject = self.gate.planned_subject(self.client, self.head, self.plan, &location);
        subject.recorded = Some(self.recorded);
        use_subject(&subject)
    }

    /// Which of these parts the request lacks, by their positions.
    pub(super) fn lacks(&self, parts: &[KeyPart]) -> Vec<bool> {
        let is_missing =
            |subject: &Subject<'_>, part: &KeyPart| part.value_or_recorded(subject) == PartValue::Missing;
        self.with_subject(|subject| parts.iter().map(|part| is_missing(subject, part)).collect())
    }
}

/// The Host of a request of which the log has none.
const UNKNOWN_HOST: &[u8] = b"localhost";

/// What a log lacks of a request, or has malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum HeadError {
    /// No address of the client.
    #[error("without an address of the client")]
    NoClient,
    /// A malformed method.
    #[error("with a malformed method")]
    Method,
    /// A malformed request target.
    #[error("with a malformed target")]
    Target,
    /// A header with a control character.
    #[error("with a malformed header")]
    Header,
}

/// The head that a client sent, as far as the log has it; `host` is the host of a request of which the log has none. Rejects a
/// malformed method, request target or header.
pub(super) fn request_head(entry: &LoggedRequest<'_>, host: Option<&[u8]>) -> Result<RequestHead, HeadError> {
    let method = Method::from_bytes(&entry.method).map_err(|_| HeadError::Method)?;
    let target = Uri::try_from(&*entry.target).map_err(|_| HeadError::Target)?;
    let mut head = RequestHead::new(method, target);
    head.version = match entry.protocol.as_deref() {
        Some(b"HTTP/1.0") => Version::HTTP_10,
        Some(b"HTTP/2" | b"HTTP/2.0" | b"HTTP/3" | b"HTTP/3.0") => Version::HTTP_2,
        _ => Version::HTTP_11,
    };
    head.fields.push(names::HOST, checked(entry.host.as_deref().or(host).unwrap_or(UNKNOWN_HOST))?);
    let known = [(names::USER_AGENT, &entry.user_agent), (names::REFERER, &entry.referer)];
    for (name, value) in known {
        if let Some(value) = value {
            head.fields.push(name, checked(value)?);
        }
    }
    for (name, value) in &entry.headers {
        if let Ok(name) = http::HeaderName::from_bytes(name)
            && name != http::header::HOST
        {
            head.fields.push(&name, checked(value)?);
        }
    }
    Ok(head)
}

/// The value of a header, unless it has control characters, with which the proxy would reject the request.
fn checked(value: &[u8]) -> Result<&[u8], HeadError> {
    http::HeaderValue::from_bytes(value).map(|_| value).map_err(|_| HeadError::Header)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_with_a_control_character_is_malformed() {
        let entry = |agent: &'static [u8]| LoggedRequest {
            method: b"GET".into(),
            target: b"/".into(),
            user_agent: Some(agent.into()),
            ..LoggedRequest::default()
        };
        assert!(request_head(&entry(b"caf\xc3\xa9\t1"), None).is_ok());
        assert_eq!(request_head(&entry(b"a\x01b"), None).map(|_| ()), Err(HeadError::Header));
    }
}
