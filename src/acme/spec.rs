//! The settings of `[acme]`.

use std::fmt;
use std::path::PathBuf;

use rustls::pki_types::CertificateDer;
use url::Url;

/// From where and how certificates are obtained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeSpec {
    /// The URL of the directory of the ACME server.
    pub directory: Url,
    /// The authorities that may have signed the certificate of the ACME server; none means those that the system trusts.
    pub authorities: Option<Vec<CertificateDer<'static>>>,
    /// The address at which the ACME server may reach the operator.
    pub email: Option<String>,
    /// An account with the authority to which the ACME account belongs, if the server requires one.
    pub external_account: Option<ExternalAccount>,
    /// The directory for the account and the certificates.
    pub storage: PathBuf,
    /// How names are validated.
    pub challenge: ChallengeKind,
    /// The names to obtain certificates for, one each.
    pub names: Vec<String>,
}

/// How an ACME server validates that a name is under our control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeKind {
    /// A request to port 80 of the name.
    Http01,
    /// A TLS handshake with port 443 of the name.
    TlsAlpn01,
}

/// The binding to an account with the authority (EAB, RFC 8555 §7.3.4).
#[derive(Clone, PartialEq, Eq)]
pub struct ExternalAccount {
    /// The key identifier.
    pub key_id: String,
    /// The key for the MAC.
    pub key: Vec<u8>,
}

impl AcmeSpec {
    /// The ACME server without its path, for messages.
    #[must_use]
    pub fn server(&self) -> &str {
        self.directory.host_str().unwrap_or_default()
    }
}

impl ChallengeKind {
    /// Its name in the configuration, which is that of the protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Http01 => "http-01",
            Self::TlsAlpn01 => "tls-alpn-01",
        }
    }
}

impl fmt::Debug for ExternalAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExternalAccount({:?}, …)", self.key_id)
    }
}
