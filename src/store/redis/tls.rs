//! TLS to a Redis: whom we trust, and who we say that we are.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// How connections to a Redis are encrypted.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ClientConfig>,
}

/// What a configuration says of it; nothing means what is usual.
#[derive(Debug, Default)]
pub struct TlsSpec {
    /// Who may have signed the server's certificate; none means whom the system trusts.
    pub authorities: Option<Vec<CertificateDer<'static>>>,
    /// The certificate that we show, those that lead to its authority behind it, and its key.
    pub identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    /// The name that the server's certificate must have; none means the host of each server.
    pub server_name: Option<ServerName<'static>>,
}

/// Why TLS can't be set up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// A certificate of an authority that is none.
    #[error("the certificate of the authority can't be used: {0}")]
    Authority(String),
    /// A certificate and a key that are no pair, or can't be used.
    #[error("the certificate and its key can't be used: {0}")]
    Identity(String),
    /// Anything else.
    #[error("TLS can't be set up: {0}")]
    Setup(String),
}

impl Tls {
    /// TLS that trusts what the system trusts.
    ///
    /// # Errors
    /// When there is nothing to trust.
    pub fn of_the_system() -> Result<Self, TlsError> {
        Self::new(TlsSpec::default())
    }

    /// TLS as the specification says.
    ///
    /// # Errors
    /// Certificates and keys that can't be used.
    pub fn new(spec: TlsSpec) -> Result<Self, TlsError> {
        let setup = |error: &dyn std::fmt::Display| TlsError::Setup(error.to_string());
        let provider = Arc::new(aws_lc_rs::default_provider());
        let roots = Arc::new(roots(spec.authorities)?);
        let trust = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
        let mut trust: Arc<dyn ServerCertVerifier> = trust.map_err(|error| setup(&error))?;
        if let Some(name) = spec.server_name {
            trust = Arc::new(Named { name, trust });
        }
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| setup(&error))?;
        let config = config.dangerous().with_custom_certificate_verifier(trust);
        let config = match spec.identity {
            None => config.with_no_client_auth(),
            Some((certificates, key)) => config
                .with_client_auth_cert(certificates, key)
                .map_err(|error| TlsError::Identity(error.to_string()))?,
        };
        Ok(Self { config: Arc::new(config) })
    }

    /// What connections are made with.
    pub(super) fn connector(&self) -> tokio_rustls::TlsConnector {
        Arc::clone(&self.config).into()
    }
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

/// Those that may have signed; where none are given those of the system, or, where it has none, as in an empty
/// container, those of Mozilla.
fn roots(authorities: Option<Vec<CertificateDer<'static>>>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    if let Some(authorities) = authorities {
        for authority in authorities {
            roots.add(authority).map_err(|error| TlsError::Authority(error.to_string()))?;
        }
        return Ok(roots);
    }
    // One bad certificate among the system's is no reason not to use the others.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    Ok(roots)
}

/// Trusts as `trust` does, but for a name of our own: what Sentinel and a cluster tell of their servers are
/// addresses, for which certificates are seldom made.
#[derive(Debug)]
struct Named {
    name: ServerName<'static>,
    trust: Arc<dyn ServerCertVerifier>,
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.trust.verify_server_cert(end_entity, intermediates, &self.name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.trust.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.trust.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.trust.supported_verify_schemes()
    }
}
