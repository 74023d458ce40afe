//! The class of a request under overload.

use std::net::IpAddr;

use http::header::HeaderName;

use super::client_ip::ClientIp;
use super::consumer_rules::ConsumerRules;
use super::route::Route;
use super::subject::Subject;
use crate::consumers::Consumer;
use crate::http1::{RequestHead, ascii};
use crate::overload::Class;

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
