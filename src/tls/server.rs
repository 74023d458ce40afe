//! TLS on the connections of clients: server certificates by name (SNI), and client certificates.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{
    ClientHello, NoClientAuth, ResolvesServerCert, ServerSessionMemoryCache, WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::certificate::CertificateInfo;
use super::{TlsError, Transport};
use crate::time::Timestamp;

/// TLS 1.2 sessions that are kept for clients without support for tickets.
const SESSIONS: usize = 16 * 1024;

/// A server certificate with its key.
#[derive(Clone, Debug)]
pub struct Identity {
    key: Arc<CertifiedKey>,
    info: Arc<CertificateInfo>,
    /// A hash of the certificate chain and the key.
    fingerprint: blake3::Hash,
}

/// The settings that [`ServerTls`] is made from.
#[derive(Debug)]
pub struct ServerTlsSpec {
    /// At least one certificate. It is selected by the name that the client sends (SNI); the first is the default.
    pub identities: Vec<Identity>,
    /// The authorities that may have signed client certificates; if none, client certificates are not required.
    pub client_authorities: Option<Vec<CertificateDer<'static>>>,
    /// The protocols to accept (ALPN), the preferred one first.
    pub protocols: Vec<Vec<u8>>,
}

/// The TLS settings of a listener. Clones share them, so that [`ServerTls::adopt`] changes those of all.
#[derive(Clone)]
pub struct ServerTls(Arc<ArcSwap<Settings>>);

struct Settings {
    config: Arc<ServerConfig>,
    /// A hash of all that the settings were made from.
    fingerprint: blake3::Hash,
    /// A hash of the trusted client authorities.
    trust_fingerprint: blake3::Hash,
    requires_client_certificate: bool,
    certificates: Vec<Arc<CertificateInfo>>,
}

impl Identity {
    /// A certificate, followed by the chain to its authority, and its key.
    ///
    /// # Errors
    /// When the certificate and the key do not match, or can't be used.
    pub fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Self, TlsError> {
        let info = chain.first().and_then(CertificateInfo::parse);
        let info = info.ok_or_else(|| TlsError::Identity("malformed certificate".to_owned()))?;
        let fingerprint = fingerprint(chain.iter().map(|one| &**one).chain([key.secret_der()]));
        let key = certified(chain, key)?;
        Ok(Self { key: Arc::new(key), info: Arc::new(info), fingerprint })
    }

    /// The DNS names of the certificate in lower case, wildcards as `*.example.com`.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.info.names
    }

    /// When the certificate starts to be valid.
    #[must_use]
    pub fn not_before(&self) -> Timestamp {
        self.info.not_before
    }

    /// When the certificate expires.
    #[must_use]
    pub fn not_after(&self) -> Timestamp {
        self.info.not_after
    }
}

impl ServerTls {
    /// TLS with these settings.
    ///
    /// # Errors
    /// When the certificate of an authority can't be used.
    pub fn new(spec: ServerTlsSpec) -> Result<Self, TlsError> {
        let authorities = spec.client_authorities.as_deref();
        let trust_fingerprint = fingerprint(authorities.unwrap_or_default().iter().map(|one| &**one));
        let identities = spec.identities.iter().map(|identity| &identity.fingerprint.as_bytes()[..]);
        let protocols = spec.protocols.iter().map(|protocol| &**protocol);
        let fingerprint = fingerprint(identities.chain([&trust_fingerprint.as_bytes()[..]]).chain(protocols));
        let requires_client_certificate = authorities.is_some();
        let certificates = spec.identities.iter().map(|identity| Arc::clone(&identity.info)).collect();
        let config = Arc::new(config(spec)?);
        let settings =
            Settings { config, fingerprint, trust_fingerprint, requires_client_certificate, certificates };
        Ok(Self(Arc::new(ArcSwap::from_pointee(settings))))
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
        self.0.store(Arc::new(Settings {
            config: Arc::new(config),
            certificates: new.certificates.clone(),
            ..*new
        }));
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

    /// Does the TLS handshake with a client.
    ///
    /// # Errors
    /// When the client sends something else than TLS, when either side does not trust the other, and when the connection
    /// fails.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<Transport> {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.0.load().config));
        let stream = acceptor.accept(stream).await?;
        Ok(Transport::Tls(Box::new(stream.into())))
    }
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

/// A certificate with its key, if they match.
fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, TlsError> {
    let key = default_provider().key_provider.load_private_key(key).map_err(|_| {
        TlsError::Identity("the key is none of RSA with at least 2048 bits, ECDSA or Ed25519".to_owned())
    })?;
    let is_pair = |chain: Vec<_>| match CertifiedKey::new(chain, Arc::clone(&key)).keys_match() {
        // rustls can't compare every kind of key; those are accepted as well.
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(()),
        result => result,
    };
    match is_pair(chain.clone()) {
        Ok(()) => Ok(CertifiedKey::new(chain, key)),
        Err(_) if chain.iter().skip(1).any(|one| is_pair(vec![one.clone()]).is_ok()) => {
            let hint = "the key belongs to a later certificate of the file: put that one first";
            Err(TlsError::Identity(hint.to_owned()))
        }
        Err(error) => Err(TlsError::from_identity(&error)),
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
                roots.add(authority).map_err(|error| TlsError::Authority(error.to_string()))?;
            }
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .build()
                .map_err(|error| setup(&error))?
        }
    };
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| setup(&error))?.with_client_cert_verifier(clients);
    let mut config = config.with_cert_resolver(Arc::new(CertificateResolver::new(&spec.identities)));
    config.alpn_protocols = spec.protocols;
    config.ticketer = Ticketer::new().map_err(|error| setup(&error))?;
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
    // One is enough: each connection brings a ticket for the next.
    config.send_tls13_tickets = 1;
    Ok(config)
}

/// Selects a certificate by the name that the client sends (SNI): one with the exact name before one with a wildcard,
/// which matches the whole first label (RFC 6125 §6.4.3).
#[derive(Debug)]
struct CertificateResolver {
    all: Vec<Arc<CertifiedKey>>,
    exact: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// By the name after `*.`.
    wildcard: HashMap<String, Vec<Arc<CertifiedKey>>>,
}

impl CertificateResolver {
    fn new(identities: &[Identity]) -> Self {
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
        Self { all: identities.iter().map(|identity| Arc::clone(&identity.key)).collect(), exact, wildcard }
    }

    fn named(&self, name: &str) -> Option<&Vec<Arc<CertifiedKey>>> {
        self.exact.get(name).or_else(|| self.wildcard.get(name.split_once('.')?.1))
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // rustls returns the name in lower case.
        let matching = hello.server_name().and_then(|name| self.named(name)).unwrap_or(&self.all);
        // Of several for one name, such as RSA and ECDSA, the first whose signatures the client supports.
        let is_supported =
            |one: &&Arc<CertifiedKey>| one.key.choose_scheme(hello.signature_schemes()).is_some();
        matching.iter().find(is_supported).cloned()
    }
}

/// A hash over several parts, with their lengths, so that parts can't be shifted into each other.
fn fingerprint<'a>(parts: impl Iterator<Item = &'a [u8]>) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    hasher.finalize()
}
