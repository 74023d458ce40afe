//! How the consumer of a request is identified.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::future::try_join_all;
use http::HeaderValue;
use http::header::{AUTHORIZATION, HeaderName};

use super::access::{Access, Identity};
use super::error::missing_detail;
use super::key_part::{KeyPart, PartValue, header};
use super::subject::Subject;
use crate::consumers::{
    Consumer, ConsumerError, CredentialHash, Directory, StoredConsumers, UnknownConsumer,
};
use crate::limiter::Limiter;
use crate::overload::Class;
use crate::suggest::nearest;
use crate::time::Clock;

/// The most differing cookies or query parameters that are looked up. A client can guess as many credentials with a request.
const MAX_CREDENTIALS: usize = 4;

/// Where the credential of a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSource {
    /// A part of the request, such as `header:x-api-key`.
    Part(KeyPart),
    /// `bearer`: the token of the Authorization header (RFC 6750 §2.1).
    Bearer,
}

/// How the consumer of a request is identified.
#[derive(Debug)]
pub struct ConsumerRules {
    /// Where the credential is.
    pub source: CredentialSource,
    /// What is done with a request whose credential belongs to no consumer.
    pub unknown: UnknownConsumer,
    /// The consumers of the file.
    pub directory: Directory,
    /// The consumers in Redis, if they are used.
    pub stored: Option<Arc<StoredConsumers>>,
    /// The clock that `expires` is compared with.
    pub clock: Clock,
    /// The classes of tiers under overload.
    pub priorities: Box<[(Box<str>, Class)]>,
}

impl CredentialSource {
    /// Every form a source can take, for messages.
    pub const FORMS: [&'static str; 7] =
        ["header:NAME", "bearer", "cookie:NAME", "query:NAME", "jwt:CLAIM", "tls:subject", "tls:san"];

    /// Parses a source as the configuration writes it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "bearer" {
            return Some(Self::Bearer);
        }
        let part = KeyPart::parse(text)?;
        let is_credential = matches!(
            part,
            KeyPart::Header(_)
                | KeyPart::Cookie(_)
                | KeyPart::Query(_)
                | KeyPart::Jwt(_)
                | KeyPart::TlsSubject
                | KeyPart::TlsSan
        );
        is_credential.then_some(Self::Part(part))
    }

    /// The header that holds the credential, if one does.
    #[must_use]
    pub fn header(&self) -> Option<&HeaderName> {
        match self {
            Self::Bearer => Some(&AUTHORIZATION),
            Self::Part(KeyPart::Header(name)) => Some(name),
            Self::Part(_) => None,
        }
    }

    /// The challenge of a 401 (RFC 9110 §11.6.1); there is no registered scheme for API keys elsewhere.
    #[must_use]
    pub fn challenge(&self) -> HeaderValue {
        let is_token = matches!(self, Self::Part(KeyPart::Jwt(_))) || self.header() == Some(&AUTHORIZATION);
        HeaderValue::from_static(if is_token { "Bearer" } else { "ApiKey" })
    }

    /// The `detail` of the response to a request without a credential.
    #[must_use]
    pub fn missing_detail(&self) -> String {
        match self {
            Self::Bearer => "the request needs a Bearer token".to_owned(),
            Self::Part(part) => missing_detail(part),
        }
    }

    /// Whether so many differing credentials are looked up. Servers keep one value of a header or token, or join them; cookies
    /// of several paths have one name.
    fn looks_up(&self, count: usize) -> bool {
        matches!(self, Self::Part(KeyPart::Cookie(_) | KeyPart::Query(_))) && count <= MAX_CREDENTIALS
    }

    fn value<'a>(&self, subject: &Subject<'a>) -> PartValue<'a> {
        match self {
            Self::Part(part) => part.value_or_recorded(subject),
            Self::Bearer => match header(subject.head, &AUTHORIZATION) {
                // Its canonical form has the scheme in lower case and one space.
                PartValue::One(value) => match value.strip_prefix(b"bearer ") {
                    Some(token) => PartValue::One(Cow::Owned(token.to_vec())),
                    None => PartValue::Missing,
                },
                other => other,
            },
        }
    }
}

impl ConsumerRules {
    /// The class of a consumer's requests under overload, if its tier has one.
    #[must_use]
    pub fn priority(&self, consumer: &Consumer) -> Option<Class> {
        let tier = consumer.tier.as_deref()?;
        self.priorities.iter().find(|(known, _)| **known == *tier).map(|(_, class)| *class)
    }

    /// Identifies the consumer of a request.
    pub(super) fn identify(&self, subject: &Subject<'_>) -> Identity {
        let access = subject.route.map_or(&Access::Default, |route| &route.access);
        let recorded = subject.recorded.and_then(|recorded| recorded.consumer.as_ref());
        let mut is_anonymous = access.is_anonymous(self.unknown == UnknownConsumer::Anonymous);
        let found = match (recorded, self.source.value(subject)) {
            (Some(recorded), _) => Ok(Arc::clone(recorded)),
            (None, PartValue::One(credential)) => self.find(&credential),
            (None, PartValue::Missing) => Err(ConsumerError::Missing),
            (None, PartValue::Several(credentials)) => {
                // Otherwise a consumer could hide its credential behind another one.
                is_anonymous = false;
                self.find_among(&credentials)
            }
        };
        match found {
            Ok(consumer) => match consumer.check(&self.clock).and_then(|()| access.check(&consumer)) {
                // As a credential that never was valid.
                Err(ConsumerError::Expired) if is_anonymous => Identity::default(),
                checked => Identity { error: checked.err(), ..consumer.into() },
            },
            // Whether it has a consumer is known after the record is read.
            Err(ConsumerError::NotFetched) => ConsumerError::NotFetched.into(),
            Err(_) if is_anonymous => Identity::default(),
            Err(error) => error.into(),
        }
    }

    /// The consumer of this name in the file.
    pub fn named(&self, name: &str) -> Result<&Arc<Consumer>, String> {
        self.directory.named(name).ok_or_else(|| {
            let names = self.directory.consumers().map(|consumer| &*consumer.name);
            match nearest(name, names) {
                Some(near) => format!("unknown consumer `{name}`; did you mean `{near}`?"),
                None => format!("unknown consumer `{name}`"),
            }
        })
    }

    fn find(&self, credential: &[u8]) -> Result<Arc<Consumer>, ConsumerError> {
        if let Some(consumer) = self.directory.find(credential) {
            return Ok(consumer);
        }
        self.stored.as_ref().map_or(Err(ConsumerError::Unknown), |stored| stored.find(credential))
    }

    /// The consumer of several credentials that differ, of which the server may read any: one that is blocked, or the only one
    /// that is known.
    fn find_among(&self, credentials: &[Cow<'_, [u8]>]) -> Result<Arc<Consumer>, ConsumerError> {
        if !self.source.looks_up(credentials.len()) {
            return Err(ConsumerError::Differing);
        }
        let found: Vec<_> = credentials.iter().map(|credential| self.find(credential)).collect();
        let consumers = || found.iter().flatten();
        if let Some(blocked) = consumers().find(|consumer| consumer.is_blocked) {
            return Ok(Arc::clone(blocked));
        }
        let is_undecided = |error: &&ConsumerError| **error != ConsumerError::Unknown;
        if let Some(error) = found.iter().filter_map(|found| found.as_ref().err()).find(is_undecided) {
            return Err(*error);
        }
        // An expired credential is as one that never was valid.
        let mut valid = consumers().filter(|consumer| consumer.check(&self.clock).is_ok());
        match valid.next() {
            Some(first) if valid.all(|other| other.name == first.name) => Ok(Arc::clone(first)),
            _ => Err(ConsumerError::Ambiguous),
        }
    }

    /// Takes over what earlier rules have read from Redis, so that it stays known, also while Redis is unavailable; unless it
    /// is cached for another time now.
    pub fn inherit_stored(&mut self, last: Option<&Self>) {
        let last = last.and_then(|last| last.stored.as_ref());
        if let (Some(stored), Some(last)) = (&mut self.stored, last)
            && stored.lifetime() == last.lifetime()
        {
            *stored = Arc::clone(last);
        }
    }

    /// The credentials of a request whose consumers have to be read from Redis.
    fn not_fetched<'a>(&self, subject: &Subject<'a>) -> Vec<Cow<'a, [u8]>> {
        let mut credentials = self.source.value(subject).all();
        if credentials.len() > 1 && !self.source.looks_up(credentials.len()) {
            return Vec::new();
        }
        credentials.retain(|credential| self.find(credential) == Err(ConsumerError::NotFetched));
        credentials
    }

    /// The hashes of the credentials of a request whose consumers have to be read from Redis.
    #[must_use]
    pub fn hashes_to_fetch(&self, subject: &Subject<'_>) -> Vec<CredentialHash> {
        self.not_fetched(subject).iter().map(|credential| CredentialHash::of(credential)).collect()
    }

    /// Reads the consumers of a request from Redis, if consumers are there. Returns why one that still is not known is not.
    pub(super) async fn fetch(&self, subject: &Subject<'_>, limiter: &Limiter) -> ConsumerError {
        let Some(stored) = &self.stored else { return ConsumerError::Unavailable };
        let credentials = self.not_fetched(subject);
        let fetches = credentials.iter().map(|one| stored.fetch(one, subject.client, limiter));
        try_join_all(fetches).await.err().unwrap_or(ConsumerError::Unavailable)
    }
}

impl std::fmt::Display for CredentialSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Part(part) => part.fmt(f),
            Self::Bearer => f.write_str("bearer"),
        }
    }
}
