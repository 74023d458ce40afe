//! The gate: who is asking, for which route, and against which limits.
//!
//! [`Gate::examine`] reads a request's head and says what it would be charged; it asks nobody and spends
//! nothing, so the server and the tools share it. [`Gate::admit`] then has the limiter decide.

mod candidates;
mod canonical;
mod client_ip;
mod host;
mod keys;
mod limit_rule;
mod method;
mod missing;
pub mod names;
mod path;
mod query;
mod route;
mod rules;
mod subject;
mod table;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use http::header::HeaderName;
use http::{Method, StatusCode};
use smallvec::SmallVec;

use self::host::requested_host;
pub use client_ip::{ClientIp, forwarded_value};
pub use host::{HostPattern, host_of};
pub use keys::{KeyLookup, KeyPart, KeySpec, OnMissing, PartValue};
pub use limit_rule::{Cost, LimitMatch, LimitRule, PolicySource, Tiers, Trust};
pub use method::{OTHER_METHOD, is_method_value};
pub use missing::MissingPart;
pub use path::{NormalPath, PathError, normalize, strip_prefix};
pub use query::{MAX_PARAMETERS, Query};
pub use route::{PathPattern, PatternError, RequestView, Route};
pub use rules::{KeyRule, Match, Networks, Rules};
pub use subject::Subject;
pub use table::{RouteId, RouteTable};

use crate::http1::{RequestHead, is_plainly_coded};
use crate::jwt::{Token, Verifier};
use crate::limit::{Charge, Key, KeyHasher, Policy, PolicyId};
use crate::limiter::{Admission, Limiter, Limits};

/// Everything that decides whether a request may pass, but for the counts themselves. Immutable.
#[derive(Debug)]
pub struct Gate {
    /// The routes.
    pub routes: RouteTable,
    /// How clients are told apart.
    pub client_ip: ClientIp,
    /// What the limits are: first each limit by itself, then the tiers and overrides.
    pub limits: Limits,
    /// How each limit finds its key and what it charges, by [`PolicyId`].
    pub terms: Vec<LimitRule>,
    /// To which limit each of the tiers and overrides belongs, in the order in which they follow the limits.
    pub variants: Vec<PolicyId>,
    /// Limits of a request that matches no route.
    pub default_limits: Vec<PolicyId>,
    /// Makes keys.
    pub hasher: KeyHasher,
    /// Verifies tokens, if there is a `[jwt]`; the keys of a limit may have parts that are claims then.
    pub jwt: Option<Arc<Verifier>>,
}

/// The other end of the connection that a request comes over.
#[derive(Clone, Copy, Debug)]
pub struct ClientIdentity<'a> {
    /// Its address: the client's, or that of a proxy before us.
    pub address: IpAddr,
    /// The subject of the certificate that it has shown, as RFC 4514 writes it; none without TLS or certificate.
    pub tls_subject: Option<&'a str>,
}

impl From<IpAddr> for ClientIdentity<'_> {
    /// Somebody without a certificate.
    fn from(address: IpAddr) -> Self {
        Self { address, tls_subject: None }
    }
}

/// What a request asks for, and where that is.
#[derive(Debug)]
pub struct Located<'a> {
    /// Its path in one spelling.
    pub path: NormalPath<'a>,
    /// The host that it asks for, without port; empty if it names none.
    pub host: Cow<'a, str>,
    /// The route that it matches.
    pub route: Option<RouteId>,
    /// Its query.
    pub query: Query<'a>,
}

/// What a request's head says, and what it would be charged.
#[derive(Debug)]
pub struct RequestPlan<'a> {
    /// Its path in one spelling.
    pub path: NormalPath<'a>,
    /// The host that it asks for, without port; empty if it names none.
    pub host: Cow<'a, str>,
    /// The client's whole address.
    pub client: IpAddr,
    /// The route that it matches.
    pub route: Option<RouteId>,
    /// Its query.
    pub query: Query<'a>,
    /// What its limits charge.
    pub charges: Charges,
    /// The limits that let it off.
    pub exempt: SmallVec<[PolicyId; 2]>,
    /// The key part for the lack of which it is refused. Its other limits are charged all the same.
    pub missing: Option<Box<MissingPart>>,
}

/// What the limits of one request make of its head.
#[derive(Debug, Default)]
struct Demands {
    charges: Charges,
    exempt: SmallVec<[PolicyId; 2]>,
    missing: Option<Box<MissingPart>>,
}

/// The charges of one request.
pub type Charges = SmallVec<[Charge; 4]>;

/// Why a request is refused before any limit is asked.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// Its path can be read in more than one way.
    #[error("{0}")]
    Path(#[from] PathError),
    /// Its path has an encoded slash, and the route does not say that it may.
    #[error("the path has an encoded slash")]
    EncodedSlash,
    /// No host, several, or one that is none (RFC 9112 §3.2).
    #[error("the request must have exactly one valid Host header")]
    Host,
    /// An absolute target of another scheme.
    #[error("only http and https are served")]
    Scheme,
    /// A transfer coding other than chunked: to pass the rest on would change what the body means.
    #[error("the only transfer coding that is understood is chunked")]
    TransferCoding,
    /// A header that no other version could have, or a Content-Length that is no number; over HTTP/1.1 the parser
    /// says so.
    #[error("a header of the request is malformed")]
    Header,
    /// More headers than the listener takes; over HTTP/1.1 the parser says so.
    #[error("the request has too many headers")]
    TooManyHeaders,
    /// `*` with another method than OPTIONS (RFC 9112 §3.2.4).
    #[error("the target * is for OPTIONS alone")]
    Asterisk,
    /// Its method differs from a known one in case alone: some servers would take it for that one.
    #[error("methods are case-sensitive, and this one is in the wrong case")]
    MethodCase,
    /// Its query has more parameters than are read, and a condition or a key reads it.
    #[error("the query has more than {MAX_PARAMETERS} parameters")]
    TooManyParameters,
    /// A header by which one of its limits counts has several values, and the server may read another one than we do.
    #[error("the header {0} has several values that differ")]
    DifferingHeader(HeaderName),
    /// A cookie or query parameter has more values than rules for keys are looked up for.
    #[error("the request has too many different values for {0}")]
    TooManyValues(KeyPart),
    /// CONNECT, which is for forward proxies.
    #[error("CONNECT is not served here")]
    Connect,
    /// It has a longer body than its route lets pass.
    #[error("the request's body is larger than it may be here")]
    TooLarge,
    /// This limit turns its client's address or its key away.
    #[error("this client is blocked")]
    Blocked(PolicyId),
}

impl RequestError {
    /// The status that says so.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Connect => StatusCode::METHOD_NOT_ALLOWED,
            Self::Blocked(_) => StatusCode::FORBIDDEN,
            Self::TooManyHeaders => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            // RFC 9112 §6.1.
            Self::TransferCoding => StatusCode::NOT_IMPLEMENTED,
            Self::Path(_)
            | Self::EncodedSlash
            | Self::Host
            | Self::Header
            | Self::Scheme
            | Self::MethodCase
            | Self::TooManyParameters
            | Self::DifferingHeader(_)
            | Self::TooManyValues(_)
            | Self::Asterisk => StatusCode::BAD_REQUEST,
        }
    }
}

impl Gate {
    /// Reads a request's head: which route it matches and what its limits charge.
    ///
    /// # Errors
    /// A request that must be refused whatever the counts are.
    pub fn examine<'a>(
        &self,
        caller: ClientIdentity<'_>,
        head: &'a RequestHead,
    ) -> Result<RequestPlan<'a>, RequestError> {
        let located = self.locate(head)?;
        let route = located.route.map(|id| self.routes.get(id));
        if route.is_some_and(|route| route.refuses_body(head)) {
            return Err(RequestError::TooLarge);
        }
        let limits = route.map_or(&self.default_limits, |route| &route.limits);
        let subject = self.subject(caller, head, &located);
        let Demands { charges, exempt, missing } = self.demands(limits, &subject)?;
        let client = subject.address;
        let Located { path, host, route, query } = located;
        Ok(RequestPlan { path, host, client, route, query, charges, exempt, missing })
    }

    /// Reads what a request asks for, and which route it matches.
    ///
    /// # Errors
    /// A request that must be refused whatever its limits are.
    pub fn locate<'a>(&self, head: &'a RequestHead) -> Result<Located<'a>, RequestError> {
        if head.method == Method::CONNECT {
            return Err(RequestError::Connect);
        }
        if self.routes.has_method_in_other_case(&head.method) {
            return Err(RequestError::MethodCase);
        }
        if !is_plainly_coded(&head.fields) {
            return Err(RequestError::TransferCoding);
        }
        let path = normalize(head.uri.path())?;
        if path.sent == "*" && head.method != Method::OPTIONS {
            return Err(RequestError::Asterisk);
        }
        let host = requested_host(head)?;
        let query = Query::new(head.uri.query());
        let route = self.routes.find(&host, path.matched(), RequestView { head, query: &query });
        if query.has_too_many_parameters() {
            return Err(RequestError::TooManyParameters);
        }
        let keeps = route.is_some_and(|id| self.routes.get(id).keeps_encoded_slash);
        if path.encoded_slash && !keeps {
            return Err(RequestError::EncodedSlash);
        }
        Ok(Located { path, host, route, query })
    }

    /// What is known of a request whose route is found.
    #[must_use]
    pub fn subject<'a>(
        &'a self,
        caller: ClientIdentity<'a>,
        head: &'a RequestHead,
        located: &'a Located<'_>,
    ) -> Subject<'a> {
        let address = self.client_ip.client(caller.address, &head.fields);
        Subject {
            head,
            query: &located.query,
            host: &located.host,
            path: located.path.matched(),
            peer: caller.address,
            tls_subject: caller.tls_subject,
            address,
            client: self.client_ip.counted(address),
            route: located.route.map(|id| self.routes.get(id)),
            token: self.token(head),
        }
    }

    /// The number by which a key chooses a server: the same for equal keys, on every proxy with this `hash_key`.
    #[must_use]
    pub fn choice(&self, key: &KeySpec, subject: &Subject<'_>) -> Option<u64> {
        let Key(bytes) = key.find(subject, &self.hasher).key()?;
        bytes.first_chunk().map(|first| u64::from_le_bytes(*first))
    }

    /// The token of a request; it is looked at only when a claim is asked for.
    #[must_use]
    pub fn token<'a>(&'a self, head: &'a RequestHead) -> Token<'a> {
        Token::new(self.jwt.as_deref(), &head.fields)
    }

    /// Has the limiter decide what was examined.
    pub fn admit<'a>(
        &'a self,
        examined: &'a RequestPlan<'_>,
        limiter: &'a Limiter,
    ) -> impl Future<Output = Admission> + 'a {
        limiter.decide(&self.limits, &examined.charges)
    }

    /// The limit that a policy belongs to: itself, or that of which it is a tier or an override.
    #[must_use]
    pub fn limit_of(&self, policy: PolicyId) -> PolicyId {
        let variant = (policy.0 as usize).checked_sub(self.terms.len());
        variant.and_then(|place| self.variants.get(place)).copied().unwrap_or(policy)
    }

    /// The limit of this name.
    #[must_use]
    pub fn limit_named(&self, name: &str) -> Option<PolicyId> {
        self.limits().find(|(_, policy)| *policy.name == *name).map(|(limit, _)| limit)
    }

    /// Every limit with its own numbers, in the order of the file.
    pub fn limits(&self) -> impl Iterator<Item = (PolicyId, &Policy)> {
        (0..).map(PolicyId).zip(&self.limits.policies[..self.terms.len()])
    }

    fn terms(&self, limit: PolicyId) -> &LimitRule {
        &self.terms[limit.0 as usize]
    }

    /// What the limits charge, which of them let the request off, and which refuses it because a key part is missing.
    fn demands(&self, limits: &[PolicyId], subject: &Subject<'_>) -> Result<Demands, RequestError> {
        let differing = limits.iter().find_map(|limit| self.differing_header(*limit, subject));
        if let Some(header) = differing {
            return Err(RequestError::DifferingHeader(header.clone()));
        }
        let mut demands = Demands::default();
        let mut keys: SmallVec<[KeyLookup; 4]> = SmallVec::new();
        for (place, &limit) in limits.iter().enumerate() {
            let spec = &self.terms(limit).key;
            // Limits often share a key: hash it once.
            let twin = limits[..place].iter().position(|other| self.terms(*other).key == *spec);
            let found = twin.map_or_else(|| spec.find(subject, &self.hasher), |twin| keys[twin].clone());
            match self.stance(limit, subject, &found) {
                LimitMatch::Charged { charge, .. } => demands.charges.push(charge),
                LimitMatch::Allowed(_) => demands.exempt.push(limit),
                LimitMatch::Skipped => {}
                LimitMatch::Blocked(_) => return Err(RequestError::Blocked(limit)),
                LimitMatch::TooManyValues(part) => return Err(RequestError::TooManyValues(part.clone())),
                LimitMatch::Missing(part) => {
                    let (part, status) = (part.clone(), self.terms(limit).missing_status);
                    let missing = || Box::new(MissingPart { limit, part, status });
                    demands.missing.get_or_insert_with(missing);
                }
            }
            keys.push(found);
        }
        if subject.query.has_too_many_parameters() {
            return Err(RequestError::TooManyParameters);
        }
        Ok(demands)
    }
}
