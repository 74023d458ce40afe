//! TLS to clients: which certificate they see, and whether they must show one.

use std::collections::HashMap;
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

use super::certificate::Facts;
use super::{TlsError, Transport};
use crate::time::Timestamp;

/// Sessions of TLS 1.2 that can be resumed by clients that take no tickets.
const SESSIONS: usize = 16 * 1024;

/// A server's certificate with its key.
#[derive(Clone, Debug)]
pub struct Identity {
    key: Arc<CertifiedKey>,
    facts: Arc<Facts>,
    print: blake3::Hash,
}

/// What a configuration says of a listener's TLS.
#[derive(Debug)]
pub struct ServerTlsSpec {
    /// Certificates, of which the client's name for us chooses; at least one. The first is shown where none fits.
    pub identities: Vec<Identity>,
    /// Who may have signed the certificate that a client must show; without any it need not show one.
    pub client_authorities: Option<Vec<CertificateDer<'static>>>,
    /// The protocols that we offer (ALPN), the best first.
    pub protocols: Vec<Vec<u8>>,
}

/// How connections of clients are encrypted. Clones are one and the same: what one adopts all have.
#[derive(Clone)]
pub struct ServerTls(Arc<ArcSwap<Settings>>);

struct Settings {
    config: Arc<ServerConfig>,
    /// Stands for all that the settings were made from.
    print: blake3::Hash,
    /// Stands for whom they trust.
    trust: blake3::Hash,
    asks_for_certificate: bool,
}

impl Identity {
    /// A certificate, those that lead to its authority behind it, and its key.
    ///
    /// # Errors
    /// A certificate and a key that are no pair, or can't be used.
    pub fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Self, TlsError> {
        let facts = chain.first().and_then(Facts::of);
        let facts = facts.ok_or_else(|| TlsError::Identity("what is there is no certificate".to_owned()))?;
        let print = print(chain.iter().map(|one| &**one).chain([key.secret_der()]));
        let key = certified(chain, key)?;
        Ok(Self { key: Arc::new(key), facts: Arc::new(facts), print })
    }

    /// The names for which the certificate holds, in lower case; a wildcard as it stands there.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.facts.names
    }

    /// The first instant at which the certificate holds.
    #[must_use]
    pub fn begins(&self) -> Timestamp {
        self.facts.begins
    }

    /// The last instant at which the certificate holds.
    #[must_use]
    pub fn expires(&self) -> Timestamp {
        self.facts.expires
    }
}

impl ServerTls {
    /// TLS as the specification says.
    ///
    /// # Errors
    /// Certificates of authorities that are none.
    pub fn new(spec: ServerTlsSpec) -> Result<Self, TlsError> {
        let authorities = spec.client_authorities.as_deref();
        let trust = print(authorities.unwrap_or_default().iter().map(|one| &**one));
        let identities = spec.identities.iter().map(|identity| &identity.print.as_bytes()[..]);
        let protocols = spec.protocols.iter().map(|protocol| &**protocol);
        let print = print(identities.chain([&trust.as_bytes()[..]]).chain(protocols));
        let asks_for_certificate = authorities.is_some();
        let settings = Settings { config: Arc::new(config(spec)?), print, trust, asks_for_certificate };
        Ok(Self(Arc::new(ArcSwap::from_pointee(settings))))
    }

    /// Takes over all that `newer` has, for the connections from now on; those that are open stay as they are. Sessions
    /// can be resumed as before, unless who is trusted has changed.
    pub fn adopt(&self, newer: &Self) {
        let (old, new) = (self.0.load_full(), newer.0.load_full());
        let mut config = ServerConfig::clone(&new.config);
        if old.trust == new.trust {
            // Whoever resumes a session is not asked for a certificate again.
            config.ticketer = Arc::clone(&old.config.ticketer);
            config.session_storage = Arc::clone(&old.config.session_storage);
        }
        self.0.store(Arc::new(Settings { config: Arc::new(config), ..*new }));
    }

    /// Whether a client must show a certificate.
    #[must_use]
    pub fn asks_for_certificate(&self) -> bool {
        self.0.load().asks_for_certificate
    }

    /// Speaks TLS with a client that has connected.
    ///
    /// # Errors
    /// Something else than TLS, a client that does not trust us or that we don't, and a connection that breaks.
    pub async fn accept(&self, stream: TcpStream) -> io::Result<Transport> {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.0.load().config));
        let stream = acceptor.accept(stream).await?;
        Ok(Transport::Tls(Box::new(stream.into())))
    }
}

/// Two are equal that were made from the same.
impl PartialEq for ServerTls {
    fn eq(&self, other: &Self) -> bool {
        self.0.load().print == other.0.load().print
    }
}

impl Eq for ServerTls {}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ServerTls")
    }
}

/// A certificate with its key, if it is its own.
fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, TlsError> {
    let key = default_provider().key_provider.load_private_key(key).map_err(|_| {
        TlsError::Identity("the key is none of RSA with at least 2048 bits, ECDSA or Ed25519".to_owned())
    })?;
    let is_pair = |chain: Vec<_>| match CertifiedKey::new(chain, Arc::clone(&key)).keys_match() {
        // A key that can't say what belongs to it is believed, as rustls does.
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(()),
        ended => ended,
    };
    match is_pair(chain.clone()) {
        Ok(()) => Ok(CertifiedKey::new(chain, key)),
        Err(_) if chain.iter().skip(1).any(|one| is_pair(vec![one.clone()]).is_ok()) => {
            let what = "the key belongs to a later certificate of the file: put that one first";
            Err(TlsError::Identity(what.to_owned()))
        }
        Err(error) => Err(TlsError::of_identity(&error)),
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
    let mut config = config.with_cert_resolver(Arc::new(ByName::new(&spec.identities)));
    config.alpn_protocols = spec.protocols;
    config.ticketer = Ticketer::new().map_err(|error| setup(&error))?;
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
    // A browser opens few connections at once: each of them brings a ticket for the next.
    config.send_tls13_tickets = 1;
    Ok(config)
}

/// Chooses a certificate by the name that the client asks for (SNI): one that has the name itself before one with a
/// wildcard, which stands for a whole label, the first (RFC 6125 §6.4.3).
#[derive(Debug)]
struct ByName {
    all: Vec<Arc<CertifiedKey>>,
    exact: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// By what follows the wildcard and its dot.
    wild: HashMap<String, Vec<Arc<CertifiedKey>>>,
}

impl ByName {
    fn new(identities: &[Identity]) -> Self {
        let (mut exact, mut wild) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        for identity in identities {
            for name in identity.names() {
                let (names, name) = match name.strip_prefix("*.") {
                    Some(rest) => (&mut wild, rest),
                    None => (&mut exact, name.as_str()),
                };
                names.entry(name.to_owned()).or_default().push(Arc::clone(&identity.key));
            }
        }
        Self { all: identities.iter().map(|identity| Arc::clone(&identity.key)).collect(), exact, wild }
    }

    fn named(&self, name: &str) -> Option<&Vec<Arc<CertifiedKey>>> {
        self.exact.get(name).or_else(|| self.wild.get(name.split_once('.')?.1))
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        // rustls hands the name on in lower case.
        let fitting = hello.server_name().and_then(|name| self.named(name)).unwrap_or(&self.all);
        // Of several for one name the first whose signatures the client understands: RSA beside ECDSA.
        let is_understood =
            |one: &&Arc<CertifiedKey>| one.key.choose_scheme(hello.signature_schemes()).is_some();
        fitting.iter().find(is_understood).cloned()
    }
}

/// One hash for several things, none of which runs into the next.
fn print<'a>(things: impl Iterator<Item = &'a [u8]>) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for thing in things {
        hasher.update(&(thing.len() as u64).to_le_bytes()).update(thing);
    }
    hasher.finalize()
}
