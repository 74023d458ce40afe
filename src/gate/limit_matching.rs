//! How the limits of a route apply to a request.

use std::net::IpAddr;

use smallvec::SmallVec;

use super::class_rules::{ClassInput, ClassRules};
use super::client_ip::ClientIp;
use super::error::{MissingPart, RequestError};
use super::key_spec::{KeyLookup, KeySpec};
use super::limit_rule::{Cost, LimitMatch, LimitRule, PolicySource, Trust};
use super::plan::LimitMatches;
use super::rules::Match;
use super::subject::Subject;
use crate::id_vec::IdVec;
use crate::limit::{Charge, KeyHasher, PolicyId};
use crate::limiter::Limits;

/// Matches requests against limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitMatcher<'g> {
    pub client_ip: &'g ClientIp,
    pub classes: ClassRules<'g>,
    pub limits: &'g Limits,
    pub rules: &'g IdVec<PolicyId, LimitRule>,
    pub hasher: &'g KeyHasher,
}

impl<'g> LimitMatcher<'g> {
    /// The treatment of a request whose key under this limit is `key`. The first of these applies: block, allow,
    /// override, tier, the limit's own policy; and of these the policy of its class. A limit in shadow mode rejects no request.
    #[inline]
    pub fn match_limit<'a>(self, limit: PolicyId, subject: &Subject<'_>, key: &'a KeyLookup) -> LimitMatch<'a>
    where
        'g: 'a,
    {
        let rule = &self.rules[limit];
        // Most limits charge every request that has a key by their own numbers.
        if let (KeyLookup::Key(key), Cost::Fixed(cost), None, None) =
            (key, &rule.cost, &rule.tiers, &rule.classes)
            && rule.rules.is_empty()
        {
            let charge = Charge::take(limit, *key, *cost);
            return LimitMatch::Charged { charge, source: PolicySource::Base };
        }
        self.match_rules(limit, subject, key)
    }

    /// `match_limit` for a limit with rules, tiers, classes or a cost from a header, or a request without a single key.
    fn match_rules<'a>(self, limit: PolicyId, subject: &Subject<'_>, key: &'a KeyLookup) -> LimitMatch<'a>
    where
        'g: 'a,
    {
        let (rule, enforces) = (&self.rules[limit], !self.limits.policies[limit].shadow);
        if let Some(part) = rule.part_with_too_many_values(subject, key)
            && enforces
        {
            return LimitMatch::TooManyValues(part);
        }
        let key_rules = rule.key_rules(subject, key, self.hasher);
        if enforces
            && let Some(by) = rule
                .rules
                .block
                .find(subject.location.address)
                .map(Match::Network)
                .or_else(|| key_rules.block())
        {
            return LimitMatch::Blocked(by);
        }
        if let Some(by) =
            rule.rules.allow.find(subject.location.address).map(Match::Network).or_else(|| key_rules.allow())
        {
            return LimitMatch::Allowed(by);
        }
        let key = match key {
            KeyLookup::Key(key) | KeyLookup::Ambiguous { key, .. } => *key,
            KeyLookup::Deny(part) if enforces => return LimitMatch::Missing(part),
            KeyLookup::Deny(_) | KeyLookup::Skip => return LimitMatch::Skipped,
        };
        let is_trusted = || trusts_headers_of(self.client_ip, subject.peer, rule.trust);
        let tier = || rule.tiers.as_ref().and_then(|tiers| tiers.of(subject, is_trusted));
        let (policy, source) = match key_rules.policy() {
            Some((policy, name)) => (policy, PolicySource::Override(name)),
            None => match tier() {
                Some((name, policy)) => (policy, PolicySource::Tier(name)),
                None => (limit, PolicySource::Base),
            },
        };
        let policy = rule.classes.as_ref().map_or(policy, |classes| {
            let (class, _) = self.classes.class(&ClassInput::of(subject));
            classes.get(limit, policy, class)
        });
        LimitMatch::Charged { charge: Charge::take(policy, key, rule.cost.of(subject, is_trusted)), source }
    }

    /// Matches a request against those of its limits that its head decides, before its body or its consumer is read. What the
    /// head shows about the others can only reject the request.
    #[cold]
    pub fn match_early(
        self,
        limits: &[PolicyId],
        subject: &Subject<'_>,
        matches: &mut LimitMatches,
    ) -> Result<(), RequestError> {
        let (waiting, known): (Vec<PolicyId>, Vec<PolicyId>) =
            limits.iter().partition(|limit| self.rules[**limit].awaits(subject));
        for limit in waiting.into_iter().filter(|limit| !self.limits.policies[*limit].shadow) {
            self.rules[limit].check(subject)?;
            if self.rules[limit].blocks_early(subject, self.hasher) {
                return Err(RequestError::Blocked(limit));
            }
        }
        self.match_limits(&known, subject, matches)
    }

    /// Matches a request against its limits, in their order, and adds what that finds to `matches`, which are large.
    #[inline]
    pub fn match_limits(
        self,
        limits: &[PolicyId],
        subject: &Subject<'_>,
        matches: &mut LimitMatches,
    ) -> Result<(), RequestError> {
        for limit in limits {
            // A limit in shadow mode rejects no request.
            if !self.limits.policies[*limit].shadow {
                self.rules[*limit].check(subject)?;
            }
        }
        let mut keys: SmallVec<[(&KeySpec, KeyLookup); 4]> = SmallVec::new();
        for &limit in limits {
            let spec = &self.rules[limit].key;
            // Limits often share a key: hash it once.
            let known = keys.iter().position(|(other, _)| *other == spec);
            let index = known.unwrap_or(keys.len());
            if known.is_none() {
                keys.push((spec, spec.find(subject, self.hasher)));
            }
            match self.match_limit(limit, subject, &keys[index].1) {
                LimitMatch::Charged { charge, .. } => matches.charges.push(charge),
                LimitMatch::Allowed(_) => matches.exempt.push(limit),
                LimitMatch::Skipped => {}
                LimitMatch::Blocked(_) => return Err(RequestError::Blocked(limit)),
                LimitMatch::TooManyValues(part) => return Err(RequestError::TooManyValues(part.clone())),
                LimitMatch::Missing(part) => {
                    let (part, status) = (part.clone(), self.rules[limit].missing_status);
                    let missing = || Box::new(MissingPart { limit, part, status });
                    matches.missing.get_or_insert_with(missing);
                }
            }
        }
        if subject.query.has_too_many_parameters() {
            return Err(RequestError::TooManyParameters);
        }
        Ok(())
    }
}

/// Whether a limit trusts the headers that set the cost and the tier of a request, when `peer` sends them.
#[must_use]
pub fn trusts_headers_of(client_ip: &ClientIp, peer: IpAddr, trust: Trust) -> bool {
    trust == Trust::Any || client_ip.is_trusted(peer)
}
