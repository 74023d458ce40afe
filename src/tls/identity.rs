//! A server certificate with its key.

use std::sync::Arc;

use rustls::InconsistentKeys;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};

use super::TlsError;
use super::certificate::CertificateInfo;
use super::client::DAMAGED;
use crate::time::Timestamp;

/// A server certificate with its key.
#[derive(Clone, Debug)]
pub struct Identity {
    pub(super) key: Arc<CertifiedKey>,
    pub(super) info: Arc<CertificateInfo>,
    /// A hash of the certificate chain and the key.
    pub(super) fingerprint: blake3::Hash,
}

impl Identity {
    /// A certificate, followed by the chain to its authority, and its key. Fails when the certificate and the key do not match,
    /// or can't be used.
    pub fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Self, TlsError> {
        Self::with(chain, key, certified)
    }

    /// A certificate that answers a validation by TLS (RFC 8737), and its key.
    pub fn for_validation(
        certificate: CertificateDer<'static>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, TlsError> {
        // Whether they match is not checked, since webpki rejects the critical extension of such a certificate.
        Self::with(vec![certificate], key, |chain, key| Ok(CertifiedKey::new(chain, signing_key(key)?)))
    }

    fn with(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        certified: impl FnOnce(
            Vec<CertificateDer<'static>>,
            PrivateKeyDer<'static>,
        ) -> Result<CertifiedKey, TlsError>,
    ) -> Result<Self, TlsError> {
        let info = chain.first().and_then(CertificateInfo::parse);
        let info = info.ok_or_else(|| TlsError::Identity(DAMAGED.to_owned()))?;
        let fingerprint = fingerprint(chain.iter().map(|one| &**one).chain([key.secret_der()]));
        let key = certified(chain, key)?;
        Ok(Self { key: Arc::new(key), info: Arc::new(info), fingerprint })
    }

    /// The DNS names of the certificate in lower case, wildcards as `*.example.com`.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.info.names
    }

    /// The certificate itself, without its chain.
    #[must_use]
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.key.cert.first()
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

/// A certificate with its key, if they match.
fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, TlsError> {
    let key = signing_key(key)?;
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

fn signing_key(key: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, TlsError> {
    default_provider().key_provider.load_private_key(key).map_err(|_| {
        TlsError::Identity("the key is none of RSA with at least 2048 bits, ECDSA or Ed25519".to_owned())
    })
}

/// A hash over several parts, with their lengths, so that parts can't be shifted into each other.
pub(super) fn fingerprint<'a>(parts: impl Iterator<Item = &'a [u8]>) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
    }
    hasher.finalize()
}
