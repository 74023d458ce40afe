//! JSON Web Tokens (RFC 7519): verification, and claims.
//!
//! A [`Verifier`] has one set of keys, and caches the verdict on each token. Where the keys come from a URL, a
//! [`Refresher`] fetches them in the background: no request ever waits for them.
//!
//! `gate` verifies a token when the first limit of the request needs a claim (`jwt::Token`), and no request waits for keys. The
//! result of `jwt::Verifier` depends on token and key set only; times are checked for each request. So it is cached in the key
//! set (`jwt::verifier`), and dropped with it: a worker that still verifies with old keys can't put a result into the new set.
//! Valid and invalid tokens are cached separately, so a flood of forged tokens evicts no valid one. A token costs at most one
//! signature check: keys are found by `kid` and algorithm, never by trying.

mod claims;
mod error;
mod fetch;
mod keys;
mod refresh;
mod spec;
mod verifier;

pub use claims::Claims;
pub use error::TokenError;
pub use fetch::{FetchError, KeySetUrl, KeySetUrlError};
pub use jsonwebtoken::Algorithm;
pub use keys::{JwksError, Keys};
pub use refresh::Refresher;
pub use spec::{ALGORITHMS, JwtSpec, KeySource, MAX_TOKEN};
pub use verifier::{Token, Verifier};
