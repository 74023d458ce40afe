//! TLS on the connections of clients: server certificates by name (SNI), and client certificates.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
use rustls::pki_types::CertificateDer;
use rustls::server::{NoClientAuth, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::certificate::CertificateInfo;
use super::client::certificate_error;
use super::identity::{Identity, fingerprint};
use super::resolver::{CertificateResolver, Validations};
use super::{TlsError, Transport};
use crate::boxed::rare;
use crate::time::Timestamp;

/// TLS 1.2 sessions that are kept for clients without support for tickets.
const SESSIONS: usize = 16 * 1024;

/// The settings that [`ServerTls`] is made from.
#[derive(Debug)]
pub struct ServerTlsSpec {
    /// The certificates. One is selected by the name that the client sends (SNI); the first is the default. Empty only if
    /// there are [managed](ServerTls::manage) ones.
    pub identities: Vec<Identity>,
    /// The authorities that may have signed client certificates; if none, client certificates are not required.
    pub client_authorities: Option<Vec<CertificateDer<'static>>>,
    /// The protocols to accept (ALPN), the preferred one first.
    pub protocols: Vec<Vec<u8>>,
}

/// The TLS settings of a listener. Clones share them, so that [`ServerTls::adopt`] changes those of all.
#[derive(Clone)]
pub struct ServerTls(Arc<ArcSwap<ServerSettings>>);

#[derive(Clone)]
struct ServerSettings {
    config: Arc<ServerConfig>,
    /// While an ACME server is expected to validate names.
    validations: Option<Validations>,
    /// The certificates of the configuration.
    identities: Arc<[Identity]>,
    /// The names whose certificates are obtained from an ACME server.
    managed_names: Arc<[String]>,
    /// A hash of all that the settings were made from.
    fingerprint: blake3::Hash,
    /// A hash of the trusted client authorities.
    trust_fingerprint: blake3::Hash,
    requires_client_certificate: bool,
    certificates: Vec<Arc<CertificateInfo>>,
}

impl ServerTls {
    /// TLS with these settings. Fails when the certificate of an authority can't be used.
    pub fn new(spec: ServerTlsSpec) -> Result<Self, TlsError> {
        let authorities = spec.client_authorities.as_deref();
        let trust_fingerprint = fingerprint(authorities.unwrap_or_default().iter().map(|one| &**one));
        let identities: Arc<[Identity]> = spec.identities.clone().into();
        let hashes = identities.iter().map(|identity| &identity.fingerprint.as_bytes()[..]);
        let protocols = spec.protocols.iter().map(|protocol| &**protocol);
        let fingerprint = fingerprint(hashes.chain([&trust_fingerprint.as_bytes()[..]]).chain(protocols));
        let requires_client_certificate = authorities.is_some();
        let certificates = infos(&identities);
        let config = Arc::new(config(spec)?);
        Ok(Self(Arc::new(ArcSwap::from_pointee(ServerSettings {
            config,
            validations: None,
            identities,
            managed_names: Arc::default(),
            fingerprint,
            trust_fingerprint,
            requires_client_certificate,
            certificates,
        }))))
    }

    /// Has the certificates of these names managed: they are not part of the settings, but [installed](Self::install). Until
    /// then the handshakes for such a name fail, unless another certificate has it.
    pub fn manage(&self, names: Vec<String>) {
        let old = self.0.load_full();
        let parts = [&old.fingerprint.as_bytes()[..]].into_iter().chain(names.iter().map(String::as_bytes));
        let (fingerprint, managed_names) = (fingerprint(parts), Arc::from(names));
        self.0.store(Arc::new(ServerSettings { managed_names, fingerprint, ..ServerSettings::clone(&old) }));
        self.show(&[]);
    }

    /// The names whose certificates are managed.
    #[must_use]
    pub fn managed_names(&self) -> Arc<[String]> {
        Arc::clone(&self.0.load().managed_names)
    }

    /// Whether a certificate of the configuration is for this name, which may be a wildcard.
    #[must_use]
    pub fn has_certificate_for(&self, name: &str) -> bool {
        let is_for = |own: &str| {
            own == name
                || own
                    .strip_prefix("*.")
                    .is_some_and(|own| name.split_once('.').is_some_and(|(_, rest)| own == rest))
        };
        self.0.load().identities.iter().flat_map(Identity::names).any(|own| is_for(own))
    }

    /// Uses those of these certificates that have managed names for new connections, in place of the managed ones so far.
    /// `validations` are certificates for an ACME server that validates names (TLS-ALPN-01). Changes nothing if TLS can't be set
    /// up for validations.
    pub fn install(&self, managed: &[Identity], validations: &[Identity]) -> Result<(), TlsError> {
        let names = self.managed_names();
        let is_own = |identity: &&Identity| identity.names().iter().any(|name| names.contains(name));
        let own: Vec<Identity> = managed.iter().filter(is_own).cloned().collect();
        let validations = if names.is_empty() { None } else { Validations::new(validations)? };
        self.0.rcu(|old| ServerSettings { validations: validations.clone(), ..ServerSettings::clone(old) });
        self.show(&own);
        Ok(())
    }

    /// Shows these managed certificates to new connections, after those of the configuration.
    fn show(&self, managed: &[Identity]) {
        self.0.rcu(|old| {
            let identities: Vec<Identity> = old.identities.iter().chain(managed).cloned().collect();
            let mut config = ServerConfig::clone(&old.config);
            config.cert_resolver = Arc::new(CertificateResolver::new(&identities, &old.managed_names));
            let certificates = infos(&identities);
            ServerSettings { config: Arc::new(config), certificates, ..ServerSettings::clone(old) }
        });
    }

    /// Replaces the settings by those of `newer` for new connections. Clients can still resume their sessions, unless the
    /// trusted client authorities have changed.
    pub fn adopt(&self, newer: &Self) {
        let (old, new) = (self.0.load_full(), newer.0.load_full());
        let mut config = ServerConfig::clone(&new.config);
        if old.trust_fingerprint == new.trust_fingerprint {
            // A resumed session skips the verification of the client certificate, so it may only be kept if the trusted
            // authorities are the same.
            config.ticketer = Arc::clone(&old.config.ticketer);
            config.session_storage = Arc::clone(&old.config.session_storage);
        }
        self.0.store(Arc::new(ServerSettings { config: Arc::new(config), ..ServerSettings::clone(&new) }));
    }

    /// Whether a client has to send a certificate.
    #[must_use]
    pub fn requires_client_certificate(&self) -> bool {
        self.0.load().requires_client_certificate
    }

    /// The first DNS name of the default certificate, by which a client on this machine can verify it.
    #[must_use]
    pub fn default_name(&self) -> Option<String> {
        self.0.load().certificates.first()?.names.first().cloned()
    }

    /// The certificates, the default one first.
    #[must_use]
    pub fn certificates(&self) -> Vec<Arc<CertificateInfo>> {
        self.0.load().certificates.clone()
    }

    /// The certificates by their first names, and when the first of each name expires.
    #[must_use]
    pub fn expiries(&self) -> Vec<(Box<str>, Timestamp)> {
        let mut expiries = BTreeMap::<Box<str>, Timestamp>::new();
        for info in &self.0.load().certificates {
            let name = info.names.first().map_or("", |name| name);
            let first = expiries.entry(name.into()).or_insert(info.not_after);
            *first = info.not_after.min(*first);
        }
        expiries.into_iter().collect()
    }

    /// Does the TLS handshake with a client. Fails when the client sends something else than TLS, when either side does not trust
    /// the other, and when the connection fails.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<Transport> {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.0.load().config));
        let stream = acceptor.accept(stream).await?;
        Ok(Transport::Tls(Box::new(stream.into())))
    }

    /// Accepts a connection like `accept`, or the handshake with an ACME server that validates a name: then there is no
    /// connection to serve.
    pub async fn accept_or_validate(&self, stream: TcpStream) -> io::Result<Option<Transport>> {
        let settings = self.0.load_full();
        match &settings.validations {
            None => self.accept(stream).await.map(Some),
            // Rare, so it must not enlarge the future of every handshake.
            Some(validations) => rare(validations.clone().accept(stream, Arc::clone(&settings.config))).await,
        }
    }
}

fn infos(identities: &[Identity]) -> Vec<Arc<CertificateInfo>> {
    identities.iter().map(|identity| Arc::clone(&identity.info)).collect()
}

/// Settings are equal if they were made from the same specification.
impl PartialEq for ServerTls {
    fn eq(&self, other: &Self) -> bool {
        self.0.load().fingerprint == other.0.load().fingerprint
    }
}

impl Eq for ServerTls {}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerTls")
    }
}

fn config(spec: ServerTlsSpec) -> Result<ServerConfig, TlsError> {
    let setup = |error: &dyn std::fmt::Display| TlsError::Setup(error.to_string());
    let provider = Arc::new(default_provider());
    let clients = match spec.client_authorities {
        None => Arc::new(NoClientAuth),
        Some(authorities) => {
            let mut roots = RootCertStore::empty();
            for authority in authorities {
                roots.add(authority).map_err(|error| TlsError::Authority(certificate_error(&error)))?;
            }
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .build()
                .map_err(|error| setup(&error))?
        }
    };
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| setup(&error))?.with_client_cert_verifier(clients);
    let mut config = config.with_cert_resolver(Arc::new(CertificateResolver::new(&spec.identities, &[])));
    config.alpn_protocols = spec.protocols;
    config.ticketer = Ticketer::new().map_err(|error| setup(&error))?;
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
    // One is enough: each connection brings a ticket for the next.
    config.send_tls13_tickets = 1;
    Ok(config)
}

#[cfg(all(test, feature = "fips"))]
mod tests {
    use super::*;

    #[test]
    fn tls_is_that_of_the_fips_module() {
        assert!(aws_lc_rs::try_fips_mode().is_ok());
        let spec = ServerTlsSpec { identities: Vec::new(), client_authorities: None, protocols: Vec::new() };
        assert!(config(spec).unwrap().fips());
    }
}
