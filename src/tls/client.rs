//! TLS to servers and to a Redis: whom we trust, and who we say that we are.

use std::io;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, InconsistentKeys, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Transport;

/// How connections that we make are encrypted.
#[derive(Clone)]
pub struct ClientTls(Arc<Inner>);

struct Inner {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
}

/// What a configuration says of them; nothing means what is usual.
#[derive(Debug, Default)]
pub struct ClientTlsSpec {
    /// Who may have signed the server's certificate; none means whom the system trusts.
    pub authorities: Option<Vec<CertificateDer<'static>>>,
    /// The certificate that we show, those that lead to its authority behind it, and its key.
    pub identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    /// The name that the server's certificate must have; none means the host of each server.
    pub server_name: Option<ServerName<'static>>,
    /// The protocols that we offer (ALPN), the best first; without any, none is spoken of.
    pub protocols: Vec<Vec<u8>>,
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

impl TlsError {
    pub(super) fn of_identity(error: &rustls::Error) -> Self {
        Self::Identity(match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                "the key belongs to another certificate".to_owned()
            }
            error => error.to_string(),
        })
    }
}

impl ClientTls {
    /// TLS that trusts what the system trusts.
    ///
    /// # Errors
    /// When there is nothing to trust.
    pub fn of_the_system() -> Result<Self, TlsError> {
        Self::new(ClientTlsSpec::default())
    }

    /// TLS as the specification says.
    ///
    /// # Errors
    /// Certificates and keys that can't be used.
    pub fn new(spec: ClientTlsSpec) -> Result<Self, TlsError> {
        let setup = |error: &dyn std::fmt::Display| TlsError::Setup(error.to_string());
        let provider = Arc::new(aws_lc_rs::default_provider());
        let roots = Arc::new(roots(spec.authorities)?);
        let trust = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
        let mut trust: Arc<dyn ServerCertVerifier> = trust.map_err(|error| setup(&error))?;
        if let Some(name) = spec.server_name.clone() {
            trust = Arc::new(Named { name, trust });
        }
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| setup(&error))?;
        let config = config.dangerous().with_custom_certificate_verifier(trust);
        let mut config = match spec.identity {
            None => config.with_no_client_auth(),
            Some((certificates, key)) => config
                .with_client_auth_cert(certificates, key)
                .map_err(|error| TlsError::of_identity(&error))?,
        };
        config.alpn_protocols = spec.protocols;
        Ok(Self(Arc::new(Inner { config: Arc::new(config), server_name: spec.server_name })))
    }

    /// Begins to speak TLS over a connection to `host`, a name or an address.
    ///
    /// # Errors
    /// A server that is not trusted, one that does not trust us, and a connection that breaks.
    pub async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<Transport> {
        let name = match &self.0.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(io::Error::other)?,
        };
        let stream = self.connector().connect(name, stream).await?;
        Ok(Transport::Tls(Box::new(stream.into())))
    }

    /// What makes connections.
    #[must_use]
    pub fn connector(&self) -> TlsConnector {
        Arc::clone(&self.0.config).into()
    }
}

impl std::fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientTls")
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
        tracing::info!("the system has no certificates: those of Mozilla are trusted");
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
