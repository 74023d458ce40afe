//! The plan of a request: the client, the route, and the charges of its limits; the plan of a descriptor.

use std::borrow::Cow;
use std::net::IpAddr;

use smallvec::SmallVec;

use super::access::{Identity, TokenRefusal};
use super::body_fields::BodyFields;
use super::descriptor::DescriptorRule;
use super::error::MissingPart;
use super::path::NormalPath;
use super::query::Query;
use super::subject::{RecordedParts, Subject};
use super::table::RouteId;
use crate::consumers::ConsumerError;
use crate::jwt::Claims;
use crate::limit::{Charge, Charges, PolicyId};

/// The target of a request, and the route that it matches.
#[derive(Debug)]
pub struct RouteMatch<'a> {
    /// The normalized path.
    pub path: NormalPath<'a>,
    /// The requested host, without port; empty if the request names none.
    pub host: Cow<'a, str>,
    /// The route; none if no route matches.
    pub route: Option<RouteId>,
    /// The query.
    pub query: Query<'a>,
}

/// Everything that is decided before the limits of a request are checked: the route, the client, and the charges.
#[derive(Debug)]
pub struct RequestPlan<'a> {
    /// The target and the route.
    pub matched: RouteMatch<'a>,
    /// The client's whole address.
    pub client: IpAddr,
    /// The fields of the body that the limits name, if it was read.
    pub body: Option<&'a BodyFields>,
    /// Whether the request has to be planned again when more is known: its consumer from Redis, its body, or the decision of an
    /// authorization server.
    pub is_partial: bool,
    /// The charges of the limits; in a partial plan only of those that do not depend on what has to be read.
    pub charges: Charges,
    /// The limits that exempt the request, by an `allow` list.
    pub exempt: SmallVec<[PolicyId; 2]>,
    /// The missing key part for which the request is rejected. Its other limits are charged all the same.
    pub missing: Option<Box<MissingPart>>,
    /// The consumer, or why the request is rejected for the lack of one. Its limits are charged all the same, so that they
    /// bound how fast credentials can be guessed.
    pub identity: Identity,
    /// Why the route refuses the request for its token. Its limits are charged all the same.
    pub refused: Option<TokenRefusal>,
}

/// What is known of a request beside its head.
#[derive(Default)]
pub(super) struct PlanInput<'a, 'r> {
    pub body: Option<&'a BodyFields>,
    /// Why a consumer is not known that was to be read; none if nothing was read yet.
    pub unread: Option<ConsumerError>,
    pub recorded: Option<&'r RecordedParts>,
}

impl<'a, 'r> PlanInput<'a, 'r> {
    /// A request of which more is known than its head; what was not read of it stays unknown.
    pub fn recorded(body: &'a BodyFields, recorded: &'r RecordedParts) -> Self {
        Self { body: Some(body), unread: Some(ConsumerError::NotFetched), recorded: Some(recorded) }
    }
}

/// Why the route of a request refuses it for its token; none if it does not.
pub(super) fn refusal(subject: &Subject<'_>) -> Option<TokenRefusal> {
    let rule = subject.route?.token.as_ref()?;
    let checked = match subject.recorded.filter(|recorded| recorded.has_token) {
        Some(recorded) => rule.check_claim(|name, test| {
            let value = recorded.value(&format!("jwt:{name}"));
            value.is_some_and(|value| Claims::text_passes(name, &String::from_utf8_lossy(value), test))
        }),
        None => rule.check(&subject.token),
    };
    checked.err()
}

/// The charges and exemptions of the limits of one request, and the key part that it lacks.
#[derive(Debug, Default)]
pub(super) struct LimitMatches {
    pub charges: Charges,
    pub exempt: SmallVec<[PolicyId; 2]>,
    pub missing: Option<Box<MissingPart>>,
}

/// The plan of a descriptor.
#[derive(Clone, Debug)]
pub struct DescriptorPlan<'g> {
    /// The rule; none if no rule matches, and the descriptor is unlimited.
    pub rule: Option<&'g DescriptorRule>,
    /// The charges of its limits.
    pub charges: SmallVec<[Charge; 2]>,
    /// The limits that exempt it, by an `allow` list.
    pub exempt: SmallVec<[PolicyId; 2]>,
    /// The limit whose `block` list names its key or address.
    pub blocked_by: Option<PolicyId>,
    /// The limit that requires a part of the key which it lacks.
    pub lacking_for: Option<PolicyId>,
}

/// Why a descriptor can't be counted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DescriptorError {
    /// Its limits count by the client's address, and its value is none.
    #[error("the value of the entry `remote_address` is not an IP address")]
    Address,
}

impl DescriptorPlan<'_> {
    /// Whether it is over the limit whatever the counts are.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        self.rule.is_some_and(|rule| rule.blocks) || self.blocked_by.is_some() || self.lacking_for.is_some()
    }
}
