//! The state of certificates, for operators and for the next configuration, and why one could not be obtained.

use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

use crate::time::Timestamp;

/// The state of the certificate of a name.
#[derive(Clone, Debug)]
pub struct CertificateStatus {
    /// The name.
    pub name: String,
    /// When the certificate in use expires; none if there is none.
    pub not_after: Option<Timestamp>,
    /// The last attempt, if it has failed.
    pub failure: Option<RenewalFailure>,
    /// When it is obtained or renewed next.
    pub next_attempt: Timestamp,
    /// The ACME server has asked to make no attempt before this time.
    pub(super) server_wait_until: Option<Instant>,
}

/// An attempt to obtain a certificate that has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewalFailure {
    /// When it has failed.
    pub at: Timestamp,
    /// Why, with the text of the ACME server.
    pub error: String,
}

/// Why a certificate could not be obtained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObtainError {
    pub kind: ErrorKind,
    /// The message, with the text of the ACME server.
    pub message: String,
    /// How long the ACME server asks to wait.
    pub retry_after: Option<Duration>,
}

/// The kind of an error, on which the time of the next attempt depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorKind {
    /// The ACME server gave no answer, or files could not be written before it was asked for a certificate.
    Unavailable,
    /// The ACME server has refused, or its certificate could not be stored. Servers limit how often a validation may fail, and how
    /// many certificates a name gets.
    Rejected,
    /// The ACME server does not know the stored account, such as that of a test server that has started anew.
    UnknownAccount,
}

impl ObtainError {
    pub fn unavailable(message: impl fmt::Display) -> Self {
        Self { kind: ErrorKind::Unavailable, message: message.to_string(), retry_after: None }
    }

    pub fn rejected(message: impl fmt::Display) -> Self {
        Self { kind: ErrorKind::Rejected, message: message.to_string(), retry_after: None }
    }
}
