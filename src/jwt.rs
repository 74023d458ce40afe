//! Tokens: which JSON Web Token (RFC 7519) is to be believed, and what it says.
//!
//! A [`Verifier`] answers from one set of keys, and remembers what it has made of each token. Where the keys come
//! from a URL, a [`Refresher`] fetches them in the background: no request ever waits for them.

mod cache;
mod claims;
mod fetch;
mod keys;
mod refresh;

use std::cell::OnceCell;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use http::header::{AUTHORIZATION, HeaderName};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Validation, decode, decode_header};
use tokio::sync::Notify;

pub use claims::Claims;
pub use fetch::{Endpoint, EndpointError, FetchError};
pub use jsonwebtoken::Algorithm;
pub use keys::{JwksError, Keys};
pub use refresh::Refresher;

use self::cache::Cache;
use crate::http1::Fields;
use crate::time::Clock;

/// The longest token that is looked at, in bytes.
pub const MAX_TOKEN: usize = 8 * 1024;

/// The algorithms that can be allowed. Those with a shared secret (`HS256` and the like) are not among them:
/// who can verify with one can sign as well.
pub const ALGORITHMS: [(&str, Algorithm); 9] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
];

/// Which tokens are believed.
#[derive(Clone, Debug)]
pub struct JwtSpec {
    /// Whose signature counts.
    pub source: KeySource,
    /// How a token may be signed; at least one, all from [`ALGORITHMS`].
    pub algorithms: Vec<Algorithm>,
    /// The issuer (`iss`) that a token must name, if any.
    pub issuer: Option<Box<str>>,
    /// The audience (`aud`) that a token must be for, if any.
    pub audience: Option<Box<str>>,
    /// The header that carries the token.
    pub header: HeaderName,
}

/// Where keys come from.
#[derive(Clone, Debug)]
pub enum KeySource {
    /// They were read from a file.
    File(Keys),
    /// They are fetched.
    Url(Endpoint),
}

/// Why there is no token to be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// No token.
    #[error("the request has no token")]
    Absent,
    /// Several values of the token's header, which differ.
    #[error("the request has several tokens that differ")]
    Differing,
    /// Longer than [`MAX_TOKEN`].
    #[error("the token has more than {MAX_TOKEN} bytes")]
    TooLong,
    /// No JWT with a signature, or one that is wrong in itself.
    #[error("this is no signed token")]
    Malformed,
    /// It must not be accepted by who does not know the extensions that it names (RFC 7515 §4.1.11).
    #[error("the token needs extensions that are not known here")]
    Critical,
    /// Signed in a way that is not allowed.
    #[error("the token's algorithm is not allowed")]
    Algorithm,
    /// No keys have been fetched yet.
    #[error("the keys have not been fetched")]
    NoKeys,
    /// No key has the `kid` that it names, and fits its algorithm.
    #[error("no key fits the token's `kid` and algorithm")]
    UnknownKey,
    /// Forged, or changed on the way.
    #[error("the token's signature is wrong")]
    Signature,
    /// From another issuer.
    #[error("the token is from another issuer")]
    Issuer,
    /// For another audience.
    #[error("the token is for another audience")]
    Audience,
    /// Past its `exp`.
    #[error("the token has expired")]
    Expired,
    /// Before its `nbf`.
    #[error("the token is not valid yet")]
    NotYet,
}

/// Says which tokens are to be believed. Workers share it.
#[derive(Debug)]
pub struct Verifier {
    spec: JwtSpec,
    /// None while no keys were ever fetched.
    known: ArcSwapOption<Known>,
    /// Asks for a look whether there are new keys.
    wanted: Notify,
    clock: Clock,
}

/// A set of keys, and what it made of tokens: new keys begin with an empty memory.
#[derive(Debug)]
struct Known {
    keys: Keys,
    verdicts: Cache,
}

/// What is made of a token, whatever the time is.
type Verdict = Result<Arc<Claims>, TokenError>;

/// The token of one request; it is looked at when its claims are first asked for.
#[derive(Debug)]
pub struct Token<'a> {
    verifier: Option<&'a Verifier>,
    fields: &'a Fields,
    verdict: OnceCell<Verdict>,
}

impl<'a> Token<'a> {
    /// The token among these fields. Without a verifier there is none.
    #[must_use]
    pub fn new(verifier: Option<&'a Verifier>, fields: &'a Fields) -> Self {
        Self { verifier, fields, verdict: OnceCell::new() }
    }

    /// The header that has several tokens which differ, if it has.
    #[must_use]
    pub fn differing_header(&self) -> Option<&'a HeaderName> {
        let is_differing = matches!(self.claims(), Err(TokenError::Differing));
        self.verifier.filter(|_| is_differing).map(|verifier| &verifier.spec.header)
    }

    /// What the token says.
    ///
    /// # Errors
    /// When it is not to be believed.
    pub fn claims(&self) -> Result<&Claims, TokenError> {
        let look = || {
            let verdict = self.verifier.ok_or(TokenError::Absent)?.claims(self.fields);
            if let Err(error) = &verdict {
                tracing::debug!("no token is believed: {error}");
            }
            verdict
        };
        self.verdict.get_or_init(look).as_deref().map_err(|error| *error)
    }
}

impl Verifier {
    /// A verifier; it has no keys yet if they are to be fetched.
    #[must_use]
    pub fn new(spec: JwtSpec, clock: Clock) -> Self {
        let known = match &spec.source {
            KeySource::File(keys) => Some(Arc::new(Known::new(keys.clone()))),
            KeySource::Url(_) => None,
        };
        Self { spec, known: ArcSwapOption::new(known), wanted: Notify::new(), clock }
    }

    /// What it was made of.
    #[must_use]
    pub fn spec(&self) -> &JwtSpec {
        &self.spec
    }

    /// The clock that it decides by.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// What the token among these fields says.
    ///
    /// # Errors
    /// When there is none that is to be believed.
    pub fn claims(&self, fields: &Fields) -> Result<Arc<Claims>, TokenError> {
        let token = self.token(fields)?;
        if token.len() > MAX_TOKEN {
            return Err(TokenError::TooLong);
        }
        let known = self.known.load();
        let claims = match &*known {
            Some(known) => known.verdict(token, &self.spec),
            None => Err(TokenError::NoKeys),
        };
        if let Err(TokenError::UnknownKey) = claims {
            self.wanted.notify_one();
        }
        let claims = claims?;
        claims.check_times(self.clock.now())?;
        Ok(claims)
    }

    /// The token itself. Several headers must agree: a server may read another one than we do.
    fn token<'f>(&self, fields: &'f Fields) -> Result<&'f [u8], TokenError> {
        let mut tokens = fields.get_all(&self.spec.header).map(|value| self.bare(value));
        let first = tokens.next().flatten();
        if tokens.any(|other| other != first) {
            return Err(TokenError::Differing);
        }
        first.ok_or(TokenError::Absent)
    }

    /// A token without the scheme before it (RFC 6750 §2.1). Only Authorization must have one: it may carry other
    /// credentials.
    fn bare<'h>(&self, value: &'h [u8]) -> Option<&'h [u8]> {
        let value = value.trim_ascii();
        let scheme = b"bearer";
        match value.split_at_checked(scheme.len()) {
            Some((before, [b' ' | b'\t', token @ ..])) if before.eq_ignore_ascii_case(scheme) => {
                Some(token.trim_ascii_start())
            }
            _ => (self.spec.header != AUTHORIZATION).then_some(value),
        }
    }

    /// Takes over keys that were fetched; says whether they are new.
    fn take(&self, keys: Keys) -> bool {
        let is_new = self.known.load().as_ref().is_none_or(|known| known.keys != keys);
        if is_new {
            self.known.store(Some(Arc::new(Known::new(keys))));
        }
        is_new
    }

    fn has_keys(&self) -> bool {
        self.known.load().is_some()
    }
}

impl Known {
    fn new(keys: Keys) -> Self {
        Self { keys, verdicts: Cache::default() }
    }

    fn verdict(&self, token: &[u8], spec: &JwtSpec) -> Verdict {
        let id = *blake3::hash(token).as_bytes();
        if let Some(verdict) = self.verdicts.get(&id) {
            return verdict;
        }
        let verdict = verify(token, &self.keys, spec);
        // An unknown key is quickly found out, and asks for new keys each time.
        if !matches!(verdict, Err(TokenError::UnknownKey)) {
            self.verdicts.put(id, verdict.clone());
        }
        verdict
    }
}

/// Everything about a token but its times. One signature is checked at most, whatever the token names.
fn verify(token: &[u8], keys: &Keys, spec: &JwtSpec) -> Verdict {
    let header = decode_header(token).map_err(|_| TokenError::Malformed)?;
    if header.crit.is_some() {
        return Err(TokenError::Critical);
    }
    if !spec.algorithms.contains(&header.alg) {
        return Err(TokenError::Algorithm);
    }
    let key = keys.find(header.kid.as_deref(), header.alg).ok_or(TokenError::UnknownKey)?;
    let mut validation = Validation::new(header.alg);
    // Times are ours: only `time` reads clocks, and they pass while a verdict is remembered.
    validation.validate_exp = false;
    validation.validate_aud = spec.audience.is_some();
    let mut required = Vec::new();
    if let Some(issuer) = &spec.issuer {
        validation.set_issuer(&[issuer]);
        required.push("iss");
    }
    if let Some(audience) = &spec.audience {
        validation.set_audience(&[audience]);
        required.push("aud");
    }
    validation.set_required_spec_claims(&required);
    let token = decode(token, key, &validation).map_err(|error| TokenError::of(error.kind()))?;
    Claims::new(token.claims).map(Arc::new)
}

impl TokenError {
    fn of(error: &ErrorKind) -> Self {
        match error {
            ErrorKind::InvalidSignature => Self::Signature,
            ErrorKind::InvalidIssuer => Self::Issuer,
            ErrorKind::InvalidAudience => Self::Audience,
            ErrorKind::MissingRequiredClaim(claim) if claim == "iss" => Self::Issuer,
            ErrorKind::MissingRequiredClaim(claim) if claim == "aud" => Self::Audience,
            _ => Self::Malformed,
        }
    }
}
