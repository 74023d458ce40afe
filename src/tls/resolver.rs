//! Selection of the certificate for a handshake with a client, or with an ACME server: validations are handshakes that prove the
//! control of a name (TLS-ALPN-01, RFC 8737).

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::server::{Acceptor, ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_rustls::LazyConfigAcceptor;

use super::identity::Identity;
use super::{TlsError, Transport};

/// The protocol that a validation offers (ALPN), and no other beside it.
const VALIDATION_PROTOCOL: &[u8] = b"acme-tls/1";

/// Selects a certificate by the name that the client sends (SNI): one with the exact name before one with a wildcard,
/// which matches the whole first label (RFC 6125 §6.4.3).
#[derive(Debug)]
pub(super) struct CertificateResolver {
    all: Vec<Arc<CertifiedKey>>,
    exact: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// By the name after `*.`.
    wildcard: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// Names whose certificates are yet to be obtained: their handshakes fail instead of showing that of another name.
    awaited: HashSet<String>,
}

impl CertificateResolver {
    /// A resolver for these certificates, of which the first is the default, and for the names of those that are managed.
    pub fn new(identities: &[Identity], managed_names: &[String]) -> Self {
        let (mut exact, mut wildcard) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        for identity in identities {
            for name in identity.names() {
                let (names, name) = match name.strip_prefix("*.") {
                    Some(rest) => (&mut wildcard, rest),
                    None => (&mut exact, name.as_str()),
                };
                names.entry(name.to_owned()).or_default().push(Arc::clone(&identity.key));
            }
        }
        let awaited = managed_names.iter().filter(|name| !exact.contains_key(*name)).cloned().collect();
        let all = identities.iter().map(|identity| Arc::clone(&identity.key)).collect();
        Self { all, exact, wildcard, awaited }
    }

    fn named(&self, name: &str) -> Option<&Vec<Arc<CertifiedKey>>> {
        self.exact.get(name).or_else(|| self.wildcard.get(name.split_once('.')?.1))
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // rustls returns the name in lower case.
        let name = hello.server_name();
        let matching = match name.and_then(|name| self.named(name)) {
            Some(matching) => matching,
            None if name.is_some_and(|name| self.awaited.contains(name)) => {
                tracing::debug!("TLS handshake for {}: its certificate is yet to be obtained", name?);
                return None;
            }
            None => &self.all,
        };
        // Of several for one name, such as RSA and ECDSA, the first whose signatures the client supports.
        let is_supported =
            |one: &&Arc<CertifiedKey>| one.key.choose_scheme(hello.signature_schemes()).is_some();
        matching.iter().find(is_supported).cloned()
    }
}

/// The settings for validations, while some are expected.
#[derive(Clone, Debug)]
pub(super) struct Validations(Arc<ServerConfig>);

/// The certificate of the validation of each name.
#[derive(Debug)]
struct ValidationResolver(HashMap<String, Arc<CertifiedKey>>);

impl Validations {
    /// Validations with these certificates; none if there are none.
    pub fn new(certificates: &[Identity]) -> Result<Option<Self>, TlsError> {
        let keys = |identity: &Identity| {
            let key = Arc::clone(&identity.key);
            identity.names().iter().map(move |name| (name.clone(), Arc::clone(&key))).collect::<Vec<_>>()
        };
        let resolver = ValidationResolver(certificates.iter().flat_map(keys).collect());
        if resolver.0.is_empty() {
            return Ok(None);
        }
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions();
        let config = config.map_err(|error| TlsError::Setup(error.to_string()))?;
        // An ACME server has no client certificate, also where clients need one.
        let mut config = config.with_no_client_auth().with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = vec![VALIDATION_PROTOCOL.to_vec()];
        Ok(Some(Self(Arc::new(config))))
    }

    /// Does the handshake with a client, or with an ACME server that validates a name: then there is no connection to serve.
    pub async fn accept(self, stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<Option<Transport>> {
        let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let is_validation = {
            let mut offered = start.client_hello().alpn().into_iter().flatten();
            offered.next() == Some(VALIDATION_PROTOCOL) && offered.next().is_none()
        };
        if is_validation {
            let mut stream = start.into_stream(self.0).await?;
            stream.shutdown().await?;
            return Ok(None);
        }
        let stream = start.into_stream(config).await?;
        Ok(Some(Transport::Tls(Box::new(stream.into()))))
    }
}

impl ResolvesServerCert for ValidationResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // rustls returns the name in lower case.
        self.0.get(hello.server_name()?).cloned()
    }
}
