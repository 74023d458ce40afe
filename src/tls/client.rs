//! TLS on connections to upstream servers and Redis: trusted authorities and the client certificate.

use std::io;
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, InconsistentKeys, RootCertStore, SignatureScheme,
};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Transport;
use super::certificate::CertificateInfo;
use super::fault::{HandshakeFault, VERSION_3};

const VERSION_1: &str = "the certificate has version 1 of X.509, and only version 3 is accepted";
pub(super) const DAMAGED: &str = "the certificate is damaged";

/// An error of a certificate of the configuration in words.
pub(super) fn certificate_error(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::BadEncoding) => DAMAGED.to_owned(),
        rustls::Error::InvalidCertificate(invalid)
            if HandshakeFault::of_certificate(invalid) == Some(HandshakeFault::VersionOne) =>
        {
            VERSION_1.to_owned()
        }
        _ => error.to_string(),
    }
}

/// The TLS settings of outgoing connections.
#[derive(Clone)]
pub struct ClientTls(Arc<ClientTlsInner>);

struct ClientTlsInner {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
    /// The client certificate, if there is one that can be parsed.
    certificate: Option<Arc<CertificateInfo>>,
}

/// The settings that [`ClientTls`] is made from. The default trusts the authorities of the system, and has no client certificate.
#[derive(Debug, Default)]
pub struct ClientTlsSpec {
    /// The authorities that may have signed the server's certificate; none means those that the system trusts.
    pub authorities: Option<Vec<CertificateDer<'static>>>,
    /// The client certificate, followed by the chain to its authority, and its key.
    pub identity: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
    /// The name that is sent as SNI and that the server's certificate must have; none means the host of each server.
    pub server_name: Option<ServerName<'static>>,
    /// The protocols to offer (ALPN), the preferred one first; if empty, the extension is not sent.
    pub protocols: Vec<Vec<u8>>,
}

/// Why TLS settings can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The certificate of an authority is unusable.
    #[error("the certificate of the authority can't be used: {0}")]
    Authority(String),
    /// A certificate and a key do not match, or are unusable.
    #[error("the certificate and its key can't be used: {0}")]
    Identity(String),
    /// Any other error.
    #[error("TLS can't be set up: {0}")]
    Setup(String),
}

impl TlsError {
    pub(super) fn from_identity(error: &rustls::Error) -> Self {
        Self::Identity(match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                "the key belongs to another certificate".to_owned()
            }
            error => certificate_error(error),
        })
    }

    /// What to change, if the error is a common one.
    #[must_use]
    pub fn help(&self) -> Option<&'static str> {
        match self {
            Self::Authority(text) | Self::Identity(text) if text == VERSION_1 => Some(VERSION_3),
            Self::Authority(text) | Self::Identity(text) if text == DAMAGED => Some("copy the file again"),
            _ => None,
        }
    }
}

impl ClientTls {
    /// TLS that trusts the authorities of the system. Fails when there are none.
    pub fn with_system_roots() -> Result<Self, TlsError> {
        Self::new(ClientTlsSpec::default())
    }

    /// TLS with these settings. Fails when a certificate or key can't be used.
    pub fn new(spec: ClientTlsSpec) -> Result<Self, TlsError> {
        let setup = |error: &dyn std::fmt::Display| TlsError::Setup(error.to_string());
        let provider = Arc::new(aws_lc_rs::default_provider());
        let roots = Arc::new(roots(spec.authorities)?);
        let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
        let mut verifier: Arc<dyn ServerCertVerifier> = verifier.map_err(|error| setup(&error))?;
        if let Some(name) = spec.server_name.clone() {
            verifier = Arc::new(FixedNameVerifier { name, verifier });
        }
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| setup(&error))?;
        let config = config.dangerous().with_custom_certificate_verifier(verifier);
        let certificate =
            spec.identity.as_ref().and_then(|(chain, _)| CertificateInfo::parse(chain.first()?));
        let mut config = match spec.identity {
            None => config.with_no_client_auth(),
            Some((certificates, key)) => config
                .with_client_auth_cert(certificates, key)
                .map_err(|error| TlsError::from_identity(&error))?,
        };
        config.alpn_protocols = spec.protocols;
        let (config, certificate) = (Arc::new(config), certificate.map(Arc::new));
        Ok(Self(Arc::new(ClientTlsInner { config, server_name: spec.server_name, certificate })))
    }

    /// The certificate that is shown to servers which request one.
    #[must_use]
    pub fn certificate(&self) -> Option<Arc<CertificateInfo>> {
        self.0.certificate.clone()
    }

    /// Does the TLS handshake over a connection to `host`, a name or an address. Fails when either side does not trust the other,
    /// and when the connection fails.
    pub async fn connect(&self, host: &str, stream: TcpStream) -> io::Result<Transport> {
        let name = match &self.0.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(io::Error::other)?,
        };
        let stream = self.connector().connect(name, stream).await?;
        Ok(Transport::Tls(Box::new(stream.into())))
    }

    /// The connector of tokio-rustls with these settings.
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

/// The trusted authorities: the given ones, or else those of the system, or, if it has none (as in an empty container),
/// those of Mozilla.
fn roots(authorities: Option<Vec<CertificateDer<'static>>>) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    if let Some(authorities) = authorities {
        for authority in authorities {
            roots.add(authority).map_err(|error| TlsError::Authority(certificate_error(&error)))?;
        }
        return Ok(roots);
    }
    // Certificates of the system that can't be parsed are skipped, so that the others can be used.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if roots.is_empty() {
        tracing::info!("the system has no trusted certificates: using those of Mozilla");
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    Ok(roots)
}

/// Verifies certificates for one name instead of the host of the connection: Redis Sentinel and Cluster report servers by
/// address, and certificates are seldom issued for addresses.
#[derive(Debug)]
struct FixedNameVerifier {
    name: ServerName<'static>,
    verifier: Arc<dyn ServerCertVerifier>,
}

impl ServerCertVerifier for FixedNameVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verifier.verify_server_cert(end_entity, intermediates, &self.name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
