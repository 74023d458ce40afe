//! The state of certificates, for operators and for the next configuration.

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
