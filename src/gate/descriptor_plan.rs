//! Plans descriptors: finds their rules, and what their limits charge.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;

use http::{Method, Uri};
use smallvec::SmallVec;

use super::access::Identity;
use super::descriptor::{Descriptor, DescriptorRule, DescriptorTable};
use super::geo::{ClientLocation, GeoDatabases};
use super::limit_matching::LimitMatcher;
use super::limit_rule::LimitMatch;
use super::plan::{DescriptorError, DescriptorPlan};
use super::query::Query;
use super::subject::Subject;
use crate::http1::RequestHead;
use crate::jwt::Token;
use crate::limit::{Charge, Key, PolicyId};

/// The client of a descriptor that has no address.
const NO_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The head of a request that a descriptor does not have.
static NO_HEAD: LazyLock<RequestHead> =
    LazyLock::new(|| RequestHead::new(Method::POST, Uri::from_static("/")));

/// Plans descriptors by the rules and limits of a configuration.
#[derive(Clone, Copy, Debug)]
pub struct DescriptorPlanner<'g> {
    pub(super) rules: &'g DescriptorTable,
    pub(super) matcher: LimitMatcher<'g>,
    pub(super) geo: Option<&'g GeoDatabases>,
}

impl<'g> DescriptorPlanner<'g> {
    /// Plans the descriptors of one request, each for so many hits. A rule that another one `replaces` does not apply. Fails with
    /// the index of a descriptor that can't be counted.
    pub fn plan(
        self,
        domain: &str,
        descriptors: &[(Descriptor<'_>, u64)],
    ) -> Result<Vec<DescriptorPlan<'g>>, (usize, DescriptorError)> {
        let rule = |(descriptor, _): &(Descriptor<'_>, u64)| self.rules.find(domain, descriptor);
        let mut rules: SmallVec<[Option<&'g DescriptorRule>; 4]> = descriptors.iter().map(rule).collect();
        let replaced: SmallVec<[&str; 4]> =
            rules.iter().flatten().flat_map(|rule| &rule.replaces).map(|name| &**name).collect();
        for rule in &mut rules {
            let is_replaced =
                |rule: &&DescriptorRule| rule.name.as_deref().is_some_and(|name| replaced.contains(&name));
            if rule.as_ref().is_some_and(is_replaced) {
                *rule = None;
            }
        }
        let mut plans = Vec::with_capacity(descriptors.len());
        for (index, (rule, (descriptor, hits))) in rules.into_iter().zip(descriptors).enumerate() {
            let plan = self.plan_one(rule, descriptor, *hits);
            plans.push(plan.map_err(|error| (index, error))?);
        }
        Ok(plans)
    }

    fn plan_one(
        self,
        rule: Option<&'g DescriptorRule>,
        descriptor: &Descriptor<'_>,
        hits: u64,
    ) -> Result<DescriptorPlan<'g>, DescriptorError> {
        let mut plan = DescriptorPlan {
            rule,
            charges: SmallVec::new(),
            exempt: SmallVec::new(),
            blocked_by: None,
            lacking_for: None,
        };
        let Some(rule) = rule.filter(|rule| !rule.limits.is_empty()) else { return Ok(plan) };
        if rule.needs_address && client_of(descriptor).is_none() {
            return Err(DescriptorError::Address);
        }
        self.with_subject(descriptor, |subject| {
            for &limit in &rule.limits {
                let key = self.matcher.rules[limit].key.find(subject, self.matcher.hasher);
                match self.matcher.match_limit(limit, subject, &key) {
                    LimitMatch::Charged { charge, .. } => {
                        plan.charges.push(Charge { cost: charge.cost.saturating_mul(hits), ..charge });
                    }
                    LimitMatch::Allowed(_) => plan.exempt.push(limit),
                    LimitMatch::Skipped => {}
                    LimitMatch::Blocked(_) => plan.blocked_by = plan.blocked_by.or(Some(limit)),
                    LimitMatch::Missing(_) | LimitMatch::TooManyValues(_) => {
                        plan.lacking_for = plan.lacking_for.or(Some(limit));
                    }
                }
            }
        });
        Ok(plan)
    }

    /// The key of a descriptor under a limit, if it has one.
    #[must_use]
    pub fn key_of(self, limit: PolicyId, descriptor: &Descriptor<'_>) -> Option<Key> {
        let spec = &self.matcher.rules[limit].key;
        self.with_subject(descriptor, |subject| spec.find(subject, self.matcher.hasher).key())
    }

    /// Calls `use_subject` with the attributes of a descriptor that keys are made of.
    pub fn with_subject<T>(
        self,
        descriptor: &Descriptor<'_>,
        use_subject: impl FnOnce(&Subject<'_>) -> T,
    ) -> T {
        let address = client_of(descriptor).unwrap_or(NO_ADDRESS);
        let location = ClientLocation::new(address, self.geo);
        let query = Query::new(None);
        use_subject(&Subject {
            head: &NO_HEAD,
            query: &query,
            host: "",
            path: "/",
            peer: address,
            tls_subject: None,
            tls_san: None,
            location: &location,
            client: self.matcher.client_ip.counted(address),
            route: None,
            body: None,
            recorded: None,
            descriptor: Some(descriptor),
            token: Token::new(None, &NO_HEAD.fields),
            identity: Identity::default(),
        })
    }
}

/// The address of a descriptor's client, from the entry that Envoy's action `remote_address` makes.
fn client_of(descriptor: &Descriptor<'_>) -> Option<IpAddr> {
    let address: IpAddr = descriptor.value(Descriptor::REMOTE_ADDRESS)?.parse().ok()?;
    Some(address.to_canonical())
}
