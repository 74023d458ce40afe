//! JSON Web Key Sets (RFC 7517).

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::Value;

/// The keys of a set that can verify tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Keys(Vec<Key>);

#[derive(Clone, Debug)]
struct Key {
    jwk: Jwk,
    /// The algorithms that it may verify.
    algorithms: Vec<Algorithm>,
    decoding: DecodingKey,
}

/// Why a text is no key set.
#[derive(Debug, thiserror::Error)]
pub enum JwksError {
    /// The text is not JSON.
    #[error("it is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The set has no list of keys.
    #[error("it has no list `keys`")]
    NoList,
}

impl Keys {
    /// The longest text of a set that is read, in bytes.
    pub const MAX_TEXT: usize = 1 << 20;

    /// Parses a set. Keys that can verify none of these algorithms are ignored: a set may have keys for other uses,
    /// and of unknown types (RFC 7517 §5).
    pub fn parse(text: &[u8], allowed: &[Algorithm]) -> Result<Self, JwksError> {
        let mut set: Value = serde_json::from_slice(text)?;
        let Some(Value::Array(entries)) = set.get_mut("keys").map(Value::take) else {
            return Err(JwksError::NoList);
        };
        Ok(Self(entries.into_iter().filter_map(|entry| Key::new(entry, allowed)).collect()))
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set has no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The key with this `kid`, or else the only candidate: a key without `kid` fits every token, and a token without
    /// `kid` every key. Keys are never tried in turn, so that a token costs one signature check at most.
    pub(super) fn find(&self, kid: Option<&str>, algorithm: Algorithm) -> Option<&DecodingKey> {
        let fitting = || self.0.iter().filter(|key| key.algorithms.contains(&algorithm));
        if let Some(key) = fitting().find(|key| kid.is_some() && key.kid() == kid) {
            return Some(&key.decoding);
        }
        let mut others = fitting().filter(|key| kid.is_none() || key.kid().is_none());
        let only = others.next()?;
        others.next().is_none().then_some(&only.decoding)
    }
}

impl Key {
    fn new(entry: Value, allowed: &[Algorithm]) -> Option<Self> {
        let jwk: Jwk = serde_json::from_value(entry).ok()?;
        let may_verify =
            jwk.common.public_key_use.as_ref().is_none_or(|usage| *usage == PublicKeyUse::Signature)
                && jwk
                    .common
                    .key_operations
                    .as_ref()
                    .is_none_or(|operations| operations.contains(&KeyOperations::Verify));
        let named = |algorithm: Algorithm| {
            jwk.common.key_algorithm.is_none_or(|named| Algorithm::try_from(named) == Ok(algorithm))
        };
        let algorithms: Vec<Algorithm> = algorithms(&jwk.algorithm)
            .iter()
            .copied()
            .filter(|algorithm| allowed.contains(algorithm) && named(*algorithm))
            .collect();
        if algorithms.is_empty() || !may_verify {
            return None;
        }
        let decoding = DecodingKey::from_jwk(&jwk).ok()?;
        Some(Self { jwk, algorithms, decoding })
    }

    fn kid(&self) -> Option<&str> {
        self.jwk.common.key_id.as_deref()
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.jwk == other.jwk
    }
}

/// The algorithms that a key of this type can verify. None for a shared secret: it could sign as well.
fn algorithms(key: &AlgorithmParameters) -> &'static [Algorithm] {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    match key {
        AlgorithmParameters::RSA(_) => &[RS256, RS384, RS512, PS256, PS384, PS512],
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => &[ES256],
            EllipticCurve::P384 => &[ES384],
            _ => &[],
        },
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => &[EdDSA],
        _ => &[],
    }
}
