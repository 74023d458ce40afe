//! A request of a log with its plan.

use std::net::IpAddr;

use crate::gate::{
    ClientIdentity, ClientLocation, Gate, KeyPart, KeySpec, PartValue, RecordedParts, RequestPlan, Subject,
};
use crate::http1::RequestHead;
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
    pub(super) fn key_label(&self, charge: &Charge) -> Option<String> {
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
