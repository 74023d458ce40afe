//! JSON Web Tokens (RFC 7519): verification, and claims.
//!
//! A [`Verifier`] has one set of keys, and caches the verdict on each token. Where the keys come from a URL, a
//! [`Refresher`] fetches them in the background: no request ever waits for them.

mod cache;
mod claims;
mod error;
mod fetch;
mod keys;
mod refresh;
mod spec;
mod token;
mod verifier;

pub use claims::Claims;
pub use error::TokenError;
pub use fetch::{FetchError, KeySetUrl, KeySetUrlError};
pub use jsonwebtoken::Algorithm;
pub use keys::{JwksError, Keys};
pub use refresh::Refresher;
pub use spec::{ALGORITHMS, JwtSpec, KeySource, MAX_TOKEN};
pub use token::Token;
pub use verifier::Verifier;
