//! Selection of the certificate for a handshake.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use super::identity::Identity;

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
