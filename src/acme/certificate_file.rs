//! A certificate in a file: the private key, followed by the certificate and its chain.

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::tls::Identity;

/// Reads the certificate of a name. The error does not show the key.
pub(super) fn parse(pem: &[u8], name: &str) -> Result<Identity, String> {
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| "it has no private key".to_owned())?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = chain.map_err(|error| error.to_string())?;
    if chain.is_empty() {
        return Err("it has no certificate".to_owned());
    }
    let identity = Identity::new(chain, key).map_err(|error| error.to_string())?;
    if identity.names().iter().any(|own| own == name) {
        Ok(identity)
    } else {
        Err(format!("its certificate is not for {name}"))
    }
}
