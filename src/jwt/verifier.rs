//! Verifies tokens with the current keys, and caches the verdicts: a signature check takes longer than all the rest of a request.

use std::cell::OnceCell;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use http::header::{AUTHORIZATION, HeaderName};
use jsonwebtoken::{Validation, decode, decode_header};
use tokio::sync::Notify;

use super::claims::Claims;
use super::error::TokenError;
use super::keys::Keys;
use super::spec::{JwtSpec, KeySource, MAX_TOKEN};
use crate::generations::Generations;
use crate::http1::Fields;
use crate::sharded::Sharded;
use crate::time::Clock;

/// Verifies tokens with one set of keys, and caches the verdicts. Shared by all workers.
#[derive(Debug)]
pub struct Verifier {
    spec: JwtSpec,
    /// None until the first keys are fetched.
    current: ArcSwapOption<KeySet>,
    /// Notified when a token has a key that is not known, so that the keys are fetched again.
    unknown_key: Notify,
    clock: Clock,
}

/// A set of keys and the verdicts made with it, so that new keys start with an empty cache.
#[derive(Debug)]
struct KeySet {
    keys: Keys,
    verdicts: TokenCache,
}

impl Verifier {
    /// A verifier; without keys at first if they have to be fetched.
    #[must_use]
    pub fn new(spec: JwtSpec, clock: Clock) -> Self {
        let current = match &spec.source {
            KeySource::File(keys) => Some(Arc::new(KeySet::new(keys.clone()))),
            KeySource::Url(_) => None,
        };
        Self { spec, current: ArcSwapOption::new(current), unknown_key: Notify::new(), clock }
    }

    /// The settings.
    #[must_use]
    pub fn spec(&self) -> &JwtSpec {
        &self.spec
    }

    /// The clock that `exp` and `nbf` are compared with.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The claims of the token in these fields.
    pub fn claims(&self, fields: &Fields) -> Result<Arc<Claims>, TokenError> {
        let token = self.token(fields)?;
        if token.len() > MAX_TOKEN {
            return Err(TokenError::TooLong);
        }
        let keys = self.current.load();
        let claims = match &*keys {
            Some(keys) => keys.verdict(token, &self.spec),
            None => Err(TokenError::NoKeys),
        };
        if let Err(TokenError::UnknownKey) = claims {
            self.unknown_key.notify_one();
        }
        let claims = claims?;
        claims.check_times(self.clock.now())?;
        Ok(claims)
    }

    /// The token itself. Several values must be equal: a server may read another one than we do.
    fn token<'f>(&self, fields: &'f Fields) -> Result<&'f [u8], TokenError> {
        let mut tokens = fields.get_all(&self.spec.header).map(|value| self.without_scheme(value));
        let first = tokens.next().flatten();
        if tokens.any(|other| other != first) {
            return Err(TokenError::Differing);
        }
        first.ok_or(TokenError::Absent)
    }

    /// A token without its scheme (RFC 6750 §2.1). Only Authorization must have one, since it may have other credentials.
    fn without_scheme<'h>(&self, value: &'h [u8]) -> Option<&'h [u8]> {
        let value = value.trim_ascii();
        let scheme = b"bearer";
        match value.split_at_checked(scheme.len()) {
            Some((before, [b' ' | b'\t', token @ ..])) if before.eq_ignore_ascii_case(scheme) => {
                Some(token.trim_ascii_start())
            }
            _ => (self.spec.header != AUTHORIZATION).then_some(value),
        }
    }

    /// Replaces the keys, and returns whether they differ from the previous ones.
    pub(super) fn replace_keys(&self, keys: Keys) -> bool {
        let is_new = self.current.load().as_ref().is_none_or(|current| current.keys != keys);
        if is_new {
            self.current.store(Some(Arc::new(KeySet::new(keys))));
        }
        is_new
    }

    pub(super) fn has_keys(&self) -> bool {
        self.current.load().is_some()
    }

    /// Waits until a token has a key that is not known.
    pub(super) async fn unknown_key(&self) {
        self.unknown_key.notified().await;
    }
}

impl KeySet {
    fn new(keys: Keys) -> Self {
        Self { keys, verdicts: TokenCache::default() }
    }

    fn verdict(&self, token: &[u8], spec: &JwtSpec) -> Verification {
        let id = *blake3::hash(token).as_bytes();
        if let Some(verdict) = self.verdicts.get(&id) {
            return verdict;
        }
        let verdict = verify(token, &self.keys, spec);
        // Not cached: finding no key is cheap, and each such token must request new keys.
        if !matches!(verdict, Err(TokenError::UnknownKey)) {
            self.verdicts.put(id, verdict.clone());
        }
        verdict
    }
}

/// Verifies everything about a token but its times. At most one signature is checked, whatever the token names.
fn verify(token: &[u8], keys: &Keys, spec: &JwtSpec) -> Verification {
    let header = decode_header(token).map_err(|_| TokenError::Malformed)?;
    if header.crit.is_some() {
        return Err(TokenError::Critical);
    }
    if !spec.algorithms.contains(&header.alg) {
        return Err(TokenError::Algorithm);
    }
    let key = keys.find(header.kid.as_deref(), header.alg).ok_or(TokenError::UnknownKey)?;
    let mut validation = Validation::new(header.alg);
    // `Claims::check_times` does it: only `time` reads clocks, and a token can expire while its verdict is cached.
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

/// Locks; so many that workers hardly ever contend for one.
const SHARDS: usize = 64;
/// Entries of each kind and generation in a shard: 16,384 tokens of each kind in all.
const GENERATION: usize = 128;

/// The result of verifying a token, but for its times (`exp`, `nbf`).
type Verification = Result<Arc<Claims>, TokenError>;

/// The hash of a token.
type TokenId = [u8; 32];

/// Verdicts by token, bounded in number.
#[derive(Debug, Default)]
struct TokenCache(Sharded<TokenShard, SHARDS>);

/// Valid and invalid tokens have separate bounds, so that a flood of invalid ones evicts no valid one.
#[derive(Debug, Default)]
struct TokenShard {
    valid: Generations<TokenId, Arc<Claims>, GENERATION>,
    invalid: Generations<TokenId, TokenError, GENERATION>,
}

impl TokenCache {
    pub fn get(&self, id: &TokenId) -> Option<Verification> {
        let mut shard = self.0.lock(id);
        shard.valid.get(id).map(Ok).or_else(|| shard.invalid.get(id).map(Err))
    }

    pub fn put(&self, id: TokenId, verdict: Verification) {
        let mut shard = self.0.lock(&id);
        match verdict {
            Ok(claims) => shard.valid.put(id, claims),
            Err(error) => shard.invalid.put(id, error),
        }
    }
}

/// The token of one request, verified when its claims are first read.
#[derive(Debug)]
pub struct Token<'a> {
    verifier: Option<&'a Verifier>,
    fields: &'a Fields,
    verdict: OnceCell<Verification>,
}

impl<'a> Token<'a> {
    /// The token in these fields. Without a verifier there is none.
    #[must_use]
    pub fn new(verifier: Option<&'a Verifier>, fields: &'a Fields) -> Self {
        Self { verifier, fields, verdict: OnceCell::new() }
    }

    /// The token's header, if it has several values that differ.
    #[must_use]
    pub fn differing_header(&self) -> Option<&'a HeaderName> {
        let is_differing = matches!(self.claims(), Err(TokenError::Differing));
        self.verifier.filter(|_| is_differing).map(|verifier| &verifier.spec().header)
    }

    /// The claims of the token.
    pub fn claims(&self) -> Result<&Claims, TokenError> {
        let verify = || {
            let verdict = self.verifier.ok_or(TokenError::Absent)?.claims(self.fields);
            if let Err(error) = &verdict {
                tracing::debug!("the request has no valid token: {error}");
            }
            verdict
        };
        self.verdict.get_or_init(verify).as_deref().map_err(|error| *error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> TokenId {
        *blake3::hash(&number.to_le_bytes()).as_bytes()
    }

    #[test]
    fn a_flood_of_invalid_tokens_is_bounded_and_evicts_no_valid_one() {
        let cache = TokenCache::default();
        let valid = Arc::new(Claims::new(serde_json::Map::default()).unwrap());
        cache.put(id(0), Ok(Arc::clone(&valid)));
        for number in 1..100_000 {
            cache.put(id(number), Err(TokenError::Signature));
        }
        assert_eq!(cache.get(&id(0)), Some(Ok(valid)));
        assert_eq!(cache.get(&id(99_999)), Some(Err(TokenError::Signature)));
        assert_eq!(cache.get(&id(1)), None);
        let kept = cache.0.lock_each().map(|shard| shard.invalid.len());
        assert!(kept.sum::<usize>() <= 2 * SHARDS * GENERATION);
    }
}
