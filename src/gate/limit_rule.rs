//! The rule of a limit: the key that it counts, the cost of a request, and the policy that applies.

use std::borrow::Cow;
use std::collections::HashMap;

use http::StatusCode;
use http::header::HeaderName;
use smallvec::SmallVec;

use super::body_fields::NoField;
use super::error::RequestError;
use super::key_part::{self, KeyPart, PartValue};
use super::key_spec::{KeyLookup, KeySpec};
use super::priority::ClassPolicies;
use super::reserved_cost;
use super::rules::{KeyRules, Match, Rules};
use super::settled_cost::SettledCost;
use super::subject::Subject;
use crate::http1::parse_decimal_saturating;
use crate::limit::{Charge, Key, KeyHasher, PolicyId};

/// The most keys that the values of an ambiguous request may make where rules name keys: each is looked up.
const MAX_COMBINATIONS: usize = 256;

/// How one limit applies to a request: its key, its cost, and the rules that change its policy.
#[derive(Clone, Debug)]
pub struct LimitRule {
    /// How the key of a request is made.
    pub key: KeySpec,
    /// The status of the response to a request that is rejected because a part of its key is missing.
    pub missing_status: StatusCode,
    /// What a client gets in place of 429 when the limit denies its request.
    pub deny_status: Option<DenyStatus>,
    /// Units that a request costs.
    pub cost: Cost,
    /// Which peers may set the cost and the tier by headers.
    pub trust: Trust,
    /// Blocked and allowed networks and keys, and overrides.
    pub rules: Rules,
    /// Policies by an attribute of the request, such as a client's plan.
    pub tiers: Option<Tiers>,
    /// The policies of classes, if slots are reserved for some.
    pub classes: Option<Box<ClassPolicies>>,
}

/// What a client gets whose request is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenyStatus {
    /// A response with this status.
    Status(StatusCode),
    /// No response: the connection is closed, or over HTTP/2 the stream is reset.
    Close,
}

/// Units that a request costs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// A fixed number of units.
    Fixed(u64),
    /// The number in a header: at least one, and one if the header is missing or no number.
    Header {
        /// The header.
        name: HeaderName,
        /// The highest cost; a larger number is cut to it.
        max: u64,
    },
    /// An estimate on arrival, which the response corrects.
    Settled(Box<SettledCost>),
}

/// Which peers may set costs and tiers by headers: a client must not set its own cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Trusted proxies.
    Proxies,
    /// Every peer.
    Any,
}

/// Policies by an attribute of the request, such as a client's plan.
#[derive(Clone, Debug)]
pub struct Tiers {
    /// The attribute of the request whose value names the tier.
    pub by: KeyPart,
    tiers: HashMap<Box<str>, PolicyId>,
}

/// The treatment of a request by a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitMatch<'a> {
    /// Rejects it, whatever the counts are.
    Blocked(Match<'a>),
    /// Exempts it.
    Allowed(Match<'a>),
    /// Does not count it: a part of the key is missing.
    Skipped,
    /// Rejects it: this part of the key has too many values to look up a rule for each.
    TooManyValues(&'a KeyPart),
    /// Rejects it: this part of the key is missing.
    Missing(&'a KeyPart),
    /// Charges it.
    Charged {
        /// The charge.
        charge: Charge,
        /// The source of its policy.
        source: PolicySource<'a>,
    },
}

/// The source of a charge's policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicySource<'a> {
    /// The limit itself.
    Base,
    /// The tier of this name.
    Tier(&'a str),
    /// The override of this name.
    Override(&'a str),
}

impl LimitRule {
    /// A part of the key that has more values than rules are looked up for, where there are rules for keys.
    pub(super) fn part_with_too_many_values(
        &self,
        subject: &Subject<'_>,
        key: &KeyLookup,
    ) -> Option<&KeyPart> {
        let has_rules = self.rules.has_keys() || self.rules.has_first_parts();
        match key {
            KeyLookup::Ambiguous { combinations, .. } if has_rules && *combinations > MAX_COMBINATIONS => {
                self.key.parts.iter().find(|part| matches!(part.value(subject), PartValue::Several(_)))
            }
            // A part is missing, but rules for the first one are looked up all the same.
            KeyLookup::Skip | KeyLookup::Deny(_) if self.rules.has_first_parts() => {
                let first = self.key.parts.first();
                first.filter(|part| part.choices(subject).len() > MAX_COMBINATIONS)
            }
            _ => None,
        }
    }

    /// The rules for the keys of a request: for each key that its values would make, where they are ambiguous.
    pub(super) fn key_rules(
        &self,
        subject: &Subject<'_>,
        key: &KeyLookup,
        hasher: &KeyHasher,
    ) -> KeyRules<'_> {
        let (mut whole, mut first_parts) = (SmallVec::<[Key; 1]>::new(), SmallVec::new());
        if self.rules.has_keys() {
            match key {
                KeyLookup::Key(key) => whole.push(*key),
                KeyLookup::Ambiguous { combinations, .. } if *combinations <= MAX_COMBINATIONS => {
                    whole = self.key.combinations(subject, hasher);
                }
                KeyLookup::Ambiguous { .. } | KeyLookup::Skip | KeyLookup::Deny(_) => {}
            }
        }
        if self.rules.has_first_parts() {
            first_parts = self.key.first_parts(subject, hasher, MAX_COMBINATIONS);
        }
        self.rules.on_keys(&whole, &first_parts)
    }

    /// Whether the charge of a request is known only when its body or its consumer is read, or an authorization server has set
    /// a header.
    pub(super) fn awaits(&self, subject: &Subject<'_>) -> bool {
        let tiers_by = self.tiers.as_ref().map(|tiers| &tiers.by);
        self.cost.headers().any(|name| subject.awaits_header(name))
            || self.key.parts.iter().chain(tiers_by).any(|part| part.is_awaited(subject))
            || self.classes.is_some() && awaits_class(subject)
    }

    /// Whether a request is blocked, also if its body or consumer is read later: by its client's address, or by the first part of its key.
    pub(super) fn blocks_early(&self, subject: &Subject<'_>, hasher: &KeyHasher) -> bool {
        let has_first_part = self.key.parts.first().is_some_and(|part| !part.is_awaited(subject));
        self.rules.block.find(subject.location.address).is_some()
            || (has_first_part && self.key_rules(subject, &KeyLookup::Skip, hasher).block().is_some())
    }

    /// Rejects a request of which the server may read another value than the limit, so that a client could evade it.
    pub(super) fn check(&self, subject: &Subject<'_>) -> Result<(), RequestError> {
        if let Some(header) = self.differing_header(subject) {
            return Err(RequestError::DifferingHeader(header.clone()));
        }
        let Some(body) = subject.body else { return Ok(()) };
        if self.cost.settled().is_some_and(|cost| reserved_cost::lacks_stream_usage(cost, body)) {
            return Err(RequestError::NoStreamUsage);
        }
        for part in &self.key.parts {
            let KeyPart::Body(field) = part else { continue };
            match body.values(field) {
                Err(NoField::TooLong) => return Err(RequestError::LongBody),
                Err(NoField::NoMemory) => return Err(RequestError::NoBodyMemory),
                Ok([_, _, ..]) => return Err(RequestError::DifferingField(field.clone())),
                _ => {}
            }
        }
        Ok(())
    }

    /// The header that has several values which differ, where the key, the tiers or the cost read it.
    fn differing_header<'a>(&'a self, subject: &Subject<'a>) -> Option<&'a HeaderName> {
        let differs = |name: &HeaderName| {
            // Few requests have a header twice, and only then are its values compared.
            let is_repeated = subject.head.fields.get_all(name).nth(1).is_some();
            is_repeated && matches!(key_part::header(subject.head, name), PartValue::Several(_))
        };
        let in_part = |part: &'a KeyPart| match part {
            KeyPart::Header(name) if differs(name) => Some(name),
            KeyPart::Jwt(_) => subject.token.differing_header(),
            _ => None,
        };
        let in_key = self.key.parts.iter().find_map(in_part);
        in_key
            .or_else(|| self.tiers.as_ref().and_then(|tiers| in_part(&tiers.by)))
            .or_else(|| self.cost.headers().find(|name| differs(name)))
    }
}

/// Whether the class of a request is not known yet: a tier may raise it, or an authorization server may name it.
fn awaits_class(subject: &Subject<'_>) -> bool {
    let header = subject.route.and_then(|route| route.priority.header.as_ref());
    KeyPart::Consumer.is_awaited(subject) || header.is_some_and(|name| subject.awaits_header(name))
}

impl Cost {
    /// How the response settles it, if it does.
    #[must_use]
    pub fn settled(&self) -> Option<&SettledCost> {
        if let Self::Settled(cost) = self { Some(cost) } else { None }
    }

    /// The headers of a request that it is read from.
    fn headers(&self) -> impl Iterator<Item = &HeaderName> {
        let own = if let Self::Header { name, .. } = self { Some(name) } else { None };
        own.into_iter().chain(self.settled().into_iter().flat_map(SettledCost::request_headers))
    }

    /// The cost of a request. `is_trusted` says whether the peer's headers count; it is called only if a header matters.
    pub(super) fn of(&self, subject: &Subject<'_>, is_trusted: impl Fn() -> bool) -> u64 {
        match self {
            Self::Fixed(cost) => *cost,
            Self::Header { name, max } => {
                let value = key_part::header(subject.head, name).one().filter(|_| is_trusted());
                value
                    .and_then(|digits| parse_decimal_saturating(&digits))
                    .unwrap_or(1)
                    .clamp(1, (*max).max(1))
            }
            Self::Settled(cost) => reserved_cost::units(cost, subject, is_trusted),
        }
    }
}

impl Tiers {
    /// Tiers by their names, which are values of `by`.
    #[must_use]
    pub fn new(by: KeyPart, tiers: impl IntoIterator<Item = (Box<str>, PolicyId)>) -> Self {
        Self { by, tiers: tiers.into_iter().collect() }
    }

    /// The tier of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<(&str, PolicyId)> {
        self.tiers.get_key_value(name).map(|(name, policy)| (&**name, *policy))
    }

    /// The value that names the tier of a request: for a consumer, its tier.
    #[must_use]
    pub fn value<'a>(&self, subject: &'a Subject<'_>) -> PartValue<'a> {
        if self.by != KeyPart::Consumer {
            return self.by.value_or_recorded(subject);
        }
        match subject.consumer().and_then(|consumer| consumer.tier.as_deref()) {
            Some(tier) => PartValue::One(Cow::Borrowed(tier.as_bytes())),
            None => PartValue::Missing,
        }
    }

    /// Every tier, in the order of the file.
    pub fn all(&self) -> impl Iterator<Item = (&str, PolicyId)> {
        let mut all: Vec<(&str, PolicyId)> =
            self.tiers.iter().map(|(name, policy)| (&**name, *policy)).collect();
        all.sort_unstable_by_key(|(_, policy)| *policy);
        all.into_iter()
    }

    /// The tier of a request. `is_trusted` says whether the peer's headers count; it is called only if they matter.
    pub(super) fn of(
        &self,
        subject: &Subject<'_>,
        is_trusted: impl FnOnce() -> bool,
    ) -> Option<(&str, PolicyId)> {
        if self.by.is_client_supplied() && !is_trusted() {
            return None;
        }
        self.get(std::str::from_utf8(&self.value(subject).one()?).ok()?)
    }
}
