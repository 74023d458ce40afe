//! The gate: which client sends a request, which route it matches, and what its limits charge.
//!
//! [`Gate::plan`] decides all of this from the request's head alone: it queries no store and charges nothing, so
//! the server and the tools share it.

mod access;
mod body_fields;
mod candidates;
mod canonical;
mod class_rules;
mod client_ip;
mod consumer_rules;
mod credential_removal;
mod descriptor;
mod descriptor_plan;
mod error;
mod form;
mod geo;
mod host;
mod json_pointer;
mod key_name;
mod key_part;
mod key_spec;
mod limit_matching;
mod limit_rule;
mod limits;
mod method;
mod named_key;
mod networks;
mod original;
mod path;
mod path_pattern;
mod plan;
mod priority;
mod query;
mod request_usage;
mod reserved_cost;
mod route;
mod route_match;
mod rules;
mod settled_cost;
mod subject;
mod table;
mod usage_rules;
mod value_pattern;

use std::sync::Arc;

use http::Method;

pub use access::{Access, Identity, TokenRefusal, TokenRule};
pub use body_fields::{BodyField, BodyFields, MAX_READ_BODY, NoField};
use class_rules::ClassRules;
pub use class_rules::{ClassInput, ClassSource};
pub use client_ip::{ClientIdentity, ClientIp, forwarded_value};
pub use consumer_rules::{ConsumerRules, CredentialSource};
pub use credential_removal::{hide_credential, remove_credential};
pub use descriptor::{Descriptor, DescriptorRule, DescriptorTable, EntryPattern};
pub use descriptor_plan::DescriptorPlanner;
pub use error::{MissingPart, RequestError};
pub use geo::{ClientLocation, Country, Database, GeoCondition, GeoDatabases};
pub use host::{HostPattern, host_of};
pub use json_pointer::JsonPointer;
pub use key_name::{NameError, NamedKeys};
pub use key_part::{KeyPart, PartValue};
pub use key_spec::{KeyLookup, KeySpec, OnMissing};
use limit_matching::LimitMatcher;
pub use limit_matching::trusts_headers_of;
pub use limit_rule::{Cost, DenyStatus, LimitMatch, LimitRule, PolicySource, Tiers, Trust};
pub use method::{OTHER_METHOD, is_method_value};
use named_key::key_name;
pub use named_key::{KeyResolver, NamedKey};
pub use networks::{AddressCondition, Networks};
pub use original::{OriginalError, OriginalRequest, names_original, original};
pub use path::{NormalPath, PathError, normalize, strip_prefix};
pub use path_pattern::{PathPattern, PatternError};
pub use plan::{DescriptorError, DescriptorPlan, RequestPlan, RouteMatch};
use plan::{LimitMatches, PlanInput, refusal};
pub use priority::{ClassPolicies, Priority};
pub use query::{MAX_PARAMETERS, Query};
pub use request_usage::{BodyLength, RequestUsage};
pub use route::{Awaited, RequestView, Route, Unmet};
use route_match::find_match;
pub use route_match::requested_host;
pub use rules::{KeyRule, Match, Rules};
pub use settled_cost::{CostBasis, CostSource, LlmCost, ReserveTerm, SettledCost, StreamUsage};
pub use subject::{RecordedParts, Subject};
pub use table::{RouteId, RouteTable};
pub use usage_rules::UsageRules;
pub use value_pattern::{ValueCondition, ValuePattern, header_ignores_case};

use crate::consumers::ConsumerError;
use crate::http1::RequestHead;
use crate::id_vec::IdVec;
use crate::jwt::{Token, Verifier};
pub use crate::limit::Charges;
use crate::limit::{Charge, Key, KeyHasher, PolicyId};
use crate::limiter::{Limiter, Limits};
use crate::overload::Class;

/// The routes and limits of one configuration: everything that decides on a request but the counts. Immutable.
#[derive(Debug)]
pub struct Gate {
    /// The routes.
    pub routes: RouteTable,
    /// How the address of a client is determined.
    pub client_ip: ClientIp,
    /// The policies: first one for each limit, then those of tiers, overrides and classes.
    pub limits: Limits,
    /// How each limit finds its key and what it charges, by the [`PolicyId`] of the limit.
    pub limit_rules: IdVec<PolicyId, LimitRule>,
    /// The numbers of each limit, tier, override and class as the file has them, such as `100/minute, burst 500`.
    pub numbers: IdVec<PolicyId, Box<str>>,
    /// The limit that each of the tiers, overrides and classes belongs to, in the order of their policies.
    pub variants: Vec<PolicyId>,
    /// Limits of a request that matches no route.
    pub default_limits: Vec<PolicyId>,
    /// The rules for descriptors of the rate-limit service.
    pub descriptor_rules: DescriptorTable,
    /// Hashes the keys of requests.
    pub hasher: KeyHasher,
    /// Verifies tokens, if there is a `[jwt]`; only then can keys have claims as parts.
    pub jwt: Option<Arc<Verifier>>,
    /// How consumers are identified, if there is a `[consumers]`.
    pub consumers: Option<Box<ConsumerRules>>,
    /// The databases of countries and autonomous systems, if there is a `[geo]`.
    pub geo: Option<Box<GeoDatabases>>,
}

impl Gate {
    /// Decides which route a request matches and what its limits charge, from its head and, where they count by it, its body.
    /// If the body or the consumer has to be read first, the plan is partial: it has the charges that the head decides.
    ///
    /// # Errors
    /// A request that is rejected under all counts: malformed, blocked, or larger than its route allows.
    #[inline]
    pub fn plan<'a>(
        &self,
        client: ClientIdentity<'_>,
        head: &'a RequestHead,
        body: Option<&'a BodyFields>,
    ) -> Result<RequestPlan<'a>, RequestError> {
        self.plan_with(client, head, PlanInput { body, ..PlanInput::default() })
    }

    /// Plans a request whose body and consumer were read. `unread` is why a consumer is still not known: it can't be read, or
    /// too many were to be read.
    ///
    /// # Errors
    /// A request that is rejected under all counts.
    pub fn plan_read<'a>(
        &self,
        client: ClientIdentity<'_>,
        head: &'a RequestHead,
        body: Option<&'a BodyFields>,
        unread: ConsumerError,
    ) -> Result<RequestPlan<'a>, RequestError> {
        self.plan_with(client, head, PlanInput { body, unread: Some(unread), recorded: None })
    }

    /// Plans a request of a log, or one that a tool makes up, with parts that its head does not have. Redis is not read.
    ///
    /// # Errors
    /// A request that is rejected under all counts.
    pub fn plan_recorded<'a>(
        &self,
        client: ClientIdentity<'_>,
        head: &'a RequestHead,
        body: &'a BodyFields,
        recorded: &RecordedParts,
    ) -> Result<RequestPlan<'a>, RequestError> {
        self.plan_with(client, head, PlanInput::recorded(body, recorded))
    }

    #[inline]
    fn plan_with<'a>(
        &self,
        client: ClientIdentity<'_>,
        head: &'a RequestHead,
        PlanInput { body, unread, recorded }: PlanInput<'a, '_>,
    ) -> Result<RequestPlan<'a>, RequestError> {
        let location = self.locate(client, head);
        let matched = self.match_route(head, &location)?;
        let route = matched.route.map(|id| self.routes.get(id));
        // By Content-Length alone; a body without one is measured while it is read.
        if route.is_some_and(|route| route.exceeds_max_body(head)) {
            return Err(RequestError::TooLarge);
        }
        let limits = route.map_or(&self.default_limits, |route| &route.limits);
        let is_awaiting = body.is_none() && route.is_some_and(|route| route.awaits.is_some());
        // Not by `Gate::subject`, since a subject is large, and would be copied.
        let mut subject = self.unidentified_subject(client, head, &matched, &location);
        subject.identity = self.identify(&subject);
        subject.body = body;
        if let Some(recorded) = recorded {
            self.add_recorded(&mut subject, recorded);
        }
        let is_unread = subject.identity.error == Some(ConsumerError::NotFetched);
        if is_unread && unread.is_some() {
            subject.identity.error = unread;
        }
        // A plan that was made again is never partial: what could not be read is an error of its identity.
        let is_partial = (is_awaiting || is_unread) && unread.is_none();
        let mut found = LimitMatches::default();
        if is_partial {
            self.matcher().match_early(limits, &subject, &mut found)?;
        } else {
            self.matcher().match_limits(limits, &subject, &mut found)?;
        }
        let LimitMatches { charges, exempt, missing } = found;
        let (refused, Subject { identity, .. }) = (refusal(&subject), subject);
        Ok(RequestPlan {
            matched,
            client: location.address,
            body,
            is_partial,
            charges,
            exempt,
            missing,
            identity,
            refused,
        })
    }

    /// The address of the client, and where it is.
    #[must_use]
    pub fn locate<'g>(&'g self, client: ClientIdentity<'g>, head: &RequestHead) -> ClientLocation<'g> {
        let address = self.client_ip.client(client.address, &head.fields);
        ClientLocation::new(address, self.geo.as_deref()).over(client, &self.client_ip)
    }

    /// Reads the target of a request, and finds the route that it matches.
    ///
    /// # Errors
    /// A request that is rejected whatever route it matches.
    pub fn match_route<'a>(
        &self,
        head: &'a RequestHead,
        location: &ClientLocation<'_>,
    ) -> Result<RouteMatch<'a>, RequestError> {
        self.match_route_in(&self.routes, head, &head.method, location)
    }

    /// Finds the route that a request matches in another table of routes, as if it had another method.
    ///
    /// # Errors
    /// A request that is rejected whatever route it matches.
    #[inline]
    pub fn match_route_in<'a>(
        &self,
        routes: &RouteTable,
        head: &'a RequestHead,
        method: &Method,
        location: &ClientLocation<'_>,
    ) -> Result<RouteMatch<'a>, RequestError> {
        find_match(&self.routes, routes, (head, method), location)
    }

    /// The attributes of a request that keys are made of, once its route is found.
    #[must_use]
    pub fn subject<'a>(
        &'a self,
        client: ClientIdentity<'a>,
        head: &'a RequestHead,
        matched: &'a RouteMatch<'_>,
        location: &'a ClientLocation<'a>,
    ) -> Subject<'a> {
        let mut subject = self.unidentified_subject(client, head, matched, location);
        subject.identity = self.identify(&subject);
        subject
    }

    /// [`Gate::subject`] before its consumer is identified.
    #[inline]
    fn unidentified_subject<'a>(
        &'a self,
        client: ClientIdentity<'a>,
        head: &'a RequestHead,
        matched: &'a RouteMatch<'_>,
        location: &'a ClientLocation<'a>,
    ) -> Subject<'a> {
        Subject {
            head,
            query: &matched.query,
            host: &matched.host,
            path: matched.path.matched(),
            peer: client.address,
            tls_subject: client.tls_subject,
            tls_san: client.tls_san,
            location,
            client: self.client_ip.counted(location.address),
            route: matched.route.map(|id| self.routes.get(id)),
            body: None,
            recorded: None,
            descriptor: None,
            token: Token::new(self.jwt.as_deref(), &head.fields),
            identity: Identity::default(),
        }
    }

    /// Adds parts that the head of the request does not have, and identifies its consumer again.
    pub fn add_recorded<'a>(&self, subject: &mut Subject<'a>, recorded: &'a RecordedParts) {
        subject.recorded = Some(recorded);
        subject.identity = self.identify(subject);
    }

    fn identify(&self, subject: &Subject<'_>) -> Identity {
        self.consumers.as_ref().map_or_else(Identity::default, |consumers| consumers.identify(subject))
    }

    /// Reads the consumer of a request from Redis. Another plan of the request then knows it, or why it is not known.
    pub async fn fetch_consumer(
        &self,
        client: ClientIdentity<'_>,
        head: &RequestHead,
        limiter: &Limiter,
    ) -> ConsumerError {
        let location = self.locate(client, head);
        let (Some(rules), Ok(matched)) = (&self.consumers, self.match_route(head, &location)) else {
            return ConsumerError::Unavailable;
        };
        rules.fetch(&self.subject(client, head, &matched, &location), limiter).await
    }

    /// The name of the key of a charge, with the values of its parts as a [`KeyResolver`] parses them; none if it has no such
    /// name, or if a part is a credential.
    #[must_use]
    pub fn key_name(
        &self,
        client: ClientIdentity<'_>,
        head: &RequestHead,
        plan: &RequestPlan<'_>,
        charge: &Charge,
    ) -> Option<String> {
        let location = ClientLocation::new(plan.client, self.geo.as_deref());
        let subject = self.planned_subject(client, head, plan, &location);
        self.key_name_of(self.limit_of(charge.policy), charge.key, &subject)
    }

    /// The attributes of a request that has a plan.
    #[must_use]
    pub fn planned_subject<'a>(
        &'a self,
        client: ClientIdentity<'a>,
        head: &'a RequestHead,
        plan: &'a RequestPlan<'_>,
        location: &'a ClientLocation<'a>,
    ) -> Subject<'a> {
        let mut subject = self.unidentified_subject(client, head, &plan.matched, location);
        subject.body = plan.body;
        subject.identity = plan.identity.clone();
        subject
    }

    /// The name of the key of a request under a limit, as [`Gate::key_name`].
    #[must_use]
    pub fn key_name_of(&self, limit: PolicyId, key: Key, subject: &Subject<'_>) -> Option<String> {
        let credential = self.consumers.as_ref().map(|rules| &rules.source);
        let name = key_name(&self.limit_rules[limit].key, subject, credential)?;
        // A value may have a form that is not parsed back, such as one that ends with a backslash.
        let is_parsed = self.keys(limit).named(&name).is_ok_and(|named| named.key == key);
        is_parsed.then_some(name)
    }

    /// The treatment of a request whose key under this limit is `key`. The first of these applies: block, allow,
    /// override, tier, the limit's own policy. A limit in shadow mode rejects no request.
    #[must_use]
    pub fn match_limit<'a>(
        &'a self,
        limit: PolicyId,
        subject: &Subject<'_>,
        key: &'a KeyLookup,
    ) -> LimitMatch<'a> {
        self.matcher().match_limit(limit, subject, key)
    }

    /// The class of a request under overload, and its source.
    #[must_use]
    pub fn class<'a>(&self, request: &ClassInput<'a>) -> (Class, ClassSource<'a>) {
        self.matcher().classes.class(request)
    }

    /// Plans descriptors of the rate-limit service.
    #[must_use]
    pub fn descriptors(&self) -> DescriptorPlanner<'_> {
        let (rules, geo) = (&self.descriptor_rules, self.geo.as_deref());
        DescriptorPlanner { rules, matcher: self.matcher(), geo }
    }

    #[inline]
    fn matcher(&self) -> LimitMatcher<'_> {
        let Self { client_ip, limits, limit_rules: rules, hasher, .. } = self;
        let classes = ClassRules { client_ip, consumers: self.consumers.as_deref() };
        LimitMatcher { client_ip, classes, limits, rules, hasher }
    }
}
