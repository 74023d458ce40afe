//! Who issues tokens.

use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use rcgen::KeyPair;
use serde_json::{Value, json};

/// Somebody with a private key of its own.
pub struct Issuer {
    key: EncodingKey,
    algorithm: Algorithm,
    kid: Option<String>,
    jwk: Value,
}

impl Issuer {
    /// A new key, with a name. All RSA keys of a run are one: they take long to make.
    pub fn new(algorithm: Algorithm, kid: &str) -> Self {
        let pair = |kind| KeyPair::generate_for(kind).unwrap();
        let key = match algorithm {
            Algorithm::EdDSA => return Self::edwards(&pair(&rcgen::PKCS_ED25519), kid),
            Algorithm::ES256 => {
                EncodingKey::from_ec_der(&pair(&rcgen::PKCS_ECDSA_P256_SHA256).serialize_der())
            }
            Algorithm::ES384 => {
                EncodingKey::from_ec_der(&pair(&rcgen::PKCS_ECDSA_P384_SHA384).serialize_der())
            }
            _ => EncodingKey::from_rsa_der(rsa()),
        };
        let jwk = serde_json::to_value(Jwk::from_encoding_key(&key, algorithm).unwrap()).unwrap();
        Self { key, algorithm, kid: Some(kid.to_owned()), jwk }
    }

    fn edwards(pair: &KeyPair, kid: &str) -> Self {
        let x = URL_SAFE_NO_PAD.encode(pair.public_key_raw());
        let key = EncodingKey::from_ed_der(&pair.serialize_der());
        let jwk = json!({ "kty": "OKP", "crv": "Ed25519", "x": x });
        Self { key, algorithm: Algorithm::EdDSA, kid: Some(kid.to_owned()), jwk }
    }

    /// The same without a name.
    pub fn nameless(algorithm: Algorithm) -> Self {
        Self { kid: None, ..Self::new(algorithm, "") }
    }

    /// A token with these claims.
    pub fn token(&self, claims: &Value) -> String {
        self.token_of(claims, &self.header())
    }

    /// The header of its tokens.
    pub fn header(&self) -> Header {
        Header { kid: self.kid.clone(), ..Header::new(self.algorithm) }
    }

    /// A token with another header than it should have.
    pub fn token_of(&self, claims: &Value, header: &Header) -> String {
        jsonwebtoken::encode(header, claims, &self.key).unwrap()
    }

    /// What it publishes of its key.
    pub fn jwk(&self) -> Value {
        let mut jwk = self.jwk.clone();
        if let Some(kid) = &self.kid {
            jwk["kid"] = json!(kid);
        }
        jwk
    }
}

/// The public keys of all of them.
pub fn jwks(issuers: &[&Issuer]) -> String {
    json!({ "keys": issuers.iter().map(|issuer| issuer.jwk()).collect::<Vec<_>>() }).to_string()
}

/// An RSA key as PKCS #1 has it: PKCS #8 puts 26 bytes before a key of 2,048 bits.
fn rsa() -> &'static [u8] {
    static KEY: OnceLock<Vec<u8>> = OnceLock::new();
    KEY.get_or_init(|| KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap().serialize_der()[26..].to_vec())
}
