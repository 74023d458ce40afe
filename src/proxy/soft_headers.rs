//! The headers of soft limits: what servers and clients learn about limits that are nearly used up (`warn_at`), and servers about
//! those that would have denied a request (`mode = "mark"`).

use http::header::{HeaderMap, HeaderName, HeaderValue};

use crate::http1::Fields;
use crate::limit::{Policy, PolicyId};
use crate::limiter::{Admission, Limits};
use crate::telemetry::LimitNote;

/// The header with the limits that are nearly used up, in requests and responses.
pub(super) const WARNING: HeaderName = HeaderName::from_static("x-ratelimit-warning");
/// The header with the limits that would have denied the request.
pub(super) const DENIED: HeaderName = HeaderName::from_static("x-ratelimit-denied");

/// The names of limits in these headers, separated by commas; empty if there is none.
#[derive(Clone, Debug, Default)]
pub struct SoftHeaders {
    warning: String,
    denied: String,
}

impl SoftHeaders {
    /// The headers for a request that its limits allow, if a configuration with these limits has any.
    #[inline]
    pub(crate) fn of(limits: &Limits, admission: &Admission) -> Option<Box<Self>> {
        (limits.have_soft && admission.verdict.is_ok())
            .then(|| Box::new(Self::new(&limits.policies, admission.notes(&limits.policies))))
    }

    /// The headers for a request without limits, if a configuration with these limits has any.
    pub(crate) fn unlimited(limits: &Limits) -> Option<Box<Self>> {
        limits.have_soft.then(Box::default)
    }

    /// The headers with what limits note about a request. Limits are named once.
    pub fn new(policies: &[Policy], notes: impl Iterator<Item = (LimitNote, PolicyId)>) -> Self {
        let mut headers = Self::default();
        for (note, limit) in notes {
            let names = match note {
                LimitNote::ShadowDenied => continue,
                LimitNote::Marked => &mut headers.denied,
                LimitNote::Warned => &mut headers.warning,
            };
            let name = &*policies[limit].name;
            if names.split(", ").any(|other| other == name) {
                continue;
            }
            if !names.is_empty() {
                names.push_str(", ");
            }
            names.push_str(name);
        }
        headers
    }

    /// The names of the limits that are nearly used up.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        self.warning.split(", ").filter(|name| !name.is_empty())
    }

    /// The names of the limits that would have denied the request.
    pub fn denials(&self) -> impl Iterator<Item = &str> {
        self.denied.split(", ").filter(|name| !name.is_empty())
    }

    /// Adds the headers to a request, in place of those that its client has sent.
    pub(super) fn set_on_request(&self, fields: &mut Fields) {
        for (name, names) in self.both() {
            fields.remove(&name);
            if !names.is_empty() {
                fields.push(&name, names.as_bytes());
            }
        }
    }

    /// Adds both headers to a decision, also if they are empty: a proxy that copies them replaces those of its client in any
    /// case.
    pub(super) fn add_to_decision(&self, fields: &mut Fields) {
        self.both().iter().for_each(|(name, names)| fields.set(name, names.as_bytes()));
    }

    /// Adds the warning to a response, beside the one of the server.
    pub(super) fn add_to_response(&self, fields: &mut Fields) {
        if !self.warning.is_empty() {
            fields.push(&WARNING, self.warning.as_bytes());
        }
    }

    /// Sets the headers in a request of a program, in place of those that its client has sent.
    pub(crate) fn set_in_map(&self, headers: &mut HeaderMap) {
        for (name, names) in self.both() {
            headers.remove(&name);
            if let Ok(value) = HeaderValue::from_str(names)
                && !names.is_empty()
            {
                headers.insert(name, value);
            }
        }
    }

    /// Both headers as text.
    #[must_use]
    pub fn both(&self) -> [(HeaderName, &str); 2] {
        [(WARNING, &self.warning), (DENIED, &self.denied)]
    }
}
