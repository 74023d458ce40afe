//! The answer to a challenge, while the ACME server validates a name.

use std::sync::Arc;

use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::pki_types::PrivateKeyDer;

use super::http_challenges::{self, HttpChallenges};
use super::shared::InstalledCertificates;
use super::status::ObtainError;
use super::storage::Lock;
use crate::tls::Identity;

/// The answer to a challenge, which this process gives until this is dropped.
#[derive(Debug)]
pub(super) struct Answer {
    shared: Arc<InstalledCertificates>,
    to: Question,
}

#[derive(Debug)]
enum Question {
    /// A request with this token.
    Http(String),
    /// A handshake for this name.
    Tls(String),
}

impl Answer {
    /// Answers requests with this token (HTTP-01), also those that other processes get: these read the answer from the storage.
    /// Fails if the token can't be the name of a file, or the file can't be written.
    pub async fn http(
        shared: &Arc<InstalledCertificates>,
        lock: &Lock,
        token: &str,
        authorization: &str,
    ) -> Result<Self, ObtainError> {
        // The token comes from the ACME server, and names a file.
        if !HttpChallenges::is_token(token) {
            return Err(ObtainError::rejected(format!("the ACME server sent an invalid token: {token:?}")));
        }
        let path = shared.storage.challenges().join(token);
        shared.http.insert(token, authorization);
        let answer = Self { shared: Arc::clone(shared), to: Question::Http(token.to_owned()) };
        let written = lock.write(path.clone(), authorization.into()).await;
        written
            .map_err(|error| ObtainError::unavailable(format!("can't write {}: {error}", path.display())))?;
        // Then every process that shares the storage has forgotten what it read before.
        tokio::time::sleep(http_challenges::LIFETIME).await;
        Ok(answer)
    }

    /// Answers handshakes for this name (TLS-ALPN-01) with a certificate that has the hash of the key authorization
    /// (RFC 8737 §3).
    pub fn tls(shared: &Arc<InstalledCertificates>, name: &str, hash: &[u8]) -> Result<Self, ObtainError> {
        let failed = |error: rcgen::Error| ObtainError::unavailable(error);
        let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(failed)?;
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(hash)];
        let key = KeyPair::generate().map_err(failed)?;
        let certificate = params.self_signed(&key).map_err(failed)?.der().clone();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let identity = Identity::for_validation(certificate, key).map_err(ObtainError::unavailable)?;
        shared.set_validation(name, identity);
        Ok(Self { shared: Arc::clone(shared), to: Question::Tls(name.to_owned()) })
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        match &self.to {
            // Its file is removed with the others, when the lock is taken or the validation has ended.
            Question::Http(token) => self.shared.http.remove(token),
            Question::Tls(name) => self.shared.remove_validation(name),
        }
    }
}
