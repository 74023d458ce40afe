//! The class of a request under overload, and the policies of limits that reserve slots for classes.

use std::net::IpAddr;

use http::header::HeaderName;

use super::Gate;
use super::client_ip::ClientIp;
use super::consumer_rules::ConsumerRules;
use super::route::Route;
use super::subject::Subject;
use crate::consumers::Consumer;
use crate::http1::{RequestHead, ascii};
use crate::limit::PolicyId;
use crate::overload::Class;

/// The priority of a route's requests.
#[derive(Clone, Debug, Default)]
pub struct Priority {
    /// Their class.
    pub class: Class,
    /// The header in which trusted proxies name another class.
    pub header: Option<HeaderName>,
}

/// What decides the class of a request.
#[derive(Clone, Copy, Debug)]
pub struct ClassInput<'a> {
    /// The route that it matches.
    pub route: Option<&'a Route>,
    /// The address of the peer that sends it.
    pub peer: IpAddr,
    /// Its head.
    pub head: &'a RequestHead,
    /// Its consumer, if it has one.
    pub consumer: Option<&'a Consumer>,
}

/// The source of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassSource<'a> {
    /// No route matches: the default.
    NoRoute,
    /// The route.
    Route,
    /// This header of a trusted proxy.
    Header(&'a HeaderName),
    /// The tier of the consumer.
    Tier(&'a str),
}

/// How classes are determined, besides the priorities of routes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClassRules<'g> {
    pub client_ip: &'g ClientIp,
    pub consumers: Option<&'g ConsumerRules>,
}

impl<'a> ClassInput<'a> {
    /// The request with these attributes.
    #[must_use]
    pub fn of(subject: &'a Subject<'_>) -> Self {
        Self { route: subject.route, peer: subject.peer, head: subject.head, consumer: subject.consumer() }
    }
}

impl ClassRules<'_> {
    /// The class of a request, and its source: that of the route or of its header, or that of the consumer's tier if it is higher.
    pub fn class<'a>(self, request: &ClassInput<'a>) -> (Class, ClassSource<'a>) {
        let (class, source) = match (request.route, self.named(request)) {
            (None, _) => (Class::default(), ClassSource::NoRoute),
            (Some(_), Some((class, header))) => (class, ClassSource::Header(header)),
            (Some(route), None) => (route.priority.class, ClassSource::Route),
        };
        let tier = request.consumer.and_then(|consumer| consumer.tier.as_deref());
        match tier.zip(self.consumers.zip(request.consumer)) {
            Some((tier, (rules, consumer))) => match rules.priority(consumer) {
                Some(of_tier) if of_tier.higher(class) != class => (of_tier, ClassSource::Tier(tier)),
                _ => (class, source),
            },
            None => (class, source),
        }
    }

    /// The class that a trusted proxy names; none if it names none, several, or an unknown one.
    fn named<'a>(self, request: &ClassInput<'a>) -> Option<(Class, &'a HeaderName)> {
        let name = request.route?.priority.header.as_ref()?;
        if !self.client_ip.is_trusted(request.peer) {
            return None;
        }
        let mut values = request.head.fields.get_all(name);
        let value = values.next().filter(|_| values.next().is_none())?;
        Some((Class::parse(ascii(value)?)?, name))
    }
}

impl Gate {
    /// The class of a request under overload, and its source.
    #[must_use]
    pub fn class<'a>(&self, request: &ClassInput<'a>) -> (Class, ClassSource<'a>) {
        self.class_rules().class(request)
    }

    pub(super) fn class_rules(&self) -> ClassRules<'_> {
        ClassRules { client_ip: &self.client_ip, consumers: self.consumers.as_deref() }
    }
}

/// The policies of a limit that reserves slots for classes: those of lower classes have the same counts as the limit, a tier or
/// an override, and fewer usable slots.
#[derive(Clone, Copy, Debug)]
pub struct ClassPolicies {
    /// The first tier or override of the limit, if it has one.
    pub variants: PolicyId,
    /// The first policy of a class: those of the limit itself come first, and then those of each tier and override.
    pub first: PolicyId,
    /// For how many of the classes above each class slots are reserved, by [`Class::index`].
    pub reserving: [u32; Class::COUNT],
}

impl ClassPolicies {
    /// The policy of `limit`, or of its tier or override, for requests of a class.
    #[must_use]
    pub fn get(&self, limit: PolicyId, policy: PolicyId, class: Class) -> PolicyId {
        let reserving = self.reserving[class.index()];
        let Some(place) = reserving.checked_sub(1) else { return policy };
        let owner = if policy == limit { 0 } else { policy.0 - self.variants.0 + 1 };
        PolicyId(self.first.0 + owner * self.reserving[Class::Low.index()] + place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_owner_has_a_policy_for_each_class_that_leaves_slots_to_others() {
        // Limit 1 has the variants 4 and 5, and reserves slots for `critical` and `normal`.
        let (variants, first) = (PolicyId(4), PolicyId(6));
        let policies = ClassPolicies { variants, first, reserving: [0, 1, 1, 2] };
        let of = |policy: u32| Class::ALL.map(|class| policies.get(PolicyId(1), PolicyId(policy), class).0);
        assert_eq!([of(1), of(4), of(5)], [[1, 6, 6, 7], [4, 8, 8, 9], [5, 10, 10, 11]]);
    }
}
