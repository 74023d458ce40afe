//! The token of one request.

use std::cell::OnceCell;

use http::header::HeaderName;

use super::cache::Verification;
use super::claims::Claims;
use super::error::TokenError;
use super::verifier::Verifier;
use crate::http1::Fields;

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
