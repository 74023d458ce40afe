//! How the consumer of a request is identified.

use std::borrow::Cow;
use std::sync::Arc;

use http::HeaderValue;
use http::header::{AUTHORIZATION, HeaderName};

use super::access::{Access, Identity};
use super::key_part::{KeyPart, PartValue, header};
use super::missing::missing_detail;
use super::subject::Subject;
use crate::consumers::{
    Consumer, ConsumerError, CredentialHash, Directory, StoredConsumers, UnknownConsumer,
};
use crate::limiter::Limiter;
use crate::suggest::nearest;
use crate::time::Clock;

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
    /// The consumer of every request, whatever its credential, for tools that explain one.
    pub assumed: Option<Arc<Consumer>>,
}

impl CredentialSource {
    /// Every form a source can take, for messages.
    pub const FORMS: [&'static str; 6] =
        ["header:NAME", "bearer", "cookie:NAME", "query:NAME", "jwt:CLAIM", "tls:subject"];

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
    /// Identifies the consumer of a request.
    pub(super) fn identify(&self, subject: &Subject<'_>) -> Identity {
        let access = subject.route.map_or(&Access::Default, |route| &route.access);
        let recorded = subject.recorded.and_then(|recorded| recorded.consumer.as_ref());
        let found = match (self.assumed.as_ref().or(recorded), self.source.value(subject)) {
            (Some(assumed), _) => Ok(Arc::clone(assumed)),
            (None, PartValue::One(credential)) => self.find(&credential),
            (None, PartValue::Missing) => Err(ConsumerError::Missing),
            (None, PartValue::Several(_)) => Err(ConsumerError::Differing),
        };
        let is_anonymous = access.is_anonymous(self.unknown == UnknownConsumer::Anonymous);
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
    ///
    /// # Errors
    /// A message if there is none.
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

    /// The hash of the credential of a request; none if the request has none, or several that differ.
    #[must_use]
    pub fn credential_hash(&self, subject: &Subject<'_>) -> Option<CredentialHash> {
        match self.source.value(subject) {
            PartValue::One(credential) => Some(CredentialHash::of(&credential)),
            PartValue::Missing | PartValue::Several(_) => None,
        }
    }

    /// Reads the consumer of a request from Redis, if consumers are there.
    pub(super) async fn fetch(&self, subject: &Subject<'_>, limiter: &Limiter) {
        if let (Some(stored), PartValue::One(credential)) = (&self.stored, self.source.value(subject)) {
            stored.fetch(&credential, limiter).await;
        }
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
