//! Why a request has no valid token.

use jsonwebtoken::errors::ErrorKind;

use super::spec::MAX_TOKEN;

/// Why a request has no valid token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The request has no token.
    #[error("the request has no token")]
    Absent,
    /// The token's header has several values that differ.
    #[error("the request has several tokens that differ")]
    Differing,
    /// Longer than [`MAX_TOKEN`].
    #[error("the token has more than {MAX_TOKEN} bytes")]
    TooLong,
    /// No JWT with a signature, or one with a malformed part.
    #[error("the token is no signed JWT")]
    Malformed,
    /// The `crit` header names extensions that must be understood, and none are (RFC 7515 §4.1.11).
    #[error("the token requires extensions (`crit`), and none are supported")]
    Critical,
    /// Signed with an algorithm that is not allowed.
    #[error("the token's algorithm is not in `algorithms`")]
    Algorithm,
    /// No keys have been fetched yet.
    #[error("the keys have not been fetched")]
    NoKeys,
    /// No key has the token's `kid` and fits its algorithm.
    #[error("no key fits the token's `kid` and algorithm")]
    UnknownKey,
    /// Forged or corrupted.
    #[error("the token's signature is wrong")]
    Signature,
    /// Another issuer (`iss`).
    #[error("the token is from another issuer")]
    Issuer,
    /// Another audience (`aud`).
    #[error("the token is for another audience")]
    Audience,
    /// After its `exp`.
    #[error("the token has expired")]
    Expired,
    /// Before its `nbf`.
    #[error("the token is not valid yet")]
    NotYet,
}

impl TokenError {
    pub(super) fn of(error: &ErrorKind) -> Self {
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
