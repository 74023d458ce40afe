//! Validations by an ACME server: handshakes that prove the control of a name (TLS-ALPN-01, RFC 8737).

use std::collections::HashMap;
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
const PROTOCOL: &[u8] = b"acme-tls/1";

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
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Some(Self(Arc::new(config))))
    }

    /// Does the handshake with a client, or with an ACME server that validates a name: then there is no connection to serve.
    pub async fn accept(self, stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<Option<Transport>> {
        let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let is_validation = {
            let mut offered = start.client_hello().alpn().into_iter().flatten();
            offered.next() == Some(PROTOCOL) && offered.next().is_none()
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
