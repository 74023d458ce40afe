//! The settings of `[jwt]`.

use http::header::HeaderName;
use jsonwebtoken::Algorithm;

use super::fetch::KeySetUrl;
use super::keys::Keys;

/// The longest token that is verified, in bytes.
pub const MAX_TOKEN: usize = 8 * 1024;

/// The algorithms that can be allowed. Those with a shared secret (`HS256` and the like) are not among them:
/// a secret that can verify can sign as well.
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

/// Which tokens are accepted, and where they are.
#[derive(Clone, Debug)]
pub struct JwtSpec {
    /// The keys that verify signatures.
    pub source: KeySource,
    /// The allowed algorithms; at least one, all from [`ALGORITHMS`].
    pub algorithms: Vec<Algorithm>,
    /// The required issuer (`iss`), if any.
    pub issuer: Option<Box<str>>,
    /// The required audience (`aud`), if any.
    pub audience: Option<Box<str>>,
    /// The header with the token.
    pub header: HeaderName,
}

/// Where keys come from.
#[derive(Clone, Debug)]
pub enum KeySource {
    /// Keys that were read from a file.
    File(Keys),
    /// The URL to fetch them from.
    Url(KeySetUrl),
}
